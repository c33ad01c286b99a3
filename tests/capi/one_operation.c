// A program of a user: it includes the C API alone, and is compiled as C11 and as C++17.
#include "bytescheduler/c_api.h"

int main(void) {
  float gradient[4] = {1, 2, 3, 4};
  float sum[4] = {0, 0, 0, 0};
  bs_worker* worker = NULL;
  bs_error error;
  bs_operation operation = bs_operation_init(BS_PUSH_PULL);
  if (bs_worker_open(NULL, 0, -1, &worker, &error) != BS_OK) return error.code;
  operation.in = gradient;
  operation.out = sum;
  operation.size_bytes = sizeof(sum);
  operation.pushed = bs_waiter_pushed;
  operation.done = bs_waiter_done;
  operation.context = bs_waiter_new(2);
  return bs_worker_start_operation(worker, &operation, &error);
}
