// Layers that take their time and no processor, as operations of TensorFlow.
//
// One thread plays the device: it runs layers one after another, each for its time.  A timer that
// is late makes the next layer shorter, so that delays do not add up.  No thread of TensorFlow
// waits for a layer.  device.py compiles this against the installed TensorFlow.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int64_t kEvery = 4096;  // one number of a weight in 4096 is compared
// Numbers of a gradient differ by their places: a part of it that moves by another distance than a
// multiple of this makes a wrong sum.  It is a prime, and sizes of partitions are powers of two.
constexpr int64_t kPeriod = 1021;

class Device {
 public:
  static Device& Get() {
    static Device& device = *new Device();  // its thread lives as long as the process
    return device;
  }

  // Runs `work` on the thread of the device, and then `done`, so much later in all.
  void Run(double seconds, std::function<void()> work, std::function<void()> done) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      layers_.push_back({Seconds(seconds), std::move(work), std::move(done)});
    }
    is_there_.notify_one();
  }

  void Begin(int64_t workers, int64_t rank) {
    workers_ = workers;
    rank_ = rank;
  }

  // The functions below are for `work`.

  void BeginStep() { ++step_; }

  void EndForward() {
    const std::lock_guard<std::mutex> lock(mutex_);
    losses_s_.push_back(Seconds(Clock::now().time_since_epoch()).count());
  }

  void WriteGradient(int64_t layer, Tensor* gradient) const {
    const auto of_layer = static_cast<float>(step_ + layer + rank_);
    auto numbers = gradient->flat<float>();
    for (int64_t at = 0; at < numbers.size(); at += kPeriod) {
      const int64_t count = std::min(kPeriod, static_cast<int64_t>(numbers.size()) - at);
      Eigen::Map<Eigen::ArrayXf>(numbers.data() + at, count) = places_.head(count) + of_layer;
    }
  }

  // Compares numbers of a weight with the sum of the gradients of the step before.
  void Compare(int64_t layer, const Tensor& weight) {
    const int64_t ranks = workers_ * (workers_ - 1) / 2;
    const auto numbers = weight.flat<float>();
    bool is_right = true;
    for (int64_t at = 0; at < numbers.size(); at += kEvery) {
      const int64_t sum = workers_ * (step_ - 1 + layer + at % kPeriod) + ranks;
      is_right &= numbers(at) == static_cast<float>(step_ == 0 ? 0 : sum);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    wrong_ += is_right ? 0 : 1;
  }

  // The functions below are for Python.

  int64_t wrong() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wrong_;
  }

  int64_t Losses(double* seconds, int64_t most) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto count = std::min<int64_t>(most, static_cast<int64_t>(losses_s_.size()));
    std::copy_n(losses_s_.begin(), count, seconds);
    return static_cast<int64_t>(losses_s_.size());
  }

 private:
  struct Layer {
    Seconds time;
    std::function<void()> work;
    std::function<void()> done;
  };

  Device() : places_(kPeriod), thread_([this] { Loop(); }) {
    for (int64_t at = 0; at < kPeriod; ++at) places_(at) = static_cast<float>(at);
  }

  [[noreturn]] void Loop() {
    for (;;) {
      Layer layer = Next();
      const Clock::time_point due =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(layer.time - late_);
      layer.work();
      std::this_thread::sleep_until(due);
      late_ = Clock::now() - due;
      layer.done();
    }
  }

  Layer Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    is_there_.wait(lock, [this] { return !layers_.empty(); });
    Layer layer = std::move(layers_.front());
    layers_.pop_front();
    return layer;
  }

  std::mutex mutex_;
  std::condition_variable is_there_;
  std::deque<Layer> layers_;
  std::vector<double> losses_s_;
  int64_t wrong_ = 0;
  int64_t workers_ = 1;
  int64_t rank_ = 0;
  Eigen::ArrayXf places_;
  int64_t step_ = -1;  // of the thread, as is `late_`
  Seconds late_{0};
  std::thread thread_;
};

class Forward final : public AsyncOpKernel {
 public:
  explicit Forward(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("layer", &layer_));
    OP_REQUIRES_OK(construction, construction->GetAttr("layers", &layers_));
    OP_REQUIRES_OK(construction, construction->GetAttr("forward_s", &seconds_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    context->set_output(0, context->input(0));
    auto work = [this, context] {
      if (layer_ == 0) Device::Get().BeginStep();
      Device::Get().Compare(layer_, context->input(1));
    };
    auto end = [this, done = std::move(done)] {
      if (layer_ == layers_ - 1) Device::Get().EndForward();
      done();
    };
    Device::Get().Run(seconds_, std::move(work), std::move(end));
  }

 private:
  int64_t layer_ = 0;
  int64_t layers_ = 0;
  float seconds_ = 0;
};

class Backward final : public AsyncOpKernel {
 public:
  explicit Backward(OpKernelConstruction* construction) : AsyncOpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("layer", &layer_));
    OP_REQUIRES_OK(construction, construction->GetAttr("elements", &elements_));
    OP_REQUIRES_OK(construction, construction->GetAttr("backward_s", &seconds_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    context->set_output(0, context->input(0));
    auto work = [this, context] {
      Tensor* gradient = nullptr;
      const auto status = context->allocate_output(1, TensorShape({elements_}), &gradient);
      if (!status.ok()) {
        context->SetStatus(status);
        return;
      }
      Device::Get().WriteGradient(layer_, gradient);
    };
    Device::Get().Run(seconds_, std::move(work), std::move(done));
  }

 private:
  int64_t layer_ = 0;
  int64_t elements_ = 0;
  float seconds_ = 0;
};

}  // namespace

// Gives x when the layer would have been computed.
REGISTER_OP("BsBenchmarkForward")
    .Input("x: float")
    .Input("weight: float")
    .Output("y: float")
    .Attr("layer: int")
    .Attr("layers: int")
    .Attr("forward_s: float")
    .Attr("backward_s: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* shapes) {
      shapes->set_output(0, shapes->input(0));
      return tensorflow::OkStatus();
    });

// Writes a gradient of the weight, when forward has ended and the gradient of its result is there.
REGISTER_OP("BsBenchmarkBackward")
    .Input("gradient: float")
    .Input("y: float")
    .Output("of_x: float")
    .Output("of_weight: float")
    .Attr("layer: int")
    .Attr("elements: int")
    .Attr("backward_s: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* shapes) {
      int64_t elements = 0;
      TF_RETURN_IF_ERROR(shapes->GetAttr("elements", &elements));
      shapes->set_output(0, shapes->input(0));
      shapes->set_output(1, shapes->Vector(elements));
      return tensorflow::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("BsBenchmarkForward").Device(tensorflow::DEVICE_CPU), Forward);
REGISTER_KERNEL_BUILDER(Name("BsBenchmarkBackward").Device(tensorflow::DEVICE_CPU), Backward);

extern "C" __attribute__((visibility("default"))) void bs_benchmark_begin(int64_t workers,
                                                                          int64_t rank) {
  Device::Get().Begin(workers, rank);
}

extern "C" __attribute__((visibility("default"))) int64_t bs_benchmark_wrong() {
  return Device::Get().wrong();
}

// Writes the times at which forward passes have ended; returns how many have.
extern "C" __attribute__((visibility("default"))) int64_t bs_benchmark_losses(double* seconds,
                                                                              int64_t most) {
  return Device::Get().Losses(seconds, most);
}
