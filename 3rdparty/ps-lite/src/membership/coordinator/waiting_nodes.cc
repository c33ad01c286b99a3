// WaitingNodes: temporary connections.
#include "membership/coordinator/waiting_nodes.h"

#include <algorithm>

#include "wire/control.h"

namespace ps {
namespace {

constexpr size_t kMostUnreached = 3;  // that reports name

}  // namespace

WaitingNodes::WaitingNodes(JobState* job, Gone gone)
    : job_(job),
      gone_(std::move(gone)),
      // A live node that was given up registers again.
      reconnect_timer_(&job->scope,
                       std::max(job->options.report_interval, job->options.reconnect_grace),
                       job->options.reconnect_grace,
                       [this](int32_t peer, const std::string& why) { OnLost(peer, why); }),
      next_peer_(kFirstTemporaryId) {}

int32_t WaitingNodes::PeerOf(const Node& node, bool native) {
  const auto [it, added] = waiting_.try_emplace(TextOf(AddressOf(node)));
  if (added) {
    it->second = {.node = node, .peer = next_peer_++};
    Watch(it->second.peer, node, native);
  }
  return it->second.peer;
}

void WaitingNodes::ConnectSoon(const Node& node, bool native) {
  if (!native) {
    PeerOf(node, native);
    return;
  }
  job_->scope.After(job_->options.retry_interval / 2, [this, node] {
    if (job_->phase == Phase::kGathering) PeerOf(node, true);
  });
}

void WaitingNodes::Watch(int32_t peer, const Node& node, bool native) {
  // A stock node reads only the first connection of an identity while that lasts, so this short
  // connection is anonymous.  It does not come back either if it is given up too soon.
  job_->transport->Connect(peer, AddressOf(node), native ? kSchedulerId : kEmpty);
  if (native) {
    reconnect_timer_.Watch(peer);
  } else {
    reconnect_timer_.Watch(peer, job_->options.heartbeat_timeout);
  }
}

int32_t WaitingNodes::Find(const Address& address) const {
  const auto it = waiting_.find(TextOf(address));
  return it == waiting_.end() ? kEmpty : it->second.peer;
}

void WaitingNodes::Remove(const Address& address) {
  const auto it = waiting_.find(TextOf(address));
  if (it == waiting_.end()) return;
  reconnect_timer_.Forget(it->second.peer);
  job_->transport->Disconnect(it->second.peer, bs::Duration(0));
  waiting_.erase(it);
}

std::set<std::string> WaitingNodes::Close() {
  std::set<std::string> reached;
  for (const auto& [address, waiting] : waiting_) {
    if (attempts_.Reached(waiting.peer)) reached.insert(address);
    reconnect_timer_.Forget(waiting.peer);
    attempts_.Forget(waiting.peer);
    job_->transport->Disconnect(waiting.peer, bs::Duration(0));
  }
  waiting_.clear();
  return reached;
}

std::vector<std::pair<Node, int32_t>> WaitingNodes::all() const {
  std::vector<std::pair<Node, int32_t>> nodes;
  nodes.reserve(waiting_.size());
  for (const auto& [address, waiting] : waiting_) nodes.emplace_back(waiting.node, waiting.peer);
  return nodes;
}

std::string WaitingNodes::Unreached() const {
  std::string text;
  for (const auto& [who, sentence] : unreached_) text += "; " + sentence;
  return text;
}

void WaitingNodes::OnConnected(int32_t peer) {
  attempts_.OnConnected(peer);
  for (const auto& [address, waiting] : waiting_) {
    if (waiting.peer == peer) unreached_.erase(DescribeUnranked(waiting.node));
  }
  reconnect_timer_.OnConnected(peer);
}

void WaitingNodes::OnOverflow(int32_t peer, const std::string& why) {
  reconnect_timer_.Forget(peer);
  OnLost(peer, why);
}

void WaitingNodes::OnLost(int32_t peer, const std::string& why) {
  if (job_->phase != Phase::kGathering) return;
  const auto gone = std::find_if(waiting_.begin(), waiting_.end(),
                                 [peer](const auto& entry) { return entry.second.peer == peer; });
  if (gone == waiting_.end()) return;
  const Node node = gone->second.node;
  const std::string who = DescribeUnranked(node);
  const std::string cause = attempts_.WhyLost(peer, AddressOf(node), why);
  if (!attempts_.Reached(peer) && unreached_.size() < kMostUnreached) {
    unreached_[who] = who + ": " + cause;
  }
  attempts_.Forget(peer);
  job_->transport->Disconnect(peer, bs::Duration(0));
  waiting_.erase(gone);
  gone_(node, cause);
}

}  // namespace ps
