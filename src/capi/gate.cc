// The gate by which other shared objects reach a worker, and the table of functions for them.
#include <algorithm>
#include <chrono>
#include <new>

#include "base/mutex.h"
#include "base/status.h"
#include "bytescheduler/c_api.h"
#include "capi/c_api_guard.h"

// NOLINTBEGIN(readability-identifier-naming): names as the header has them.
struct bs_gate {
  explicit bs_gate(bs_worker* of) : worker(of) {}
  bs::Mutex mutex;
  bs::CondVar changed;
  bs_worker* worker BS_GUARDED_BY(mutex);  // null: the gate is shut
  size_t pending BS_GUARDED_BY(mutex) = 0;
};

bs_gate* bs_gate_new(bs_worker* worker) { return new (std::nothrow) bs_gate(worker); }

int bs_gate_start(bs_gate* gate, const bs_operation* operation, bs_error* error) {
  // The start returns at once, so the lock keeps nothing waiting, and the worker stays meanwhile.
  const bs::MutexLock lock(&gate->mutex);
  if (gate->worker == nullptr) {
    return bs::capi::Return(bs::Status::Cancelled("this worker has left the job"), error);
  }
  ++gate->pending;
  const int code = bs_worker_start_operation(gate->worker, operation, error);
  if (code != 0) --gate->pending;
  return code;
}

void bs_gate_leave(bs_gate* gate) {
  const bs::MutexLock lock(&gate->mutex);
  if (--gate->pending == 0) gate->changed.NotifyAll();
}

void bs_gate_shut(bs_gate* gate) {
  const bs::MutexLock lock(&gate->mutex);
  gate->worker = nullptr;
}

size_t bs_gate_wait(bs_gate* gate, int timeout_ms) {
  const bs::MutexLock lock(&gate->mutex);
  const bs::Duration longest = std::chrono::milliseconds(std::max(timeout_ms, 0));
  // A wake-up without cause only shortens the wait of a caller that asks again.
  if (gate->pending > 0 && timeout_ms > 0) gate->changed.WaitFor(&gate->mutex, longest);
  return gate->pending;
}

void bs_gate_free(bs_gate* gate) { delete gate; }

const bs_table* bs_table_get() {
  static constexpr bs_table kTable = {BS_TABLE_VERSION, sizeof(bs_table), &bs_version,
                                      &bs_gate_start, &bs_gate_leave};
  return &kTable;
}
// NOLINTEND(readability-identifier-naming)
