// PeerTable: the rows.
#include "membership/coordinator/peer_table.h"

namespace ps {

std::vector<PeerRules::Row> PeerRules::Rows() {
  constexpr EnumSet<S> kPresent{S::kJoining, S::kListed, S::kLive};
  constexpr EnumSet<S> kHeld{S::kJoining, S::kListed, S::kLive, S::kLost};
  constexpr EnumSet<S> kAllButFree{S::kJoining,  S::kListed,  S::kLive,   S::kLeaving,
                                   S::kClosing,  S::kLeft,    S::kClosed, S::kLost,
                                   S::kVacating, S::kClaimed, S::kVacant};
  return {
      // Joining.
      {{S::kFree}, E::kAllThere, C::kAlways, A::kConnect, S::kListed},
      {{S::kFree, S::kLeaving, S::kClosing, S::kLeft, S::kClosed},
       E::kComes,
       C::kAlways,
       A::kIntroduce,
       S::kJoining},
      {{S::kVacating}, E::kComes, C::kAlways, A::kClaim, S::kClaimed},
      {{S::kClaimed}, E::kComes, C::kSuccessorRepeats, A::kClaim, kStays},
      {{S::kVacant}, E::kComes, C::kAlways, A::kAccept, S::kJoining},
      {kHeld, E::kComes, C::kAlways, A::kHold, kStays},
      {{S::kClaimed}, E::kComes, C::kAlways, A::kHold, kStays},
      {{S::kJoining}, E::kNewcomerKnown, C::kAlways, A::kAdmit, S::kListed},
      {{S::kListed, S::kLive}, E::kAsksForList, C::kAlways, A::kSendList, kStays},
      {{S::kJoining, S::kListed}, E::kAddressShared, C::kNeverBroken, A::kTakeSequence, kStays},
      // Messages.
      {{S::kListed}, E::kHeard, C::kAlways, A::kNone, S::kLive},
      {{S::kVacating, S::kClaimed, S::kVacant}, E::kHeard, C::kAlways, A::kDismiss, kStays},
      {kAllButFree, E::kFormerHeard, C::kAlways, A::kDismiss, kStays},
      // Leaving.
      {{S::kListed, S::kLive}, E::kGoodbye, C::kServersNeedNotKnow, A::kConfirmGoodbye, S::kLeft},
      {{S::kLost}, E::kGoodbye, C::kServersNeedNotKnow, A::kConfirmGoodbye, S::kClosed},
      {{S::kLeaving}, E::kGoodbye, C::kServersNeedNotKnow, A::kRespond, S::kLeft},
      {{S::kClosing}, E::kGoodbye, C::kServersNeedNotKnow, A::kRespond, S::kClosed},
      {{S::kLeft, S::kClosed}, E::kGoodbye, C::kAlways, A::kRespond, kStays},
      {{S::kListed, S::kLive}, E::kGoodbye, C::kAlways, A::kAnnounceGoodbye, S::kLeaving},
      {{S::kLost}, E::kGoodbye, C::kAlways, A::kAnnounceGoodbye, S::kClosing},
      {{S::kLeaving}, E::kGoodbyeKnown, C::kAlways, A::kEndGoodbye, S::kLeft},
      {{S::kClosing}, E::kGoodbyeKnown, C::kAlways, A::kEndGoodbye, S::kClosed},
      {{S::kLeaving}, E::kDisconnected, C::kAlways, A::kCheckFinish, S::kClosing},
      {{S::kLeft}, E::kDisconnected, C::kAlways, A::kCheckFinish, S::kClosed},
      // Losses.
      {kPresent, E::kLost, C::kAttachedLeft, A::kRetire, S::kLeft},
      {kPresent, E::kLost, C::kReplaceable, A::kVacate, S::kVacating},
      {kPresent, E::kLost, C::kNeeded, A::kEndJob, S::kLost},
      {kPresent, E::kLost, C::kAlways, A::kCheckEnd, S::kLost},
      {{S::kVacating}, E::kLossKnown, C::kAlways, A::kNone, S::kVacant},
      {{S::kClaimed}, E::kLossKnown, C::kAlways, A::kFill, S::kJoining},
      {{S::kVacating, S::kClaimed, S::kVacant},
       E::kRejoinTimeout,
       C::kJobRuns,
       A::kFailPlace,
       kStays},
      {{S::kClaimed}, E::kJobEnds, C::kAlways, A::kRefuseSuccessor, S::kVacating},
  };
}

std::vector<PeerRules::Violation> PeerRules::Violations() {
  return {
      {{S::kFree}, E::kHeard},
      {{S::kFree}, E::kFormerHeard},
      {{S::kFree, S::kJoining}, E::kGoodbye},
  };
}

std::string_view NameOf(PeerState state) {
  return PeerRules::kStates.at(static_cast<size_t>(state));
}

}  // namespace ps
