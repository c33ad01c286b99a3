// Simulated cards: how SENDs, READs and their answers travel.
#include <algorithm>
#include <cstring>

#include "ps-lite/transport/rdma/fabric_model.h"

namespace ps::test {
namespace {

constexpr int kTries = 8;  // in the time until an error

}  // namespace

bs::TimePoint FabricModel::Now() const {
  return options_.threaded ? std::chrono::steady_clock::now() : now_;
}

void FabricModel::RunDue() {
  const bs::TimePoint now = Now();
  while (!due_.empty() && due_.top().at <= now) RunNext();
}

void FabricModel::RunNext() {
  const Due due = due_.top();
  due_.pop();
  now_ = std::max(now_, due.at);
  const auto pair = pairs_.find(due.pair);
  if (pair == pairs_.end()) return;
  if (due.read) {
    Answer(pair->second.get(), *due.read);
  } else {
    pair->second->moving = false;
    Move(pair->second.get());
  }
}

std::optional<bs::TimePoint> FabricModel::NextDue() const {
  if (due_.empty()) return std::nullopt;
  return due_.top().at;
}

bs::Duration FabricModel::Delay() {
  const int64_t most = options_.most_delay.count();
  return bs::Duration(most == 0 ? 0
                                : static_cast<int64_t>(random_() % static_cast<uint64_t>(most)));
}

void FabricModel::At(bs::TimePoint at, uint32_t pair, std::optional<uint64_t> read) {
  due_.push({.at = at, .number = num_due_++, .pair = pair, .read = read});
}

void FabricModel::MoveLater(ModelQueuePair* pair, bs::Duration delay) {
  if (pair->moving || pair->state != ModelQueuePair::State::kActive) return;
  if (pair->arrived == pair->sends.size()) return;
  pair->moving = true;
  At(Now() + delay, pair->own.number, std::nullopt);
}

// The other end, if packets get there and it takes them.
ModelQueuePair* FabricModel::Reach(const ModelQueuePair& pair) {
  if (!pair.device->host->reachable()) return nullptr;
  const auto found = pairs_.find(pair.peer.number);
  if (found == pairs_.end()) return nullptr;
  ModelQueuePair* peer = found->second.get();
  const bool receives = peer->state == ModelQueuePair::State::kReceiving ||
                        peer->state == ModelQueuePair::State::kActive;
  if (!receives || !peer->device->host->reachable()) return nullptr;
  if (peer->own != pair.peer || peer->peer != pair.own) return nullptr;
  if (peer->terms.mtu_bytes != pair.terms.mtu_bytes) {
    Violate(*pair.device, "the ends of a connection disagree on the MTU");
  }
  return peer;
}

bool FabricModel::TryAgain(bs::TimePoint* since, bs::Duration time) {
  if (*since == bs::TimePoint{}) *since = Now();
  return Now() - *since < time;
}

void FabricModel::Move(ModelQueuePair* pair) {
  if (pair->state != ModelQueuePair::State::kActive || pair->arrived == pair->sends.size()) return;
  ModelWork& work = pair->sends[pair->arrived];
  std::optional<Result>& fail_next = pair->device->host->fail_next;
  Result result = Result::kOk;
  if (fail_next) {
    result = *fail_next;
    fail_next.reset();
  } else if (ModelQueuePair* peer = Reach(*pair); peer == nullptr) {
    if (TryAgain(&pair->failing_since, options_.retry_time)) {
      return MoveLater(pair, options_.retry_time / kTries);
    }
    result = Result::kRetriesExceeded;
  } else if (work.kind == Completion::Kind::kRead) {
    result = BeginRead(pair, &work, peer);
  } else {
    bool again = false;
    result = Deliver(pair, &work, peer, &again);
    if (again) return MoveLater(pair, options_.receiver_time / kTries);
  }
  pair->failing_since = {};
  ++pair->arrived;
  if (result != Result::kOk || work.kind == Completion::Kind::kSend) {
    work.done = true;
    work.result = result;
    Finish(pair);
  }
  MoveLater(pair, Delay());
}

FabricModel::Result FabricModel::Deliver(ModelQueuePair* pair, ModelWork* send,
                                         ModelQueuePair* peer, bool* again) {
  uint32_t size = 0;
  for (const RdmaPiece& piece : send->all()) {
    if (!send->in_line && !MayUse(*pair->device, piece, false)) return Result::kLocalProtection;
    size += piece.size_bytes;
  }
  if (peer->receives.empty()) {
    ++counts_.receiver_not_ready;
    *again = TryAgain(&pair->failing_since, options_.receiver_time);
    return Result::kReceiverNotReady;
  }
  const ModelQueuePair::Receive receive = peer->receives.front();
  peer->receives.pop_front();
  Completion completion{.id = receive.id,
                        .kind = Completion::Kind::kReceive,
                        .size_bytes = size,
                        .queue_pair = peer->own.number};
  Result result = Result::kOk;
  if (!MayUse(*peer->device, receive.piece, true)) {
    completion.result = Result::kLocalProtection;
    result = Result::kRemoteOperation;
  } else if (size > receive.piece.size_bytes) {
    completion.result = Result::kLocalLength;
    result = Result::kRemoteInvalid;
  } else {
    std::byte* to = receive.piece.data;
    for (const RdmaPiece& piece : send->all()) {
      if (piece.size_bytes != 0) std::memcpy(to, piece.data, piece.size_bytes);
      to += piece.size_bytes;
    }
    ++counts_.sends;
  }
  Push(peer->device, completion, 0);
  if (result != Result::kOk) Fail(peer);
  return result;
}

FabricModel::Result FabricModel::BeginRead(ModelQueuePair* pair, ModelWork* read,
                                           ModelQueuePair* peer) {
  if (!MayUse(*pair->device, read->pieces[0], true)) return Result::kLocalProtection;
  Result refused = Result::kOk;
  if (pair->reads_answered >= peer->terms.answered_reads) refused = Result::kRemoteInvalid;
  if (Lent(*peer->device, *read) == nullptr) refused = Result::kRemoteAccess;
  if (refused != Result::kOk) {
    Tell(peer->device, {.kind = RdmaEvent::Kind::kQueuePairLost,
                        .queue_pair = peer->own.number,
                        .text = "local access violation work queue error"});
    Fail(peer);
    return refused;
  }
  ++pair->reads_answered;
  // Answers of one queue pair keep their order; SENDs behind them may be faster.
  pair->last_answer = std::max(pair->last_answer, Now() + Delay());
  At(pair->last_answer, pair->own.number, pair->first + pair->arrived);
  return Result::kOk;
}

void FabricModel::Answer(ModelQueuePair* pair, uint64_t number) {
  if (pair->state != ModelQueuePair::State::kActive || number < pair->first) return;
  ModelWork& read = pair->sends[number - pair->first];
  const ModelQueuePair* peer = Reach(*pair);
  if (peer == nullptr && TryAgain(&read.unanswered_since, options_.retry_time)) {
    return At(Now() + options_.retry_time / kTries, pair->own.number, number);
  }
  const std::byte* lent = peer == nullptr ? nullptr : Lent(*peer->device, read);
  if (peer == nullptr) {
    read.result = Result::kRetriesExceeded;
  } else if (lent == nullptr) {
    read.result = Result::kRemoteAccess;
  } else if (!MayUse(*pair->device, read.pieces[0], true)) {
    read.result = Result::kLocalProtection;
  } else {
    std::memcpy(read.pieces[0].data, lent, read.pieces[0].size_bytes);
    ++counts_.reads;
    const auto counted = [&](std::span<const std::byte> watched, const std::byte* at) -> uint64_t {
      const bool inside = at >= watched.data() && at < watched.data() + watched.size();
      return inside ? read.pieces[0].size_bytes : 0;
    };
    counts_.read_from_bytes += counted(watched_from_, lent);
    counts_.read_into_bytes += counted(watched_into_, read.pieces[0].data);
  }
  read.done = true;
  --pair->reads_answered;
  Finish(pair);
}

// Reports what is complete, in the order of posting.
void FabricModel::Finish(ModelQueuePair* pair) {
  for (size_t count = 1; count <= pair->sends.size(); ++count) {
    const ModelWork& work = pair->sends[count - 1];
    if (!work.done) return;
    const Result result = work.result;
    if (result == Result::kOk && !work.signalled) continue;
    Complete(pair, count, result);
    if (result != Result::kOk) return Fail(pair);
    count = 0;
  }
}

}  // namespace ps::test
