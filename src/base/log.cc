// Logger: builds a line and hands it to stderr or to a sink.
#include "base/log.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

namespace bs {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"DEBUG", "INFO", "WARNING", "ERROR"};

// "2024-05-31 23:59:59.123", local time.
std::string WallClock() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02d-%02d %02d:%02d:%02d.%03d",
                parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                parts.tm_sec, static_cast<int>(millis));
  return text.data();
}

}  // namespace

// One write a line, so that lines of several threads and processes do not mix.
void Logger::WriteToStderr(std::string line) {
  line.push_back('\n');
  while (::write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

Logger::Logger() : Logger("", LogLevel::kWarning) {}

Logger::Logger(std::string who, LogLevel threshold) : Logger(std::move(who), threshold, Sink()) {}

Logger::Logger(std::string who, LogLevel threshold, Sink sink)
    : who_(std::move(who)), threshold_(threshold), sink_(std::move(sink)) {}

Logger Logger::Named(std::string who) const { return Logger(std::move(who), threshold_, sink_); }

void Logger::Write(LogLevel level, std::string_view message) const {
  if (level < threshold_) return;
  std::string line = WallClock();
  line.append(" ").append(kLevelNames.at(static_cast<size_t>(level))).append(" ");
  if (!who_.empty()) line.append(who_).append(": ");
  line.append(message);
  if (sink_) {
    sink_(level, line);
  } else {
    WriteToStderr(std::move(line));
  }
}

}  // namespace bs
