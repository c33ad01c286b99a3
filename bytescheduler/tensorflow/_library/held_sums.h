// Sums that one operation begins, and a later one waits for: a step's sums, and the next step.
#ifndef BYTESCHEDULER_TENSORFLOW_HELD_SUMS_H_
#define BYTESCHEDULER_TENSORFLOW_HELD_SUMS_H_

#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bytescheduler/c_api.h"
#include "connection.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace bytescheduler::tf {

class Held;

// The sums that BsStart has begun, by their keys.
class HeldSums {
 public:
  static HeldSums& Get() {
    // Never freed, as the connection.
    static HeldSums& sums = *new HeldSums();
    return sums;
  }

  // Keeps a sum for `Await`; false: there is one of its key, which was not awaited.
  bool Keep(const std::shared_ptr<Held>& held);

  // Forgets a sum that did not start.
  void Drop(const Held& held);

  // Returns the sum of a key if it is over.  Else `waiter` waits for it and becomes empty; if that
  // is not empty, there is no such sum, or `status` says that another operation waits for it.
  std::shared_ptr<Held> Await(int64_t key, Waiter* waiter, absl::Status* status);

  // Notes that a sum is over; returns the operation that waits for it, if any.
  Waiter EndOf(const Held& held);

  // Ends all waits for TensorFlow.  The sums stay, for later waits.
  void Interrupt();

  // Forgets sums of a job that is over, but for those that an operation waits for.
  void Forget();

  size_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return held_.size();
  }

 private:
  std::mutex mutex_;  // also guards the waiters and ends of the sums
  std::unordered_map<int64_t, std::shared_ptr<Held>> held_;
};

// A sum that BsStart has begun, until BsAwait takes it.
class Held {
 public:
  Held(int64_t key, std::string name, Tensor in, Tensor out)
      : key_(key), name_(std::move(name)), in_(std::move(in)), out_(std::move(out)) {}

  // Starts the sum; `self` lives until it is over.  REQUIRES: `HeldSums::Keep` has it.
  static absl::Status Start(const std::shared_ptr<Held>& self, bs_operation operation,
                            int64_t job) {
    operation.key = static_cast<uint64_t>(self->key_);
    operation.in = self->in_.tensor_data().data();
    operation.out = const_cast<char*>(self->out_.tensor_data().data());
    operation.size_bytes = self->out_.TotalBytes();
    operation.pushed = &Held::Called;
    operation.done = &Held::Called;
    operation.context = self.get();
    self->engines_ = self;
    bs_error error;
    if (Connection::Get().Start(operation, job, &self->gate_, &error) == 0) {
      self->Count();
      return absl::OkStatus();
    }
    HeldSums::Get().Drop(*self);
    self->engines_ = nullptr;
    return StatusOf(error.code, error.message, self->key_, self->name_);
  }

  // Ends the wait for the sum.  REQUIRES: it is over.
  void Give(Waiter waiter) const {
    if (status_.ok()) {
      waiter.context->set_output(0, out_);
      SetFlag(waiter.context, true);
    } else {
      waiter.context->SetStatus(status_);
    }
    waiter.done();
  }

  // Says whether there was a sum, by the second output of BsAwait.
  static void SetFlag(OpKernelContext* context, bool is_there) {
    Tensor* flag = nullptr;
    const absl::Status status = context->allocate_output(1, {}, &flag);
    if (!status.ok()) return context->SetStatus(status);
    flag->scalar<bool>()() = is_there;
  }

 private:
  friend class HeldSums;

  static void Called(void* context, int code, const char* message) {
    Held& self = *static_cast<Held*>(context);
    if (code != 0) {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      if (self.status_.ok()) self.status_ = StatusOf(code, message, self.key_, self.name_);
    }
    self.Count();
  }

  void Count() {
    if (--left_ > 0) return;
    const std::shared_ptr<Held> kept = std::move(engines_);
    bs_gate* const gate = gate_;
    in_ = Tensor();
    Waiter waiter = HeldSums::Get().EndOf(*this);
    if (waiter.done != nullptr) Give(std::move(waiter));
    Connection::Get().Leave(gate);
  }

  const int64_t key_;
  const std::string name_;
  Tensor in_;
  const Tensor out_;
  bs_gate* gate_ = nullptr;
  std::shared_ptr<Held> engines_;  // the share of the engine's callbacks
  std::atomic<int> left_{3};       // both callbacks, and the start
  std::mutex mutex_;
  absl::Status status_;
  // These two belong to `HeldSums`, under its lock.
  bool is_over_ = false;
  Waiter waiter_;
};

inline bool HeldSums::Keep(const std::shared_ptr<Held>& held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_.emplace(held->key_, held).second;
}

inline void HeldSums::Drop(const Held& held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_.erase(held.key_);
}

inline std::shared_ptr<Held> HeldSums::Await(int64_t key, Waiter* waiter, absl::Status* status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = held_.find(key);
  if (found == held_.end()) return nullptr;
  const std::shared_ptr<Held> held = found->second;
  if (held->waiter_.done != nullptr) {
    *status = absl::FailedPreconditionError(
        "'" + held->name_ +
        "': another thread waits for its sum; call methods of the model from one thread");
    return nullptr;
  }
  if (held->is_over_) {
    held_.erase(found);
    return held;
  }
  held->waiter_ = std::exchange(*waiter, Waiter());
  return nullptr;
}

inline Waiter HeldSums::EndOf(const Held& held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = held_.find(held.key_);
  if (found == held_.end() || found->second.get() != &held) return Waiter();  // `Forget` came first
  const std::shared_ptr<Held> kept = found->second;
  kept->is_over_ = true;
  if (kept->waiter_.done != nullptr) held_.erase(found);
  return std::exchange(kept->waiter_, Waiter());
}

inline void HeldSums::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto each = held_.begin(); each != held_.end();) {
    each = each->second->waiter_.done == nullptr ? held_.erase(each) : std::next(each);
  }
}

inline void HeldSums::Interrupt() {
  std::vector<Waiter> waiters;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& each : held_) {
      Waiter waiter = std::exchange(each.second->waiter_, Waiter());
      if (waiter.done != nullptr) waiters.push_back(std::move(waiter));
    }
  }
  for (const Waiter& waiter : waiters) waiter.Interrupt();
}

// Begins a push-pull, and ends at once.
class Start final : public tensorflow::OpKernel {
 public:
  explicit Start(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("key", &key_));
    OP_REQUIRES_OK(construction, construction->GetAttr("label", &name_));
    OP_REQUIRES_OK(construction, construction->GetAttr("job", &job_));
    OP_REQUIRES_OK(construction, construction->GetAttr("workers", &workers_));
    OP_REQUIRES_OK(construction, construction->GetAttr("priority", &priority_));
  }

  // The push-pull in operations.cc says why.
  bool IsExpensive() override { return false; }

  void Compute(OpKernelContext* context) override {
    const Tensor& in = context->input(0);
    if (in.TotalBytes() == 0) return;
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    Tensor out;
    OP_REQUIRES_OK(context, context->allocate_temp(in.dtype(), in.shape(), &out, on_host));
    const auto held = std::make_shared<Held>(key_, name_, in, std::move(out));
    OP_REQUIRES(context, HeldSums::Get().Keep(held),
                absl::FailedPreconditionError("'" + name_ + "': its earlier sum was not awaited"));
    OP_REQUIRES_OK(context, Held::Start(held, PushPullOf(workers_, priority_), job_));
  }

 private:
  int64_t key_ = 0;
  std::string name_;
  int64_t job_ = 0;
  int64_t workers_ = 0;
  int64_t priority_ = 0;
};

// Waits for the sum that BsStart has begun.  If there is none, it ends at once, with any numbers.
class Await final : public AsyncOpKernel {
 public:
  explicit Await(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("key", &key_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape_));
  }

  bool IsExpensive() override { return false; }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Waiter waiter{context, std::move(done)};
    absl::Status status;
    const std::shared_ptr<Held> held = HeldSums::Get().Await(key_, &waiter, &status);
    if (held != nullptr) return held->Give(std::move(waiter));
    if (waiter.done == nullptr) return;
    OP_REQUIRES_OK_ASYNC(context, status, waiter.done);
    Tensor* none = nullptr;
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, shape_, &none), waiter.done);
    Held::SetFlag(context, false);
    waiter.done();
  }

 private:
  int64_t key_ = 0;
  tensorflow::TensorShape shape_;
};

inline absl::Status AsItsAttribute(tensorflow::shape_inference::InferenceContext* context) {
  tensorflow::PartialTensorShape shape;
  absl::Status status = context->GetAttr("shape", &shape);
  if (!status.ok()) return status;
  tensorflow::shape_inference::ShapeHandle handle;
  status = context->MakeShapeFromPartialTensorShape(shape, &handle);
  if (!status.ok()) return status;
  context->set_output(0, handle);
  context->set_output(1, context->Scalar());
  return absl::OkStatus();
}

}  // namespace bytescheduler::tf

#endif  // BYTESCHEDULER_TENSORFLOW_HELD_SUMS_H_
