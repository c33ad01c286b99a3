// StockProfile: the server's side of MXNet's profiler (`mx.profiler` with
// profile_process="server").
//
// While it runs, it notes each request of a worker, native or stock, as it comes; at the end it
// writes "rank<rank>_<filename>" in the server's working directory, in the trace event format, as
// stock servers do.  BYTESCHEDULER_TIMELINE shows the server's work on requests.
//
// Confined to the dispatcher's executor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "ps/message.h"

namespace bs::server {

class StockProfile {
 public:
  // Requests beyond this number are only counted.
  static constexpr size_t kMaxEvents = size_t{1} << 18U;

  // `dispatcher` must outlive this.
  StockProfile(int32_t rank, const Executor* dispatcher, const Logger& log);

  // A command: parameters, then a digit that names their kind.  A command that cannot be obeyed,
  // also because a file cannot be written, causes a warning.  A command that a stock server would
  // not know is ignored.
  void Obey(std::string_view command);
  // A message has come; cheap while the profiler does not run.
  void Note(const ps::Message& message) {
    if (running_ && !paused_) Record(message);
  }

 private:
  struct Event {
    const char* what;  // a literal
    int32_t worker;    // rank
    uint64_t key;
    uint64_t bytes;
    TimePoint at;
  };

  void Configure(std::string_view parameters);
  void SetRunning(bool running);
  void Record(const ps::Message& message);
  void Write() const;
  std::string Path() const;

  const int32_t rank_;
  const Executor* const dispatcher_;
  const Logger log_;
  std::string filename_ = "profile.json";  // MXNet's own default
  bool running_ = false;
  bool paused_ = false;
  std::vector<Event> events_;  // since it last began to run
  uint64_t lost_ = 0;
};

}  // namespace bs::server
