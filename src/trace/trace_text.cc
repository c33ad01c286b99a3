// TraceText: puts lines together without a formatter, as there are many.
#include "trace/trace_text.h"

#include <array>
#include <charconv>
#include <utility>

#include "base/check.h"

namespace bs::trace {
namespace {

// The format's version in docs/user/timeline.md and bytescheduler/timeline.py.
constexpr int kVersion = 1;
// Kinds of spans that a worker has of whole tensors and of each server, and a server of each shard;
// and how many numbers of rows a kind and server has for itself.
constexpr int64_t kTensorKinds = 3;
constexpr int64_t kServerKinds = 3;
constexpr int64_t kShardKinds = 2;
constexpr int64_t kRowsApart = 1000;
// There are fewer workers.
constexpr int32_t kFirstServerPid = 20001;

static_assert(TraceText::kMostRows < kRowsApart);

std::string_view NameOf(TraceEvent::Kind kind) {
  constexpr std::array<std::string_view, 10> kNames = {
      "tensor", "proxy", "front", "queue", "push", "pull", "credit", "decision", "peers", "sum"};
  return kNames.at(static_cast<size_t>(kind));
}

template <typename T>
void Number(T value, std::string* text) {
  std::array<char, 24> digits{};
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), value);
  BS_CHECK(error == std::errc());
  text->append(digits.begin(), end);
}

// ,"name":value
template <typename T>
void Field(std::string_view name, T value, std::string* text) {
  text->append(",\"").append(name).append("\":");
  Number(value, text);
}

// Microseconds, as the format wants them.
void Micros(Duration duration, std::string* text) {
  int64_t nanos = duration.count();
  if (nanos < 0) text->push_back('-');
  if (nanos < 0) nanos = -nanos;
  Number(nanos / 1000, text);
  const int64_t rest = nanos % 1000;
  text->push_back('.');
  for (const int64_t digit : {rest / 100, rest / 10 % 10, rest % 10}) {
    text->push_back(static_cast<char>('0' + digit));
  }
}

// Appends `raw` as the inside of a JSON string.  Bytes that are not ASCII become code points, so
// that any input gives valid JSON.
void Escaped(std::string_view raw, std::string* text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      text->push_back(c);
    } else {
      text->append("\\u00");
      text->push_back(kHex[byte >> 4U]);
      text->push_back(kHex[byte & 15U]);
    }
  }
}

void Quoted(std::string_view raw, std::string* text) {
  text->push_back('"');
  Escaped(raw, text);
  text->push_back('"');
}

bool IsOfServer(TraceEvent::Kind kind) { return kind >= TraceEvent::Kind::kPeers; }

bool IsOfTensor(TraceEvent::Kind kind) { return kind < TraceEvent::Kind::kQueued; }

// The rows of a kind and, but for tensors, of a server or shard are a group.
int64_t GroupOf(const TraceEvent& event) {
  if (IsOfTensor(event.kind)) return static_cast<int64_t>(event.kind);
  if (IsOfServer(event.kind)) {
    return kShardKinds * event.server + (event.kind == TraceEvent::Kind::kSum ? 2 : 1);
  }
  constexpr auto kFirst = static_cast<int64_t>(TraceEvent::Kind::kQueued);
  return kTensorKinds + kServerKinds * event.server + static_cast<int64_t>(event.kind) - kFirst;
}

}  // namespace

TraceText::TraceText(TraceOwner owner) : owner_(std::move(owner)) { BS_CHECK(owner_.rank() >= 0); }

void TraceText::Head(std::string* text) const {
  text->append("[\n");
  Meta("bytescheduler", 0, text);
  text->append("\"version\":");
  Number(kVersion, text);
  text->append(owner_.is_server() ? ",\"role\":\"server\"" : ",\"role\":\"worker\"");
  Field("rank", owner_.rank(), text);
  Field("num_workers", owner_.view->num_workers(), text);
  Field("num_servers", owner_.view->num_servers(), text);
  text->append(",\"host\":");
  Quoted(owner_.host, text);
  Field("start_ns", owner_.wall_time.count(), text);
  if (owner_.view->job != 0) {  // as text: to viewers numbers are doubles
    text->append(",\"job\":\"");
    Number(owner_.view->job, text);
    text->push_back('"');
  }
  text->append("}},\n");
  Meta("process_name", 0, text);
  text->append("\"name\":");
  Quoted(Who() + (owner_.host.empty() ? "" : " on " + owner_.host), text);
  text->append("}},\n");
}

void TraceText::Event(const TraceEvent& event, std::string* text) {
  if (event.kind == TraceEvent::Kind::kCredit) return Credit(event, text);
  if (event.kind == TraceEvent::Kind::kDecision) return Decision(event, text);
  Span(event, RowFor(event, text), text);
}

void TraceText::Name(Key key, std::string_view name, std::string* text) {
  std::string& escaped = names_[key];
  escaped.clear();
  Escaped(name, &escaped);
  Meta("bytescheduler_key", 0, text);
  text->append("\"key\":");
  Number(key, text);
  text->append(",\"name\":\"").append(escaped).append("\"}},\n");
}

void TraceText::Framework(std::string_view name, std::string* text) const {
  Meta("bytescheduler_framework", 0, text);
  text->append("\"framework\":");
  Quoted(name, text);
  text->append("}},\n");
}

void TraceText::Tail(uint64_t lost, std::string* text) const {
  Meta("bytescheduler_end", 0, text);
  text->append("\"lost\":");
  Number(lost, text);
  text->append("}}\n]\n");
}

int64_t TraceText::RowFor(const TraceEvent& event, std::string* text) {
  const int64_t group = GroupOf(event);
  std::vector<TimePoint>& rows = rows_[group];
  // The row that was free for the shortest time leaves the other rows to longer spans.
  size_t best = rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] <= event.begin && (best == rows.size() || rows[i] > rows[best])) best = i;
  }
  if (best == kMostRows) best = kMostRows - 1;  // over each other, which loses nothing in the file
  // Viewers take a thread with the number of its process for the main thread.  No row has the
  // number of any of the first 1000 workers.
  const int64_t row = (group + 1) * kRowsApart + static_cast<int64_t>(best) + 1;
  if (best == rows.size()) {
    rows.emplace_back();
    Meta("thread_name", row, text);
    text->append("\"name\":\"");
    RowName(event, text);
    text->append(" ").append(std::to_string(best + 1)).append("\"}},\n");
  }
  rows[best] = event.end;
  return row;
}

// "tensor", "server 0 push", "shard 0 sum", "dispatcher sum".
void TraceText::RowName(const TraceEvent& event, std::string* text) const {
  if (!IsOfTensor(event.kind)) {
    const bool dispatcher =
        owner_.is_server() && event.server == static_cast<uint32_t>(owner_.num_shards);
    text->append(dispatcher ? "dispatcher" : owner_.is_server() ? "shard " : "server ");
    if (!dispatcher) Number(event.server, text);
    text->push_back(' ');
  }
  text->append(NameOf(event.kind));
}

int32_t TraceText::Pid() const {
  return owner_.rank() + (owner_.is_server() ? kFirstServerPid : 1);
}

std::string TraceText::Who() const {
  return (owner_.is_server() ? "server " : "worker ") + std::to_string(owner_.rank());
}

// {"name":"thread_name","ph":"M","pid":1,"tid":7,"args":{
void TraceText::Meta(const char* name, int64_t row, std::string* text) const {
  text->append("{\"name\":\"").append(name).append("\",\"ph\":\"M\"");
  Field("pid", Pid(), text);
  Field("tid", row, text);
  text->append(",\"args\":{");
}

void TraceText::Span(const TraceEvent& event, int64_t row, std::string* text) const {
  const bool whole = IsOfTensor(event.kind);
  text->append("{\"name\":\"");
  if (const auto name = names_.find(event.key); name != names_.end()) {
    text->append(name->second);
  } else {
    text->append("key ");
    Number(event.key, text);
  }
  if (!whole) {
    text->append(" part ");
    Number(event.partition, text);
  }
  text->append("\",\"cat\":\"").append(NameOf(event.kind)).append("\",\"ph\":\"X\"");
  Field("pid", Pid(), text);
  Field("tid", row, text);
  Time(event.begin, text);
  text->append(",\"dur\":");
  Micros(event.end - event.begin, text);
  text->append(",\"args\":{\"key\":");
  Number(event.key, text);
  if (!whole) Field("part", event.partition, text);
  Field("round", event.round, text);
  Field("bytes", event.bytes, text);
  if (!IsOfServer(event.kind)) Field("priority", event.priority, text);
  if (!whole && !IsOfServer(event.kind)) Field("server", event.server, text);
  if (event.kind == TraceEvent::Kind::kPeers) Field("last", event.last_rank, text);
  if (event.carrier != Carrier::kUnknown) {
    text->append(",\"carrier\":\"").append(NameOf(event.carrier)).push_back('"');
  }
  if (!event.coding.empty()) {
    text->append(",\"coding\":");
    Quoted(event.coding, text);
  }
  text->append("}},\n");
}

void TraceText::Credit(const TraceEvent& event, std::string* text) const {
  text->append("{\"name\":\"server ");
  Number(event.server, text);
  text->append("\",\"ph\":\"C\"");
  Field("pid", Pid(), text);
  Time(event.end, text);
  text->append(",\"args\":{\"bytes in flight\":");
  Number(event.bytes, text);
  Field("partitions queued", event.queued, text);
  text->append("}},\n");
}

void TraceText::Decision(const TraceEvent& event, std::string* text) const {
  text->append("{\"name\":\"partitions of ");
  Number(event.partition_bytes, text);
  text->append(", credit of ");
  Number(event.bytes, text);
  text->append("\",\"cat\":\"decision\",\"ph\":\"i\",\"s\":\"p\"");
  Field("pid", Pid(), text);
  Time(event.end, text);
  text->append(",\"args\":{\"decision\":");
  Number(event.round, text);
  Field("partition", event.partition_bytes, text);
  Field("credit", event.bytes, text);
  text->append("}},\n");
}

void TraceText::Time(TimePoint time, std::string* text) const {
  text->append(",\"ts\":");
  Micros(time - owner_.start, text);
}

}  // namespace bs::trace
