// Log lines to stderr: "<local time> <LEVEL> <node>: <sentence>".
//
// A Logger is a value that each object gets; there is no global logger.  Thread-safe: a line is one
// write(2).  Never fails: a full disk loses lines, not the job.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>

namespace bs {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kOff = 4 };

class Logger {
 public:
  using Sink = std::function<void(LogLevel level, std::string_view line)>;

  Logger();  // warnings and errors to stderr, nameless
  // `who` stands in each line ("worker 0"); lines under `threshold` are dropped.
  Logger(std::string who, LogLevel threshold);
  // Logs to `sink` instead of stderr, each line without its end; for tests.  The logging thread
  // calls `sink`.
  Logger(std::string who, LogLevel threshold, Sink sink);

  // Writes a line as loggers without a sink do.
  static void WriteToStderr(std::string line);

  // The same threshold and sink under another name.
  Logger Named(std::string who) const;

  void Debug(std::string_view message) const { Write(LogLevel::kDebug, message); }
  // `sentence()` is put together only if the line is wanted.
  template <std::invocable F>
  void Debug(F sentence) const {
    if (threshold_ <= LogLevel::kDebug) Write(LogLevel::kDebug, sentence());
  }
  void Info(std::string_view message) const { Write(LogLevel::kInfo, message); }
  void Warning(std::string_view message) const { Write(LogLevel::kWarning, message); }
  void Error(std::string_view message) const { Write(LogLevel::kError, message); }

 private:
  void Write(LogLevel level, std::string_view message) const;

  std::string who_;
  LogLevel threshold_;
  Sink sink_;
};

}  // namespace bs
