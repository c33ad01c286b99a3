// DebugLog: every line a node logs, of any level, in the file that BYTESCHEDULER_DEBUG asks for.
//
// "bytescheduler.log" in the working directory, to which all processes there append.  Thread-safe.
// Never fails: a file that cannot be opened or written causes a warning, and the job goes on.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "config/config.h"

namespace bs::node {

class DebugLog {
 public:
  // Null if none is wanted.
  static std::shared_ptr<DebugLog> Open(const Config& config);

  // Appends to `path`, which is made if there is none; a warning about it comes from `who`.
  DebugLog(std::string path, std::string who);
  DebugLog(const DebugLog&) = delete;
  DebugLog& operator=(const DebugLog&) = delete;
  ~DebugLog();

  // One write(2), so that lines of several threads and processes do not mix.
  void Append(std::string_view line);

 private:
  void GiveUp(int error);

  const std::string path_;
  const std::string who_;
  const int fd_;                     // -1: it could not be opened
  std::atomic<bool> ended_ = false;  // nothing more is written
};

// A logger that says lines from `threshold` on to stderr, and all of them to `debug`, which it and
// its copies share.
Logger LoggerInto(std::shared_ptr<DebugLog> debug, std::string who, LogLevel threshold);

}  // namespace bs::node
