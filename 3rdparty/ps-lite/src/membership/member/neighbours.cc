// Neighbours: the rows, and one step.
#include "membership/member/neighbours.h"

namespace ps {

std::vector<NeighbourRules::Row> NeighbourRules::Rows() {
  return {
      {{S::kUnknown}, E::kListed, C::kAlways, A::kConnect, S::kKnown},
      {{S::kUnknown, S::kKnown, S::kLost, S::kReported, S::kVacant, S::kLeft},
       E::kComes,
       C::kAlways,
       A::kConnect,
       S::kKnown},
      {{S::kKnown}, E::kLost, C::kNotMissed, A::kDrop, S::kLost},
      {{S::kKnown}, E::kLost, C::kReplaceable, A::kReport, S::kReported},
      {{S::kKnown}, E::kLost, C::kAlways, A::kFailJob, S::kLost},
      {{S::kKnown}, E::kVacated, C::kAlways, A::kDropVacant, S::kVacant},
      {{S::kLost, S::kReported, S::kVacant}, E::kVacated, C::kAlways, A::kVacate, S::kVacant},
      {{S::kUnknown, S::kLeft}, E::kVacated, C::kAlways, A::kVacate, kStays},
      {{S::kKnown}, E::kLeaves, C::kAlways, A::kLetGo, S::kLeft},
      {{S::kReported}, E::kLeaves, C::kAlways, A::kRetire, S::kLeft},
  };
}

std::vector<NeighbourRules::Violation> NeighbourRules::Violations() { return {}; }

bool Neighbours::Apply(const Node& node, NeighbourEvent event, const NeighbourDetails& details) {
  const Neighbour* const known = At(node.id);
  const NeighbourTable::Row* const row = table_.Find(
      known->state, event, [&](NeighbourCondition condition) { return holds_(condition, *known); });
  if (row == nullptr) return false;
  Neighbour* const neighbour = At(node.id);
  neighbour->node = node;
  neighbour->state = row->next.value_or(neighbour->state);
  act_(row->action, neighbour, details);
  return true;
}

NeighbourState Neighbours::StateOf(int32_t id) const {
  const auto it = neighbours_.find(id);
  return it == neighbours_.end() ? NeighbourState::kUnknown : it->second.state;
}

bool Neighbours::IsExpected(int32_t id) const {
  const NeighbourState state = StateOf(id);
  return state != NeighbourState::kUnknown && state != NeighbourState::kLeft;
}

const Node* Neighbours::FindKnown(int32_t id) const {
  const auto it = neighbours_.find(id);
  const bool known = it != neighbours_.end() && it->second.state == NeighbourState::kKnown;
  return known ? &it->second.node : nullptr;
}

uint64_t Neighbours::IncarnationOf(int32_t id) const {
  const auto it = neighbours_.find(id);
  return it == neighbours_.end() ? 0 : it->second.incarnation;
}

}  // namespace ps
