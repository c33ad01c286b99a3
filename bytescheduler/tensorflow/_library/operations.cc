// Operations of TensorFlow that the engine does: sums of tensors, and copies of one worker's.
//
// compiling.py compiles this against the installed TensorFlow.  It links nothing of ours: Python
// connects it to the engine's table of functions.  No thread of TensorFlow waits for a sum.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bytescheduler/c_api.h"
#include "connection.h"
#include "held_sums.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using bytescheduler::tf::AsItsAttribute;
using bytescheduler::tf::Await;
using bytescheduler::tf::Connection;
using bytescheduler::tf::HeldSums;
using bytescheduler::tf::PushPullOf;
using bytescheduler::tf::Start;
using bytescheduler::tf::StatusOf;
using bytescheduler::tf::Waiter;
using bytescheduler::tf::Waiting;
using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The attributes of both operations.
struct Attributes {
  std::vector<int64_t> keys;
  std::vector<std::string> names;
  int64_t job = 0;
};

// One run of an operation: it keeps the tensors, and ends when the engine is out of all of them.
class Run final : public Waiting {
 public:
  Run(OpKernelContext* context, AsyncOpKernel::DoneCallback done,
      std::shared_ptr<const Attributes> attributes, int callbacks)
      : context_(context),
        done_(std::move(done)),
        attributes_(std::move(attributes)),
        callbacks_(callbacks),
        parts_(attributes_->keys.size()) {
    for (size_t index = 0; index < parts_.size(); ++index) parts_[index] = {this, index};
    tensors_.reserve(2 * parts_.size());
  }

  // REQUIRES: in the order of the keys, and then `End`.
  void Start(size_t index, const Tensor& in, Tensor* out, bs_operation operation) {
    tensors_.push_back(in);
    tensors_.push_back(*out);
    if (out->TotalBytes() == 0) return;
    operation.key = static_cast<uint64_t>(attributes_->keys[index]);
    operation.out = const_cast<char*>(out->tensor_data().data());
    operation.size_bytes = out->TotalBytes();
    operation.done = &Run::Called;
    operation.context = &parts_[index];
    left_ += callbacks_;
    bs_error error;
    if (Connection::Get().Start(operation, attributes_->job, &gate_, &error) == 0) {
      ++started_;
      return;
    }
    Note(index, error.code, error.message);
    left_ -= callbacks_;
  }

  void End() {
    Connection::Get().Add(this);
    Count();
  }

  Waiter Take() override { return {context_, std::exchange(done_, nullptr)}; }

  static void Called(void* part, int code, const char* message) {
    const Part& self = *static_cast<Part*>(part);
    if (code != 0) self.run->Note(self.index, code, message);
    self.run->Count();
  }

 private:
  struct Part {
    Run* run;
    size_t index;
  };

  void Note(size_t index, int code, const std::string& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!status_.ok()) return;
    status_ = StatusOf(code, message, attributes_->keys[index], attributes_->names[index]);
  }

  void Count() {
    if (--left_ > 0) return;
    const Waiter waiter = Connection::Get().Remove(this);
    if (waiter.done != nullptr && !status_.ok()) waiter.context->SetStatus(status_);
    bs_gate* const gate = gate_;
    const int started = started_;
    delete this;
    if (waiter.done != nullptr) waiter.done();
    for (int part = 0; part < started; ++part) Connection::Get().Leave(gate);
  }

  OpKernelContext* const context_;
  AsyncOpKernel::DoneCallback done_;
  const std::shared_ptr<const Attributes> attributes_;
  const int callbacks_;  // of each part
  std::vector<Part> parts_;
  std::vector<Tensor> tensors_;  // which the engine reads and writes
  bs_gate* gate_ = nullptr;      // counts the parts that were started: a job has one gate
  int started_ = 0;
  std::atomic<int> left_{1};
  std::mutex mutex_;
  absl::Status status_;
};

// An operation of either kind: tensors go in, tensors of the same shapes come out.
class Kernel : public AsyncOpKernel {
 public:
  Kernel(OpKernelConstruction* construction, int callbacks)
      : AsyncOpKernel(construction), callbacks_(callbacks) {
    Attributes attributes;
    OP_REQUIRES_OK(construction, construction->GetAttr("keys", &attributes.keys));
    OP_REQUIRES_OK(construction, construction->GetAttr("names", &attributes.names));
    OP_REQUIRES_OK(construction, construction->GetAttr("job", &attributes.job));
    OP_REQUIRES(construction, attributes.keys.size() == attributes.names.size(),
                absl::InvalidArgumentError("want as many names as keys"));
    attributes_ = std::make_shared<const Attributes>(std::move(attributes));
    std::vector<tensorflow::DataType> types;
    OP_REQUIRES_OK(construction, construction->GetAttr("T", &types));
    OP_REQUIRES(construction, types.size() == attributes_->keys.size(),
                absl::InvalidArgumentError("want as many keys as tensors"));
    for (const tensorflow::DataType type : types) {
      OP_REQUIRES(construction, tensorflow::DataTypeCanUseMemcpy(type),
                  absl::InvalidArgumentError("only numbers and flags travel"));
    }
  }

  // The tensors are the first inputs, and the results the only outputs: no name is looked up.
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const size_t count = attributes_->keys.size();
    std::vector<Tensor*> outs(count);
    for (size_t index = 0; index < count; ++index) {
      const auto place = static_cast<int>(index);
      OP_REQUIRES_OK_ASYNC(
          context, context->allocate_output(place, context->input(place).shape(), &outs[index]),
          done);
    }
    auto* const run = new Run(context, std::move(done), attributes_, callbacks_);
    for (size_t index = 0; index < count; ++index) {
      const Tensor& in = context->input(static_cast<int>(index));
      run->Start(index, in, outs[index], Operation(index, in, outs[index]));
    }
    run->End();
  }

 protected:
  // Returns the operation on a tensor, but for the fields that all have.
  virtual bs_operation Operation(size_t index, const Tensor& in, Tensor* out) const = 0;

 private:
  std::shared_ptr<const Attributes> attributes_;  // runs may outlive the kernel
  const int callbacks_;
};

class PushPull final : public Kernel {
 public:
  explicit PushPull(OpKernelConstruction* construction) : Kernel(construction, 2) {
    OP_REQUIRES_OK(construction, construction->GetAttr("workers", &workers_));
    OP_REQUIRES_OK(construction, construction->GetAttr("priorities", &priorities_));
  }

  // The thread that made the tensor starts the sum: to wake another thread takes longer.
  bool IsExpensive() override { return false; }

 private:
  bs_operation Operation(size_t index, const Tensor& in, Tensor* /*out*/) const override {
    bs_operation operation =
        PushPullOf(workers_, index < priorities_.size() ? priorities_[index] : 0);
    operation.in = in.tensor_data().data();
    operation.pushed = &Run::Called;
    return operation;
  }

  int64_t workers_ = 0;  // 0: the sum; else it is divided by this
  std::vector<int64_t> priorities_;
};

class Broadcast final : public Kernel {
 public:
  explicit Broadcast(OpKernelConstruction* construction) : Kernel(construction, 1) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root", &root_));
  }

 private:
  bs_operation Operation(size_t /*index*/, const Tensor& in, Tensor* out) const override {
    bs_operation operation = bs_operation_init(BS_BROADCAST_FROM);
    operation.root = static_cast<int>(root_);
    if (in.TotalBytes() > 0) {
      std::memcpy(const_cast<char*>(out->tensor_data().data()), in.tensor_data().data(),
                  in.TotalBytes());
    }
    return operation;
  }

  int64_t root_ = 0;
};

absl::Status AsTheTensors(tensorflow::shape_inference::InferenceContext* context) {
  std::vector<tensorflow::shape_inference::ShapeHandle> shapes;
  const absl::Status status = context->input("tensors", &shapes);
  if (!status.ok()) return status;
  return context->set_output("results", shapes);
}

}  // namespace

// A handle orders an operation with reads and writes of that variable only.  Operations without
// one run in the order of the program, as they are stateful.  TensorFlow lets operations of
// communication alone end with `UnavailableError`.
REGISTER_OP("BsPushPull")
    .Input("tensors: T")
    .Input("handles: H * resource")
    .Output("results: T")
    .Attr("T: list({float, double, half, bfloat16, uint8, int8, int32, int64}) >= 1")
    .Attr("H: int >= 0")
    .Attr("keys: list(int)")
    .Attr("names: list(string)")
    .Attr("job: int")
    .Attr("priorities: list(int)")
    .Attr("workers: int >= 0")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AsTheTensors);

REGISTER_OP("BsBroadcast")
    .Input("tensors: T")
    .Input("handles: H * resource")
    .Output("results: T")
    .Attr("T: list(type) >= 1")
    .Attr("H: int >= 0")
    .Attr("keys: list(int)")
    .Attr("names: list(string)")
    .Attr("job: int")
    .Attr("root: int >= 0")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AsTheTensors);

REGISTER_OP("BsStart")
    .Input("tensor: T")
    .Input("handle: resource")
    .Attr("T: {float, double, half, bfloat16, uint8, int8, int32, int64}")
    .Attr("key: int")
    .Attr("label: string")
    .Attr("job: int")
    .Attr("priority: int")
    .Attr("workers: int >= 0")
    .SetIsStateful()
    .SetIsDistributedCommunication();

REGISTER_OP("BsAwait")
    .Input("handle: resource")
    .Output("sum: T")
    .Output("is_there: bool")
    .Attr("T: {float, double, half, bfloat16, uint8, int8, int32, int64}")
    .Attr("shape: shape")
    .Attr("key: int")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(AsItsAttribute);

#define BS_REGISTER(NAME, KERNEL)                                             \
  REGISTER_KERNEL_BUILDER(Name(NAME).Device(tensorflow::DEVICE_CPU), KERNEL); \
  REGISTER_KERNEL_BUILDER(Name(NAME)                                          \
                              .Device(tensorflow::DEVICE_GPU)                 \
                              .HostMemory("tensors")                          \
                              .HostMemory("handles")                          \
                              .HostMemory("results"),                         \
                          KERNEL)

BS_REGISTER("BsPushPull", PushPull);
BS_REGISTER("BsBroadcast", Broadcast);
REGISTER_KERNEL_BUILDER(Name("BsStart").Device(tensorflow::DEVICE_CPU), Start);
REGISTER_KERNEL_BUILDER(
    Name("BsStart").Device(tensorflow::DEVICE_GPU).HostMemory("tensor").HostMemory("handle"),
    Start);
REGISTER_KERNEL_BUILDER(Name("BsAwait").Device(tensorflow::DEVICE_CPU), Await);
REGISTER_KERNEL_BUILDER(Name("BsAwait")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("handle")
                            .HostMemory("sum")
                            .HostMemory("is_there"),
                        Await);

// Connects the operations of a job to the worker behind `gate`, or to none if it is null.  Returns
// 0, or a code with the error: the table is not for this library.
extern "C" __attribute__((visibility("default"))) int bs_tf_join(const void* table, void* gate,
                                                                 int64_t job, bs_error* error) {
  const auto* const functions = static_cast<const bs_table*>(table);
  if (bs_table_check(functions, error) != 0) return error->code;
  Connection::Get().Set(functions, static_cast<bs_gate*>(gate), job);
  HeldSums::Get().Forget();
  return 0;
}

// Ends the waits of TensorFlow, after Ctrl-C.
extern "C" __attribute__((visibility("default"))) void bs_tf_interrupt() {
  Connection::Get().Interrupt();
  HeldSums::Get().Interrupt();
}

// Returns how many sums were begun that no operation has taken.
extern "C" __attribute__((visibility("default"))) uint64_t bs_tf_held() {
  return HeldSums::Get().size();
}
