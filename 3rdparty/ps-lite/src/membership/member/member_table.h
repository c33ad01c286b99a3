// MemberTable: the states of a worker or server in its job, and how events lead from one to the
// next.  docs/design/membership.md prints the table.
//
// Pure; thread-safe once made.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "membership/state_table.h"

namespace ps {

enum class MemberState : uint8_t {
  kRegistering,  // it has no place yet
  kStarting,     // it is in the list, and waits in the start barrier
  kReady,        // its owner may use the job
  kLeaving,      // it said goodbye, and no response has come
  kLeft,         // its goodbye was confirmed, or needs no response
  kOver,         // the job failed or ended; only the goodbye is left
  kParting,      // the same as kLeaving, after the end of the job
  kParted,       // the same as kLeft, after the end of the job
  kClosed,       // its owner closed it
};

enum class MemberEvent : uint8_t {
  kList,         // the list of nodes comes, with this node
  kStarted,      // the start barrier is complete, or need not be waited for
  kFailure,      // the job failed
  kOwnFailure,   // the owner reports a failure
  kJobEnds,      // the scheduler node ends the job in good order
  kGoodbye,      // the owner leaves
  kGoodbyeEnds,  // a response came, or is not waited for any longer
  kClose,        // the owner closes
};

enum class MemberCondition : uint8_t {
  kAlways,
  kInList,        // the list had this node
  kNoOneListens,  // the node is in the list, and the scheduler node is lost or is MXNet's own
};

enum class MemberAction : uint8_t {
  kNone,
  kEnter,            // connect to the nodes of the list, and join the start barrier
  kTellReady,        // notify the owner that the job is ready
  kFail,             // notify the owner of the failure; barriers end
  kFailQuietly,      // the same without a notification of an owner that is ready
  kRefuse,           // notify an owner that is not ready that the job is over; barriers end
  kEndWell,          // notify the owner of the end; barriers end
  kSendGoodbye,      // repeat it until a response comes
  kSkipGoodbye,      // the owner gets the failure of the job, if there is one
  kCompleteGoodbye,  // the owner gets the result
};

struct MemberRules : TableTypes<MemberState, MemberEvent, MemberCondition, MemberAction> {
  static constexpr std::array<std::string_view, 9> kStates = {
      "registering", "starting", "ready", "leaving", "left", "over", "parting", "parted", "closed"};
  static constexpr std::array<std::string_view, 8> kEvents = {
      "list with this node", "started", "failure",      "failure of the owner",
      "the job ends",        "goodbye", "goodbye ends", "close"};
  static constexpr std::array<std::string_view, 3> kConditions = {
      "", "it was in the list", "in the list, and the scheduler node takes no goodbye"};
  static constexpr std::array<std::string_view, 10> kActions = {
      "",
      "connect, join the start barrier",
      "notify the owner that the job is ready",
      "notify the owner of the failure, end the barriers",
      "notify an owner that is not ready of the failure, end the barriers",
      "notify an owner that is not ready, end the barriers",
      "notify the owner of the end, end the barriers",
      "send the goodbye",
      "notify the owner that it left",
      "notify the owner of the result"};

  static std::vector<Row> Rows();
  // The owner leaves a job only once it was told of the place, and ends the goodbye before it
  // closes.
  static std::vector<Violation> Violations();
};

class MemberTable final : public StateTable<MemberRules> {
 public:
  using StateTable::StateTable;
};

// The node takes part in the job: it neither left nor is the job over.
constexpr bool TakesPart(MemberState state) {
  return state == MemberState::kStarting || state == MemberState::kReady;
}
// The job is over for the node.
constexpr bool IsOver(MemberState state) {
  return EnumSet<MemberState>{MemberState::kOver, MemberState::kParting, MemberState::kParted}
      .contains(state);
}
// The node said goodbye.
constexpr bool HasLeft(MemberState state) {
  return EnumSet<MemberState>{MemberState::kLeaving, MemberState::kLeft, MemberState::kParting,
                              MemberState::kParted}
      .contains(state);
}

}  // namespace ps
