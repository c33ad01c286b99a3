// LoopThread: one thread that sleeps in epoll, or looks there again and again for a while, until a
// task, a timer or a descriptor is due.
#include "base/loop_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/block_signals.h"
#include "base/check.h"
#include "base/descriptors.h"
#include "base/mutex.h"
#include "base/spin.h"

namespace bs {
namespace {

constexpr size_t kLongestName = 15;  // the kernel's limit
// So many tasks run before descriptors get a look: a task that posts itself cannot starve them.
constexpr int kTasksPerPoll = 64;
constexpr size_t kEventsPerPoll = 32;
// Epoll's data for our own two descriptors; the numbers of watches follow them.
constexpr uint64_t kWakeId = 0;
constexpr uint64_t kTimerId = 1;

// A descriptor of the kernel's, closed once.
class OwnedFd {
 public:
  // Throws if there was none to have: `fd` is -1 and errno says why.
  explicit OwnedFd(int fd) : fd_(fd) {
    if (fd < 0) throw std::runtime_error("no thread: " + SystemError(errno));
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  const int fd_;
};

// By its name in tests/tsan.supp.
class TimerFd : public OwnedFd {
 public:
  using OwnedFd::OwnedFd;
  TimerFd(const TimerFd&) = delete;
  TimerFd& operator=(const TimerFd&) = delete;
  ~TimerFd() = default;
};

void Drain(int fd) {
  uint64_t count = 0;
  static_cast<void>(!::read(fd, &count, sizeof(count)));  // non-blocking; empty is fine
}

}  // namespace

// Invariants:
//  1. posts_ is sorted by (when, id): both are assigned under mutex_, from a clock that never goes
//     back.  The next task is the smaller of the heads of posts_ and timers_.
//  2. A thread that adds a task due before wake_at_ writes to wake_ under mutex_.  So it touches
//     nothing of this object after the lock is gone, and the task may end the loop.
//  3. Whenever the loop sleeps, the timer is armed for armed_for_, or earlier than the head of
//     timers_.
class LoopThread::Impl {
 public:
  Impl(const std::string& name, LoopOptions options)
      : epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
        spin_(options.spin) {
    BS_CHECK(name.size() <= kLongestName);
    AddToEpoll(wake_.get(), kWakeId, EPOLLIN);
    AddToEpoll(timer_.get(), kTimerId, EPOLLIN);
    const BlockSignals block;  // inherited by the new thread
    thread_ = std::thread([this, name, start = std::move(options.at_start)]() mutable {
      Run(name, std::move(start));
    });
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ~Impl() { End(); }

  void End() {
    BS_CHECK(!IsCurrent());
    if (!thread_.joinable()) return;
    {
      const MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.store(true);
      Wake();
    }
    thread_.join();
    thread_id_.store({});  // a later thread may get the same id
  }

  static TimePoint Now() { return std::chrono::steady_clock::now(); }

  // A task that comes after the end is destroyed when its caller has left the lock.
  void Post(Task task) {
    const MutexLock lock(&mutex_);
    if (ended_) return;
    posts_.push_back({{Now(), next_id_++}, std::move(task)});
    changed_.store(true);
    if (sleeping_) Wake();
  }

  TimerId PostAt(TimePoint when, Task task) {
    const MutexLock lock(&mutex_);
    const Position position{std::max(when, Now()), next_id_++};
    if (ended_) return position.second;
    timers_.emplace(position, std::move(task));
    timer_positions_.emplace(position.second, position);
    if (timers_.begin()->first == position) changed_.store(true);
    if (sleeping_ && position.first < wake_at_) Wake();
    return position.second;
  }

  void Cancel(TimerId id) {
    Task unrun;  // destroyed after the lock is gone: its captures may post
    const MutexLock lock(&mutex_);
    const auto it = timer_positions_.find(id);
    if (it == timer_positions_.end()) return;
    const auto timer = timers_.find(it->second);
    unrun = std::move(timer->second);
    timers_.erase(timer);
    timer_positions_.erase(it);
  }

  bool IsCurrent() const { return thread_id_.load() == std::this_thread::get_id(); }

  void Watch(int fd, uint32_t events, std::function<void()> on_event) {
    BS_CHECK(IsCurrent());
    BS_CHECK(!watch_ids_.contains(fd));
    const uint64_t id = next_watch_id_++;
    watch_ids_.emplace(fd, id);
    watches_.emplace(id, std::make_shared<std::function<void()>>(std::move(on_event)));
    AddToEpoll(fd, id, events);
  }

  void Revisit(int fd) {
    BS_CHECK(IsCurrent());
    const auto it = watch_ids_.find(fd);
    BS_CHECK(it != watch_ids_.end());
    if (std::ranges::find(again_, it->second) == again_.end()) again_.push_back(it->second);
  }

  void Unwatch(int fd) {
    BS_CHECK(IsCurrent());
    const auto it = watch_ids_.find(fd);
    BS_CHECK(it != watch_ids_.end());
    const auto unwatched = watches_.extract(it->second);  // destroyed last: its captures may watch
    watch_ids_.erase(it);
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // fails if the owner closed fd already
  }

 private:
  using Position = std::pair<TimePoint, TimerId>;
  struct Posted {
    Position position;
    Task task;
  };

  void AddToEpoll(int fd, uint64_t id, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    BS_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  }

  void Run(const std::string& name, Task at_start) {
    thread_id_.store(std::this_thread::get_id());
    pthread_setname_np(pthread_self(), name.c_str());
    if (at_start) at_start();
    at_start = Task();
    while (RunDueTasks()) {
      DispatchEvents();
    }
    DestroyQueued();
  }

  // Returns whether to go on.
  bool RunDueTasks() {
    for (int i = 0; i < kTasksPerPoll; ++i) {
      Task task;
      {
        const MutexLock lock(&mutex_);
        if (stopping_) return false;
        task = TakeDueTask();
      }
      if (!task) return true;
      task();
    }
    return true;
  }

  // Empty if nothing is due.
  Task TakeDueTask() BS_REQUIRES(mutex_) {
    const bool post_first =
        !posts_.empty() && (timers_.empty() || posts_.front().position < timers_.begin()->first);
    if (post_first) {
      Task task = std::move(posts_.front().task);
      posts_.pop_front();
      return task;
    }
    if (timers_.empty() || timers_.begin()->first.first > Now()) return {};
    auto node = timers_.extract(timers_.begin());
    timer_positions_.erase(node.key().second);
    return std::move(node.mapped());
  }

  void DispatchEvents() {
    std::array<epoll_event, kEventsPerPoll> events{};
    std::vector<uint64_t> again = std::exchange(again_, {});
    const int count = again.empty() ? Await(events) : Poll(events, 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events.at(static_cast<size_t>(i)).data.u64;
      std::erase(again, id);
      Dispatch(id);
    }
    for (const uint64_t id : again) Dispatch(id);
  }

  int Poll(std::span<epoll_event> events, int timeout_ms) const {
    return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  }

  // Until there are events, and returns how many, or something is due.
  int Await(std::span<epoll_event> events) {
    const TimePoint due = NextDue();
    const TimePoint began = Now();
    if (due <= began) return Poll(events, 0);
    spin_.Worked(began - paused_until_);
    int count = LookUntil(std::min(due, began + spin_.window()), events);
    if (count <= 0 && !changed_.load() && Now() < due) count = Sleep(events);
    if (!spin_.enabled()) return count;
    paused_until_ = Now();
    spin_.Paused(paused_until_ - began);
    return count;
  }

  // When the next task is due, by the tasks known now; changed_ tells of new tasks.
  TimePoint NextDue() {
    const MutexLock lock(&mutex_);
    changed_.store(false);
    if (stopping_ || !posts_.empty()) return TimePoint::min();
    return timers_.empty() ? TimePoint::max() : timers_.begin()->first.first;
  }

  // Other threads may have this processor between two looks.
  int LookUntil(TimePoint end, std::span<epoll_event> events) {
    int count = 0;
    while (count <= 0 && !changed_.load() && Now() < end) {
      count = Poll(events, 0);
      if (count <= 0) sched_yield();
    }
    return count;
  }

  int Sleep(std::span<epoll_event> events) {
    const int count = Poll(events, PrepareToSleep() ? -1 : 0);
    const MutexLock lock(&mutex_);
    sleeping_ = false;
    return count;
  }

  // Returns false if something is due already.
  bool PrepareToSleep() {
    const MutexLock lock(&mutex_);
    if (stopping_ || !posts_.empty()) return false;
    wake_at_ = timers_.empty() ? TimePoint::max() : timers_.begin()->first.first;
    // Armed too early only wakes the loop once for nothing: cheaper than arming at every change.
    if (wake_at_ < armed_for_) ArmTimer(wake_at_);
    sleeping_ = true;
    return true;
  }

  void ArmTimer(TimePoint when) {
    // A time that has passed fires at once; zero would disarm.
    const int64_t nanos = std::max<int64_t>(when.time_since_epoch().count(), 1);
    itimerspec spec{};
    spec.it_value.tv_sec = nanos / 1'000'000'000;
    spec.it_value.tv_nsec = nanos % 1'000'000'000;
    BS_CHECK(timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
    armed_for_ = when;
  }

  void Dispatch(uint64_t id) {
    if (id == kWakeId) return Drain(wake_.get());
    if (id == kTimerId) {
      armed_for_ = TimePoint::max();
      return Drain(timer_.get());
    }
    const auto it = watches_.find(id);
    if (it == watches_.end()) return;  // unwatched by a callback of this very poll
    // Shared between the table and this call: the callback may unwatch itself.
    const std::shared_ptr<std::function<void()>> on_readable = it->second;
    (*on_readable)();
  }

  void Wake() BS_REQUIRES(mutex_) {
    sleeping_ = false;  // one write is enough
    const uint64_t one = 1;
    BS_CHECK(::write(wake_.get(), &one, sizeof(one)) == sizeof(one));
  }

  // Until nothing is left: the captures of a task may post while they are destroyed.
  void DestroyQueued() {
    std::exchange(watches_, {}).clear();
    bool more = true;
    while (more) {
      std::deque<Posted> posts;
      std::map<Position, Task> timers;
      const MutexLock lock(&mutex_);
      posts.swap(posts_);
      timers.swap(timers_);
      timer_positions_.clear();
      more = !posts.empty() || !timers.empty();
      ended_ = !more;
    }
  }

  const OwnedFd epoll_;
  const OwnedFd wake_;
  const TimerFd timer_;
  std::atomic<std::thread::id> thread_id_{};

  // Touched on the loop's thread only.
  uint64_t next_watch_id_ = kTimerId + 1;
  std::unordered_map<int, uint64_t> watch_ids_;
  std::unordered_map<uint64_t, std::shared_ptr<std::function<void()>>> watches_;
  std::vector<uint64_t> again_;  // watches to be called after the next poll
  TimePoint armed_for_ = TimePoint::max();
  Spin spin_;
  TimePoint paused_until_ = Now();

  // A task is due sooner than the loop last knew.  Set under mutex_, which guards that task.  Read
  // without, because a spinning loop would else take the lock again and again and delay posts.
  std::atomic<bool> changed_ = false;
  Mutex mutex_;
  TimerId next_id_ BS_GUARDED_BY(mutex_) = 1;
  std::deque<Posted> posts_ BS_GUARDED_BY(mutex_);
  std::map<Position, Task> timers_ BS_GUARDED_BY(mutex_);
  std::unordered_map<TimerId, Position> timer_positions_ BS_GUARDED_BY(mutex_);
  TimePoint wake_at_ BS_GUARDED_BY(mutex_) = TimePoint::max();
  bool sleeping_ BS_GUARDED_BY(mutex_) = false;
  bool stopping_ BS_GUARDED_BY(mutex_) = false;
  bool ended_ BS_GUARDED_BY(mutex_) = false;  // the thread takes no further task

  std::thread thread_;
};

LoopThread::LoopThread(const std::string& name) : LoopThread(name, LoopOptions()) {}

LoopThread::LoopThread(const std::string& name, LoopOptions options)
    : impl_(std::make_unique<Impl>(name, std::move(options))) {}

LoopThread::~LoopThread() = default;

void LoopThread::End() { impl_->End(); }

TimePoint LoopThread::Now() const { return Impl::Now(); }

TimePoint LoopThread::SteadyTime() { return Impl::Now(); }

Duration LoopThread::WallTime() { return std::chrono::system_clock::now().time_since_epoch(); }

void LoopThread::Post(Task task) { impl_->Post(std::move(task)); }

TimerId LoopThread::PostAt(TimePoint when, Task task) {
  return impl_->PostAt(when, std::move(task));
}

void LoopThread::Cancel(TimerId id) { impl_->Cancel(id); }

bool LoopThread::IsCurrent() const { return impl_->IsCurrent(); }

void LoopThread::WatchReadable(int fd, std::function<void()> on_readable) {
  impl_->Watch(fd, EPOLLIN, std::move(on_readable));
}

void LoopThread::WatchChanges(int fd, std::function<void()> on_change) {
  impl_->Watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, std::move(on_change));
}

void LoopThread::Revisit(int fd) { impl_->Revisit(fd); }

void LoopThread::Unwatch(int fd) { impl_->Unwatch(fd); }

}  // namespace bs
