// The order of the operations of each key, and their end.
#include "worker/worker_impl.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "codec/feedback.h"
#include "protocol/next_layout.h"
#include "protocol/placement.h"

namespace bs {

using protocol::Tensor;
using worker::KeyState;
using worker::Operation;

namespace {

// "key=7: 96 bytes of float32 in 3 partitions; server 0 has 2, server 1 has 1".
std::string DescribePlacement(const Tensor& tensor) {
  std::map<uint32_t, size_t> counts;
  for (const Partition& partition : tensor.partitions) ++counts[partition.server];
  std::string text =
      "key=" + std::to_string(tensor.key) + ": " + CountOf(tensor.size_bytes, "byte") + " of " +
      std::string(NameOf(tensor.dtype)) + " in " + CountOf(tensor.partitions.size(), "partition");
  const char* separator = "; ";
  for (const auto& [server, count] : counts) {
    text += separator + ("server " + std::to_string(server)) + " has " + std::to_string(count);
    separator = ", ";
  }
  return text;
}

}  // namespace

bool worker::KeyState::WillBeDeclared() const {
  const auto declares = [](const Operation& operation) { return operation.is_broadcast; };
  return tensor || broadcast || std::any_of(waiting.begin(), waiting.end(), declares);
}

Worker::Impl::Impl(const WorkerOptions& options, Executor* executor, backend::Backend* backend,
                   std::function<void(Status)> on_failure, const Logger& log,
                   const protocol::Rules& rules)
    : options_(options),
      changes_behind_round_(rules.layouts_change_behind_their_round()),
      cuts_into_units_(rules.coded_keys_are_cut_into_units()),
      goes_home_(rules.exchanges_go_to_their_home()),
      executor_(executor),
      on_failure_(std::move(on_failure)),
      log_(log),
      backend_(backend),
      core_({.num_servers = backend->num_destinations(),
             .first_server =
                 static_cast<uint32_t>(options.view->own.rank) % backend->num_destinations(),
             .shares = backend->shares(),
             .partition_bytes = options.partition_bytes,
             .credit_bytes = options.credit_bytes,
             .early_bytes = options.early_bytes,
             .small_tensor_bytes = options.small_tensor_bytes,
             .priority_order = options.priority_order},
            [executor](std::function<void()> task) { executor->Post(std::move(task)); }),
      context_({.view = options.view,
                .credit_until_pulled = !rules.credit_returns_with_the_push(),
                .backend = backend,
                .core = &core_,
                .codecs = options.codecs != nullptr ? options.codecs : &codec::Builtin(),
                .spans = {options.trace, executor, &steps_, &critical_},
                .fail = [this](const Status& status) { return FailForGood(status); }}) {
  BS_CHECK(options.partition_bytes >= protocol::kAlignBytes);
  if (options.urgency == Urgency::kCaller || !options.priority_order) return;
  const bool alone = options.urgency == Urgency::kMeasuredAlone || options.view->num_workers() == 1;
  order_ = std::make_unique<worker::MeasuredOrder>(
      context_, worker::MeasuredOrder::Options{.alone = alone, .partition_bytes = PartitionBytes()},
      log_);
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
  const core::ReadyOrder::Call call = {key, operation.priority, operation.called,
                                       operation.at_once};
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
  backend_->Fail(status);
}

Status Worker::Impl::FailForGood(const Status& status) {
  if (!failure_.ok()) return failure_;
  on_failure_(status);  // first: callers of operations find the worker failed
  Fail(status);
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
    } else if (next.gives_back) {
      BeginGiveBack(key, state, std::move(next));
    } else if (state->rests()) {
      state->waiting.push_front(std::move(next));
      TakeAgain(key, state);
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
  return worker::CheckOperation(key, operation,
                                {.tensor = state.tensor.get(),
                                 .partition_bytes = PartitionBytes(),
                                 .codecs = context_.codecs});
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
                .partition_bytes = 0,
                .partitions = {},
                .about = std::move(operation.about),
                .hosted = operation.hosted};
  const bool publishes = context_.rank() == 0;
  state->cut_for_codes = CutsKeys(operation.coding);
  if (publishes) {
    const uint64_t partition_bytes =
        state->cut_for_codes ? PartitionBytes(operation.coding) : PartitionBytes();
    tensor = PartitionAndPlace(std::move(tensor), partition_bytes);
  }
  state->broadcast = std::make_unique<worker::Broadcast>(
      &context_, tensor, operation.out,
      [this, key, state, done = std::move(operation.pulled)](Result<Tensor> outcome) {
        const Status status = outcome.status();
        if (status.ok()) Adopt(state, std::move(outcome.value()));
        done(status);
        state->broadcast.reset();
        Advance(key, state);
        OperationEnded();
      });
  publishes ? state->broadcast->Publish() : state->broadcast->Receive();
}

void Worker::Impl::Adopt(KeyState* state, Tensor tensor) const {
  state->tensor = std::make_unique<Tensor>(std::move(tensor));
  log_.Debug([state] { return DescribePlacement(*state->tensor); });
}

void Worker::Impl::BeginPushPull(Key key, KeyState* state, Operation operation) {
  Prepare(*state, &operation);
  // The rule for partitions that suit the network does not cover compressed partitions.
  if (!operation.coding.plain() && !state->cut_for_codes) fits_network_ = false;
  if (state->tensor->mode == Mode::kSynchronous) Fit();
  // Also for the key's rounds before.
  const Duration waited = operation.waited + (executor_->Now() - operation.ready);
  worker::PushPullTask::Call call{
      .round = state->next_round++,
      .priority = state->Counting(operation.priority),
      // Servers have both layouts until its end, so it ends before the next tensor begins.
      .keeps_priority = std::exchange(state->new_layout, false),
      .rates = state->tensor->mode == Mode::kSynchronous ? PushRates{} : operation.rates,
      .waited = waited,
      .factor = operation.factor,
      .is_gradient = !operation.is_value,
      .in = operation.in,
      .out = operation.out,
      .coder = CoderOf(operation, state),
      .next_layout = Announce(state, operation.coding),
      .pushed = std::move(operation.pushed),
      .pulled = std::move(operation.pulled)};
  // From the layout on that this round announces.
  if (operation.coding.later) state->cut_for_codes = true;
  state->task = std::make_unique<worker::PushPullTask>(
      &context_, state->tensor.get(), std::move(call), [this, key, state] {
        const auto over = std::move(state->task);
        EndPushPull(key, state, over->next_layout());
      });
  state->task->Begin();
}

void Worker::Impl::Prepare(const KeyState& state, Operation* operation) const {
  Coding& coding = operation->coding;
  if (!CutsKeys(coding) || state.tensor->mode == Mode::kAsynchronous) return;
  coding.later = !state.cut_for_codes || !worker::IsWhole(*state.tensor, coding, *context_.codecs);
}

float Worker::Impl::RatioOf(const Operation& operation, KeyState* state) {
  const codec::ResidualRatio ratio =
      codec::RatioOf(operation.coding.feedback, state->rates, operation.rates);
  state->rates = operation.rates;
  if (ratio.cut && !std::exchange(told_of_ratio_, true)) {
    log_.Warning(
        "a learning rate fell to less than a sixteenth within a step, or changed its "
        "sign: residuals of gradient compression do not follow it that far");
  }
  return ratio.factor;
}

backend::Coder Worker::Impl::CoderOf(const Operation& operation, KeyState* state) {
  backend::Coder coder{.coding = operation.coding};
  const bool is_synchronous = state->tensor->mode == Mode::kSynchronous;
  if (coder.coding.codec != 0) coder.ratio = RatioOf(operation, state);
  if (coder.coding.plain()) return coder;
  coder.codec = &context_.codecs->Get(coder.coding);
  // Servers answer with the weights of an asynchronous key.
  if (is_synchronous) {
    coder.sum_coding = context_.codecs->OfSums(coder.coding);
    // Also while sums travel in another way: it waits for the next that travel so.
    state->servers_keep |= context_.codecs->KeepsResidual(coder.sum_coding);
  }
  if (!coder.sum_coding.plain()) coder.sum_codec = &context_.codecs->Get(coder.sum_coding);
  if (!context_.codecs->KeepsResidual(coder.coding)) return coder;
  if (context_.rejoined() && !std::exchange(told_of_empty_residuals_, true)) {
    log_.Info("worker " + std::to_string(context_.rank()) +
              " took the place of a lost worker, and with that worker went its residuals of "
              "gradient compression: they begin empty");
  }
  const bool of_host = backend_->AddsUp(*state->tensor, coder.coding);
  if (state->residual_of_host != of_host) DropResidual(state, "it is coded by another codec");
  state->residual_of_host = of_host;
  coder.residual = state->residual.Of(operation.in.size() / sizeof(float));
  return coder;
}

Status Worker::Impl::Retune(uint64_t partition_bytes, uint64_t credit_bytes) {
  if (!failure_.ok()) return failure_;
  if (context_.rank() != 0) {
    return Status::FailedPrecondition("worker " + std::to_string(context_.rank()) +
                                      ": worker 0 decides about partitions and credit");
  }
  if (partition_bytes < protocol::kAlignBytes || credit_bytes == 0) {
    return Status::InvalidArgument("partitions of " + CountOf(partition_bytes, "byte") +
                                   " and a credit of " + std::to_string(credit_bytes) +
                                   ": want at least " + std::to_string(protocol::kAlignBytes) +
                                   " and 1");
  }
  fits_network_ = false;
  Decide({partition_bytes, credit_bytes});
  return Status::Ok();
}

void Worker::Impl::Decide(const backend::PartitionAndCredit& sizes) {
  // The first decision is announced even if rank 0 has these values already: the credit of another
  // worker may be set to another value.
  const backend::PartitionAndCredit now{partition_bytes_, credit_bytes_};
  if (sizes == now && decision_ > 0) return;
  partition_bytes_ = sizes.partition_bytes;
  credit_bytes_ = sizes.credit_bytes;
  ++decision_;
  context_.spans.Decision(decision_, partition_bytes_, credit_bytes_);
  log_.Debug([&] {
    return "partitions of " + CountOf(partition_bytes_, "byte") + " and a credit of " +
           std::to_string(credit_bytes_) + " from the next rounds on";
  });
}

void Worker::Impl::Fit() {
  if (!fits_network_) return;
  const std::optional<backend::PartitionAndCredit> fitting = backend_->TakeFitting();
  if (!fitting) return;
  fits_network_ = false;
  Decide(*fitting);
  log_.Info("the link decides: partitions of up to " + CountOf(partition_bytes_, "byte") +
            ", a credit of " + std::to_string(credit_bytes_));
}

void Worker::Impl::FitExchanges() {
  if (!fits_exchanges_) return;
  if (context_.rank() == 0) {
    Fit();
    if (decision_ == 0) return;
    core_.SetCredit(CreditOfExchanges(credit_bytes_));
  } else {
    const std::optional<backend::PartitionAndCredit> fitting = backend_->TakeFitting();
    if (!fitting) return;
    core_.SetCredit(CreditOfExchanges(fitting->credit_bytes));
  }
  fits_exchanges_ = false;
}

void Worker::Impl::DropResidual(KeyState* state, const char* why) const {
  if (state->residual.empty()) return;
  log_.Info("key=" + std::to_string(state->tensor->key) + ": " + why +
            ", and with that goes this worker's residual of its gradients");
  state->residual.Clear();
}

void Worker::Impl::TellLostResidual(const KeyState& state, const char* why) const {
  if (!state.servers_keep) return;
  log_.Info("key=" + std::to_string(state.tensor->key) + ": " + why +
            ", and with that goes the servers' residual of its coded sums");
}

std::string Worker::Impl::Announce(KeyState* state, const Coding& coding) {
  const Tensor& tensor = *state->tensor;
  if (context_.rank() != 0 || tensor.mode != Mode::kSynchronous) return {};
  const bool decided = std::exchange(state->decision, decision_) != decision_;
  if (!decided && !coding.later) return {};
  protocol::NextLayout next{.decision = decision_, .credit_bytes = credit_bytes_};
  const uint64_t partition_bytes = coding.later ? PartitionBytes(coding) : PartitionBytes();
  // The partitions of coded keys stay, and so do those whose servers keep a residual.
  const bool recuts = coding.later || !(state->cut_for_codes || state->servers_keep);
  if (recuts && protocol::WouldChange(tensor, partition_bytes)) {
    TellLostResidual(*state, "it is cut into whole units of another codec");
    next.partition_bytes = partition_bytes;
    next.partitions = protocol::SplitIntoPartitions(tensor.size_bytes, next.partition_bytes,
                                                    protocol::kAlignBytes);
    backend_->Place(next.partitions, tensor.partitions);
  } else if (!decided || credit_announced_ == decision_) {
    return {};
  }
  credit_announced_ = decision_;
  std::string announced = protocol::Encode(next);
  if (!changes_behind_round_) ChangeLayout(state, announced);
  return announced;
}

void Worker::Impl::EndPushPull(Key key, KeyState* state, const std::string& next_layout) {
  // Its sum needed the push of all workers, for which each had all sums of the rounds before.
  if (state->retired && failure_.ok()) ReleaseRetired(state);
  if (!next_layout.empty() && failure_.ok()) ChangeLayout(state, next_layout);
  EndOperation(key, state);
}

void Worker::Impl::ChangeLayout(KeyState* state, const std::string& next_layout) {
  Result<protocol::NextLayout> read =
      protocol::DecodeNextLayout(next_layout, *state->tensor, backend_->num_destinations());
  if (!read.ok()) {
    static_cast<void>(FailForGood(read.status()));
    return;
  }
  protocol::NextLayout& next = read.value();
  // The sum of a large tensor may come behind a sum that announces a later decision.
  if (next.decision > credit_in_force_) {
    credit_in_force_ = next.decision;
    fits_exchanges_ = false;
    core_.SetCredit(next.credit_bytes);
  }
  if (next.partition_bytes == 0) return;
  // Other workers of the host may add its partitions up from now on.
  if (state->residual_of_host) DropResidual(state, "it is cut into whole units of another codec");
  Tensor tensor = *state->tensor;
  ++tensor.layout_version;
  tensor.partition_bytes = next.partition_bytes;
  tensor.partitions = std::move(next.partitions);
  if (context_.rank() != 0 && next.decision == credit_in_force_ && !state->cut_for_codes) {
    partition_bytes_ = next.partition_bytes;
  }
  state->retired = std::move(state->tensor);
  state->new_layout = true;
  Adopt(state, std::move(tensor));
}

void Worker::Impl::ReleaseRetired(KeyState* state) {
  const auto retired = std::move(state->retired);
  if (context_.rank() != 0) return;
  ++num_open_;
  backend_->Release(*retired, /*given_back=*/false, [this](const Status& status) {
    if (!status.ok()) static_cast<void>(FailForGood(status));
    OperationEnded();
  });
}

void Worker::Impl::BeginFetch(Key key, KeyState* state, Operation operation) {
  state->fetch = std::make_unique<worker::Fetch>(
      &context_, state->tensor.get(), operation.out,
      [this, key, state, done = std::move(operation.pulled)](Status status) {
        done(std::move(status));
        state->fetch.reset();
        EndOperation(key, state);
      });
  // The response contains this worker's own pushes.
  state->fetch->Begin(state->next_round - 1, operation.priority);
}

void Worker::Impl::EndOperation(Key key, KeyState* state) {
  Advance(key, state);
  OperationEnded();
}

void Worker::Impl::BroadcastFrom(Key key, int32_t root,
                                 const std::shared_ptr<worker::BroadcastFrom>& call, Done done) {
  const std::string what = "broadcast key=" + std::to_string(key) + ": ";
  if (!context_.view->has_worker(root)) {
    return done(Status::InvalidArgument(what + "root " + std::to_string(root) + " of only " +
                                        CountOf(context_.view->num_workers(), "worker")));
  }
  if (!call->has_memory()) {
    return done(Status::ResourceExhausted(what + "no memory for the value of another worker"));
  }
  const bool first = !keys_[key].WillBeDeclared();
  for (Operation& operation : worker::BroadcastFrom::Operations(
           call, {.first = first, .rank = context_.rank(), .root = root}, std::move(done))) {
    Enqueue(key, std::move(operation));
  }
}

void Worker::Impl::SetOptimizer(backend::OptimizerText optimizer, Done done) {
  if (!failure_.ok()) return done(failure_);
  ++num_open_;
  backend_->SetOptimizer(std::move(optimizer), ++num_optimizers_,
                         [this, done = std::move(done)](const Status& status) {
                           const bool ours = status.code() == StatusCode::kInvalidArgument;
                           done(status.ok() || ours ? status : FailForGood(status));
                           OperationEnded();
                         });
}

Tensor Worker::Impl::PartitionAndPlace(Tensor tensor, uint64_t partition_bytes,
                                       std::span<const Partition> replaced) {
  const uint64_t whole = tensor.size_bytes + protocol::kAlignBytes;
  tensor.partition_bytes =
      tensor.about.empty() ? partition_bytes : whole - whole % protocol::kAlignBytes;
  tensor.partitions = protocol::SplitIntoPartitions(tensor.size_bytes, tensor.partition_bytes,
                                                    protocol::kAlignBytes);
  backend_->Place(tensor.partitions, replaced);
  return tensor;
}

void Worker::Impl::OperationEnded() {
  if (--num_open_ > 0) return;
  for (const UniqueFunction<void()>& closed : std::exchange(on_closed_, {})) closed();
}

}  // namespace bs
