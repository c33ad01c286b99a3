// Coordinator: connections to nodes that wait for a place, which tell who of them is gone.
#include <algorithm>

#include "membership/coordinator/coordinator_impl.h"
#include "wire/control.h"

namespace ps {

void Coordinator::Impl::WatchSoon(const Node& node, bool native) {
  if (!native) {
    TemporaryPeer(node, native);
    return;
  }
  // Who is needed at once would see a handshake broken off, and warn of it.
  scope_.After(options_.retry_interval / 2, [this, node] {
    if (phase_ == Phase::kGathering) TemporaryPeer(node, true);
  });
}

int32_t Coordinator::Impl::TemporaryPeer(const Node& node, bool native) {
  const auto [it, added] = temporary_.try_emplace(TextOf(AddressOf(node)));
  if (added) {
    it->second = {.node = node, .peer = next_temporary_++};
    Watch(it->second.peer, node, native);
  }
  return it->second.peer;
}

void Coordinator::Impl::Watch(int32_t peer, const Node& node, bool native) {
  // Stock nodes hear the first connection of a name and no other while that lasts, so this one,
  // which is not to last, has none.  They do not come back either if they are given up too soon.
  transport_->Connect(peer, AddressOf(node), native ? kSchedulerId : kEmpty);
  if (native) {
    temporary_reconnect_timer_.Watch(peer);
  } else {
    temporary_reconnect_timer_.Watch(peer, options_.heartbeat_timeout);
  }
}

void Coordinator::Impl::OnTemporaryLost(int32_t peer, const std::string& why) {
  if (phase_ != Phase::kGathering) return;
  const auto gone = std::find_if(temporary_.begin(), temporary_.end(),
                                 [peer](const auto& entry) { return entry.second.peer == peer; });
  if (gone == temporary_.end()) return;
  const Node node = gone->second.node;
  std::erase_if(early_,
                [&](const auto& entry) { return AddressOf(entry.second.node) == AddressOf(node); });
  roster_.Remove(AddressOf(node));
  log_.Warning(DescribeUnranked(node) + " is gone before everyone was there (" + why +
               "); another may take its place; " + roster_.Waiting());
  transport_->Disconnect(peer, bs::Duration(0));
  temporary_.erase(gone);
}

void Coordinator::Impl::CloseTemporaryPeers() {
  for (const auto& [address, temporary] : temporary_) {
    temporary_reconnect_timer_.Forget(temporary.peer);
    transport_->Disconnect(temporary.peer, bs::Duration(0));
  }
  temporary_.clear();
}

}  // namespace ps
