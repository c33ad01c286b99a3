// Sends the partitions the Core starts, and counts the answers.
#include "backend/ps/push_pull_task.h"

#include <utility>

#include "base/check.h"

namespace bs::worker {

namespace {

using Kind = core::TraceEvent::Kind;

}  // namespace

PushPullTask::PushPullTask(const Link* link, const Tensor* tensor, Call call,
                           UniqueFunction<void()> ended)
    : CommTask(tensor->key, call.round, call.priority,
               SentBytes(*link, call.coder.coding, tensor->size_bytes)),
      link_(link),
      tensor_(tensor),
      rates_(call.rates),
      waited_(call.waited),
      in_(call.in),
      out_(call.out),
      coder_(call.coder),
      pulls_(static_cast<bool>(call.pulled)),
      next_(std::move(call.next)),
      push_{.done = std::move(call.pushed)},
      pull_{.done = std::move(call.pulled)},
      ended_(std::move(ended)) {
  BS_CHECK(in_.size() == tensor->size_bytes && (!pulls_ || out_.size() == tensor->size_bytes));
}

void PushPullTask::Begin() {
  link_->core->Add(this);
  ready_ = link_->spans.Now();
  link_->spans.Ready(*this, waited_);
  NotifyReady();
}

std::vector<bs::Partition> PushPullTask::Partition(uint64_t /*partition_bytes*/) {
  std::vector<bs::Partition> partitions = tensor_->partitions;  // as rank 0 cut it
  // They are whole units of the codec.
  for (bs::Partition& partition : partitions) {
    partition.offset_bytes = SentBytes(*link_, coder_.coding, partition.offset_bytes);
    partition.size_bytes = SentBytes(*link_, coder_.coding, partition.size_bytes);
  }
  return partitions;
}

void PushPullTask::Start(const bs::Partition& sent) {
  const bs::Partition& partition = tensor_->partitions[sent.index];
  Piece piece{.round = round(), .partition = partition, .priority = priority(), .rates = rates_};
  if (sent.index == 0) piece.next = std::exchange(next_, {});
  const uint32_t index = partition.index;
  const TimePoint started = link_->spans.Now();
  link_->spans.Partition(Kind::kQueued, *this, sent, {ready_, started});
  link_->spans.Credit(*link_->core, sent.server);
  if (GoesTogether(partition.size_bytes)) return PushPull(piece, started);
  Push(piece, started);
  if (!pulls_) return;
  ++pull_.pending;
  Pull(*link_, *tensor_, piece, out_.subspan(partition.offset_bytes, partition.size_bytes),
       [this, index, started](const Status& status, const std::string& next) {
         if (index == 0) next_ = next;
         OnAnswer(&pull_, index, started, status);
       });
}

void PushPullTask::Push(const Piece& piece, TimePoint started) {
  const uint64_t offset_bytes = piece.partition.offset_bytes;
  const uint64_t size_bytes = piece.partition.size_bytes;
  const std::span<const std::byte> bytes = in_.subspan(offset_bytes, size_bytes);
  auto done = [this, index = piece.partition.index, started](const Status& status) {
    OnAnswer(&push_, index, started, status);
  };
  ++push_.pending;
  if (link_->rate != nullptr) link_->rate->Started(partitions()[piece.partition.index].size_bytes);
  if (coder_.coding.plain()) return worker::Push(*link_, *tensor_, piece, bytes, std::move(done));
  const Coder coder{.coding = coder_.coding,
                    .residual = coder_.residual.subspan(offset_bytes / sizeof(float),
                                                        size_bytes / sizeof(float))};
  PushCoded(*link_, *tensor_, piece, bytes, coder, std::move(done));
}

bool PushPullTask::GoesTogether(uint64_t size_bytes) const {
  // An empty partition sends nothing.
  return pulls_ && size_bytes > 0 && size_bytes <= link_->together_bytes &&
         !link_->credit_until_pulled && coder_.coding.plain() &&
         tensor_->mode == Mode::kSynchronous;
}

void PushPullTask::PushPull(const Piece& piece, TimePoint started) {
  const bs::Partition& partition = piece.partition;
  ++push_.pending;
  ++pull_.pending;
  BothWays ways{.in = in_.subspan(partition.offset_bytes, partition.size_bytes),
                .out = out_.subspan(partition.offset_bytes, partition.size_bytes),
                .left = [this, index = partition.index, started] { OnLeft(index, started); }};
  worker::PushPull(
      *link_, *tensor_, piece, std::move(ways),
      [this, index = partition.index, started](const Status& status, const std::string& next) {
        if (index == 0) next_ = next;
        OnSum(index, started, status);
      });
}

void PushPullTask::OnLeft(uint32_t index, TimePoint started) {
  link_->spans.Partition(Kind::kPush, *this, partitions()[index], {started, link_->spans.Now()});
  GiveCredit(index, Status::Ok());
}

void PushPullTask::OnSum(uint32_t index, TimePoint started, const Status& status) {
  Count(&push_, status);
  Count(&pull_, status);
  if (status.ok()) {
    link_->spans.Partition(Kind::kPull, *this, partitions()[index], {started, link_->spans.Now()});
  }
  Settle();
}

void PushPullTask::OnAnswer(Direction* direction, uint32_t index, TimePoint started,
                            const Status& status) {
  if (direction == &push_ && link_->rate != nullptr) {
    link_->rate->Answered(partitions()[index].size_bytes);
  }
  Count(direction, status);
  if (status.ok()) {
    const bool push = direction == &push_;
    link_->spans.Partition(push ? Kind::kPush : Kind::kPull, *this,
                           push ? partitions()[index] : tensor_->partitions[index],
                           {started, link_->spans.Now()});
  }
  const Direction* const gives_credit = link_->credit_until_pulled && pulls_ ? &pull_ : &push_;
  if (direction != gives_credit) return Settle();
  GiveCredit(index, status);
}

void PushPullTask::Count(Direction* direction, const Status& status) {
  // While this answer still counts as pending the task outlives whatever fails.
  if (!status.ok()) failure_ = link_->fail(status);
  --direction->pending;
  if (status.ok()) ++direction->answered;
}

// The last of them settles, in OnFinished; before it nothing of its direction can be over.
void PushPullTask::GiveCredit(uint32_t index, const Status& status) {
  // The task may end with it, and the link too if that is the measured order's.
  const Spans spans = link_->spans;
  Core* const core = link_->core;
  const uint32_t server = partitions()[index].server;
  NotifyFinish(index, status);
  spans.Credit(*core, server);
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
  const bool complete = direction->answered == partitions().size();
  // After a failure the Core starts nothing more.
  const bool failed = !failure_.ok() && direction->pending == 0;
  if (!complete && !failed) return;
  if (complete && direction == (pulls_ ? &pull_ : &push_)) {
    link_->spans.Tensor(*this, {ready_, link_->spans.Now()});
  }
  const UniqueFunction<void(Status)> done = std::move(direction->done);
  done(complete ? Status::Ok() : failure_);
}

}  // namespace bs::worker
