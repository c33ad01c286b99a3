// Appends lines to a file, until it cannot.
#include "node/debug_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptors.h"

namespace bs::node {
namespace {

constexpr const char* kPath = "bytescheduler.log";

int OpenFor(const std::string& path) {
  // A pipe without a reader must not block the node.
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
}

}  // namespace

std::shared_ptr<DebugLog> DebugLog::Open(const Config& config) {
  return config.debug ? std::make_shared<DebugLog>(kPath, config.role) : nullptr;
}

DebugLog::DebugLog(std::string path, std::string who)
    : path_(std::move(path)), who_(std::move(who)), fd_(OpenFor(path_)) {
  if (fd_ < 0) GiveUp(errno);
}

DebugLog::~DebugLog() {
  if (fd_ >= 0) close(fd_);
}

void DebugLog::Append(std::string_view line) {
  if (ended_) return;
  const std::string whole = std::string(line) + "\n";
  ssize_t written = -1;
  do {
    written = write(fd_, whole.data(), whole.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) GiveUp(errno);
}

void DebugLog::GiveUp(int error) {
  if (ended_.exchange(true)) return;
  Logger(who_, LogLevel::kWarning)
      .Warning("BYTESCHEDULER_DEBUG: " + path_ + ": " + SystemError(error) +
               "; the job goes on, nothing more is written to it");
}

Logger LoggerInto(std::shared_ptr<DebugLog> debug, std::string who, LogLevel threshold) {
  return {std::move(who), LogLevel::kDebug,
          [debug = std::move(debug), threshold](LogLevel level, std::string_view line) {
            if (level >= threshold) Logger::WriteToStderr(std::string(line));
            debug->Append(line);
          }};
}

}  // namespace bs::node
