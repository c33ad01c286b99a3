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

Exchange::Exchange(ShardState* shard, const ExchangeRules* rules, const protocol::Call& first,
                   protocol::ExchangeTerms terms)
    : shard_(shard),
      rules_(rules),
      terms_(std::move(terms)),
      encoded_(first.request.terms),
      first_rank_(first.worker_rank),
      num_partitions_(protocol::NumPartitions(terms_)),
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

Exchange::Part& Exchange::PartOf(uint32_t partition) {
  const auto [at, fresh] = parts_.try_emplace(partition);
  Part& part = at->second;
  if (fresh) {
    part.given.resize(terms_.givers.size());
    part.taken = gone_;
  }
  return part;
}

void Exchange::Give(protocol::Call& call) {
  Part& part = PartOf(call.request.partition);
  ps::Message taken_up = protocol::MakeResponse(call, {});
  if (!TakeUp(call, &part)) return;
  shard_->send(std::move(taken_up));
  AnswerIfComplete(&part);
}

bool Exchange::TakeUp(protocol::Call& call, Part* part) {
  const size_t place = PlaceIn(terms_.givers, call.worker_rank);
  if (part->given[place]) return true;  // a repeat
  const uint64_t size_bytes = call.payload.size();
  if (size_bytes > 0) {
    Result<MemoryRoom::Promise> memory = shard_->AskForMemory(size_bytes);
    if (!memory.ok()) {
      Refuse(call, {memory.status().code(),
                    protocol::DescribeCall(call) + ": its " + memory.status().message()});
      return false;
    }
    const bool early = ComesEarly(*part, place, size_bytes);
    if (early) {
      part->early.emplace(place, ps::Frame::Alone(std::move(call.payload)));
      shard_->early_bytes += size_bytes;
    } else if (!part->result) {
      Begin(part, std::move(call.payload));
    } else {
      Combine(part, call.payload);
    }
  }
  part->given[place] = true;
  ++part->num_given;
  ++num_given_[place];
  shard_->counters.Pushed(call.worker_rank, size_bytes);
  AddEarly(part);
  return true;
}

void Exchange::AnswerIfComplete(Part* part) {
  if (!IsComplete(*part)) return;
  AnswerWaiting(part);
  EndIfTaken(part);
}

// Two givers need no order: both orders give the same bits.
bool Exchange::ComesEarly(const Part& part, size_t place, uint64_t size_bytes) const {
  if (terms_.givers.size() <= 2 || place == part.next) return false;
  return shard_->deterministic || shard_->early_bytes + size_bytes <= shard_->hold_bytes;
}

void Exchange::Begin(Part* part, ps::Frame payload) {
  const uint64_t size_bytes = payload.size();
  const auto readers = static_cast<int32_t>(terms_.takers.size());
  if (!payload.writable().empty() && size_bytes >= shard_->adopted_bytes) {
    part->result = SumRef::Adopt(std::move(payload), readers);
  } else {
    part->result = SumRef::Make(size_bytes, shard_->numa_node, readers, shard_->lend);
    reduce::Copy(part->result->data(), payload.bytes().data(), size_bytes);
  }
  shard_->counters.Kept(size_bytes);
}

void Exchange::AddEarly(Part* part) {
  for (; part->next < part->given.size() && part->given[part->next]; ++part->next) {
    auto node = part->early.extract(part->next);
    if (node.empty()) continue;
    shard_->early_bytes -= node.mapped().size();
    part->result ? Combine(part, node.mapped()) : Begin(part, std::move(node.mapped()));
  }
}

void Exchange::Combine(Part* part, const ps::Frame& payload) const {
  reduce::Combine(terms_.reduction, terms_.dtype, part->result->data(), payload.bytes().data(),
                  payload.size() / SizeOf(terms_.dtype));
}

void Exchange::Take(protocol::Call& call) {
  Part& part = PartOf(call.request.partition);
  const size_t place = PlaceIn(terms_.takers, call.worker_rank);
  if (part.over || part.taken[place]) {
    return Refuse(call, Status::FailedPrecondition(protocol::DescribeCall(call) +
                                                   ": this worker has it already"));
  }
  if (call.payload.size() > 0) {
    if (!TakeUp(call, &part)) return;
    call.payload = {};
    AnswerIfComplete(&part);
  }
  if (IsComplete(part)) return Answer(call, &part);
  part.waiting.Add(
      std::move(call), [&](const protocol::Call&) { return Awaited(part); }, shard_->send);
}

void Exchange::AnswerWaiting(Part* part) {
  std::vector<protocol::Call> calls = part->waiting.TakeAll();
  const auto turn = [this](const protocol::Call& call) {
    return shard_->AnswersBefore(call.worker_rank);
  };
  std::ranges::sort(calls, [&](const auto& a, const auto& b) {
    return a.priority != b.priority ? a.priority > b.priority : turn(a) < turn(b);
  });
  for (const protocol::Call& call : calls) Answer(call, part);
}

void Exchange::Answer(const protocol::Call& call, Part* part) {
  const auto reader = static_cast<int32_t>(PlaceIn(terms_.takers, call.worker_rank));
  const protocol::PartitionShape shape{.offset_bytes = call.request.offset_bytes,
                                       .size_bytes = call.request.size_bytes,
                                       .dtype = static_cast<uint32_t>(terms_.dtype)};
  ps::Frame result;
  if (shape.size_bytes > 0) {
    if (part->result->InFlightTo(reader)) {
      return shard_->send(
          protocol::MakePendingResponse(call, "the answer, which waits for the network"));
    }
    result = SumBuffer::MakeFrame(part->result, reader);
  }
  shard_->counters.Pulled(call.worker_rank, shape.size_bytes);
  shard_->send(protocol::MakeValuesResponse(call, shape, std::move(result)));
}

void Exchange::Taken(int32_t rank, uint32_t partition) {
  const size_t place = PlaceIn(terms_.takers, rank);
  const auto part = parts_.find(partition);
  const bool is_taker = place < terms_.takers.size();
  if (!is_taker || part == parts_.end() || !IsComplete(part->second)) return;
  part->second.taken[place] = true;
  EndIfTaken(&part->second);
}

void Exchange::EndIfTaken(Part* part) {
  const bool taken = rules_->stay_until_all_takers_have_them
                         ? std::ranges::find(part->taken, false) == part->taken.end()
                         : std::ranges::find(part->taken, true) != part->taken.end();
  if (part->over || !taken || !IsComplete(*part)) return;
  part->over = true;
  ++num_over_;
  Release(part);
}

void Exchange::Release(Part* part) {
  for (const auto& [place, payload] : part->early) shard_->early_bytes -= payload.size();
  part->early.clear();
  if (part->result) shard_->counters.Freed(part->result->size_bytes());
  part->result = {};
}

void Exchange::OnWorkerGone(int32_t rank) {
  const size_t place = PlaceIn(terms_.takers, rank);
  if (place == terms_.takers.size()) return;
  gone_[place] = true;
  for (auto& [index, part] : parts_) {
    part.waiting.Forget(rank);
    part.taken[place] = true;
    EndIfTaken(&part);
  }
}

void Exchange::Fail(const Status& why) {
  for (auto& [index, part] : parts_) {
    part.waiting.RefuseAll(why, shard_->send);
    Release(&part);
  }
}

std::string Exchange::Awaited(const Part& part) const {
  std::vector<int32_t> missing;
  for (size_t place = 0; place < terms_.givers.size(); ++place) {
    if (!part.given[place]) missing.push_back(terms_.givers[place]);
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
