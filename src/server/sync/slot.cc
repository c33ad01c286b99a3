// Takes contributions to one partition, sums them in order, and answers with the sums.
#include "server/sync/slot.h"

#include <algorithm>

#include "base/check.h"
#include "base/count_of.h"
#include "codec/codec.h"
#include "protocol/describe.h"
#include "reduce/reduce.h"

namespace bs::server {
namespace {

bool Pulls(const protocol::Call& call) { return call.extension.op == ps::Op::kPushPull; }

}  // namespace

Slot::Slot(ShardState* shard, SlotId id, Round first)
    : shard_(shard), id_(id), rounds_(shard->view.get(), shard->num_buffers, first) {
  shard->counters.Expect(shard->view->num_workers());
}

void Slot::Push(protocol::Call& call) {
  std::vector<int32_t> host;  // not in use by a push of the sender alone
  if (call.request.stands_for > 0) host = shard_->view->WorkersBeside(call.worker_rank);
  const std::span<const int32_t> ranks = host.empty() ? std::span(&call.worker_rank, 1) : host;
  if (const Status wrong = CheckPush(call, ranks); !wrong.ok()) return Refuse(call, wrong);
  switch (rounds_.Judge(ranks, call.request.round)) {
    case PushVerdict::kRefuse:
      return Refuse(call, Status::FailedPrecondition(
                              protocol::DescribeCall(call) + ": expected round " +
                              std::to_string(rounds_.current()) + " from " + rounds_.Missing()));
    case PushVerdict::kDuplicate:
      return Pulls(call) ? Pull(call) : shard_->send(protocol::MakeResponse(call, {}));
    case PushVerdict::kTake: {
      if (const Status* why = Blocked()) return Refuse(call, *why);
      Result<MemoryRoom::Promise> memory = AskForMemory(call, ranks.front());
      if (!memory.ok()) return Refuse(call, memory.status());
      return Take(call, ranks, std::move(memory.value()));
    }
  }
}

void Slot::Pull(protocol::Call& call) {
  switch (rounds_.Pull(call.request.round)) {
    case PullVerdict::kReady:
      return Answer(call);
    case PullVerdict::kRefuse:
      return Refuse(
          call, Status::FailedPrecondition(protocol::DescribeCall(call) + ": only round " +
                                           std::to_string(rounds_.current()) +
                                           " is to come, and the one or two before it are kept"));
    case PullVerdict::kWait:
      if (const Status wrong = CheckPull(call); !wrong.ok()) return Refuse(call, wrong);
      if (const Status* why = Blocked()) return Refuse(call, *why);
      return AddPending(call);
  }
}

uint64_t Slot::kept_bytes() const {
  const auto size_of = [](const SumRef& buffer) { return buffer ? buffer->size_bytes() : 0; };
  const uint64_t sums = size_of(buffers_[0]) + size_of(buffers_[1]);
  return coded_ ? sums + size_of(coded_->sum) + coded_->residual.size() * sizeof(float) : sums;
}

void Slot::OnWorkerGone(int32_t rank) {
  pending_.Forget(rank);
  if (const Status* why = Blocked()) pending_.RefuseAll(*why, shard_->send);
}

void Slot::Fail(const Status& why) {
  if (early_) {
    for (const auto& [rank, early] : *early_) shard_->early_bytes -= early.payload.size();
    early_.reset();
  }
  pending_.RefuseAll(why, shard_->send);
}

Status Slot::CheckPush(const protocol::Call& call, std::span<const int32_t> ranks) const {
  if (const Status wrong = protocol::CheckArray(call, call.request.size_bytes); !wrong.ok())
    return wrong;
  if (const Status wrong = protocol::CheckPayload(call, *shard_->codecs); !wrong.ok()) return wrong;
  if (const Status wrong = CheckCoding(call); !wrong.ok()) return wrong;
  if (const Status wrong = CheckHost(call, ranks); !wrong.ok()) return wrong;
  if (const Status wrong = CheckNext(call, ranks); !wrong.ok()) return wrong;
  if (Pulls(call) && call.request.round == 0) {
    return Status::InvalidArgument(protocol::DescribeCall(call) +
                                   ": initial values are only pushed");
  }
  return has_shape() ? protocol::CheckShape(call, shape_) : Status::Ok();
}

Status Slot::CheckCoding(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  // A repeat of an older round is only acknowledged.
  if (!rounds_.open() || about.round != rounds_.current() || about.coding == coding()) {
    return Status::Ok();
  }
  return Status::InvalidArgument(
      protocol::DescribeCall(call) + ": it is " + shard_->codecs->Describe(about.coding) +
      ", that of worker " + std::to_string(coding_rank_) + " is " +
      shard_->codecs->Describe(coding()) + "; set gradient compression alike on all workers");
}

// Both ends find a host's workers in the list of nodes, so a difference is a fault.
Status Slot::CheckHost(const protocol::Call& call, std::span<const int32_t> ranks) const {
  const protocol::DataRequest& about = call.request;
  if (about.stands_for == 0) return Status::Ok();
  const bool adds_up = about.round > 0 && shard_->codecs->AddsUpOnHosts(about.coding);
  if (about.stands_for == ranks.size() && adds_up) return Status::Ok();
  return Status::InvalidArgument(
      protocol::DescribeCall(call) + ": it stands for " + CountOf(about.stands_for, "worker") +
      ", and its host has " + std::to_string(ranks.size()) +
      "; initial values and gradients in two bits are sent by each worker alone");
}

Status Slot::CheckNext(const protocol::Call& call, std::span<const int32_t> ranks) const {
  const bool may = ranks.front() == 0 && id_.partition == 0 && call.request.round > 0;
  if (may || call.request.next_layout.empty()) return Status::Ok();
  return Status::InvalidArgument(protocol::DescribeCall(call) +
                                 ": only worker 0 says how a key is cut from the next round on, "
                                 "with partition 0 and not with the initial value");
}

Status Slot::CheckPull(const protocol::Call& call) const {
  return has_shape() ? protocol::CheckPullSize(call, shape_) : Status::Ok();
}

// Asks nothing for memory that replaces other memory: the bound of waiting answers covers it.
Result<MemoryRoom::Promise> Slot::AskForMemory(const protocol::Call& call, int32_t rank) const {
  const auto refused = [&](const Status& status) {
    return Status(status.code(), protocol::DescribeCall(call) + ": its " + status.message());
  };
  const uint64_t payload_bytes = call.payload.size();
  const Coding& coding = call.request.coding;
  if (!coding.plain() && ComesEarly(rank, coding, payload_bytes)) {
    // No setting bounds codes that wait.  The kernel counts these already, so nothing is promised.
    const Result<MemoryRoom::Promise> room = shard_->AskForMemory(payload_bytes);
    if (!room.ok()) return refused(room.status());
  }
  const Coding of_sum = shard_->codecs->OfSums(call.request.coding);
  const bool is_coded = !of_sum.plain();
  const bool has_memory =
      is_coded ? coded_ && coded_->sum : bool(buffers_[rounds_.buffer_of(rounds_.current())]);
  if (has_memory || has_early()) return MemoryRoom::Promise();
  const uint64_t copies = shard_->codecs->KeepsResidual(of_sum) ? 2 : 1;
  Result<MemoryRoom::Promise> memory = shard_->AskForMemory(copies * call.request.size_bytes);
  if (memory.ok()) return memory;
  return refused(memory.status());
}

const Status* Slot::Blocked() const {
  for (size_t rank = 0; rank < shard_->gone.size(); ++rank) {
    const std::optional<Status>& why = shard_->gone[rank];
    if (why && rounds_.needs(static_cast<int32_t>(rank))) return &*why;
  }
  return nullptr;
}

void Slot::Take(protocol::Call& call, std::span<const int32_t> ranks, MemoryRoom::Promise memory) {
  const int32_t rank = ranks.front();
  const auto workers = static_cast<int32_t>(ranks.size());
  const protocol::DataRequest& about = call.request;
  if (!has_shape()) shape_ = protocol::ShapeOf(call);
  // Whatever can fail for want of memory comes before the contribution counts.
  const bool pulls = Pulls(call);
  ps::Message taken;
  if (pulls) {
    pending_.MakeRoom();
  } else {
    taken = protocol::MakeResponse(call, {});
  }
  const uint64_t payload_bytes = call.payload.size();
  const bool opens = !rounds_.open();
  if (opens && about.coding.codec != 0 && !coded_) coded_ = std::make_unique<Coded>();
  const bool early = ComesEarly(rank, about.coding, payload_bytes);
  const bool says_next = rank == 0 && !about.next_layout.empty();
  if (says_next && !next_) next_ = std::make_unique<std::array<std::string, 2>>();
  if (early) {
    if (!early_) early_ = std::make_unique<EarlyByRank>();
    early_->try_emplace(
        rank, Early{workers, ps::Frame::Alone(std::move(call.payload)), std::move(memory)});
    shard_->early_bytes += payload_bytes;
  } else if (!rounds_.has_sum()) {
    BeginSum(&call);
  }
  if (opens) {
    if (coded_) coded_->coding = about.coding;
    coding_rank_ = rank;
  }
  if (rank == 0 && coded_) coded_->ratio = about.ratio;
  if (rank == 0 && next_) {
    (*next_)[rounds_.buffer_of(about.round)] = std::move(call.request.next_layout);
  }
  const PushVerdict verdict = rounds_.Push(ranks, about.round);
  BS_CHECK(verdict == PushVerdict::kTake);
  last_push_ = shard_->Now();
  if (opens) first_push_ = last_push_;
  shard_->counters.Pushed(rank, payload_bytes);
  for (size_t i = 0; about.round > 0 && i < ranks.size(); ++i) {
    shard_->counters.Contributed(ranks[i], opens && i == 0);
  }
  ps::Frame payload = std::move(call.payload);
  if (pulls) {
    AddPending(call);
  } else {
    // The bytes are ours from here on, so the credit can travel back while they are summed.
    shard_->send(std::move(taken));
  }
  if (!early) Add({rank, workers, std::move(payload)});
}

// Two workers need no order: a + b and b + a have the same bits.  Codes always wait for their turn,
// so that results do not depend on the network.
bool Slot::ComesEarly(int32_t rank, const Coding& coding, uint64_t payload_bytes) const {
  if (shard_->view->num_workers() <= 2 || rounds_.current() == 0 || rank == next_rank_)
    return false;
  return shard_->deterministic || !coding.plain() ||
         shard_->early_bytes + payload_bytes <= shard_->hold_bytes;
}

// An answer that still shows the round before last keeps its bytes: the round begins in other
// memory.  With one buffer (a test) it does not: that is the design that it shows to be wrong.
void Slot::BeginSum(protocol::Call* call) {
  ps::Frame& payload = call->payload;
  const uint32_t which = rounds_.buffer_of(rounds_.current());
  SumRef& buffer = buffers_[which];
  const Coding of_sum = shard_->codecs->OfSums(call->request.coding);
  if (!of_sum.plain()) {
    RenewResidual(of_sum);
    Renew(&coded_->sum, shape_.size_bytes);
    Renew(&buffer, shard_->codecs->SentBytes(of_sum, shape_.size_bytes));
  }
  if (coded_) coded_->of_sums[which] = of_sum;
  if (!of_sum.plain()) return;
  const bool adopts = call->request.coding.plain() && shard_->num_buffers > 1 &&
                      !payload.writable().empty() && payload.size() >= shard_->adopted_bytes;
  if (!adopts) return Renew(&buffer, shape_.size_bytes);
  const uint64_t kept_bytes = buffer ? buffer->size_bytes() : 0;
  buffer = SumRef::Adopt(std::move(payload), shard_->view->num_workers());
  shard_->counters.Freed(kept_bytes);
  shard_->counters.Kept(shape_.size_bytes);
}

void Slot::Renew(SumRef* buffer, uint64_t size_bytes) {
  const uint64_t kept_bytes = *buffer ? (*buffer)->size_bytes() : 0;
  const bool is_free = *buffer && (shard_->num_buffers == 1 || !(*buffer)->InFlight());
  if (is_free && kept_bytes == size_bytes) return;
  *buffer = SumRef::Make(size_bytes, shard_->numa_node, shard_->view->num_workers(), shard_->lend);
  shard_->counters.Freed(kept_bytes);
  shard_->counters.Kept(size_bytes);
}

void Slot::RenewResidual(const Coding& of_sum) {
  const size_t count = shape_.size_bytes / sizeof(float);
  if (!shard_->codecs->KeepsResidual(of_sum) || coded_->residual.size() == count) return;
  coded_->residual.resize(count);
  shard_->counters.Kept(shape_.size_bytes);
}

std::byte* Slot::SumMemory() {
  const uint32_t which = rounds_.buffer_of(rounds_.current());
  return CodingOf(which).plain() ? buffers_[which]->data() : coded_->sum->data();
}

void Slot::EncodeSum(Round round) {
  const uint32_t which = rounds_.buffer_of(round);
  const Coding coding = CodingOf(which);
  if (coding.plain()) return;
  const codec::Place place{.job = shard_->view->job,
                           .key = id_.key,
                           .round = round,
                           .first_element = shape_.offset_bytes / sizeof(float),
                           .ratio = coded_->ratio,
                           .rank = codec::kServerRank,
                           .num_workers = static_cast<uint32_t>(shard_->view->num_workers())};
  float* const residual = shard_->codecs->KeepsResidual(coding) ? coded_->residual.data() : nullptr;
  const TimePoint began = shard_->Now();
  shard_->codecs->Get(coding).encode(coding.parameters, place, coded_->sum->data(), residual,
                                     buffers_[which]->data(), shape_.size_bytes / sizeof(float));
  shard_->counters.Coded(shard_->Now() - began);
}

void Slot::Add(Ready contribution) {
  const int32_t rank = contribution.rank;
  std::vector<Ready> ready;
  ready.reserve((early_ ? early_->size() : 0) + 1);
  ready.push_back(std::move(contribution));
  MemoryRoom::Promise memory;  // until the sum is written
  // With this contribution in, early contributions behind it may have their turn.
  for (; rounds_.has(next_rank_); ++next_rank_) {
    if (!has_early()) continue;
    auto node = early_->extract(next_rank_);
    if (node.empty()) continue;
    Early& early = node.mapped();
    shard_->early_bytes -= early.payload.size();
    if (early.memory.size_bytes() > 0) memory = std::move(early.memory);
    ready.push_back({next_rank_, early.workers, std::move(early.payload)});
  }
  Sum(ready);
  // The sum's memory is in use: the kernel counts it from now on.
  if (early_) {
    for (auto& [whose, early] : *early_) early.memory = {};
  }
  const bool plain = coding().plain();
  const RoundTimes times{.key = id_.key,
                         .round = rounds_.current(),
                         .partition = id_.partition,
                         .size_bytes = shape_.size_bytes,
                         .coding = plain ? "" : shard_->codecs->Get(coding()).name,
                         .last_rank = rank,
                         .first_push = first_push_,
                         .last_push = last_push_,
                         .summed = shard_->Now()};
  bool complete = false;
  for (const Ready& summed : ready) complete = rounds_.Contributed(summed.rank, summed.workers);
  if (!complete) return;
  next_rank_ = 0;
  EncodeSum(times.round);
  AnswerPending();
  if (times.round > 0) shard_->counters.Summed(times);
  if (shard_->on_round) shard_->on_round(times);
}

void Slot::Sum(const std::vector<Ready>& ready) {
  std::byte* const sum = SumMemory();
  if (!coding().plain()) {
    const TimePoint began = shard_->Now();
    SumCodes(ready, sum);
    shard_->counters.Coded(shard_->Now() - began);
  } else if (shape_.size_bytes > 0) {
    SumPlain(ready, sum);
  }
}

// Sums in one pass, also where several were early.
void Slot::SumPlain(const std::vector<Ready>& ready, std::byte* sum) const {
  std::vector<const void*> inputs;
  inputs.reserve(ready.size() + 1);
  const bool begun = rounds_.has_sum() || ready.front().payload.size() == 0;
  if (begun) inputs.push_back(sum);
  for (const Ready& contribution : ready) {
    const ps::Frame& payload = contribution.payload;
    if (payload.size() > 0) inputs.push_back(payload.bytes().data());
  }
  if (inputs.size() == 1) {
    if (!begun) reduce::Copy(sum, inputs[0], shape_.size_bytes);
    return;
  }
  const auto dtype = static_cast<DType>(shape_.dtype);
  reduce::SumInputs(reduce::BestKernels(), dtype, sum, inputs, shape_.size_bytes / SizeOf(dtype));
}

void Slot::SumCodes(const std::vector<Ready>& ready, std::byte* sum) const {
  const codec::Codec& codec = shard_->codecs->Get(coded_->coding);
  codec::Place place{.job = shard_->view->job,
                     .key = id_.key,
                     .round = rounds_.current(),
                     .first_element = shape_.offset_bytes / sizeof(float)};
  const size_t count = shape_.size_bytes / sizeof(float);
  bool empty = !rounds_.has_sum();
  for (const Ready& contribution : ready) {
    const auto put = empty ? codec.decode : codec.add;
    place.rank = static_cast<uint32_t>(contribution.rank);
    place.num_workers = static_cast<uint32_t>(contribution.workers);
    put(coded_->coding.parameters, place, contribution.payload.bytes().data(), sum, count);
    empty = false;
  }
}

void Slot::AnswerPending() {
  std::vector<protocol::Call> calls = pending_.TakeAll();
  const auto turn = [this](const protocol::Call& call) {
    return shard_->AnswersBefore(call.worker_rank);
  };
  std::sort(calls.begin(), calls.end(), [&](const auto& a, const auto& b) {
    return a.priority != b.priority ? a.priority > b.priority : turn(a) < turn(b);
  });
  for (const protocol::Call& call : calls) Answer(call);
}

void Slot::Answer(const protocol::Call& call) {
  if (const Status wrong = CheckPull(call); !wrong.ok()) return Refuse(call, wrong);
  const uint32_t which = rounds_.buffer_of(call.request.round);
  const SumRef& sum = buffers_[which];
  // A repeat that overtook its answer on a slow link: the same bytes again would only make the
  // backlog longer.
  if (sum->InFlightTo(call.worker_rank)) {
    return shard_->send(
        protocol::MakePendingResponse(call, "the answer, which waits for the network"));
  }
  const Coding coding = CodingOf(which);
  shard_->counters.Pulled(call.worker_rank, shard_->codecs->SentBytes(coding, shape_.size_bytes));
  ps::Message answer =
      protocol::MakeValuesResponse(call, shape_, SumBuffer::MakeFrame(sum, call.worker_rank),
                                   next_ ? (*next_)[which] : std::string(), coding);
  // A worker asks for a sum after it has read the sum before.  If that sum is still in flight, the
  // worker does not read, and a later round begins in fresh memory because of it.
  const SumRef& other = buffers_[1 - which];
  answer.keeps_memory = other && other->InFlightTo(call.worker_rank);
  shard_->send(std::move(answer));
}

void Slot::Refuse(const protocol::Call& call, const Status& why) {
  shard_->counters.Refused();
  shard_->send(protocol::MakeErrorResponse(call, why));
}

void Slot::AddPending(protocol::Call& call) {
  pending_.Add(std::move(call), [this](const protocol::Call&) { return Wanted(); }, shard_->send);
}

std::string Slot::Wanted() const {
  const std::string key = "key " + std::to_string(id_.key);
  if (rounds_.current() == 0) return rounds_.Missing() + " to initialise " + key;
  return rounds_.Missing() + " to push " + key + " (round " + std::to_string(rounds_.current()) +
         ")";
}

}  // namespace bs::server
