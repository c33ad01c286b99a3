// Notes requests, and writes them as moments of the trace event format.
#include "server/stock/stock_profile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>

#include "base/descriptors.h"
#include "protocol/data_body.h"

namespace bs::server {
namespace {

// The last digit of a command.
constexpr char kConfig = '0';
constexpr char kState = '1';
constexpr char kPause = '2';
constexpr char kDump = '3';

// Null: not a request for values.
const char* WhatOf(const ps::Meta& meta) {
  if (!meta.native()) {
    if (meta.simple_app || (!meta.push && !meta.pull)) return nullptr;
    return meta.push ? (meta.pull ? "pushpull" : "push") : "pull";
  }
  switch (meta.extension.op) {
    case ps::Op::kPush:
      return "push";
    case ps::Op::kPull:
      return "pull";
    case ps::Op::kPushPull:
      return "pushpull";
    default:
      return nullptr;
  }
}

// Stock requests have their first key in the first frame.
uint64_t KeyOf(const ps::Message& message) {
  if (const ps::Extension& extension = message.meta.extension; message.meta.native()) {
    const auto request = protocol::DecodeRequest(extension.op, extension.body);
    return request.ok() ? request.value().key : 0;
  }
  uint64_t key = 0;
  if (!message.data.empty() && message.data.front().size() >= sizeof(key)) {
    std::memcpy(&key, message.data.front().bytes().data(), sizeof(key));
  }
  return key;
}

}  // namespace

StockProfile::StockProfile(int32_t rank, const Executor* dispatcher, const Logger& log)
    : rank_(rank), dispatcher_(dispatcher), log_(log) {}

void StockProfile::Obey(std::string_view command) {
  if (command.size() < 2) return;
  const std::string_view parameters = command.substr(0, command.size() - 1);
  const bool on = parameters.front() == '1';
  switch (command.back()) {
    case kConfig:
      return Configure(parameters);
    case kState:
      return SetRunning(on);
    case kPause:
      paused_ = on;
      return;
    case kDump:
      return Write();
    default:
      return;
  }
}

// "name:value,name:value,": of all that only the name of the file means something here.
void StockProfile::Configure(std::string_view parameters) {
  constexpr std::string_view kName = "filename:";
  while (!parameters.empty()) {
    const std::string_view pair = parameters.substr(0, parameters.find(','));
    parameters.remove_prefix(std::min(parameters.size(), pair.size() + 1));
    if (!pair.starts_with(kName)) continue;
    const std::string_view wanted = pair.substr(kName.size());
    const bool plain =
        std::ranges::none_of(wanted, [](unsigned char c) { return c < ' ' || c == '/'; });
    if (wanted.empty() || !plain) {  // any peer that reaches the server names it
      return log_.Warning(
          "mx.profiler: want a filename without a directory and control characters; "
          "this server writes to " +
          Path());
    }
    filename_ = wanted;
  }
}

void StockProfile::SetRunning(bool running) {
  if (running && !running_) {
    events_.clear();
    lost_ = 0;
    paused_ = false;
    log_.Info("mx.profiler runs: requests will be in " + Path() +
              "; for what is made of them set BYTESCHEDULER_TIMELINE");
  }
  if (!running && running_) Write();
  running_ = running;
}

void StockProfile::Record(const ps::Message& message) {
  if (!message.meta.request || message.meta.is_control) return;
  const char* const what = WhatOf(message.meta);
  if (what == nullptr) return;
  uint64_t bytes = 0;
  for (const ps::Frame& frame : message.data) bytes += frame.size();
  try {
    if (events_.size() < kMaxEvents) {
      events_.push_back(
          {what, ps::RankOf(message.peer), KeyOf(message), bytes, dispatcher_->Now()});
    } else {
      ++lost_;
    }
  } catch (const std::bad_alloc&) {
    ++lost_;  // the server goes on
  }
}

std::string StockProfile::Path() const { return "rank" + std::to_string(rank_) + "_" + filename_; }

void StockProfile::Write() const {
  std::ofstream file(Path(), std::ios::trunc);
  file << "{\"traceEvents\": [\n"
       << R"({"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "server )" << rank_
       << "\"}}";
  for (const Event& event : events_) {
    const auto at =
        std::chrono::duration_cast<std::chrono::microseconds>(event.at.time_since_epoch());
    file << R"(,
{"ph": "i", "s": "t", "cat": "request", "name": ")"
         << event.what << R"(", "pid": 0, "tid": )" << event.worker << R"(, "ts": )" << at.count()
         << R"(, "args": {"key": )" << event.key << R"(, "bytes": )" << event.bytes << "}}";
  }
  file << "\n],\n\"otherData\": {\"lost\": \"" << lost_ << "\"}}\n";
  file.flush();
  if (!file) {
    log_.Warning("mx.profiler: cannot write " + Path() + ": " + SystemError(errno));
  }
}

}  // namespace bs::server
