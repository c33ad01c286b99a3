// LoopThread: an Executor that is one named thread around epoll.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"

namespace bs {

struct LoopOptions {
  // Runs first on the new thread (to pin it, say).
  Task at_start{};
  // Longest time that an idle loop looks for work before it sleeps, where that has paid (see Spin).
  // Meanwhile it uses a processor that no other thread wants.  0: it sleeps at once.
  Duration spin{};
};

// Owns its thread and three descriptors (kDescriptors).  The constructor starts the thread, or
// throws a std::exception that names the resource that the system lacks.  The destructor ends and
// joins it.  Tasks still queued then are destroyed unrun, on the ending thread.
//
// REQUIRES: neither End nor the destructor runs on the loop's own thread.
class LoopThread final : public Executor {
 public:
  static constexpr uint64_t kDescriptors = 3;

  // `name` is shown by ps, top and gdb; at most 15 characters.
  explicit LoopThread(const std::string& name);
  LoopThread(const std::string& name, LoopOptions options);
  ~LoopThread() override;
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  // Ends and joins the thread; the executor stays.  Tasks that come later are destroyed unrun, on
  // the thread that posts them.  For threads that post to each other: end all of them before any of
  // their executors goes.  Do not wait for a task that is posted after it.  A second call does
  // nothing.  One thread at a time calls this.
  void End();

  TimePoint Now() const override;
  void Post(Task task) override;
  TimerId PostAt(TimePoint when, Task task) override;
  void Cancel(TimerId id) override;
  bool IsCurrent() const override;

  // The time of Now, where there is no loop.
  static TimePoint SteadyTime();
  // Time since 1970 as this host has it, to compare hosts; jumps when the clock is set.
  static Duration WallTime();

  // Calls `on_readable` on the loop's thread whenever `fd` polls readable (level-triggered), until
  // Unwatch.  The fd stays the caller's.  REQUIRES: called on the loop's thread; fd is not watched
  // yet.
  void WatchReadable(int fd, std::function<void()> on_readable);
  // Calls `on_change` once at the start, and then whenever `fd` has become readable, writable or
  // broken (edge-triggered: read and write until the kernel refuses).
  void WatchChanges(int fd, std::function<void()> on_change);
  // The callback of `fd` is called once more, whatever the kernel says of it, when the other
  // descriptors have had their turn.  REQUIRES: called on the loop's thread; fd is watched.
  void Revisit(int fd);
  // After this returns the callback is not called again.  REQUIRES: called on the loop's thread.
  void Unwatch(int fd);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bs
