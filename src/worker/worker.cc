// Worker: hands its calls to the worker's executor.
#include "worker/worker.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "worker/broadcast_from.h"
#include "worker/worker_impl.h"

namespace bs {

using worker::Operation;

Worker::Worker(const WorkerOptions& options, Executor* executor, backend::Backend* backend,
               std::function<void(Status)> on_failure, const Logger& log,
               const protocol::Rules& rules)
    : impl_(std::make_unique<Impl>(options, executor, backend, std::move(on_failure), log, rules)) {
}

Worker::~Worker() = default;

void Worker::Broadcast(Key key, DType dtype, std::span<std::byte> value, Done done) {
  Broadcast(key, dtype, Mode::kSynchronous, value, std::move(done));
}

void Worker::PushPull(Key key, const PushPullOptions& options, std::span<const std::byte> in,
                      std::span<std::byte> out, Done pushed, Done pulled) {
  BS_CHECK(pushed && pulled);
  Operation operation{.priority = options.priority,
                      .coding = options.coding,
                      .called = options.called,
                      .at_once = options.at_once,
                      .waited = options.waited,
                      .ready = impl_->executor()->Now(),
                      .in = in,
                      .out = out,
                      .factor = options.factor,
                      .rates = options.rates,
                      .pushed = std::move(pushed),
                      .pulled = std::move(pulled)};
  impl_->Post(key, std::move(operation));
}

void Worker::Broadcast(Key key, const Declaration& declaration, std::span<std::byte> value,
                       Done done) {
  Operation operation{.is_broadcast = true,
                      .mode = declaration.mode,
                      .dtype = declaration.dtype,
                      .coding = declaration.coding,
                      .out = value,
                      .pulled = std::move(done)};
  impl_->Post(key, std::move(operation));
}

void Worker::BroadcastWhole(Key key, WholeKey whole, std::span<std::byte> value, Done done) {
  Operation operation{.is_broadcast = true,
                      .mode = Mode::kAsynchronous,
                      .dtype = whole.dtype,
                      .about = std::move(whole.about),
                      .hosted = whole.hosted,
                      .out = value,
                      .pulled = std::move(done)};
  impl_->Post(key, std::move(operation));
}

void Worker::BroadcastFrom(Key key, int32_t root, std::span<std::byte> value, Done done) {
  impl_->executor()->Post([impl = impl_.get(), key, root,
                           call = std::make_shared<worker::BroadcastFrom>(value),
                           done = std::move(done)]() mutable {
    impl->BroadcastFrom(key, root, call, std::move(done));
  });
}

void Worker::GiveBack(Key key, bool for_good, Done done) {
  impl_->Post(key, {.gives_back = true, .for_good = for_good, .pulled = std::move(done)});
}

void Worker::Update(Key key, UpdateCall call) {
  BS_CHECK(call.pushed || call.pulled);
  Operation operation{.mode = Mode::kAsynchronous,
                      .priority = call.priority,
                      .coding = call.coding,
                      .waited = call.waited,
                      .ready = impl_->executor()->Now(),
                      .in = call.in,
                      .out = call.out,
                      .rates = call.rates,
                      .pushed = std::move(call.pushed),
                      .pulled = std::move(call.pulled)};
  impl_->Post(key, std::move(operation));
}

void Worker::Exchange(ExchangeCall call) {
  BS_CHECK(call.done);
  impl_->executor()->Post([impl = impl_.get(), call = std::move(call)]() mutable {
    impl->BeginExchange(std::move(call));
  });
}

void Worker::QuitExchange(Key key, std::string reason) {
  impl_->executor()->Post([impl = impl_.get(), key, reason = std::move(reason)]() mutable {
    impl->QuitExchange(key, Status::Cancelled(std::move(reason)));
  });
}

void Worker::ReprioritiseExchange(Key key, Priority priority) {
  impl_->executor()->Post(
      [impl = impl_.get(), key, priority] { impl->ReprioritiseExchange(key, priority); });
}

void Worker::SetOptimizer(std::string text, std::string pickle, Done done) {
  impl_->executor()->Post([impl = impl_.get(),
                           optimizer = backend::OptimizerText{std::move(text), std::move(pickle)},
                           done = std::move(done)]() mutable {
    impl->SetOptimizer(std::move(optimizer), std::move(done));
  });
}

void Worker::SetPartitionAndCredit(uint64_t partition_bytes, uint64_t credit_bytes) {
  impl_->SetPartitionAndCredit(partition_bytes, credit_bytes);
}

void Worker::Retune(uint64_t partition_bytes, uint64_t credit_bytes, Done done) {
  impl_->executor()->Post(
      [impl = impl_.get(), partition_bytes, credit_bytes, done = std::move(done)] {
        done(impl->Retune(partition_bytes, credit_bytes));
      });
}

void Worker::Fail(Status status) {
  impl_->executor()->Post([impl = impl_.get(), status = std::move(status)] { impl->Fail(status); });
}

void Worker::Close(UniqueFunction<void()> closed) {
  impl_->executor()->Post([impl = impl_.get(), closed = std::move(closed)]() mutable {
    impl->Close(std::move(closed));
  });
}

}  // namespace bs
