// A shared object of a user, which links nothing of ours: it reaches the engine through the table.
#include "bytescheduler/c_api.h"

static const bs_table* table;
static bs_gate* gate;
static int callbacks;

static void Called(void* context, int code, const char* message) {
  bs_error* const error = (bs_error*)context;
  if (code != 0 && error->code == 0) {
    error->code = code;
    snprintf(error->message, sizeof(error->message), "%s", message);
  }
  if (__atomic_add_fetch(&callbacks, 1, __ATOMIC_SEQ_CST) % 2 == 0) table->gate_leave(gate);
}

int guest_connect(const bs_table* given, bs_gate* given_gate, bs_error* error) {
  const int code = bs_table_check(given, error);
  if (code != 0) return code;
  table = given;
  gate = given_gate;
  return 0;
}

int guest_push_pull(uint64_t key, const float* in, float* out, uint64_t size_bytes, bs_error* end,
                    bs_error* error) {
  bs_operation operation = bs_operation_init(BS_PUSH_PULL);
  operation.key = key;
  operation.in = in;
  operation.out = out;
  operation.size_bytes = size_bytes;
  operation.pushed = Called;
  operation.done = Called;
  operation.context = end;
  return table->gate_start(gate, &operation, error);
}

const char* guest_version(void) { return table->library_version(); }
