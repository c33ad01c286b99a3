// Neighbours: the nodes of the other side that a member works with - servers of a worker, workers
// of a server - each in one state.
//
// Bookkeeping; confined to its owner's executor.  Bounded by the ids of the job.  Only Apply
// changes a state.  docs/design/membership.md prints the table.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "membership/state_table.h"
#include "ps/message.h"

namespace ps {

enum class NeighbourState : uint8_t {
  kUnknown,   // no node has had the id, as far as the member knows
  kKnown,     // connected, or about to be
  kLost,      // the node is lost, and the scheduler node needs no report of it
  kReported,  // the same, and each heartbeat reports it
  kVacant,    // the scheduler node says that another may have the place
  kLeft,      // the node left in good order
};

enum class NeighbourEvent : uint8_t {
  kListed,   // the node is in the list
  kComes,    // the scheduler node introduces a newcomer
  kLost,     // its connection is gone, or it is silent
  kVacated,  // the scheduler node says that it is lost
  kLeaves,   // the scheduler node says that it left
};

enum class NeighbourCondition : uint8_t {
  kAlways,
  kNotMissed,    // the node or this member was about to leave, or the job is over
  kReplaceable,  // the scheduler node judges the loss, and may replace the node
};

enum class NeighbourAction : uint8_t {
  kConnect,
  kDrop,        // disconnect
  kReport,      // disconnect, and report it with each heartbeat
  kFailJob,     // disconnect, and report that the job failed
  kDropVacant,  // disconnect, and notify the owner that the place is vacant
  kVacate,      // notify the owner of that
  kLetGo,       // disconnect, and notify the owner that the worker left
  kRetire,      // notify the owner of that
};

struct NeighbourRules
    : TableTypes<NeighbourState, NeighbourEvent, NeighbourCondition, NeighbourAction> {
  static constexpr std::array<std::string_view, 6> kStates = {"unknown",  "known",  "lost",
                                                              "reported", "vacant", "left"};
  static constexpr std::array<std::string_view, 5> kEvents = {
      "in the list", "newcomer", "loss", "notice of the loss", "notice of the goodbye"};
  static constexpr std::array<std::string_view, 3> kConditions = {
      "", "the node is not missed", "the scheduler node may replace it"};
  static constexpr std::array<std::string_view, 8> kActions = {
      "connect",
      "disconnect",
      "disconnect, report it",
      "disconnect, fail the job",
      "disconnect, notify the owner of the vacant place",
      "notify the owner of the vacant place",
      "disconnect, notify the owner that the worker left",
      "notify the owner that the worker left"};

  static std::vector<Row> Rows();
  // None: each event is the member's own, or a notice of the scheduler node, which may be late but
  // is right.
  static std::vector<Violation> Violations();
};

class NeighbourTable final : public StateTable<NeighbourRules> {
 public:
  using StateTable::StateTable;
};

struct Neighbour {
  Node node;
  NeighbourState state = NeighbourState::kUnknown;
  std::string why{};  // of the loss
  uint64_t incarnation =
      0;                // of the present or next holder of a place that became free; 0: none did
  uint64_t notice = 0;  // sequence of the latest notice about it
  int ends_sent = 0;    // how often its process was ordered to end, since it was lost
};

// The details of an event.
struct NeighbourDetails {
  std::string why{};    // kLost; kLeaves: the reason of the goodbye, perhaps none
  bool native = false;  // kVacated
};

class Neighbours {
 public:
  using Holds = std::function<bool(NeighbourCondition, const Neighbour&)>;
  // Runs an action at the neighbour, which is in its next state already.
  using Act = std::function<void(NeighbourAction, Neighbour*, const NeighbourDetails&)>;

  Neighbours(Holds holds, Act act, NeighbourTable table = {})
      : table_(std::move(table)), holds_(std::move(holds)), act_(std::move(act)) {}
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;
  ~Neighbours() = default;

  // Takes the row of the table; `node` is the neighbour from now on.  False if there is none.
  bool Apply(const Node& node, NeighbourEvent event, const NeighbourDetails& details = {});
  NeighbourState StateOf(int32_t id) const;
  bool IsKnown(int32_t id) const { return StateOf(id) == NeighbourState::kKnown; }
  // True for nodes of the job, and for lost ones until another has the place.
  bool IsExpected(int32_t id) const;
  // The node, if it is known; null if not.
  const Node* FindKnown(int32_t id) const;
  // The entry of an id; made if there is none.
  Neighbour* At(int32_t id) { return &neighbours_[id]; }
  uint64_t IncarnationOf(int32_t id) const;
  const std::map<int32_t, Neighbour>& all() const { return neighbours_; }

 private:
  const NeighbourTable table_;
  const Holds holds_;
  const Act act_;
  std::map<int32_t, Neighbour> neighbours_;  // by id
};

}  // namespace ps
