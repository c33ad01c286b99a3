// LoopThread: order, timers, descriptors, and an end that loses and repeats nothing.
#include "base/loop_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/notification.h"
#include "base/pauses.h"
#include "base/spin.h"

namespace bs {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// An eventfd, closed at the end.
class Event {
 public:
  Event() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { ::close(fd_); }
  int fd() const { return fd_; }
  void Set() const {
    const uint64_t one = 1;
    EXPECT_EQ(::write(fd_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  void Clear() const {
    uint64_t count = 0;
    EXPECT_EQ(::read(fd_, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  }

 private:
  const int fd_;
};

TEST(LoopThread, RunsPostsInOrderOnItsOwnThread) {
  LoopThread loop("loop");
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    loop.Post([&, i] {
      EXPECT_TRUE(loop.IsCurrent());
      order.push_back(i);
    });
  }
  RunAndWait(&loop, [] {});
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  EXPECT_FALSE(loop.IsCurrent());
}

TEST(LoopThread, PostNeverRunsInsideTheCall) {
  LoopThread loop("loop");
  std::vector<int> order;
  RunAndWait(&loop, [&] {
    loop.Post([&] { order.push_back(2); });
    order.push_back(1);
  });
  RunAndWait(&loop, [] {});
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(LoopThread, KnowsTheWallClock) {
  // Between 2020 and 2100: a clock of another epoch would not be.
  EXPECT_GT(LoopThread::WallTime(), hours(24 * 365 * 50));
  EXPECT_LT(LoopThread::WallTime(), hours(24 * 365 * 130));
}

TEST(LoopThread, ShowsItsNameAndRunsTheStarterFirst) {
  std::vector<std::string> names;
  LoopThread loop("bs-shard-0.1", {.at_start = [&] {
                    std::array<char, 16> name{};
                    pthread_getname_np(pthread_self(), name.data(), name.size());
                    names.emplace_back(name.data());
                  }});
  RunAndWait(&loop, [&] { names.emplace_back("posted"); });
  EXPECT_EQ(names, (std::vector<std::string>{"bs-shard-0.1", "posted"}));
}

TEST(LoopThread, LeavesSignalsToTheOtherThreads) {
  LoopThread loop("loop");
  sigset_t mask;
  sigemptyset(&mask);
  RunAndWait(&loop, [&] { pthread_sigmask(SIG_BLOCK, nullptr, &mask); });
  EXPECT_EQ(sigismember(&mask, SIGINT), 1);
  EXPECT_EQ(sigismember(&mask, SIGSEGV), 0);
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);
}

TEST(LoopThread, TimersRunInOrderOfTheirTimes) {
  LoopThread loop("loop");
  std::vector<int> order;
  Notification done;
  const TimePoint now = loop.Now();
  RunAndWait(&loop, [&] {
    loop.PostAt(now + milliseconds(6), [&] {
      order.push_back(3);
      done.Notify();
    });
    loop.PostAt(now + milliseconds(2), [&] {
      EXPECT_GE(loop.Now(), now + milliseconds(2));
      order.push_back(1);
    });
    loop.PostAt(now + milliseconds(4), [&] { order.push_back(2); });
  });
  done.Wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(LoopThread, EqualTimesRunInOrderOfPosting) {
  LoopThread loop("loop");
  std::vector<int> order;
  Notification done;
  RunAndWait(&loop, [&] {
    const TimePoint when = loop.Now() + milliseconds(1);
    for (int i = 0; i < 5; ++i) loop.PostAt(when, [&, i] { order.push_back(i); });
    loop.PostAt(when, [&] { done.Notify(); });
  });
  done.Wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(LoopThread, TimerThatIsDueTakesItsTurnAmongPosts) {
  LoopThread loop("loop");
  std::vector<int> order;
  RunAndWait(&loop, [&] {
    loop.Post([&] { order.push_back(0); });
    loop.PostAt(TimePoint(), [&] { order.push_back(1); });
    loop.Post([&] { order.push_back(2); });
  });
  RunAndWait(&loop, [] {});
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(LoopThread, EarlierTimerWakesALoopThatSleepsForALaterOne) {
  LoopThread loop("loop");
  loop.PostAt(loop.Now() + hours(1), [] { FAIL() << "an hour has not passed"; });
  RunAndWait(&loop, [] {});
  Notification done;
  loop.PostAt(loop.Now() + milliseconds(1), [&] { done.Notify(); });
  EXPECT_TRUE(done.WaitFor(std::chrono::seconds(60)));
}

TEST(LoopThread, LaterTimerRunsAfterTheNearestIsCancelled) {
  LoopThread loop("loop");
  Notification done;
  const TimerId near = loop.PostAt(loop.Now() + hours(1), [] {});
  loop.PostAt(loop.Now() + milliseconds(2), [&] { done.Notify(); });
  RunAndWait(&loop, [] {});
  loop.Cancel(near);
  EXPECT_TRUE(done.WaitFor(std::chrono::seconds(60)));
}

TEST(LoopThread, CancelledTimerIsDestroyedUnrun) {
  LoopThread loop("loop");
  const auto held = std::make_shared<int>(0);
  const TimerId id = loop.PostAt(loop.Now() + hours(1), [held] { ++*held; });
  EXPECT_NE(id, 0U);
  loop.Cancel(id);
  EXPECT_EQ(held.use_count(), 1);
  loop.Cancel(id);
  loop.Cancel(0);
  loop.Cancel(999999);
}

TEST(LoopThread, CancelOnTheLoopStopsATimerThatIsDueAlready) {
  LoopThread loop("loop");
  bool ran = false;
  RunAndWait(&loop, [&] {
    const TimerId id = loop.PostAt(TimePoint(), [&] { ran = true; });
    loop.Cancel(id);
  });
  RunAndWait(&loop, [] {});
  EXPECT_FALSE(ran);
}

TEST(LoopThread, PostsFromManyThreadsAllRunInEachThreadsOrder) {
  constexpr int kThreads = 4;
  constexpr int kPosts = 500;
  LoopThread loop("loop");
  std::vector<std::vector<int>> seen(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        loop.Post([&, t, i] { seen[static_cast<size_t>(t)].push_back(i); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  RunAndWait(&loop, [] {});
  std::vector<int> expected(kPosts);
  std::iota(expected.begin(), expected.end(), 0);
  for (const std::vector<int>& of_thread : seen) EXPECT_EQ(of_thread, expected);
}

TEST(LoopThread, EndRunsOrDestroysEachTaskExactlyOnce) {
  struct Counted {
    explicit Counted(std::atomic<int>* d) : deaths(d) {}
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { ++*deaths; }
    std::atomic<int>* deaths;
  };
  std::atomic<int> deaths = 0;
  std::atomic<int> runs = 0;
  {
    LoopThread loop("loop");
    // The first task ends only when all others are queued, so that some are left when the loop
    // ends.
    Notification all_queued;
    loop.Post([&] { all_queued.Wait(); });
    for (int i = 0; i < 200; ++i) {
      loop.Post([&runs, counted = std::make_unique<Counted>(&deaths)] { ++runs; });
      loop.PostAt(loop.Now() + hours(1),
                  [&runs, c = std::make_unique<Counted>(&deaths)] { ++runs; });
    }
    all_queued.Notify();
    RunAndWait(&loop, [] {});
    EXPECT_EQ(runs, 200);
  }
  EXPECT_EQ(deaths, 400);
  EXPECT_EQ(runs, 200);
}

TEST(LoopThread, TasksDestroyedAtTheEndMayPost) {
  struct PostsWhenDestroyed {
    PostsWhenDestroyed(LoopThread* l, std::shared_ptr<int> h) : loop(l), held(std::move(h)) {}
    PostsWhenDestroyed(const PostsWhenDestroyed&) = delete;
    PostsWhenDestroyed& operator=(const PostsWhenDestroyed&) = delete;
    ~PostsWhenDestroyed() {
      EXPECT_TRUE(loop->IsCurrent());
      loop->Post([h = held] { ++*h; });
    }
    LoopThread* loop;
    std::shared_ptr<int> held;
  };
  const auto held = std::make_shared<int>(0);
  {
    LoopThread loop("loop");
    loop.PostAt(loop.Now() + hours(1),
                [p = std::make_unique<PostsWhenDestroyed>(&loop, held)] { ++*p->held; });
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

TEST(LoopThread, TasksThatComeAfterTheEndAreDestroyedUnrun) {
  const auto held = std::make_shared<int>(0);
  LoopThread loop("loop");
  RunAndWait(&loop, [] {});
  loop.End();
  loop.Post([held] { ++*held; });
  EXPECT_EQ(held.use_count(), 1);
  const TimerId id = loop.PostAt(TimePoint(), [held] { ++*held; });
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_NE(id, 0U);
  loop.Cancel(id);
  EXPECT_FALSE(loop.IsCurrent());
  loop.End();
  EXPECT_EQ(*held, 0);
}

TEST(LoopThread, CallsBackAsLongAsADescriptorIsReadable) {
  LoopThread loop("loop");
  const Event event;
  int calls = 0;
  Notification done;
  RunAndWait(&loop, [&] {
    loop.WatchReadable(event.fd(), [&] {
      EXPECT_TRUE(loop.IsCurrent());
      // Left readable twice: the watch is level-triggered.
      if (++calls < 3) return;
      event.Clear();
      done.Notify();
    });
  });
  event.Set();
  done.Wait();
  RunAndWait(&loop, [&] { loop.Unwatch(event.fd()); });
  EXPECT_EQ(calls, 3);
}

TEST(LoopThread, ToldOfChangesOnceEach) {
  LoopThread loop("loop");
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  int calls = 0;
  Notification writable;
  Notification readable;
  RunAndWait(&loop, [&] {
    loop.WatchChanges(ends[0], [&] {
      ++calls;
      if (calls == 1) writable.Notify();  // it is so from the beginning
      if (calls == 2) readable.Notify();
    });
  });
  writable.Wait();
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  readable.Wait();
  RunAndWait(&loop, [] {});
  // Nothing was read and nothing has changed since.
  RunAndWait(&loop, [&] {
    EXPECT_EQ(calls, 2);
    loop.Unwatch(ends[0]);
  });
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(LoopThread, SeesTheEndOfAPipe) {
  LoopThread loop("loop");
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  Notification done;
  RunAndWait(&loop, [&] {
    loop.WatchReadable(ends[0], [&] {
      char byte = 0;
      EXPECT_EQ(::read(ends[0], &byte, 1), 0);
      loop.Unwatch(ends[0]);
      done.Notify();
    });
  });
  ::close(ends[1]);
  done.Wait();
  RunAndWait(&loop, [] {});
  ::close(ends[0]);
}

TEST(LoopThread, UnwatchedDescriptorCallsNoCallback) {
  LoopThread loop("loop");
  const Event first;
  const Event second;
  int calls = 0;
  // Both are readable in the same poll; the first callback unwatches both.
  const auto callback = [&] {
    ++calls;
    loop.Unwatch(first.fd());
    loop.Unwatch(second.fd());
  };
  RunAndWait(&loop, [&] {
    first.Set();
    second.Set();
    loop.WatchReadable(first.fd(), callback);
    loop.WatchReadable(second.fd(), callback);
  });
  const Event last;  // readable later than the other two, so seen in the same poll or a later one
  Notification done;
  RunAndWait(&loop, [&] {
    loop.WatchReadable(last.fd(), [&] {
      loop.Unwatch(last.fd());
      done.Notify();
    });
    last.Set();
  });
  done.Wait();
  EXPECT_EQ(calls, 1);
}

TEST(LoopThread, DescriptorMayBeWatchedAgain) {
  LoopThread loop("loop");
  const Event event;
  Notification done;
  RunAndWait(&loop, [&] {
    loop.WatchReadable(event.fd(), [] { FAIL() << "replaced before it was readable"; });
    loop.Unwatch(event.fd());
    loop.WatchReadable(event.fd(), [&] {
      event.Clear();
      done.Notify();
    });
  });
  event.Set();
  done.Wait();
}

TEST(LoopThread, TaskThatPostsItselfDoesNotStarveDescriptors) {
  LoopThread loop("loop");
  const Event event;
  bool seen = false;
  Notification done;
  std::function<void()> again = [&] {
    if (seen) return done.Notify();
    loop.Post([&] { again(); });
  };
  RunAndWait(&loop, [&] {
    loop.WatchReadable(event.fd(), [&] {
      event.Clear();
      seen = true;
    });
    event.Set();
    again();
  });
  done.Wait();
}

TEST(LoopThread, CallbackThatWantsAnotherCallLetsOtherCallbacksGoFirst) {
  LoopThread loop("loop");
  const Event busy;
  const Event other;
  int calls = 0;
  int calls_of_other = 0;
  Notification done;
  RunAndWait(&loop, [&] {
    loop.WatchReadable(busy.fd(), [&] {
      if (calls == 0) busy.Clear();
      if (++calls == 100) return done.Notify();
      EXPECT_GE(calls_of_other + 2, calls);
      loop.Revisit(busy.fd());
      loop.Revisit(busy.fd());  // once is meant
    });
    loop.WatchReadable(other.fd(), [&] { ++calls_of_other; });
    busy.Set();
    other.Set();
  });
  done.Wait();
  RunAndWait(&loop, [&] {
    loop.Revisit(other.fd());
    loop.Unwatch(other.fd());
    calls_of_other = 0;
  });
  RunAndWait(&loop, [] {});
  RunAndWait(&loop, [] {});
  EXPECT_EQ(calls_of_other, 0);
  EXPECT_EQ(calls, 100);
}

TEST(LoopThread, LeavesItsProcessorAloneInPausesUnlessItSpins) {
  LoopThread sleeping("sleeping");
  LoopThread spinning("spinning", {.spin = hours(1)});
  EXPECT_TRUE(TakesMoreInPauses(&spinning, &sleeping));
}

// One that has had its short pauses, and so looks for work now: no pause is long for it.
class Spinning {
 public:
  Spinning() { PostApart(&loop, 2 * Spin::kFewest); }
  LoopThread loop{"loop", {.spin = hours(1)}};
};

TEST(LoopThread, SpinningItSeesDescriptorsTimersAndPosts) {
  Spinning spinning;
  Event event;
  Notification readable;
  Notification rang;
  RunAndWait(&spinning.loop, [&] {
    spinning.loop.WatchReadable(event.fd(), [&] {
      event.Clear();
      readable.Notify();
    });
  });
  event.Set();
  readable.Wait();
  spinning.loop.PostAt(spinning.loop.Now() + milliseconds(5), [&] { rang.Notify(); });
  rang.Wait();
  RunAndWait(&spinning.loop, [&] { spinning.loop.Unwatch(event.fd()); });
}

TEST(LoopThread, SpinningItEndsAtOnce) {
  for (int i = 0; i < 20; ++i) Spinning();
}

TEST(LoopThread, TaskThatComesAfterTheSpinWakesIt) {
  for (int i = 0; i < 10; ++i) {
    LoopThread loop("loop", {.spin = milliseconds(20)});
    PostApart(&loop, 2 * Spin::kFewest);
    std::this_thread::sleep_for(milliseconds(40));  // it sleeps by now
    RunAndWait(&loop, [] {});
  }
}

TEST(LoopThread, EndsWhileATaskOfItsOwnIsTheLastToPost) {
  for (int i = 0; i < 200; ++i) {
    Notification done;
    auto loop = std::make_unique<LoopThread>("loop");
    std::thread poster([&loop, &done] { loop->Post([&done] { done.Notify(); }); });
    done.Wait();
    poster.join();
    loop.reset();
  }
}

TEST(LoopThreadDeathTest, LongNameIsAMistake) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(LoopThread("sixteen-letters-"), "check failed");
}

}  // namespace
}  // namespace bs
