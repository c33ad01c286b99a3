// PeerTable: the states of a place in the job, and how events lead from one to the next.
//
// The scheduler node has one place for each id: of a worker, of a server, of an attached worker.
// A process holds the place until it leaves or is lost, and another process may hold it later.
// docs/design/membership.md prints the table.
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

enum class PeerState : uint8_t {
  kFree,      // no process has held the place yet
  kJoining,   // a newcomer holds it, and not every server knows the newcomer
  kListed,    // its holder was sent the list of nodes, and nothing has come under the id
  kLive,      // a message has come under the id
  kLeaving,   // the holder said goodbye, and not every server knows that
  kClosing,   // leaving, and our connection to the holder has ended
  kLeft,      // the holder said goodbye, and the servers that need to know it do
  kClosed,    // left, and our connection to the holder has ended
  kLost,      // the holder is lost, and no other process may have the place
  kVacating,  // lost, another worker may have the place, and not every server knows the loss
  kClaimed,   // vacating, and a successor waits for the servers
  kVacant,    // every server knows the loss, and no successor has come
};

enum class PeerEvent : uint8_t {
  kAllThere,       // the job begins
  kComes,          // a worker comes for the place
  kNewcomerKnown,  // every server knows the holder
  kHeard,          // a message comes under the id
  kFormerHeard,    // a message comes from an earlier holder
  kAsksForList,    // the holder repeats its registration
  kAddressShared,  // another process at its address repeats a registration
  kGoodbye,        // the holder leaves in good order
  kGoodbyeKnown,   // every server knows the goodbye
  kDisconnected,   // our connection to the holder ends
  kLost,           // the detector has judged that the holder is lost
  kLossKnown,      // every server knows the loss
  kRejoinTimeout,  // the place was free for the rejoin time-out
  kJobEnds,
};

enum class PeerCondition : uint8_t {
  kAlways,
  kServersNeedNotKnow,  // the holder is a server, or the job ends
  kAttachedLeft,        // the attached worker of the holder's process has left
  kReplaceable,         // another worker may have the place (Places::MayReplace)
  kJobRuns,             // all nodes are there, and the job has not ended
  kNeeded,              // the same, and the final barrier is not complete
  kSuccessorRepeats,    // the worker that comes is the successor
  kNeverBroken,         // our connection to the holder has not broken
};

enum class PeerAction : uint8_t {
  kNone,
  kConnect,
  kIntroduce,        // connect, and notify the servers of the newcomer
  kAdmit,            // send the list, and expect messages from now on
  kSendList,         // once more
  kTakeSequence,     // the list answers both registrations
  kAnnounceGoodbye,  // its barriers end; notify the servers
  kConfirmGoodbye,   // its barriers end; respond; the scheduler node may be done
  kRespond,          // respond; the scheduler node may be done
  kEndGoodbye,       // respond; the job may be over
  kCheckFinish,      // the scheduler node may be done
  kRetire,           // its barriers end; the job may be over
  kVacate,           // disconnect, and notify the servers of the loss
  kEndJob,
  kCheckEnd,   // the job may be over, or the scheduler node done
  kClaim,      // note the successor
  kAccept,     // the worker holds the place: connect, and notify the servers
  kFill,       // the same for the successor
  kHold,       // the worker waits for a place
  kDismiss,    // notify the earlier holder that it has no place
  kFailPlace,  // the job ends: no worker came
  kRefuseSuccessor,
};

struct PeerRules : TableTypes<PeerState, PeerEvent, PeerCondition, PeerAction> {
  static constexpr std::array<std::string_view, 12> kStates = {
      "free", "joining", "listed", "live",     "leaving", "closing",
      "left", "closed",  "lost",   "vacating", "claimed", "vacant"};
  static constexpr std::array<std::string_view, 14> kEvents = {
      "all nodes are there",
      "a worker comes for the place",
      "every server knows the newcomer",
      "message under the id",
      "message of an earlier holder",
      "the holder repeats its registration",
      "another process at the holder's address registers",
      "goodbye",
      "every server knows the goodbye",
      "our connection ends",
      "loss",
      "every server knows the loss",
      "rejoin time-out",
      "the job ends"};
  static constexpr std::array<std::string_view, 8> kConditions = {
      "",
      "the servers need not know",
      "the attached worker beside it left",
      "another worker may have the place",
      "the job runs",
      "the job needs the holder",
      "the successor repeats",
      "our connection never broke"};
  static constexpr std::array<std::string_view, 22> kActions = {
      "",
      "connect",
      "connect, notify the servers",
      "send the list, expect messages",
      "send the list",
      "respond to both registrations",
      "end its barriers, notify the servers",
      "end its barriers, respond",
      "respond",
      "respond, check the end",
      "check the finish",
      "end its barriers, check the end",
      "disconnect, notify the servers",
      "end the job",
      "check the end and the finish",
      "note the successor",
      "connect to the worker, notify the servers",
      "connect to the successor, notify the servers",
      "let the worker wait",
      "notify the sender that it has no place",
      "end the job, no worker came",
      "refuse the successor"};

  static std::vector<Row> Rows();
  // A node that has no place, or that was not sent the list, cannot use an id.
  static std::vector<Violation> Violations();
};

class PeerTable final : public StateTable<PeerRules> {
 public:
  using StateTable::StateTable;
};

std::string_view NameOf(PeerState state);

// The holder joins or trains, as far as is known.
constexpr bool IsPresent(PeerState state) {
  return EnumSet<PeerState>{PeerState::kJoining, PeerState::kListed, PeerState::kLive}.contains(
      state);
}
// The holder said goodbye.
constexpr bool HasLeft(PeerState state) {
  return EnumSet<PeerState>{PeerState::kLeaving, PeerState::kClosing, PeerState::kLeft,
                            PeerState::kClosed}
      .contains(state);
}
// The holder is lost, and another worker may have the place.
constexpr bool IsVacant(PeerState state) {
  return EnumSet<PeerState>{PeerState::kVacating, PeerState::kClaimed, PeerState::kVacant}.contains(
      state);
}
// Nothing more is expected of the place: its holder left and the servers know it, or is lost and
// has no successor.
constexpr bool IsOver(PeerState state) {
  return EnumSet<PeerState>{PeerState::kClosing, PeerState::kLeft, PeerState::kClosed,
                            PeerState::kLost}
      .contains(state);
}
// The holder has left or is lost, and holds no connection any more.
constexpr bool HasNoProcess(PeerState state) {
  return EnumSet<PeerState>{PeerState::kClosing, PeerState::kClosed, PeerState::kLost}.contains(
             state) ||
         IsVacant(state);
}

}  // namespace ps
