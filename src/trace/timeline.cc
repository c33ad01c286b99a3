// Opens the file, takes events out of the ring and appends them as text.
#include "trace/timeline.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/count_of.h"
#include "base/descriptors.h"
#include "base/run_on.h"

namespace bs::trace {
namespace {

// 5.5 MiB: a second of a very busy worker.  A server has a trace for each shard.
constexpr size_t kWorkerCapacity = size_t{1} << 16U;
constexpr size_t kShardCapacity = size_t{1} << 14U;
constexpr size_t kBatchBytes = size_t{256} << 10U;
constexpr Duration kInterval = std::chrono::milliseconds(100);

std::string Why(int error) { return SystemError(error); }

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Writes to the file; returns 0 or errno.
int WriteWhole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Two workers of one rank, of two jobs, would spoil each other's file.  Where files cannot be
// locked, they are not.
std::string WhyNotOurs(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return "another process writes to it, or a child that one left behind lives";
  }
  return ftruncate(fd, 0) == 0 || errno == EINVAL ? "" : Why(errno);  // a device has no length
}

// Forked children have the descriptor too, and the lock would last as long as they live.
void CloseOurs(int fd) {
  static_cast<void>(flock(fd, LOCK_UN));
  close(fd);
}

// A descriptor of the empty file, or why there is none.
Result<int> OpenOurs(const std::string& path) {
  // A pipe without a reader must not block the timeline's thread, and with it the end of the job.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return Status::Unavailable(Why(errno));
  if (const std::string why = WhyNotOurs(fd); !why.empty()) {
    close(fd);
    return Status::Unavailable(why);
  }
  return fd;
}

}  // namespace

Status CheckTimeline(const Config& config) {
  if (config.timeline.empty()) return Status::Ok();
  const auto wrong = [&](const std::string& what) {
    return Status::InvalidArgument("BYTESCHEDULER_TIMELINE=" + config.timeline + ": " + what);
  };
  struct stat info{};
  const bool exists = stat(config.timeline.c_str(), &info) == 0;
  if (config.timeline.back() == '/' || (exists && S_ISDIR(info.st_mode))) {
    return wrong("want a file, such as timeline.json, not a directory");
  }
  const size_t slash = config.timeline.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : config.timeline.substr(0, slash + 1);
  if (stat(directory.c_str(), &info) != 0) return wrong("its directory: " + Why(errno));
  if (!S_ISDIR(info.st_mode)) return wrong("its directory: " + Why(ENOTDIR));
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return wrong("cannot write to its directory: " + Why(errno));
  }
  return Status::Ok();
}

std::string TimelinePath(const std::string& setting, const TraceOwner& owner) {
  const size_t slash = setting.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  size_t dot = setting.rfind('.');
  if (dot == std::string::npos || dot <= name) dot = setting.size();
  return setting.substr(0, dot) + (owner.is_server() ? "-s" : "-r") + std::to_string(owner.rank()) +
         setting.substr(dot);
}

std::unique_ptr<Timeline> Timeline::OfWorker(const Config& config, job::SharedView view,
                                             const Logger& log) {
  return Open(config, {.view = std::move(view)}, kWorkerCapacity, log);
}

std::unique_ptr<Timeline> Timeline::OfServer(const Config& config, job::SharedView view,
                                             int32_t num_shards, const Logger& log) {
  return Open(config, {.view = std::move(view), .num_shards = num_shards}, kShardCapacity, log);
}

std::unique_ptr<Timeline> Timeline::Open(const Config& config, const TraceOwner& owner,
                                         size_t capacity, const Logger& log) {
  if (config.timeline.empty()) return nullptr;
  return std::make_unique<Timeline>(TimelinePath(config.timeline, owner), owner, capacity, log);
}

Timeline::Timeline(std::string path, TraceOwner owner, size_t capacity, const Logger& log)
    : path_(std::move(path)), log_(log), turn_(capacity / 4), thread_("bs-trace") {
  for (int32_t i = 0; i <= owner.num_shards; ++i) {
    traces_.push_back(std::make_unique<Trace>(capacity, [this] { Wake(); }));
  }
  owner.host = HostName();
  owner.start = thread_.Now();
  owner.wall_time = LoopThread::WallTime();
  writer_ = std::make_unique<TraceText>(std::move(owner));
  thread_.Post([this] { Begin(); });
}

Timeline::~Timeline() {
  RunOn(&thread_, [this] { End(); });
}

void Timeline::Name(Key key, std::string name) {
  thread_.Post([this, key, name = std::move(name)] {
    if (writer_) writer_->Name(key, name, &text_);
  });
}

void Timeline::Framework(std::string name) {
  thread_.Post([this, name = std::move(name)] {
    if (writer_) writer_->Framework(name, &text_);
  });
}

void Timeline::Wake() {
  thread_.Post([this] { WriteAll(); });
}

void Timeline::Begin() {
  const Result<int> fd = OpenOurs(path_);
  if (!fd.ok()) {
    writer_.reset();
    return log_.Warning("BYTESCHEDULER_TIMELINE: " + path_ + ": " + fd.status().message() +
                        "; training goes on without a timeline");
  }
  fd_ = fd.value();
  log_.Info("writing a timeline to " + path_);
  writer_->Head(&text_);
  Flush();  // alone, so that a file that may not grow by a batch has it
  WriteInTurn();
}

void Timeline::WriteInTurn() {
  WriteAll();
  thread_.PostAt(thread_.Now() + kInterval, [this] { WriteInTurn(); });
}

void Timeline::WriteAll() {
  if (!writer_) return;  // the traces fill up, and recording then costs next to nothing
  while (WriteSome()) SayIfLost();
  Flush();
  SayIfLost();
}

bool Timeline::WriteSome() {
  bool some = false;
  TraceEvent event;
  for (const auto& trace : traces_) {
    for (size_t i = 0; i < turn_ && trace->Take(&event); ++i) {
      writer_->Event(event, &text_);
      ++text_events_;
      if (text_.size() >= kBatchBytes) Flush();
      some = true;
    }
  }
  return some;
}

void Timeline::SayIfLost() {
  if (fd_ < 0 || told_of_loss_ || Lost() == 0) return;
  told_of_loss_ = true;
  log_.Warning("BYTESCHEDULER_TIMELINE: " + path_ +
               " is not written fast enough: events are missing in it; its end says how many");
}

void Timeline::Flush() {
  const std::string text = std::exchange(text_, {});
  const uint64_t events = std::exchange(text_events_, 0);
  const int error = fd_ < 0 ? 0 : WriteWhole(fd_, text);
  if (fd_ >= 0 && error == 0) {
    file_bytes_ += static_cast<int64_t>(text.size());
    return;
  }
  dropped_ += events;
  if (fd_ < 0) return;
  // A half-written line would be the last.  If it cannot be cut off, readers leave it out.
  static_cast<void>(!ftruncate(fd_, file_bytes_));
  CloseOurs(std::exchange(fd_, -1));
  log_.Warning("BYTESCHEDULER_TIMELINE: " + path_ + ": " + Why(error) +
               "; training goes on, the timeline ends here");
}

void Timeline::End() {
  if (!writer_) return;
  WriteAll();
  const uint64_t missing = Lost() + dropped_;
  writer_->Tail(missing, &text_);
  Flush();
  if (missing > 0) {
    log_.Warning("BYTESCHEDULER_TIMELINE: " + path_ + " lacks " + CountOf(missing, "event"));
  }
  if (fd_ >= 0) CloseOurs(std::exchange(fd_, -1));
}

uint64_t Timeline::Lost() const {
  uint64_t lost = 0;
  for (const auto& trace : traces_) lost += trace->lost();
  return lost;
}

}  // namespace bs::trace
