// Starts the exchanges of the partitions that the Core starts, and counts how they end.
#include "worker/push_pull_task.h"

#include <utility>

#include "base/check.h"
#include "reduce/reduce.h"

namespace bs::worker {

namespace {

using Kind = trace::TraceEvent::Kind;

// The bytes of the tensor as it leaves the task's memory.
uint64_t TravellingBytes(const OperationContext& context, const protocol::Tensor& tensor,
                         const Coding& coding) {
  if (context.backend->AddsUp(tensor, coding)) return tensor.size_bytes;
  return context.codecs->SentBytes(coding, tensor.size_bytes);
}

}  // namespace

PushPullTask::PushPullTask(const OperationContext* context, const protocol::Tensor* tensor,
                           Call call, UniqueFunction<void()> ended)
    : CommTask(tensor->key, call.round, call.priority,
               TravellingBytes(*context, *tensor, call.coder.coding)),
      context_(context),
      tensor_(tensor),
      rates_(call.rates),
      waited_(call.waited),
      factor_(call.factor),
      is_gradient_(call.is_gradient),
      in_(call.in),
      out_(call.out),
      coder_(call.coder),
      adds_up_(context->backend->AddsUp(*tensor, call.coder.coding)),
      pulls_(static_cast<bool>(call.pulled)),
      next_layout_(std::move(call.next_layout)),
      push_{.done = std::move(call.pushed)},
      pull_{.done = std::move(call.pulled)},
      ended_(std::move(ended)) {
  if (call.keeps_priority) KeepPriority();
  BS_CHECK(in_.size() == tensor->size_bytes && (!pulls_ || out_.size() == tensor->size_bytes));
}

void PushPullTask::Begin() {
  Lend();
  context_->core->Add(this);
  ready_ = context_->spans.Now();
  if (is_gradient_) context_->spans.Ready(*this, waited_);
  NotifyReady();
}

void PushPullTask::Lend() {
  // Codes lie elsewhere.
  if (coder_.coding.plain()) push_.lent = context_->backend->LendSent(in_);
  if (pulls_ && coder_.sum_coding.plain()) pull_.lent = context_->backend->LendFilled(out_);
}

std::vector<bs::Partition> PushPullTask::Partition(uint64_t /*partition_bytes*/) {
  std::vector<bs::Partition> partitions = tensor_->partitions;  // as rank 0 cut it
  // They are whole units of the codec.
  for (bs::Partition& partition : partitions) {
    partition.offset_bytes = SentBytes(coder_.coding, partition.offset_bytes);
    partition.size_bytes = SentBytes(coder_.coding, partition.size_bytes);
  }
  return partitions;
}

uint64_t PushPullTask::CreditBytes(const bs::Partition& sent) const {
  const uint64_t size_bytes = tensor_->partitions[sent.index].size_bytes;
  return adds_up_ ? size_bytes : context_->codecs->CreditBytes(coder_.coding, size_bytes);
}

void PushPullTask::Start(const bs::Partition& sent) {
  const bs::Partition& partition = tensor_->partitions[sent.index];
  const uint32_t index = partition.index;
  const TimePoint started = context_->spans.Now();
  const std::string_view coding = NameOf(coder_.codec);
  context_->spans.Partition(Kind::kQueued, *this, sent, {ready_, started},
                            {Carrier::kUnknown, coding});
  context_->spans.Credit(*context_->core, sent.server);
  backend::Exchange exchange{
      .round = round(), .partition = partition, .priority = PriorityOf(index), .rates = rates_};
  if (index == 0) exchange.next_layout = std::exchange(next_layout_, {});
  exchange.in = in_.subspan(partition.offset_bytes, partition.size_bytes);
  exchange.coder = coder_;
  if (!coder_.residual.empty()) {
    exchange.coder.residual = coder_.residual.subspan(partition.offset_bytes / sizeof(float),
                                                      partition.size_bytes / sizeof(float));
  }
  exchange.released = [this, index, started](const Status& status) {
    OnReleased(index, started, status);
  };
  ++push_.pending;
  exchange.sent = [this](const Status& status) { Count(&push_, status); };
  if (pulls_) {
    ++pull_.pending;
    exchange.out = out_.subspan(partition.offset_bytes, partition.size_bytes);
    exchange.summed = [this, index, started](const Status& status, const std::string& next) {
      OnSum(index, started, status, next);
    };
  }
  context_->backend->Start(*tensor_, std::move(exchange));
}

Carriers PushPullTask::CarriersOf(uint32_t index) const {
  if (!context_->spans.records()) return {};
  return context_->backend->CarriersOf(*tensor_, coder_.coding, tensor_->partitions[index]);
}

void PushPullTask::OnReleased(uint32_t index, TimePoint started, const Status& status) {
  if (status.ok()) {
    const bs::Partition& sent = partitions()[index];
    context_->spans.Partition(Kind::kPush, *this, sent, {started, context_->spans.Now()},
                              {CarriersOf(index).to, NameOf(coder_.codec)});
  } else {
    failure_ = context_->fail(status);
  }
  if (!context_->credit_until_pulled || !pulls_) GiveCredit(index, status);
}

void PushPullTask::OnSum(uint32_t index, TimePoint started, const Status& status,
                         const std::string& next) {
  if (index == 0) next_layout_ = next;
  if (status.ok()) {
    const bs::Partition& partition = tensor_->partitions[index];
    bs::Partition received = partition;
    received.size_bytes = SentBytes(coder_.sum_coding, partition.size_bytes);
    context_->spans.Partition(Kind::kPull, *this, received, {started, context_->spans.Now()},
                              {CarriersOf(index).from, NameOf(coder_.sum_codec)});
    // Its bytes have just been read or written, so most are in a cache.
    if (factor_ != 1) {
      reduce::Scale(tensor_->dtype, out_.data() + partition.offset_bytes,
                    partition.size_bytes / SizeOf(tensor_->dtype), factor_);
    }
  } else {
    failure_ = context_->fail(status);
  }
  if (context_->credit_until_pulled) GiveCredit(index, status);
  Count(&pull_, status);
}

// The exchange still counts as pending, so the task outlives the calls that its credit sets off.
void PushPullTask::GiveCredit(uint32_t index, const Status& status) {
  NotifyFinish(index, status);
  context_->spans.Credit(*context_->core, partitions()[index].server);
}

void PushPullTask::Count(Direction* direction, const Status& status) {
  // While this exchange still counts as pending the task outlives whatever fails.
  if (!status.ok()) failure_ = context_->fail(status);
  --direction->pending;
  if (status.ok()) ++direction->complete;
  Settle();
}

void PushPullTask::OnFinished(Status status) {
  released_ = true;
  if (!status.ok()) failure_ = std::move(status);
  Settle();
}

void PushPullTask::Settle() {
  Settle(&push_);
  Settle(&pull_);
  if (!released_ || push_.done || pull_.done || push_.pending > 0 || pull_.pending > 0) return;
  const UniqueFunction<void()> ended = std::move(ended_);
  ended();
}

void PushPullTask::Settle(Direction* direction) {
  if (!direction->done) return;
  const bool complete = direction->complete == partitions().size();
  // After a failure the Core starts nothing more.
  const bool failed = !failure_.ok() && direction->pending == 0;
  if (!complete && !failed) return;
  if (complete && is_gradient_ && direction == (pulls_ ? &pull_ : &push_)) {
    context_->spans.Tensor(*this, {ready_, context_->spans.Now()}, NameOf(coder_.codec));
  }
  const UniqueFunction<void(Status)> done = std::move(direction->done);
  direction->lent.reset();
  done(complete ? Status::Ok() : failure_);
}

}  // namespace bs::worker
