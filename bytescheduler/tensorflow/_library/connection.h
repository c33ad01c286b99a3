// The way from operations of TensorFlow to the engine, and the engine's errors for TensorFlow.
#ifndef BYTESCHEDULER_TENSORFLOW_CONNECTION_H_
#define BYTESCHEDULER_TENSORFLOW_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bytescheduler/c_api.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace bytescheduler::tf {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// An operation of TensorFlow that waits, and the callback that ends it.
struct Waiter {
  OpKernelContext* context = nullptr;
  AsyncOpKernel::DoneCallback done;  // empty: nothing waits

  // REQUIRES: it waits.
  void Interrupt() const {
    context->SetStatus(absl::CancelledError("interrupted while sums were under way"));
    done();
  }
};

// An operation that waits, or has ended for TensorFlow already.
class Waiting {
 public:
  virtual Waiter Take() = 0;

 protected:
  ~Waiting() = default;
};

// The way to the worker of this process, while it is in a job, and the operations that wait.
class Connection {
 public:
  static Connection& Get() {
    // Never freed: the engine may end operations while the process exits.
    static Connection& connection = *new Connection();
    return connection;
  }

  void Set(const bs_table* table, bs_gate* gate, int64_t job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    table_ = table;
    gate_ = gate;
    job_ = job;
  }

  // Starts an operation that was made in `job`; `gate` gets the gate that counts it.
  int Start(const bs_operation& operation, int64_t job, bs_gate** gate, bs_error* error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (gate_ == nullptr) {
      error->code = BS_CANCELLED;
      std::strcpy(error->message, "this worker is in no job: call init() before, shutdown() after");
      return error->code;
    }
    if (job != job_) {
      error->code = BS_FAILED_PRECONDITION;
      std::strcpy(error->message,
                  "this function was made in an earlier job: make it again by tf.function");
      return error->code;
    }
    *gate = gate_;
    return table_.load()->gate_start(gate_, &operation, error);
  }

  // REQUIRES: `Set` was called with a table, which is valid for ever.
  void Leave(bs_gate* gate) { table_.load()->gate_leave(gate); }

  void Add(Waiting* waiting) {
    const std::lock_guard<std::mutex> lock(waiting_mutex_);
    waiting_.insert(waiting);
  }

  // Returns the operation that waits; empty: `Interrupt` has ended it.
  Waiter Remove(Waiting* waiting) {
    const std::lock_guard<std::mutex> lock(waiting_mutex_);
    waiting_.erase(waiting);
    return waiting->Take();
  }

  // Ends all waits for TensorFlow.  The engine goes on, and their tensors live until it ends.
  void Interrupt() {
    std::vector<Waiter> waiters;
    {
      const std::lock_guard<std::mutex> lock(waiting_mutex_);
      for (Waiting* const waiting : waiting_) waiters.push_back(waiting->Take());
      waiting_.clear();
    }
    for (const Waiter& waiter : waiters) waiter.Interrupt();
  }

 private:
  std::mutex mutex_;  // no start is under way once `Set` has returned
  std::mutex waiting_mutex_;
  std::unordered_set<Waiting*> waiting_;
  std::atomic<const bs_table*> table_{nullptr};
  bs_gate* gate_ = nullptr;
  int64_t job_ = 0;
};

// Puts a tensor's name in each place of its key, as `key=7`, `key 7`.
inline std::string Named(std::string text, int64_t key, const std::string& name) {
  const std::string number = std::to_string(static_cast<uint64_t>(key));
  const std::string quoted = "'" + name + "'";
  bool is_named = false;
  size_t at = 0;
  while ((at = text.find(number, at)) != std::string::npos) {
    const size_t end = at + number.size();
    const std::string before = text.substr(at < 4 ? 0 : at - 4, at < 4 ? at : 4);
    const bool is_whole = end == text.size() || text[end] < '0' || text[end] > '9';
    if (is_whole && (before == "key=" || before == "key ")) {
      text.replace(at, number.size(), quoted);
      is_named = true;
      at += quoted.size();
    } else {
      at = end;
    }
  }
  return is_named ? text : quoted + ": " + text;
}

inline absl::StatusCode CodeOf(int code) {
  switch (code) {
    case BS_INVALID_ARGUMENT:
      return absl::StatusCode::kInvalidArgument;
    case BS_DEADLINE_EXCEEDED:
      return absl::StatusCode::kDeadlineExceeded;
    case BS_CANCELLED:
      return absl::StatusCode::kCancelled;
    case BS_UNAVAILABLE:
      return absl::StatusCode::kUnavailable;
    case BS_FAILED_PRECONDITION:
      return absl::StatusCode::kFailedPrecondition;
    case BS_NOT_FOUND:
      return absl::StatusCode::kNotFound;
    case BS_ALREADY_EXISTS:
      return absl::StatusCode::kAlreadyExists;
    case BS_PERMISSION_DENIED:
      return absl::StatusCode::kPermissionDenied;
    case BS_RESOURCE_EXHAUSTED:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Returns an error of the engine with a tensor's name in it.
inline absl::Status StatusOf(int code, const std::string& message, int64_t key,
                             const std::string& name) {
  return absl::Status(CodeOf(code), Named(message, key, name));
}

// Returns the push-pull of a mean over `workers`, or of the sum where that is 0.
inline bs_operation PushPullOf(int64_t workers, int64_t priority) {
  bs_operation operation = bs_operation_init(BS_PUSH_PULL);
  operation.priority = static_cast<int>(priority);
  operation.factor = workers == 0 ? 0 : 1.0 / static_cast<double>(workers);
  return operation;
}

}  // namespace bytescheduler::tf

#endif  // BYTESCHEDULER_TENSORFLOW_CONNECTION_H_
