// Gathers readiness, lets the Core decide, and grants the partitions that it starts.
#include "server/grants/leader.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "base/check.h"
#include "base/count_of.h"
#include "core/comm_task.h"
#include "protocol/describe.h"
#include "protocol/next_layout.h"
#include "protocol/placement.h"
#include "protocol/tensor.h"

namespace bs::server {
namespace {

CoreOptions OptionsOf(const protocol::Division& division) {
  // Operations cannot overtake each other, so nothing goes early and nothing has a reserve.
  return {.partition_bytes = division.partition_bytes,
          .credit_bytes = division.credit_bytes,
          .early_bytes = 0,
          .priority_order = division.priority_order,
          .small_reserve = false};
}

std::string DescribeTensor(const protocol::ReadyTensor& tensor) {
  return "key=" + std::to_string(tensor.key) + " round=" + std::to_string(tensor.round) +
         (tensor.part > 0 ? " partition=" + std::to_string(tensor.part - 1) : "");
}

std::string DescribeArrayOf(const protocol::ReadyTensor& tensor) {
  return protocol::DescribeArray(static_cast<uint32_t>(tensor.dtype), tensor.size_bytes);
}

}  // namespace

// A tensor in a round, ready on all ranks.
class Leader::Task final : public CommTask {
 public:
  Task(Leader* leader, protocol::ReadyTensor tensor)
      : CommTask(tensor.key, tensor.round, tensor.priority, tensor.size_bytes),
        leader_(leader),
        tensor_(std::move(tensor)) {}

  DType dtype() const { return tensor_.dtype; }
  std::vector<bs::Partition> Partition(uint64_t partition_bytes) override {
    const uint64_t least_bytes =
        tensor_.size_bytes / protocol::kMostPartitions + protocol::kAlignBytes;
    return protocol::SplitIntoPartitions(tensor_.size_bytes, std::max(partition_bytes, least_bytes),
                                         protocol::kAlignBytes);
  }
  void Start(const bs::Partition& partition) override {
    if (++num_started_ == partitions().size()) ++leader_->fully_granted_;
    leader_->started_.push_back({this, partition.index});
  }
  void OnFinished(Status /*status*/) override { leader_->TaskEnded(this); }

  protocol::GrantedPiece PieceOf(uint32_t index) const {
    const bs::Partition& partition = partitions()[index];
    return {.key = key(),
            .round = round(),
            .offset_bytes = partition.offset_bytes,
            .size_bytes = partition.size_bytes,
            .next_layout = index == 0 ? tensor_.next_layout : std::string(),
            .part = tensor_.part};
  }

 private:
  Leader* const leader_;
  const protocol::ReadyTensor tensor_;
  size_t num_started_ = 0;
};

Leader::Leader(const GrantOptions& options, int32_t num_workers, Executor* executor, SendFn send,
               const protocol::Rules& rules)
    : options_(options),
      executor_(executor),
      send_(std::move(send)),
      waits_for_all_(rules.grants_wait_for_all_workers()),
      ranks_(static_cast<size_t>(num_workers)) {
  BS_CHECK(options.partition_bytes >= protocol::kAlignBytes);
  MakeCore({.partition_bytes = options.partition_bytes,
            .credit_bytes = options.credit_bytes,
            .priority_order = options.priority_order});
}

void Leader::MakeCore(const protocol::Division& division) {
  division_ = division;
  run_ = nullptr;
  core_ = std::make_unique<Core>(OptionsOf(division), [this](std::function<void()> run) {
    run_ = std::move(run);
    RequestTurn();
  });
}

// The Core wants its tasks ended; a task with operations under way ends with them.
Leader::~Leader() {
  StopWatch();
  if (core_->num_tasks() == 0) return;
  core_->FailAll(Status::Cancelled("the leader has ended"));
  Finish(num_operations());
}

void Leader::Ready(protocol::Call call) {
  if (failure_) return send_(protocol::MakeErrorResponse(call, *failure_));
  const int32_t number = call.worker_rank;
  Rank& rank = ranks_[static_cast<size_t>(number)];
  const Result<protocol::Readiness> read = protocol::DecodeReadiness(call.request.ready);
  const uint64_t ready_number = call.request.ready_number;
  Status wrong = read.status();
  if (wrong.ok() && ready_number >= rank.seen + kMostAhead) {
    wrong = Status::InvalidArgument("it is too far ahead of the first request that is missing");
  }
  if (!wrong.ok()) {
    return send_(protocol::MakeErrorResponse(
        call, Status::InvalidArgument(protocol::DescribeCall(call) + ": " + wrong.message())));
  }
  if (!IsNew(&rank, ready_number)) return Repeat(&rank, std::move(call));
  rank.open.emplace(ready_number, std::move(call));
  if (const Status status = Take(number, read.value()); !status.ok()) return Fail(status);
  RequestTurn();
}

bool Leader::IsNew(Rank* rank, uint64_t number) {
  if (number < rank->seen || !rank->seen_ahead.insert(number).second) return false;
  while (rank->seen_ahead.erase(rank->seen) > 0) ++rank->seen;
  return true;
}

void Leader::Repeat(Rank* rank, protocol::Call call) {
  const auto open = rank->open.find(call.request.ready_number);
  // Its response was lost, perhaps with operations that no other response has.  Or it came, and
  // this response is dropped: so it counts for nothing.
  if (open == rank->open.end()) return Answer(call, rank->received);
  if (rank->reported > fully_granted_) {
    return send_(protocol::MakePendingResponse(call, Awaited(call.worker_rank)));
  }
  // The rank waits for nothing, for any time: no request stays open so long.
  AnswerOpen(rank, open);
}

Status Leader::Take(int32_t number, const protocol::Readiness& readiness) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  rank.joined = std::max({rank.joined, readiness.joined, readiness.finished});
  if (!readiness.failure.ok()) return FailureOf(readiness);
  if (std::max(readiness.received, readiness.finished) > num_operations()) {
    return Status::Internal("worker " + std::to_string(number) + " has ended " +
                            CountOf(readiness.finished, "operation") + " of only " +
                            std::to_string(num_operations()));
  }
  rank.received = std::max(rank.received, readiness.received);
  if (number == 0 && readiness.division) Divide(*readiness.division);
  if (number == 0) Finish(readiness.finished);
  for (const protocol::ReadyTensor& tensor : readiness.tensors) {
    if (const Status status = TakeTensor(number, tensor); !status.ok()) return status;
  }
  ForgetOld();
  return Status::Ok();
}

// No tensor is ready on all ranks before, so there is no task.
void Leader::Divide(const protocol::Division& division) {
  if (std::exchange(is_divided_, true) || core_->num_tasks() > 0) return;
  MakeCore(division);
}

Status Leader::FailureOf(const protocol::Readiness& readiness) const {
  const Status& failure = readiness.failure;
  const uint64_t late = readiness.finished;
  if (!readiness.late || late >= num_operations()) return failure;
  std::vector<int32_t> missing;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].joined <= late) missing.push_back(static_cast<int32_t>(i));
  }
  return {failure.code(),
          failure.message() + (missing.empty()
                                   ? ", though all workers have joined it"
                                   : "; missing there: " + protocol::DescribeWorkers(missing))};
}

Status Leader::TakeTensor(int32_t number, const protocol::ReadyTensor& tensor) {
  if (std::max(gathering_.size(), coded_.size()) >= kMostKeys) {
    return Status::ResourceExhausted("too many keys are ready on some workers alone");
  }
  if (!tensor.coded.empty()) return TakeCoded(number, tensor);
  if (const auto coded = coded_.find({tensor.key, tensor.round}); coded != coded_.end()) {
    return Unlike(tensor, number, coded->second);
  }
  ++ranks_[static_cast<size_t>(number)].reported;
  const auto [found, is_first] = gathering_.try_emplace({tensor.key, tensor.part});
  Gathering& gathering = found->second;
  if (is_first) {
    gathering.tensor = tensor;
    gathering.first_rank = number;
    gathering.ready.resize(ranks_.size());
    gathering.missing = static_cast<int32_t>(ranks_.size());
    gathering.begin = executor_->Now();
  } else if (const Status status = CheckSame(number, tensor, gathering); !status.ok()) {
    return status;
  }
  if (number == 0) {
    gathering.tensor.priority = tensor.priority;
    gathering.tensor.next_layout = tensor.next_layout;
  }
  gathering.ready[static_cast<size_t>(number)] = true;
  --gathering.missing;
  const bool is_whole = waits_for_all_ ? gathering.missing == 0 : number == 0;
  if (is_whole) {
    Begin(std::move(gathering_.extract(found).mapped()));
    if (gathering_.empty()) StopWatch();
    return Status::Ok();
  }
  if (!watch_) Watch();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::optional<Status>& gone = ranks_[i].gone;
    if (gone && !gathering.ready[i]) return *gone;
  }
  return Status::Ok();
}

Status Leader::TakeCoded(int32_t number, const protocol::ReadyTensor& tensor) {
  const auto [found, is_first] = coded_.try_emplace({tensor.key, tensor.round});
  Coded& coded = found->second;
  if (is_first) coded = {.rank = number, .how = tensor.coded};
  const auto plain = gathering_.find({tensor.key, 0});
  if (plain != gathering_.end() && plain->second.tensor.round == tensor.round) {
    return Unlike(tensor, plain->second.first_rank, coded);
  }
  // A key that is given back begins with the first round again, and may be plain then.
  if (++coded.num_ranks == static_cast<int32_t>(ranks_.size())) coded_.erase(found);
  return Status::Ok();
}

Status Leader::Unlike(const protocol::ReadyTensor& tensor, int32_t number, const Coded& coded) {
  return Status::InvalidArgument(DescribeTensor(tensor) + ": worker " + std::to_string(number) +
                                 " is not compressed, worker " + std::to_string(coded.rank) +
                                 " is " + coded.how +
                                 "; set gradient compression alike on all workers");
}

Status Leader::CheckSame(int32_t number, const protocol::ReadyTensor& tensor,
                         const Gathering& gathering) const {
  const protocol::ReadyTensor& known = gathering.tensor;
  const std::string here = "worker " + std::to_string(number);
  const std::string there = "worker " + std::to_string(gathering.first_rank);
  if (tensor.round != known.round) {
    return Status::InvalidArgument("key=" + std::to_string(tensor.key) + ": " + here +
                                   " is in round " + std::to_string(tensor.round) + ", " + there +
                                   " in round " + std::to_string(known.round) +
                                   "; every worker must call the same sums");
  }
  if (tensor.size_bytes != known.size_bytes || tensor.dtype != known.dtype) {
    return Status::InvalidArgument(DescribeTensor(tensor) + ": " + here + " has " +
                                   DescribeArrayOf(tensor) + ", " + there + " has " +
                                   DescribeArrayOf(known));
  }
  if (gathering.ready[static_cast<size_t>(number)]) {
    return Status::Internal(DescribeTensor(tensor) + ": " + here + " is ready twice");
  }
  return Status::Ok();
}

void Leader::Begin(Gathering gathering) {
  auto owned = std::make_unique<Task>(this, std::move(gathering.tensor));
  Task* const task = owned.get();
  tasks_.emplace(task, std::move(owned));
  core_->Add(task);
  task->NotifyReady();
}

void Leader::TaskEnded(Task* task) { tasks_.erase(task); }

void Leader::Finish(uint64_t finished) {
  for (; finished_ < finished; ++finished_) {
    const std::vector<Started> pieces = std::move(operations_[finished_ - first_kept_].pieces);
    for (const Started& piece : pieces) piece.task->NotifyFinish(piece.index, Status::Ok());
  }
}

void Leader::ForgetOld() {
  uint64_t needed = finished_;
  for (const Rank& rank : ranks_) needed = std::min(needed, rank.received);
  while (first_kept_ < needed) {
    operations_.pop_front();
    ++first_kept_;
  }
}

void Leader::RequestTurn() {
  if (std::exchange(turn_posted_, true)) return;
  executor_->Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) Turn();
  });
}

void Leader::Turn() {
  turn_posted_ = false;
  if (failure_) return;
  if (run_ && num_operations() - finished_ < kMostOperations) {
    std::exchange(run_, {})();
    Fuse();
  }
  for (Rank& rank : ranks_) Respond(&rank);
}

// In the order of the Core's queue; nothing waits for company.
void Leader::Fuse() {
  std::vector<Started> pieces;
  uint64_t size_bytes = 0;
  for (const Started& piece : std::exchange(started_, {})) {
    const uint64_t more = piece.task->partitions()[piece.index].size_bytes;
    const bool fits = pieces.empty() || (size_bytes + more <= division_.partition_bytes &&
                                         piece.task->dtype() == pieces.front().task->dtype());
    if (!fits) {
      AddOperation(std::exchange(pieces, {}));
      size_bytes = 0;
    }
    pieces.push_back(piece);
    size_bytes += more;
  }
  if (!pieces.empty()) AddOperation(std::move(pieces));
}

void Leader::AddOperation(std::vector<Started> pieces) {
  protocol::GrantedOperation granted;
  granted.reserve(pieces.size());
  for (const Started& piece : pieces) granted.push_back(piece.task->PieceOf(piece.index));
  operations_.push_back({std::move(pieces), protocol::Encode(granted)});
}

void Leader::Respond(Rank* rank) {
  while (!rank->open.empty()) {
    const bool has_new = rank->sent < num_operations();
    if (!has_new && rank->open.size() <= kOpenRequests) return;
    AnswerOpen(rank, rank->open.begin());
  }
}

void Leader::AnswerOpen(Rank* rank, std::map<uint64_t, protocol::Call>::iterator open) {
  Answer(open->second, rank->sent);
  rank->sent = num_operations();
  rank->open.erase(open);
}

void Leader::Answer(const protocol::Call& call, uint64_t from) const {
  std::vector<std::string> encoded;
  for (uint64_t number = std::max(from, first_kept_); number < num_operations(); ++number) {
    encoded.push_back(operations_[number - first_kept_].encoded);
  }
  protocol::DataResponse body;
  body.grants = protocol::EncodeGrants(num_operations() - encoded.size(), encoded);
  send_(protocol::MakeResponse(call, std::move(body), {}));
}

std::string Leader::Awaited(int32_t number) const {
  for (const auto& [id, gathering] : gathering_) {
    if (!gathering.ready[static_cast<size_t>(number)]) continue;
    return DescribeMissing(gathering);
  }
  return "operations before its own";
}

std::string Leader::DescribeMissing(const Gathering& gathering) const {
  return protocol::DescribeWorkers(MissingRanks(gathering)) +
         (gathering.tensor.part > 0 ? " to get from the servers " : " to sum ") +
         DescribeTensor(gathering.tensor);
}

void Leader::Watch() {
  watch_ = executor_->PostAt(executor_->Now() + options_.straggler_timeout / 4, [this] {
    watch_.reset();
    const TimePoint latest = executor_->Now() - options_.straggler_timeout;
    for (const auto& [id, gathering] : gathering_) {
      // The request to a server has a deadline of its own, whose error says more.
      if (gathering.tensor.part > 0 || gathering.begin > latest) continue;
      const auto seconds =
          std::chrono::ceil<std::chrono::seconds>(options_.straggler_timeout).count();
      return Fail(Status::DeadlineExceeded("after " + std::to_string(seconds) +
                                           " s still waiting for " + DescribeMissing(gathering) +
                                           ": every worker must call the same sums"));
    }
    if (!gathering_.empty()) Watch();
  });
}

void Leader::StopWatch() {
  if (!watch_) return;
  executor_->Cancel(*watch_);
  watch_.reset();
}

std::vector<int32_t> Leader::MissingRanks(const Gathering& gathering) const {
  std::vector<int32_t> missing;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!gathering.ready[i]) missing.push_back(static_cast<int32_t>(i));
  }
  return missing;
}

void Leader::OnWorkerGone(int32_t number, const Status& why) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  if (rank.gone) return;
  rank.gone = why;
  rank.open.clear();
  const bool is_missed = std::ranges::any_of(gathering_, [&](const auto& entry) {
    return !entry.second.ready[static_cast<size_t>(number)];
  });
  if (is_missed) Fail(why);
}

void Leader::Fail(const Status& why) {
  if (failure_) return;
  failure_ = why;
  StopWatch();
  for (Rank& rank : ranks_) {
    for (const auto& [number, call] : std::exchange(rank.open, {})) {
      send_(protocol::MakeErrorResponse(call, why));
    }
  }
}

}  // namespace bs::server
