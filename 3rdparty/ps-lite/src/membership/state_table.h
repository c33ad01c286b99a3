// StateTable: a state machine as rows of state, event, condition, action and next state.
//
// `Rules` derives from TableTypes.  It has the functions Rows and Violations, and the texts of the
// values: arrays kStates, kEvents, kConditions, kActions.
//
// Pure; thread-safe once made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

namespace ps {

// A set of values of an enum that has at most 32.
template <typename Enum>
class EnumSet {
 public:
  constexpr EnumSet(std::initializer_list<Enum> values) {
    for (const Enum value : values) bits_ |= BitOf(value);
  }
  constexpr bool contains(Enum value) const { return (bits_ & BitOf(value)) != 0; }

 private:
  static constexpr uint32_t BitOf(Enum value) {
    return uint32_t{1} << static_cast<uint32_t>(value);
  }
  uint32_t bits_ = 0;
};

// The types of a table, and their short names for its rows.  The parameters are enum classes whose
// values count from 0.
template <typename StateEnum, typename EventEnum, typename ConditionEnum, typename ActionEnum>
struct TableTypes {
  using State = StateEnum;
  using Event = EventEnum;
  using Condition = ConditionEnum;
  using Action = ActionEnum;
  using S = State;
  using E = Event;
  using C = Condition;
  using A = Action;
  static constexpr std::nullopt_t kStays = std::nullopt;

  struct Row {
    EnumSet<State> states;
    Event event;
    Condition condition;
    Action action;
    std::optional<State> next;  // empty: the state stays
  };
  // Pairs without a row in which the event violates the protocol.  Each other pair without a row is
  // a repeat: the event came twice or too late, and nothing happens.
  struct Violation {
    EnumSet<State> states;
    Event event;
  };
};

template <typename Rules>
class StateTable {
 public:
  using State = typename Rules::State;
  using Event = typename Rules::Event;
  using Condition = typename Rules::Condition;
  using Action = typename Rules::Action;
  using Row = typename Rules::Row;
  using Violation = typename Rules::Violation;

  StateTable() : StateTable(Rules::Rows(), Rules::Violations()) {}
  // For tests that change rows.
  StateTable(std::vector<Row> rows, std::vector<Violation> violations)
      : rows_(std::move(rows)), violations_(std::move(violations)) {}

  // Returns the first row of the pair whose condition holds; null if there is none.
  template <typename Holds>
  const Row* Find(State state, Event event, const Holds& holds) const {
    const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& candidate) {
      return candidate.event == event && candidate.states.contains(state) &&
             holds(candidate.condition);
    });
    return row == rows_.end() ? nullptr : &*row;
  }
  bool HasRow(State state, Event event) const {
    return Find(state, event, [](Condition) { return true; }) != nullptr;
  }
  bool IsViolation(State state, Event event) const {
    return std::any_of(violations_.begin(), violations_.end(), [&](const Violation& violation) {
      return violation.event == event && violation.states.contains(state);
    });
  }

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  std::vector<Row> rows_;
  std::vector<Violation> violations_;
};

}  // namespace ps
