// TraceText: trace events as the JSON array of Chrome's trace format, one event a line.
//
// Viewers (Perfetto, chrome://tracing) need spans of one row that do not overlap: spans of a kind
// that do are spread over rows, "server 0 push 1", "server 0 push 2" and so on.
//
// Not thread-safe.  Never fails.  Memory is bounded by kMostRows rows for each server and kind, and
// the names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "job/view.h"
#include "trace/trace.h"

namespace bs::trace {

// The process that a trace belongs to.
struct TraceOwner {
  job::SharedView view = job::ShareView({}, 1, 1);
  int32_t num_shards = 0;  // of a server; the number after the last is its dispatcher's
  std::string host{};      // its name for people
  TimePoint start{};       // times in the text count from here
  Duration wall_time{};    // the wall clock at `start`, since 1970

  int32_t rank() const { return view->own.rank; }
  bool is_server() const { return view->own.role == job::Role::kServer; }
};

class TraceText {
 public:
  static constexpr size_t kMostRows = 256;

  // REQUIRES: rank >= 0.
  explicit TraceText(TraceOwner owner);

  // All append to `text`.  Head comes first, Tail last; a text without its tail is a trace too.
  void Head(std::string* text) const;
  // REQUIRES: events of a kind and server come in the order of their ends.
  void Event(const TraceEvent& event, std::string* text);
  // Names the spans of the key from now on.  Bytes that are not ASCII become code points.
  void Name(Key key, std::string_view name, std::string* text);
  // Tells the framework whose tensors travel.
  void Framework(std::string_view name, std::string* text) const;
  void Tail(uint64_t lost, std::string* text) const;

 private:
  // Returns a row for the span: no earlier span of the row ends after it begins.
  int64_t RowFor(const TraceEvent& event, std::string* text);
  void Meta(const char* name, int64_t row, std::string* text) const;
  void Span(const TraceEvent& event, int64_t row, std::string* text) const;
  void RowName(const TraceEvent& event, std::string* text) const;
  int32_t Pid() const;
  std::string Who() const;
  void Credit(const TraceEvent& event, std::string* text) const;
  void Decision(const TraceEvent& event, std::string* text) const;
  void Time(TimePoint time, std::string* text) const;

  const TraceOwner owner_;
  // Group of rows to the last end in each row.
  std::map<int64_t, std::vector<TimePoint>> rows_;
  std::unordered_map<Key, std::string> names_;  // as they stand in a JSON string
};

}  // namespace bs::trace
