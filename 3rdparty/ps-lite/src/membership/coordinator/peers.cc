// Peers: one step of a place.
#include "membership/coordinator/peers.h"

namespace ps {

Peers::Outcome Peers::Apply(int32_t id, PeerEvent event, const PeerDetails& details) {
  const Peer free_place;
  const Peer* const known = Find(id);
  const Peer& before = known == nullptr ? free_place : *known;
  const PeerTable::Row* const row = table_.Find(before.state, event, [&](PeerCondition condition) {
    return callbacks_.holds(condition, before, details);
  });
  if (row == nullptr) {
    return table_.IsViolation(before.state, event) ? Outcome::kViolation : Outcome::kRepeat;
  }
  Peer* const peer = &peers_[id];
  peer->node.id = id;
  peer->state = row->next.value_or(peer->state);
  callbacks_.act(row->action, peer, details);
  return Outcome::kDone;
}

Peer* Peers::Find(int32_t id) {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : &it->second;
}

const Peer* Peers::Find(int32_t id) const {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : &it->second;
}

std::vector<int32_t> Peers::NativeServers() const {
  std::vector<int32_t> ids;
  for (const auto& [id, peer] : peers_) {
    const bool server = peer.native && peer.node.role == Role::kServer;
    if (server && IsPresent(peer.state)) ids.push_back(id);
  }
  return ids;
}

}  // namespace ps
