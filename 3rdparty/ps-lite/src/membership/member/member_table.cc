// MemberTable: the rows.
#include "membership/member/member_table.h"

namespace ps {

std::vector<MemberRules::Row> MemberRules::Rows() {
  constexpr EnumSet<S> kBeforeGoodbye{S::kRegistering, S::kStarting, S::kReady};
  return {
      // Joining.
      {{S::kRegistering}, E::kList, C::kAlways, A::kEnter, S::kStarting},
      {{S::kStarting}, E::kStarted, C::kAlways, A::kTellReady, S::kReady},
      {{S::kLeaving, S::kLeft}, E::kStarted, C::kAlways, A::kTellReady, kStays},
      // The end of the job.
      {kBeforeGoodbye, E::kFailure, C::kAlways, A::kFail, S::kOver},
      {kBeforeGoodbye, E::kOwnFailure, C::kAlways, A::kFailQuietly, S::kOver},
      {{S::kRegistering, S::kStarting}, E::kJobEnds, C::kAlways, A::kRefuse, S::kOver},
      {{S::kReady}, E::kJobEnds, C::kAlways, A::kEndWell, S::kOver},
      {{S::kLeaving}, E::kJobEnds, C::kAlways, A::kRefuse, S::kParting},
      {{S::kLeft}, E::kJobEnds, C::kAlways, A::kRefuse, S::kParted},
      // Leaving.
      {{S::kStarting, S::kReady}, E::kGoodbye, C::kNoOneListens, A::kSkipGoodbye, S::kLeft},
      {{S::kStarting, S::kReady}, E::kGoodbye, C::kAlways, A::kSendGoodbye, S::kLeaving},
      {{S::kOver}, E::kGoodbye, C::kNoOneListens, A::kSkipGoodbye, S::kParted},
      {{S::kOver}, E::kGoodbye, C::kInList, A::kSendGoodbye, S::kParting},
      {{S::kLeaving}, E::kGoodbyeEnds, C::kAlways, A::kCompleteGoodbye, S::kLeft},
      {{S::kParting}, E::kGoodbyeEnds, C::kAlways, A::kCompleteGoodbye, S::kParted},
      {{S::kRegistering, S::kStarting, S::kReady, S::kLeft, S::kOver, S::kParted},
       E::kClose,
       C::kAlways,
       A::kNone,
       S::kClosed},
  };
}

std::vector<MemberRules::Violation> MemberRules::Violations() {
  return {
      {{S::kRegistering}, E::kGoodbye},
      {{S::kLeaving, S::kParting}, E::kClose},
      {{S::kClosed}, E::kGoodbye},
  };
}

}  // namespace ps
