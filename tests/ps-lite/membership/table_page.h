// The text of a table of states, as docs/design/membership.md prints it.
//
// BS_WRITE_PAGES=1 in the environment rewrites the page instead of comparing it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "membership/state_table.h"

namespace ps::test {

inline constexpr char kPage[] = BS_SOURCE_DIR "/docs/design/membership.md";

// The states, events and texts of a table.
template <typename Table, typename Rules>
class TableText {
 public:
  using State = typename Rules::State;
  using Event = typename Rules::Event;

  static std::string NameOf(State state) {
    return std::string(Rules::kStates.at(static_cast<size_t>(state)));
  }
  static std::string NameOf(Event event) {
    return std::string(Rules::kEvents.at(static_cast<size_t>(event)));
  }
  static std::vector<State> States() {
    std::vector<State> states;
    for (size_t i = 0; i < Rules::kStates.size(); ++i) states.push_back(static_cast<State>(i));
    return states;
  }
  static std::vector<Event> Events() {
    std::vector<Event> events;
    for (size_t i = 0; i < Rules::kEvents.size(); ++i) events.push_back(static_cast<Event>(i));
    return events;
  }

  // One line a row, and one for each event with the states in which it is a violation.
  static std::string Of(const Table& table) {
    std::string text =
        "| state | event (and its condition) | action | next state |\n|---|---|---|---|\n";
    for (const auto& row : table.rows()) {
      const std::string condition(Rules::kConditions.at(static_cast<size_t>(row.condition)));
      text += "| " + NamesOf([&](State state) { return row.states.contains(state); }) + " | " +
              NameOf(row.event) + (condition.empty() ? "" : " (" + condition + ")") + " | " +
              std::string(Rules::kActions.at(static_cast<size_t>(row.action))) + " | " +
              (row.next ? NameOf(*row.next) : "stays") + " |\n";
    }
    if (table.violations().empty()) return text;
    text += "\n| event | violation in |\n|---|---|\n";
    for (const Event event : Events()) {
      const std::string violations =
          NamesOf([&](State state) { return table.IsViolation(state, event); });
      if (!violations.empty()) text += "| " + NameOf(event) + " | " + violations + " |\n";
    }
    return text;
  }

  // The promises that every table keeps.
  static void CheckRows(const Table& table) {
    for (const State state : States()) {
      for (const Event event : Events()) {
        const bool violation = table.IsViolation(state, event);
        EXPECT_FALSE(violation && table.HasRow(state, event))
            << NameOf(event) << " in " << NameOf(state) << " has a row and is a violation";
        bool decided = false;
        for (const auto& row : table.rows()) {
          if (row.event != event || !row.states.contains(state)) continue;
          EXPECT_FALSE(decided) << NameOf(event) << " in " << NameOf(state)
                                << ": no event reaches the row behind the one that always holds";
          decided = decided || static_cast<size_t>(row.condition) == 0;
        }
      }
    }
  }
  static std::set<std::pair<State, Event>> ViolationsOf(const Table& table) {
    std::set<std::pair<State, Event>> violations;
    for (const State state : States()) {
      for (const Event event : Events()) {
        if (table.IsViolation(state, event)) violations.emplace(state, event);
      }
    }
    return violations;
  }
  // The states that events lead to, from the first state on.
  static std::set<State> Reachable(const Table& table) {
    std::set<State> reached{static_cast<State>(0)};
    for (size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const State state : std::set<State>(reached)) {
        for (const auto& row : table.rows()) {
          if (row.states.contains(state) && row.next) reached.insert(*row.next);
        }
      }
    }
    return reached;
  }

 private:
  // The states for which `is` holds; those for which it does not, if they are fewer.
  template <typename Is>
  static std::string NamesOf(const Is& is) {
    std::vector<State> in = States();
    std::vector<State> out = in;
    std::erase_if(in, [&](State state) { return !is(state); });
    std::erase_if(out, is);
    if (out.empty()) return "any";
    return out.size() < in.size() ? "all but " + Joined(out) : Joined(in);
  }
  static std::string Joined(const std::vector<State>& states) {
    std::string names;
    for (const State state : states) names += (names.empty() ? "" : ", ") + NameOf(state);
    return names;
  }
};

// The page and the part between "<!-- begin: NAME -->" and "<!-- end: NAME -->".
class PagePart {
 public:
  PagePart(const std::string& path, const std::string& name) : path_(path) {
    std::ifstream file(path);
    page_.assign(std::istreambuf_iterator<char>(file), {});
    const std::string opening = "<!-- begin: " + name + " -->\n";
    begin_ = page_.find(opening);
    end_ = page_.find("<!-- end: " + name + " -->");
    if (found()) begin_ += opening.size();
  }

  bool found() const { return begin_ != std::string::npos && end_ != std::string::npos; }
  // REQUIRES: found().
  std::string text() const { return page_.substr(begin_, end_ - begin_); }
  void Write(const std::string& text) const {
    std::ofstream(path_) << page_.substr(0, begin_) + text + page_.substr(end_);
  }

 private:
  const std::string path_;
  std::string page_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

inline void ExpectOnPage(const std::string& path, const std::string& name,
                         const std::string& text) {
  const PagePart part(path, name);
  ASSERT_TRUE(part.found()) << path << " has no part " << name;
  if (std::getenv("BS_WRITE_PAGES") != nullptr) return part.Write(text);
  EXPECT_EQ(part.text(), text) << "rewrite " << path << ": run this test with BS_WRITE_PAGES=1";
}

}  // namespace ps::test
