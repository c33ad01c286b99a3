// Collects the contributions of a host, sends their sum as one, and hands out the sum of all hosts.
#include "backend/host/host_sums.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "backend/backend_before.h"
#include "base/check.h"
#include "codec/codec.h"
#include "protocol/describe.h"
#include "protocol/tensor.h"
#include "ps/text.h"

namespace bs::backend {
namespace {

// The memory of a round beside its sums, about.
constexpr uint64_t kRoundBytes = 1024;

protocol::PartitionShape ShapeOf(const protocol::Tensor& tensor, const Partition& partition) {
  return {.offset_bytes = partition.offset_bytes,
          .size_bytes = partition.size_bytes,
          .dtype = static_cast<uint32_t>(tensor.dtype)};
}

}  // namespace

HostSums::HostSums(const HostSumsOptions& options, const HostPlan* plan, Backend* link,
                   Executor* executor, SendFn send, const protocol::Rules& rules)
    : options_(options),
      plan_(plan),
      link_(link),
      executor_(executor),
      send_(std::move(send)),
      waits_for_all_(rules.host_copies_wait_for_all()),
      leaves_once_(rules.host_copies_leave_once()),
      has_own_credit_(rules.host_copies_have_their_own_credit()),
      goes_to_all_(rules.host_sums_go_to_all()),
      own_place_(plan->PlaceOnHost(options.view->own.rank)),
      copies_(link->num_destinations(), options.credit_bytes, link->shares()),
      room_(options.available_bytes, "use fewer workers on this host, or a larger one"),
      spares_(options.view->num_workers()),
      places_(plan->num_workers()) {}

HostSums::~HostSums() { executor_->Cancel(watch_); }

std::string HostSums::Describe(const RoundId& id) {
  return "key=" + std::to_string(id.key) + " round=" + std::to_string(id.round) +
         " partition=" + std::to_string(id.partition);
}

Result<HostSums::Entry*> HostSums::EntryFor(const RoundId& id, size_t place,
                                            const protocol::PartitionShape& shape,
                                            const Coding& coding) {
  const auto found = entries_.find(id);
  const bool is_new = found == entries_.end();
  auto made = is_new ? std::make_unique<Entry>(id, HostRound(plan_->num_workers(), &spares_, shape))
                     : nullptr;
  Entry& entry = is_new ? *made : *found->second;
  if (is_new) {
    entry.coding = coding;
    entry.coding_rank = plan_->ranks()[place];
  }
  // Memory of earlier rounds has gone back to the system, but for spares.
  uint64_t more_bytes = 0;
  if (is_new && entries_.size() == most_entries_) more_bytes += kRoundBytes;
  if (is_new && !spares_.Has(shape.size_bytes)) more_bytes += shape.size_bytes;
  if (IsInOrder(coding) && entry.round.ComesEarly(place)) more_bytes += shape.size_bytes;
  Result<server::MemoryRoom::Promise> memory = room_.Ask(more_bytes);
  if (!memory.ok()) return memory.status();
  entry.memory = std::move(memory.value());
  if (is_new) entries_.emplace(id, std::move(made));
  most_entries_ = std::max(most_entries_, entries_.size());
  return &entry;
}

void HostSums::Add(const protocol::Tensor& tensor, Exchange exchange) {
  const RoundId id{tensor.key, exchange.partition.index, tensor.layout_version, exchange.round};
  const protocol::PartitionShape shape = ShapeOf(tensor, exchange.partition);
  const Result<Entry*> opened = EntryFor(id, own_place_, shape, exchange.coder.coding);
  if (!opened.ok()) {
    const Status why(opened.status().code(), Describe(id) + ": its " + opened.status().message());
    return RefuseLater(executor_, std::move(exchange), why);
  }
  Entry& entry = *opened.value();
  BS_CHECK(!entry.own && !entry.round.has(own_place_));
  entry.own = std::make_unique<Own>(Own{protocol::WithoutPartitions(tensor), std::move(exchange)});
  entry.began = executor_->Now();
  if (watch_ == 0) WatchStragglers();
  Exchange& own = entry.own->exchange;
  // It waits for no other worker: the bytes of this host cross the link by their own credit.
  if (has_own_credit_) {
    executor_->Post([released = std::move(own.released)] { released(Status::Ok()); });
  }
  const Coding& coding = own.coder.coding;
  if (const Status unlike = CheckCoding(entry, coding, options_.view->own.rank);
      !unlike.ok() && entry.state == State::kCollecting) {
    return FailRound(&entry, unlike, /*tells=*/true);
  }
  if (const Status wrong = CheckOwn(entry, shape); !wrong.ok())
    return FailRound(&entry, wrong, /*tells=*/false);
  entry.priority = std::max(entry.priority, own.priority);
  if (own_place_ == 0) entry.ratio = own.coder.ratio;
  if (!own.next_layout.empty()) entry.next_layout = std::move(own.next_layout);
  Take(&entry, own_place_,
       ps::Frame::Borrow(own.in, [executor = executor_, sent = std::move(own.sent)]() mutable {
         executor->Post([sent = std::move(sent)] { sent(Status::Ok()); });
       }));
}

Status HostSums::CheckOwn(const Entry& entry, const protocol::PartitionShape& shape) const {
  if (failure_) return *failure_;
  if (entry.state == State::kFailed) return entry.why;
  if (const Status* why = Blocked(entry)) return *why;
  return CheckShape(entry, shape, "this worker");
}

Status HostSums::CheckFields(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  const auto wrong = [&](const std::string& what) {
    return Status::InvalidArgument(protocol::DescribeCall(call) + ": " + what);
  };
  const bool known = call.extension.op == ps::Op::kPushPull || call.extension.op == ps::Op::kPull;
  if (!known) return wrong("a worker does not do that");
  if (Status senseless = protocol::CheckCoding(call, *options_.codecs); !senseless.ok()) {
    return senseless;
  }
  const bool sums = about.mode == static_cast<uint32_t>(Mode::kSynchronous) && about.round > 0 &&
                    about.size_bytes > 0 && options_.codecs->AddsUpOnHosts(about.coding);
  if (!sums) return wrong("the workers of a host do not add that up");
  return protocol::CheckArray(call, about.size_bytes);
}

Status HostSums::CheckCoding(const Entry& entry, const Coding& coding, int32_t rank) const {
  if (coding == entry.coding) return Status::Ok();
  const codec::Table& codecs = *options_.codecs;
  return Status::InvalidArgument(
      "key=" + std::to_string(entry.id.key) + " round=" + std::to_string(entry.id.round) +
      ": worker " + std::to_string(rank) + " is " + codecs.Describe(coding) + ", worker " +
      std::to_string(entry.coding_rank) + " of the same host is " + codecs.Describe(entry.coding) +
      "; set gradient compression alike on all workers");
}

Status HostSums::CheckShape(const Entry& entry, const protocol::PartitionShape& shape,
                            const std::string& sender) const {
  const protocol::PartitionShape& known = entry.round.shape();
  if (known == shape) return Status::Ok();
  return Status::InvalidArgument(Describe(entry.id) + ": " + sender + " has " +
                                 protocol::DescribeArray(shape.dtype, shape.size_bytes) +
                                 " at byte " + std::to_string(shape.offset_bytes) +
                                 ", another worker of this host " +
                                 protocol::DescribeArray(known.dtype, known.size_bytes) +
                                 " at byte " + std::to_string(known.offset_bytes));
}

void HostSums::Handle(size_t place, protocol::Call call) {
  if (const Status wrong = CheckFields(call); !wrong.ok()) {
    return send_(protocol::MakeErrorResponse(call, wrong));
  }
  const protocol::DataRequest& about = call.request;
  const uint64_t sequence = call.extension.sequence;
  Forget(place, about.answered_below);
  // A late copy of a request whose answer has come.
  if (sequence < places_[place].answered_below) return;
  const RoundId id{about.key, about.partition, about.layout_version, about.round};
  const auto known = places_[place].requests.find(sequence);
  if (known != places_[place].requests.end()) return Repeat(known->second, std::move(call));
  if (const Status wrong = Check(place, call); !wrong.ok()) {
    return send_(protocol::MakeErrorResponse(call, wrong));
  }
  const Result<Entry*> opened = EntryFor(id, place, protocol::ShapeOf(call), about.coding);
  if (!opened.ok()) {
    const Status why(opened.status().code(),
                     protocol::DescribeCall(call) + ": its " + opened.status().message());
    return send_(protocol::MakeErrorResponse(call, why));
  }
  Entry& entry = *opened.value();
  places_[place].requests.emplace(sequence, &entry);
  ++entry.unanswered;
  entry.priority = std::max(entry.priority, call.priority);
  if (!about.next_layout.empty()) entry.next_layout = about.next_layout;
  if (place == 0) entry.ratio = about.ratio;
  const Status unlike = CheckCoding(entry, about.coding, call.worker_rank);
  ps::Frame payload = std::move(call.payload);
  entry.pending.Add(std::move(call), [&](const auto&) { return Awaited(entry); }, send_);
  if (!unlike.ok()) return FailRound(&entry, unlike, /*tells=*/true);
  if (const Status* why = Blocked(entry)) return FailRound(&entry, Status(*why), true);
  Take(&entry, place, std::move(payload));
}

Status HostSums::Check(size_t place, const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  const auto wrong = [&](const std::string& what) {
    return Status::FailedPrecondition(protocol::DescribeCall(call) + ": " + what);
  };
  if (left_) return *left_;
  if (call.extension.op != ps::Op::kPushPull) return wrong("it was not pushed before");
  if (plan_->OwnerOf(about.key, about.partition) != options_.view->own.rank) {
    return wrong("another worker adds that up");
  }
  const auto found = entries_.find({about.key, about.partition, about.layout_version, about.round});
  if (found == entries_.end()) return Status::Ok();
  const Entry& entry = *found->second;
  if (entry.state == State::kFailed) return entry.why;
  if (entry.round.has(place)) return wrong("this worker has contributed");
  // That round cannot end well: its other workers hear of the codings too.
  if (about.coding != entry.coding) return Status::Ok();
  return CheckShape(entry, protocol::ShapeOf(call), "worker " + std::to_string(call.worker_rank));
}

void HostSums::Repeat(Entry* entry, protocol::Call call) {
  switch (entry->state) {
    case State::kDone:
      return Answer(entry, call);
    case State::kFailed:
      // Without an answer yet, the end of the job is near.
      if (!entry->pending.empty()) break;
      return send_(protocol::MakeErrorResponse(call, entry->why));
    case State::kCollecting:
    case State::kCrossing:
      break;
  }
  entry->pending.Add(std::move(call), [&](const auto&) { return Awaited(*entry); }, send_);
}

void HostSums::Forget(size_t place, uint64_t answered_below) {
  Place& worker = places_[place];
  if (answered_below <= worker.answered_below) return;
  worker.answered_below = answered_below;
  const auto end = worker.requests.lower_bound(answered_below);
  for (auto request = worker.requests.begin(); request != end;) {
    Entry* const entry = request->second;
    request = worker.requests.erase(request);
    --entry->unanswered;
    EraseIfOver(entry);
  }
}

void HostSums::EraseIfOver(Entry* entry) {
  const bool over = entry->state == State::kDone || entry->state == State::kFailed;
  if (!over || entry->unanswered > 0 || entry->own) return;
  entry->round.GiveSumBack();
  entries_.erase(RoundId(entry->id));
}

const Status* HostSums::Blocked(const Entry& entry) const {
  if (left_ && !entry.round.has(own_place_)) return &*left_;
  for (size_t place = 0; place < places_.size(); ++place) {
    const std::optional<Status>& gone = places_[place].gone;
    if (gone && !entry.round.has(place)) return &*gone;
  }
  return nullptr;
}

void HostSums::Take(Entry* entry, size_t place, ps::Frame payload) {
  const uint64_t held = entry->round.held_bytes();
  const bool waits =
      entry->round.ComesEarly(place) &&
      (IsInOrder(entry->coding) || held_bytes_ + payload.size() <= options_.hold_bytes);
  try {
    entry->round.Take(place, std::move(payload), waits);
  } catch (const std::bad_alloc&) {
    return FailRound(entry,
                     Status::ResourceExhausted(
                         "key=" + std::to_string(entry->id.key) + ": no memory to add up " +
                         std::to_string(entry->round.shape().size_bytes) + " bytes on this host"),
                     true);
  }
  entry->memory = {};  // it is in use
  held_bytes_ = held_bytes_ - held + entry->round.held_bytes();
  const bool leaves = entry->round.complete() || (!waits_for_all_ && entry->own && !waits);
  if (leaves && entry->state == State::kCollecting) Submit(entry);
}

void HostSums::WatchStragglers() {
  watch_ = executor_->PostAt(executor_->Now() + options_.straggler_timeout / 4, [this] {
    watch_ = 0;
    EndLateRounds();
    const auto waits = [](const auto& entry) { return entry.second->own != nullptr; };
    if (std::any_of(entries_.begin(), entries_.end(), waits)) WatchStragglers();
  });
}

void HostSums::EndLateRounds() {
  const TimePoint latest = executor_->Now() - options_.straggler_timeout;
  for (auto next = entries_.begin(); next != entries_.end();) {
    Entry& entry = *(next++)->second;
    if (entry.state != State::kCollecting || !entry.own || entry.began > latest) continue;
    FailRound(&entry,
              Status::DeadlineExceeded("push-pull key=" + std::to_string(entry.id.key) +
                                       " round=" + std::to_string(entry.id.round) + ": after " +
                                       ps::TextOf(options_.straggler_timeout) +
                                       " still waiting for " + Awaited(entry)),
              true);
  }
}

void HostSums::Submit(Entry* entry) {
  entry->state = State::kCrossing;
  const Exchange& own = entry->own->exchange;
  copies_.Submit(own.partition.server, {.priority = entry->priority,
                                        .size_bytes = CreditBytes(*entry),
                                        .token = entry,
                                        .index = own.partition.index});
  StartCopies();
}

void HostSums::StartCopies() {
  bool started = true;
  while (std::exchange(started, false)) {
    for (uint32_t server = 0; server < copies_.num_servers(); ++server) {
      const std::optional<core::Item> item = copies_.Next(server);
      if (!item) continue;
      started = true;
      Start(static_cast<Entry*>(item->token));
    }
  }
}

void HostSums::Start(Entry* entry) {
  const Exchange& own = entry->own->exchange;
  const std::span<const std::byte> sum(entry->round.sum()->data(), own.in.size());
  const auto make = [&] {
    Exchange copy;
    copy.round = own.round;
    copy.partition = own.partition;
    copy.priority = entry->priority;
    // With the residual that this worker keeps of the partition.
    copy.coder = own.coder;
    copy.coder.ratio = entry->ratio;
    copy.next_layout = entry->next_layout;
    copy.stands_for = static_cast<uint32_t>(plan_->num_workers());
    copy.in = sum;
    copy.out = own.out;
    return copy;
  };
  Exchange copy = make();
  entry->ends_missing = 2;
  copy.released = [this, entry, server = own.partition.server,
                   size_bytes = CreditBytes(*entry)](const Status& status) {
    if (!has_own_credit_) {
      std::exchange(entry->own->exchange.released, {})(status);
    }
    copies_.Return(server, size_bytes);
    if (!failure_) StartCopies();
  };
  copy.sent = [this, entry](const Status& status) { OnEnd(entry, status); };
  copy.summed = [this, entry](const Status& status, const std::string& next) {
    entry->next_layout = next;
    OnEnd(entry, status);
  };
  link_->Start(entry->own->tensor, std::move(copy));
  if (leaves_once_) return;
  Exchange again = make();
  again.released = [](const Status&) {};
  again.sent = [kept = entry->round.sum()](const Status&) {};
  link_->Start(entry->own->tensor, std::move(again));
}

void HostSums::OnEnd(Entry* entry, const Status& status) {
  if (entry->crossed.ok()) entry->crossed = status;
  if (--entry->ends_missing == 0) Finish(entry);
}

void HostSums::Finish(Entry* entry) {
  if (!entry->crossed.ok()) {
    // After this worker's own failure the other workers hear of it from the scheduler node.
    return FailRound(entry, Status(left_ ? *left_ : entry->crossed), left_ || !failure_);
  }
  entry->state = State::kDone;
  const Own own = std::move(*entry->own);
  entry->own.reset();
  std::memcpy(entry->round.sum()->data(), own.exchange.out.data(), own.exchange.out.size());
  AnswerPending(entry);
  const std::string next = entry->next_layout;
  EraseIfOver(entry);
  own.exchange.summed(Status::Ok(), next);
}

void HostSums::AnswerPending(Entry* entry) {
  for (const protocol::Call& call : entry->pending.TakeAll()) {
    Answer(entry, call);
  }
}

void HostSums::Answer(Entry* entry, const protocol::Call& call) {
  if (!goes_to_all_ && call.worker_rank == plan_->ranks().back()) return;
  const server::SumRef& sum = entry->round.sum();
  // A repeat that overtook its answer needs no second copy of the bytes.
  if (sum->InFlightTo(call.worker_rank)) {
    return send_(protocol::MakePendingResponse(call, "the answer, which waits for the network"));
  }
  send_(protocol::MakeValuesResponse(call, entry->round.shape(),
                                     server::SumBuffer::MakeFrame(sum, call.worker_rank),
                                     entry->next_layout));
}

void HostSums::FailRound(Entry* entry, const Status& why, bool tells) {
  entry->state = State::kFailed;
  entry->why = why;
  held_bytes_ -= entry->round.held_bytes();
  entry->round.Drop();
  if (tells) entry->pending.RefuseAll(why, send_);
  EndOwn(entry, why);
}

void HostSums::EndOwn(Entry* entry, const Status& why) {
  if (entry->own) {
    RefuseLater(executor_, std::move(entry->own->exchange), why);
    entry->own.reset();
  }
  EraseIfOver(entry);
}

void HostSums::OnWorkerLeft(size_t place, const Status& why) {
  if (places_[place].gone) return;
  places_[place].gone = why;
  Forget(place, UINT64_MAX);
  for (auto next = entries_.begin(); next != entries_.end();) {
    Entry& entry = *(next++)->second;
    entry.pending.Forget(plan_->ranks()[place]);
    if (entry.state == State::kCollecting && !entry.round.has(place)) FailRound(&entry, why, true);
  }
}

void HostSums::SetCredit(uint64_t credit_bytes) {
  copies_.SetCredit(credit_bytes);
  if (!failure_) StartCopies();
}

void HostSums::Leave(const Status& why) {
  left_ = why;
  for (auto next = entries_.begin(); next != entries_.end();) {
    Entry& entry = *(next++)->second;
    const bool misses = entry.state == State::kFailed ||
                        (entry.state == State::kCollecting && !entry.round.has(own_place_));
    if (misses) FailRound(&entry, why, true);
  }
}

void HostSums::Fail(const Status& why) {
  if (failure_) return;
  failure_ = why;
  // Copies on the link end by the failure of the back end there.
  for (auto next = entries_.begin(); next != entries_.end();) {
    Entry& entry = *(next++)->second;
    const bool waits = entry.state == State::kCollecting ||
                       (entry.state == State::kCrossing && entry.ends_missing == 0);
    if (waits) FailRound(&entry, why, false);
  }
  copies_.Clear();
}

std::string HostSums::Awaited(const Entry& entry) const {
  if (entry.round.complete()) return "the workers of other hosts";
  std::vector<int32_t> missing;
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!entry.round.has(place)) missing.push_back(plan_->ranks()[place]);
  }
  return protocol::DescribeWorkers(missing) + " to push key " + std::to_string(entry.id.key) +
         " (round " + std::to_string(entry.id.round) + ")";
}

}  // namespace bs::backend
