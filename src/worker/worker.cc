// Worker: the keys, and the order of the operations of each.
#include "bytescheduler/worker.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bytescheduler/core.h"
#include "worker/broadcast.h"
#include "worker/fetch.h"
#include "worker/measured_order.h"
#include "worker/operation.h"
#include "worker/placement.h"
#include "worker/push_pull_task.h"
#include "worker/requests.h"

namespace bs {
namespace {

using worker::Operation;
using worker::Tensor;

// A key in use.  The operation under way is out of `waiting` and in `broadcast` or `task`.
struct KeyState {
  std::unique_ptr<const Tensor> tensor;  // once declared
  Round next_round = 1;
  std::vector<float> residual;  // of the tensor; empty before its first coded round
  std::deque<Operation> waiting;
  std::unique_ptr<worker::Broadcast> broadcast;
  std::unique_ptr<worker::PushPullTask> task;
  std::unique_ptr<worker::Fetch> fetch;
  // Where the caller says the one, the other counts.
  Priority callers = 0;
  Priority measured = 0;

  Priority Counting(Priority given) const { return given == callers ? measured : given; }
  bool busy() const { return broadcast || task || fetch; }
};

}  // namespace

// Invariants:
//  1. Of a key one operation at a time is under way: a round begins when this worker has the sum of
//     the round before, which the server's two buffers rely on (design decision 2).
//  2. After a failure nothing begins; what is under way ends when its memory is out of use, and
//     what waits ends behind it, in order.
class Worker::Impl {
 public:
  Impl(const WorkerOptions& options, Executor* executor, SendFn send,
       std::function<void(Status)> on_failure, const Logger& log);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { BS_CHECK(num_open_ == 0); }

  Executor* executor() const { return executor_; }
  // Thread-safe.
  void Post(Key key, Operation operation) {
    executor_->Post([this, key, operation = std::move(operation)]() mutable {
      Enqueue(key, std::move(operation));
    });
  }
  void SetOptimizer(worker::OptimizerText optimizer, Done done);
  void OnMessage(ps::Message message) { requests_.OnMessage(std::move(message)); }
  std::shared_ptr<ps::Landing> Place(int32_t peer, const ps::Meta& meta, uint64_t size_bytes) {
    return requests_.Place(peer, meta, size_bytes);
  }
  void SetPieces(uint64_t partition_bytes, uint64_t credit_bytes) {
    BS_CHECK(partition_bytes >= worker::kAlignBytes);
    partition_bytes_ = partition_bytes;
    core_.SetCredit(credit_bytes);
  }
  void Fail(const Status& status);
  void Close(UniqueFunction<void()> closed);
  const worker::Link& link() const { return link_; }

 private:
  // An operation failed for good.  Returns the worker's failure.
  Status FailForGood(const Status& status);
  void Enqueue(Key key, Operation operation);
  void NoteReady(Key key, const Operation& operation);
  // Begins what may begin of a key that is not busy.
  void Advance(Key key, KeyState* state);
  Status Check(Key key, const KeyState& state, const Operation& operation) const;
  void Refuse(const Operation& operation, const Status& why);
  void BeginBroadcast(Key key, KeyState* state, Operation operation);
  // The key was declared, and is cut as `tensor` says.
  void Adopt(KeyState* state, Tensor tensor) const;
  void BeginPushPull(Key key, KeyState* state, Operation operation);
  void BeginFetch(Key key, KeyState* state, Operation operation);
  void EndOperation(Key key, KeyState* state);
  uint64_t PartBytes() const { return partition_bytes_ - partition_bytes_ % worker::kAlignBytes; }
  Tensor CutAndPlace(Tensor tensor);
  void OperationEnded();

  const WorkerOptions options_;
  uint64_t partition_bytes_ = options_.partition_bytes;
  Executor* const executor_;
  const std::function<void(Status)> on_failure_;
  const Logger log_;
  ps::KvWorker requests_;
  Core core_;
  worker::Steps steps_;
  const worker::Link link_;
  worker::Loads loads_;  // rank 0's
  Status failure_;
  uint64_t num_optimizers_ = 0;  // calls of SetOptimizer
  size_t num_open_ = 0;          // operations whose callbacks have not all run
  std::vector<UniqueFunction<void()>> on_closed_;
  std::unique_ptr<worker::MeasuredOrder> order_;  // while there is something to learn
  TimePoint last_ready_{};
  std::map<Key, KeyState> keys_;  // last: its tasks refer to the above
};

Worker::Impl::Impl(const WorkerOptions& options, Executor* executor, SendFn send,
                   std::function<void(Status)> on_failure, const Logger& log)
    : options_(options),
      executor_(executor),
      on_failure_(std::move(on_failure)),
      log_(log),
      requests_(options.requests, executor, std::move(send), log),
      core_({.num_servers = static_cast<uint32_t>(options.num_servers),
             .partition_bytes = options.partition_bytes,
             .credit_bytes = options.credit_bytes,
             .priority_order = options.priority_order},
            [executor](std::function<void()> task) { executor->Post(std::move(task)); }),
      link_({.rank = options.rank,
             .num_servers = static_cast<uint32_t>(options.num_servers),
             .credit_until_pulled = options.test_credit_until_pulled,
             .requests = &requests_,
             .core = &core_,
             .spans = {options.trace, executor, &steps_},
             .fail = [this](const Status& status) { return FailForGood(status); }}),
      loads_(static_cast<uint32_t>(options.num_servers)) {
  BS_CHECK(options.num_servers > 0 && options.partition_bytes >= worker::kAlignBytes);
  if (options.urgency == Urgency::kCaller || !options.priority_order) return;
  const bool alone = options.urgency == Urgency::kMeasuredAlone || options.num_workers == 1;
  order_ = std::make_unique<worker::MeasuredOrder>(
      link_, worker::MeasuredOrder::Options{.alone = alone, .part_bytes = PartBytes()}, log_);
}

void Worker::Impl::Enqueue(Key key, Operation operation) {
  ++num_open_;
  KeyState& state = keys_[key];
  if (order_ && operation.called > 0) NoteReady(key, operation);
  state.waiting.push_back(std::move(operation));
  Advance(key, &state);
}

void Worker::Impl::NoteReady(Key key, const Operation& operation) {
  if (!failure_.ok()) return;
  const core::ReadyOrder::Call call = {key, operation.priority, operation.called};
  last_ready_ = std::max(last_ready_, operation.ready);  // several threads may call
  if (!order_->Note(call, last_ready_)) return;
  ++num_open_;
  order_->Settle([this](const worker::MeasuredOrder::Numbers& numbers) {
    for (const core::Renumbered& number : numbers) {
      const auto it = keys_.find(number.key);
      if (it == keys_.end()) continue;
      it->second.callers = number.callers;
      it->second.measured = number.measured;
    }
    order_.reset();
    OperationEnded();
  });
}

void Worker::Impl::Fail(const Status& status) {
  BS_CHECK(!status.ok());
  if (!failure_.ok()) return;
  failure_ = status;
  core_.FailAll(status);
  requests_.FailAll(status);
}

Status Worker::Impl::FailForGood(const Status& status) {
  if (!failure_.ok()) return failure_;
  Fail(status);
  on_failure_(status);
  return status;
}

void Worker::Impl::Close(UniqueFunction<void()> closed) {
  Fail(Status::Cancelled("the worker was closed"));
  if (num_open_ == 0) return closed();
  on_closed_.push_back(std::move(closed));
}

void Worker::Impl::Advance(Key key, KeyState* state) {
  while (!state->busy() && !state->waiting.empty()) {
    Operation next = std::move(state->waiting.front());
    state->waiting.pop_front();
    if (const Status wrong = Check(key, *state, next); !wrong.ok()) {
      Refuse(next, wrong);
    } else if (next.is_broadcast) {
      BeginBroadcast(key, state, std::move(next));
    } else if (!next.pushed) {
      BeginFetch(key, state, std::move(next));
    } else {
      BeginPushPull(key, state, std::move(next));
    }
  }
}

Status Worker::Impl::Check(Key key, const KeyState& state, const Operation& operation) const {
  if (!failure_.ok()) return failure_;
  return worker::CheckOperation(key, state.tensor.get(), operation);
}

void Worker::Impl::Refuse(const Operation& operation, const Status& why) {
  if (operation.pushed) operation.pushed(why);
  if (operation.pulled) operation.pulled(why);
  OperationEnded();
}

void Worker::Impl::BeginBroadcast(Key key, KeyState* state, Operation operation) {
  Tensor tensor{.key = key,
                .dtype = operation.dtype,
                .mode = operation.mode,
                .size_bytes = operation.out.size(),
                .part_bytes = 0,
                .partitions = {},
                .about = std::move(operation.about),
                .hosted = operation.hosted};
  const bool publishes = options_.rank == 0;
  if (publishes) tensor = CutAndPlace(std::move(tensor));
  state->broadcast = std::make_unique<worker::Broadcast>(
      &link_, tensor, operation.out,
      [this, key, state, done = std::move(operation.pulled)](Result<Tensor> outcome) {
        const Status status = outcome.status();
        if (status.ok()) Adopt(state, std::move(outcome.value()));
        done(status);
        state->broadcast.reset();
        Advance(key, state);
        OperationEnded();
      });
  publishes ? state->broadcast->Publish() : state->broadcast->Fetch();
}

void Worker::Impl::Adopt(KeyState* state, Tensor tensor) const {
  state->tensor = std::make_unique<Tensor>(std::move(tensor));
  log_.Debug([state] { return worker::DescribePlacement(*state->tensor); });
}

void Worker::Impl::BeginPushPull(Key key, KeyState* state, Operation operation) {
  if (operation.threshold != 0) state->residual.resize(operation.in.size() / sizeof(float));
  worker::PushPullTask::Call call{.round = state->next_round++,
                                  .priority = state->Counting(operation.priority),
                                  .rates = operation.rates,
                                  .in = operation.in,
                                  .out = operation.out,
                                  .coding = {operation.threshold, state->residual},
                                  .pushed = std::move(operation.pushed),
                                  .pulled = std::move(operation.pulled)};
  state->task = std::make_unique<worker::PushPullTask>(&link_, state->tensor.get(), std::move(call),
                                                       [this, key, state] {
                                                         state->task.reset();
                                                         EndOperation(key, state);
                                                       });
  state->task->Begin();
}

void Worker::Impl::BeginFetch(Key key, KeyState* state, Operation operation) {
  state->fetch = std::make_unique<worker::Fetch>(
      &link_, state->tensor.get(), operation.out,
      [this, key, state, done = std::move(operation.pulled)](Status status) {
        done(std::move(status));
        state->fetch.reset();
        EndOperation(key, state);
      });
  // What this worker has pushed is in what it gets.
  state->fetch->Begin(state->next_round - 1, operation.priority);
}

void Worker::Impl::EndOperation(Key key, KeyState* state) {
  Advance(key, state);
  OperationEnded();
}

void Worker::Impl::SetOptimizer(worker::OptimizerText optimizer, Done done) {
  if (!failure_.ok()) return done(failure_);
  ++num_open_;
  worker::SetOptimizer(link_, std::move(optimizer), ++num_optimizers_,
                       [this, done = std::move(done)](const Status& status) {
                         const bool ours = status.code() == StatusCode::kInvalidArgument;
                         done(status.ok() || ours ? status : FailForGood(status));
                         OperationEnded();
                       });
}

Tensor Worker::Impl::CutAndPlace(Tensor tensor) {
  const uint64_t whole = tensor.size_bytes + worker::kAlignBytes;
  tensor.part_bytes = tensor.about.empty() ? PartBytes() : whole - whole % worker::kAlignBytes;
  tensor.partitions = worker::Cut(tensor.size_bytes, tensor.part_bytes, worker::kAlignBytes);
  loads_.Place(tensor.partitions);
  return tensor;
}

void Worker::Impl::OperationEnded() {
  if (--num_open_ > 0) return;
  for (const UniqueFunction<void()>& closed : std::exchange(on_closed_, {})) closed();
}

Worker::Worker(const WorkerOptions& options, Executor* executor, SendFn send,
               std::function<void(Status)> on_failure, const Logger& log)
    : impl_(
          std::make_unique<Impl>(options, executor, std::move(send), std::move(on_failure), log)) {}

Worker::~Worker() = default;

void Worker::Broadcast(Key key, DType dtype, std::span<std::byte> value, Done done) {
  Broadcast(key, dtype, Mode::kSynchronous, value, std::move(done));
}

void Worker::PushPull(Key key, const PushPullOptions& options, std::span<const std::byte> in,
                      std::span<std::byte> out, Done pushed, Done pulled) {
  BS_CHECK(pushed && pulled);
  Operation operation{.priority = options.priority,
                      .threshold = options.threshold,
                      .called = options.called,
                      .ready = impl_->executor()->Now(),
                      .in = in,
                      .out = out,
                      .pushed = std::move(pushed),
                      .pulled = std::move(pulled)};
  impl_->Post(key, std::move(operation));
}

void Worker::Broadcast(Key key, DType dtype, Mode mode, std::span<std::byte> value, Done done) {
  Operation operation{
      .is_broadcast = true, .mode = mode, .dtype = dtype, .out = value, .pulled = std::move(done)};
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

void Worker::Update(Key key, UpdateCall call) {
  BS_CHECK(call.pushed || call.pulled);
  Operation operation{.mode = Mode::kAsynchronous,
                      .priority = call.priority,
                      .threshold = call.threshold,
                      .in = call.in,
                      .out = call.out,
                      .rates = call.rates,
                      .pushed = std::move(call.pushed),
                      .pulled = std::move(call.pulled)};
  impl_->Post(key, std::move(operation));
}

void Worker::SetOptimizer(std::string text, std::string pickle, Done done) {
  impl_->executor()->Post([impl = impl_.get(),
                           optimizer = worker::OptimizerText{std::move(text), std::move(pickle)},
                           done = std::move(done)]() mutable {
    impl->SetOptimizer(std::move(optimizer), std::move(done));
  });
}

void Worker::SetPieces(uint64_t partition_bytes, uint64_t credit_bytes) {
  impl_->SetPieces(partition_bytes, credit_bytes);
}

void Worker::OnMessage(ps::Message message) {
  impl_->executor()->Post([impl = impl_.get(), message = std::move(message)]() mutable {
    impl->OnMessage(std::move(message));
  });
}

std::shared_ptr<ps::Landing> Worker::Place(int32_t peer, const ps::Meta& meta,
                                           uint64_t size_bytes) {
  return impl_->Place(peer, meta, size_bytes);
}

void Worker::Fail(Status status) {
  impl_->executor()->Post([impl = impl_.get(), status = std::move(status)] { impl->Fail(status); });
}

void Worker::Close(UniqueFunction<void()> closed) {
  impl_->executor()->Post([impl = impl_.get(), closed = std::move(closed)]() mutable {
    impl->Close(std::move(closed));
  });
}

const worker::Link& Worker::link() const { return impl_->link(); }

}  // namespace bs
