// Refusals: the queue of messages to nodes without a place.
#include "membership/coordinator/refusals.h"

#include <algorithm>
#include <utility>

#include "base/count_of.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace ps {
namespace {

// The time for a message to reach a node without another connection; the bounds of messages under
// way, and of waiting messages.
constexpr bs::Duration kRefusalLinger = std::chrono::seconds(2);
constexpr int32_t kMostUnderWay = 32;
constexpr size_t kMostWaiting = 4096;
// The latest refused nodes, which reports to other nodes name.
constexpr size_t kMostNamed = 3;
// The bound of messages under way at the end, when there is no later turn.
constexpr int32_t kMostAtTheEnd = 512;

}  // namespace

Refusals::Refusals(JobState* job) : job_(job), next_peer_(kFirstRefusedId) {}

void Refusals::Refuse(const Node& node, bool native, uint64_t sequence, const bs::Status& why) {
  const std::string who = DescribeUnranked(node);
  const bool named = why.message().find(who) != std::string::npos;
  const std::string text = (named ? "" : who + ": ") + why.message();
  job_->limited_log.Warning("refused: " + text);
  const bool known = std::find(latest_.begin(), latest_.end(), text) != latest_.end();
  if (job_->phase == Phase::kGathering && !known) {
    latest_.push_back(text);
    if (latest_.size() > kMostNamed) latest_.pop_front();
  }
  if (native) {
    Meta meta = NativeControl(Command::kNone, Op::kStatus, sequence);
    SetStatus(why, &meta.extension);
    return Notify(node, std::move(meta));
  }
  const Roster::Entry* const entry = job_->roster.Find(node.hostname, node.port);
  const Peer* const peer = entry == nullptr ? nullptr : job_->peers.Find(entry->node.id);
  if (entry == nullptr || (peer != nullptr && IsVacant(peer->state))) {
    Add({node, std::nullopt, why.message()});
  }
}

void Refusals::Notify(const Node& node, Meta meta) { Add({node, std::move(meta)}); }

std::string Refusals::Latest() const {
  std::string text;
  for (const std::string& why : latest_) text += "; refused: " + why;
  return text;
}

void Refusals::Finish() {
  SendWaiting();
  if (const size_t untold = waiting_.size() + dropped_; untold > 0) {
    job_->log.Warning("not told that the job has ended: " + bs::CountOf(untold, "node") +
                      " that got no place; if one still waits, end it");
  }
}

void Refusals::Add(Notice notice) {
  const auto same = std::find_if(waiting_.begin(), waiting_.end(), [&](const Notice& other) {
    return AddressOf(other.node) == AddressOf(notice.node);
  });
  if (same != waiting_.end()) {  // a repeat
    *same = std::move(notice);
  } else if (waiting_.size() < kMostWaiting) {
    waiting_.push_back(std::move(notice));
  } else if (dropped_++ == 0) {
    job_->scope.After(kRefusalLinger, [this] {
      job_->log.Warning("refused in silence: " + bs::CountOf(std::exchange(dropped_, 0), "node") +
                        ", as " + std::to_string(kMostWaiting) + " others were to be told first");
    });
  }
  SendWaiting();
}

void Refusals::SendWaiting() {
  const int32_t most = job_->phase == Phase::kFinished ? kMostAtTheEnd : kMostUnderWay;
  while (under_way_ < most && !waiting_.empty()) {
    Notice notice = std::move(waiting_.front());
    waiting_.pop_front();
    ++under_way_;
    job_->scope.After(kRefusalLinger, [this] {
      --under_way_;
      SendWaiting();
    });
    const int32_t peer = next_peer_++;
    job_->transport->Connect(peer, AddressOf(notice.node), kSchedulerId);
    if (notice.meta) {
      job_->outbox.Send(peer, std::move(*notice.meta));
    } else {
      job_->outbox.EndStockNode(notice.node, peer, notice.why);
    }
    job_->transport->Disconnect(peer, kRefusalLinger);
  }
}

}  // namespace ps
