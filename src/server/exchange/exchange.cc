// Takes contributions to an exchange, combines them, and answers with the result.
#include "server/exchange/exchange.h"

#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "protocol/describe.h"
#include "reduce/reduce.h"

namespace bs::server {
namespace {

// The position of `rank`, or the number of ranks if it is none of them.
size_t PlaceIn(const std::vector<int32_t>& ranks, int32_t rank) {
  const auto at = std::ranges::lower_bound(ranks, rank);
  const bool is_there = at != ranks.end() && *at == rank;
  return is_there ? static_cast<size_t>(at - ranks.begin()) : ranks.size();
}

Status Wrong(const protocol::Call& call, const std::string& what) {
  return Status::InvalidArgument(protocol::DescribeCall(call) + ": " + what);
}

}  // namespace

Exchange::Exchange(ShardState* shard, const ExchangeRules* rules, size_t* num_partitions,
                   const protocol::Call& first, protocol::ExchangeTerms terms)
    : shard_(shard),
      rules_(rules),
      terms_(std::move(terms)),
      encoded_(first.request.terms),
      first_rank_(first.worker_rank),
      num_partitions_(protocol::NumPartitions(terms_)),
      num_partitions_of_all_(num_partitions),
      latest_(RequestsOf(terms_)),
      gone_(terms_.takers.size()),
      num_given_(terms_.givers.size()) {
  for (size_t rank = 0; rank < shard_->gone.size(); ++rank) {
    if (shard_->gone[rank]) OnWorkerGone(static_cast<int32_t>(rank));
  }
}

Status Exchange::Differs(const protocol::Call& call, const protocol::ExchangeTerms& stated) const {
  return Status::InvalidArgument(
      "workers call different exchanges: worker " + std::to_string(call.worker_rank) + " calls " +
      protocol::Describe(stated) + ", and worker " + std::to_string(first_rank_) + " calls " +
      protocol::Describe(terms_) +
      "; all ranks of a group have to make the same calls in the same order");
}

Status Exchange::CheckPlace(const protocol::Call& call) const {
  const protocol::DataRequest& about = call.request;
  const bool gives = call.extension.op == ps::Op::kGive;
  const auto is_among = [&](const std::vector<int32_t>& ranks) {
    return PlaceIn(ranks, call.worker_rank) < ranks.size();
  };
  if ((gives || call.payload.size() > 0) && !is_among(terms_.givers)) {
    return Wrong(call, "it is no giver of " + protocol::Describe(terms_));
  }
  if (!gives && !is_among(terms_.takers)) {
    return Wrong(call, "it is no taker of " + protocol::Describe(terms_));
  }
  if (about.partition >= num_partitions_) {
    return Wrong(call, "the exchange has " + CountOf(num_partitions_, "partition"));
  }
  const Partition partition = protocol::PartitionOf(terms_, about.partition);
  // Nothing of an exchange travels coded.  A taker may give too.
  const bool fits =
      about.offset_bytes == partition.offset_bytes && about.size_bytes == partition.size_bytes &&
      (call.payload.size() == partition.size_bytes || (!gives && call.payload.size() == 0));
  return fits ? Status::Ok() : Wrong(call, "it is another partition than its terms say");
}

void Exchange::NoteRequest(const protocol::Call& call) {
  uint64_t& latest = latest_.at(call.worker_rank);
  latest = std::max(latest, call.extension.sequence);
}

const Status* Exchange::Blocked() const {
  for (size_t rank = 0; rank < shard_->gone.size(); ++rank) {
    const std::optional<Status>& why = shard_->gone[rank];
    if (why && Needs(static_cast<int32_t>(rank))) return &*why;
  }
  return nullptr;
}

bool Exchange::Needs(int32_t rank) const {
  const size_t place = PlaceIn(terms_.givers, rank);
  return place < num_given_.size() && num_given_[place] < num_partitions_;
}

bool Exchange::HasEnded(int32_t rank) const {
  if (Needs(rank)) return false;
  const size_t place = PlaceIn(terms_.takers, rank);
  if (place == terms_.takers.size()) return true;
  const auto taken = std::ranges::count_if(
      partitions_, [place](const auto& entry) { return entry.second.taken[place]; });
  return static_cast<uint64_t>(taken) == num_partitions_;
}

LatestRequests Exchange::LatestOfAware() const {
  LatestRequests aware = latest_;
  for (auto& [rank, latest] : aware) {
    if (!HasEnded(rank)) latest = 0;
  }
  return aware;
}

Exchange::PartitionState& Exchange::StateOf(uint32_t partition) {
  const auto [at, fresh] = partitions_.try_emplace(partition);
  PartitionState& state = at->second;
  if (fresh) {
    ++*num_partitions_of_all_;
    state.given.resize(terms_.givers.size());
    state.taken = gone_;
  }
  return state;
}

void Exchange::Give(protocol::Call& call) {
  PartitionState& state = StateOf(call.request.partition);
  ps::Message taken_up = protocol::MakeResponse(call, {});
  if (!TakeUp(call, &state)) return;
  shard_->send(std::move(taken_up));
  AnswerIfComplete(&state);
}

bool Exchange::TakeUp(protocol::Call& call, PartitionState* state) {
  const size_t place = PlaceIn(terms_.givers, call.worker_rank);
  if (state->given[place] && rules_->count_contributions_once) return true;  // a repeat
  const uint64_t size_bytes = call.payload.size();
  if (size_bytes > 0) {
    Result<MemoryRoom::Promise> memory = shard_->AskForMemory(size_bytes);
    if (!memory.ok()) {
      Refuse(call, {memory.status().code(),
                    protocol::DescribeCall(call) + ": its " + memory.status().message()});
      return false;
    }
    const bool early = ComesEarly(*state, place, size_bytes);
    if (early) {
      state->early.emplace(place, ps::Frame::Alone(std::move(call.payload)));
      shard_->early_bytes += size_bytes;
    } else if (!state->result) {
      Begin(state, std::move(call.payload));
    } else {
      Combine(state, call.payload);
    }
  }
  if (!state->given[place]) ++num_given_[place];
  state->given[place] = true;
  ++state->num_given;
  shard_->counters.Pushed(call.worker_rank, size_bytes);
  AddEarly(state);
  return true;
}

void Exchange::AnswerIfComplete(PartitionState* state) {
  if (!IsComplete(*state)) return;
  AnswerWaiting(state);
  EndIfTaken(state);
}

// Two givers need no order: both orders give the same bits.
bool Exchange::ComesEarly(const PartitionState& state, size_t place, uint64_t size_bytes) const {
  if (terms_.givers.size() <= 2 || place == state.next) return false;
  return shard_->deterministic || shard_->early_bytes + size_bytes <= shard_->hold_bytes;
}

void Exchange::Begin(PartitionState* state, ps::Frame payload) {
  const uint64_t size_bytes = payload.size();
  const auto readers = static_cast<int32_t>(terms_.takers.size());
  if (!payload.writable().empty() && size_bytes >= shard_->adopted_bytes) {
    state->result = SumRef::Adopt(std::move(payload), readers);
  } else {
    state->result = SumRef::Make(size_bytes, shard_->numa_node, readers, shard_->lend);
    reduce::Copy(state->result->data(), payload.bytes().data(), size_bytes);
  }
  shard_->counters.Kept(size_bytes);
}

void Exchange::AddEarly(PartitionState* state) {
  for (; state->next < state->given.size() && state->given[state->next]; ++state->next) {
    auto node = state->early.extract(state->next);
    if (node.empty()) continue;
    shard_->early_bytes -= node.mapped().size();
    state->result ? Combine(state, node.mapped()) : Begin(state, std::move(node.mapped()));
  }
}

void Exchange::Combine(PartitionState* state, const ps::Frame& payload) const {
  reduce::Combine(terms_.reduction, terms_.dtype, state->result->data(), payload.bytes().data(),
                  payload.size() / SizeOf(terms_.dtype));
}

void Exchange::Take(protocol::Call& call) {
  PartitionState& state = StateOf(call.request.partition);
  const size_t place = PlaceIn(terms_.takers, call.worker_rank);
  if (state.over || state.taken[place]) {
    return Refuse(call, Status::FailedPrecondition(protocol::DescribeCall(call) +
                                                   ": this worker has it already"));
  }
  if (call.payload.size() > 0) {
    if (!TakeUp(call, &state)) return;
    call.payload = {};
    AnswerIfComplete(&state);
  }
  if (IsComplete(state)) return Answer(call, &state);
  state.waiting.Add(
      std::move(call), [&](const protocol::Call&) { return Awaited(state); }, shard_->send);
}

void Exchange::AnswerWaiting(PartitionState* state) {
  std::vector<protocol::Call> calls = state->waiting.TakeAll();
  const auto turn = [this](const protocol::Call& call) {
    return shard_->AnswersBefore(call.worker_rank);
  };
  std::ranges::sort(calls, [&](const auto& a, const auto& b) {
    return a.priority != b.priority ? a.priority > b.priority : turn(a) < turn(b);
  });
  for (const protocol::Call& call : calls) Answer(call, state);
}

void Exchange::Answer(const protocol::Call& call, PartitionState* state) {
  const auto reader = static_cast<int32_t>(PlaceIn(terms_.takers, call.worker_rank));
  const protocol::PartitionShape shape{.offset_bytes = call.request.offset_bytes,
                                       .size_bytes = call.request.size_bytes,
                                       .dtype = static_cast<uint32_t>(terms_.dtype)};
  ps::Frame result;
  if (shape.size_bytes > 0) {
    if (state->result->InFlightTo(reader)) {
      return shard_->send(
          protocol::MakePendingResponse(call, "the answer, which waits for the network"));
    }
    result = SumBuffer::MakeFrame(state->result, reader);
  }
  shard_->counters.Pulled(call.worker_rank, shape.size_bytes);
  shard_->send(protocol::MakeValuesResponse(call, shape, std::move(result)));
}

void Exchange::Taken(int32_t rank, uint32_t partition) {
  const size_t place = PlaceIn(terms_.takers, rank);
  const auto at = partitions_.find(partition);
  const bool is_taker = place < terms_.takers.size();
  if (!is_taker || at == partitions_.end() || !IsComplete(at->second)) return;
  at->second.taken[place] = true;
  EndIfTaken(&at->second);
}

void Exchange::EndIfTaken(PartitionState* state) {
  const bool taken = rules_->stay_until_all_takers_have_them
                         ? std::ranges::find(state->taken, false) == state->taken.end()
                         : std::ranges::find(state->taken, true) != state->taken.end();
  if (state->over || !taken || !IsComplete(*state)) return;
  state->over = true;
  ++num_over_;
  Release(state);
}

void Exchange::Release(PartitionState* state) {
  for (const auto& [place, payload] : state->early) shard_->early_bytes -= payload.size();
  state->early.clear();
  if (state->result) shard_->counters.Freed(state->result->size_bytes());
  state->result = {};
}

void Exchange::OnWorkerGone(int32_t rank) {
  const size_t place = PlaceIn(terms_.takers, rank);
  if (place == terms_.takers.size()) return;
  gone_[place] = true;
  for (auto& [index, state] : partitions_) {
    state.waiting.Forget(rank);
    state.taken[place] = true;
    EndIfTaken(&state);
  }
}

void Exchange::Fail(const Status& why, const SendFn& send) {
  for (auto& [index, state] : partitions_) {
    state.waiting.RefuseAll(why, send);
    Release(&state);
  }
}

std::string Exchange::Awaited(const PartitionState& state) const {
  std::vector<int32_t> missing;
  for (size_t place = 0; place < terms_.givers.size(); ++place) {
    if (!state.given[place]) missing.push_back(terms_.givers[place]);
  }
  return protocol::DescribeWorkers(missing) + " to call " + protocol::Describe(terms_);
}

std::string Exchange::Missing() const {
  std::vector<int32_t> missing;
  for (size_t place = 0; place < terms_.givers.size(); ++place) {
    if (num_given_[place] < num_partitions_) missing.push_back(terms_.givers[place]);
  }
  return missing.empty() ? std::string() : protocol::DescribeWorkers(missing);
}

void Exchange::Refuse(const protocol::Call& call, const Status& why) {
  shard_->counters.Refused();
  shard_->send(protocol::MakeErrorResponse(call, why));
}

}  // namespace bs::server
