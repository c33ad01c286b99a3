// MpiCollective: its thread, and the ends that it gives.
#include "backend/collective/mpi/mpi_collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "backend/collective/mpi/fake_mpi_library.h"
#include "base/loop_thread.h"
#include "base/notification.h"
#include "base/run_on.h"
#include "base/snapshot.h"

namespace bs::backend::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class MpiCollectiveTest : public testing::Test {
 protected:
  void Make(FakeMpiLibrary::Script script, MpiOptions options = {}) {
    RunOn(&loop_, [&] {
      mpi_ = std::make_unique<MpiCollective>(
          &loop_, std::make_unique<FakeMpiLibrary>(std::move(script)), FakeLauncher(), options);
    });
  }
  void End() {
    RunOn(&loop_, [&] { mpi_.reset(); });
  }
  void TearDown() override { End(); }

  // The end of a call.
  struct Outcome {
    Notification ended;
    Status status;
    std::atomic<int> times = 0;
  };
  Collective::Done To(const std::shared_ptr<Outcome>& outcome) {
    return [this, outcome](const Status& status) {
      EXPECT_TRUE(loop_.IsCurrent());
      ++outcome->times;
      outcome->status = status;
      outcome->ended.Notify();
    };
  }
  std::shared_ptr<Outcome> Start() {
    auto outcome = std::make_shared<Outcome>();
    RunOn(&loop_, [&] { mpi_->Prepare(To(outcome)); });
    return outcome;
  }
  std::shared_ptr<Outcome> Sum(std::vector<float>* values, uint64_t sequence) {
    auto outcome = std::make_shared<Outcome>();
    RunOn(&loop_, [&] {
      mpi_->Begin({{.in = std::as_bytes(std::span(*values)),
                    .out = std::as_writable_bytes(std::span(*values))}},
                  DType::kFloat32, sequence, To(outcome));
      EXPECT_EQ(outcome->times, 0) << "never inside the call";
    });
    return outcome;
  }
  void Abort(const std::string& text) {
    RunOn(&loop_, [&] { mpi_->Abort(Status::Unavailable(text)); });
  }
  static Status Wait(const std::shared_ptr<Outcome>& outcome) {
    EXPECT_TRUE(outcome->ended.WaitFor(seconds(20)));
    EXPECT_EQ(outcome->times, 1);
    return outcome->status;
  }

  LoopThread loop_{"test"};
  std::unique_ptr<MpiCollective> mpi_;
};

TEST_F(MpiCollectiveTest, SumsInARow) {
  Make({.add = PlayTwin}, {.spin = std::chrono::microseconds(100)});
  ASSERT_TRUE(Wait(Start()).ok());
  for (uint64_t sequence = 0; sequence < 100; ++sequence) {
    std::vector<float> values = {1, 2};
    ASSERT_TRUE(Wait(Sum(&values, sequence)).ok());
    EXPECT_EQ(values, (std::vector<float>{2, 4}));
  }
}

TEST_F(MpiCollectiveTest, HasSeveralSumsUnderWay) {
  std::atomic<bool> ends = false;
  Make({.add = PlayTwin, .ends = [&](const FakeMpiLibrary::Call& call) {
          return call.channel == MpiChannel::kDescriptions || ends;
        }});
  ASSERT_TRUE(Wait(Start()).ok());
  std::vector<float> first = {1};
  std::vector<float> second = {1};
  const auto one = Sum(&first, 0);
  const auto two = Sum(&second, 1);
  EXPECT_FALSE(one->ended.WaitFor(milliseconds(20)));
  ends = true;
  EXPECT_TRUE(Wait(one).ok());
  EXPECT_TRUE(Wait(two).ok());
}

TEST_F(MpiCollectiveTest, AStartThatFailsSaysSo) {
  Make({.init = Status::FailedPrecondition("no threads")});
  EXPECT_EQ(Wait(Start()).message(), "no threads");
  std::vector<float> values = {1};
  EXPECT_EQ(Wait(Sum(&values, 0)).message(), "no threads") << "and so do later calls";
}

TEST_F(MpiCollectiveTest, ARankThatNeverStartsIsAnErrorOfTheStart) {
  const auto over = std::make_shared<Notification>();  // the thread wakes up behind this test
  Make({.add = [over](const FakeMpiLibrary::Call&) { over->WaitFor(seconds(20)); }},
       {.start_limit = milliseconds(20)});
  EXPECT_SNAPSHOT(Wait(Start()).message(),
                  "MPI has not begun on all ranks for 1 s: start all workers with "
                  "BYTESCHEDULER_COMM=mpi and by one mpirun");
  over->Notify();
}

TEST_F(MpiCollectiveTest, AbortEndsSumsUnderWay) {
  std::atomic<bool> aborted = false;
  std::atomic<int> calls_after = 0;
  Make({.add = PlayTwin,
        .ends =
            [](const FakeMpiLibrary::Call& call) {
              return call.channel == MpiChannel::kDescriptions;
            },
        .test =
            [&] {
              if (aborted) ++calls_after;
              return Status::Ok();
            }});
  ASSERT_TRUE(Wait(Start()).ok());
  std::vector<float> values = {1};
  const auto sum = Sum(&values, 0);
  Abort("worker 1 was lost");
  EXPECT_EQ(Wait(sum).message(), "worker 1 was lost");
  aborted = true;
  EXPECT_EQ(Wait(Sum(&values, 1)).message(), "worker 1 was lost");
  EXPECT_EQ(calls_after, 0) << "MPI has no call that it could use the memory in";
}

// Card or peer may write to the memory of a sum that does not end.
TEST_F(MpiCollectiveTest, ASumThatDoesNotEndLeavesArraysOfTheScriptAlone) {
  const auto memory = std::make_shared<std::atomic<float*>>(nullptr);
  Make({.add =
            [memory](const FakeMpiLibrary::Call& call) {
              PlayTwin(call);
              if (call.channel == MpiChannel::kSums) *memory = static_cast<float*>(call.out);
            },
        .ends =
            [](const FakeMpiLibrary::Call& call) {
              return call.channel == MpiChannel::kDescriptions;
            }});
  ASSERT_TRUE(Wait(Start()).ok());
  std::vector<float> values = {1, 2};
  const auto sum = Sum(&values, 0);
  while (*memory == nullptr) std::this_thread::yield();
  Abort("worker 1 was lost");
  EXPECT_EQ(Wait(sum).message(), "worker 1 was lost");
  End();
  std::fill_n(memory->load(), 2, 7.0F);
  EXPECT_EQ(values, (std::vector<float>{1, 2}));
}

TEST_F(MpiCollectiveTest, MpiStaysAtExitWhereASumMayNotEnd) {
  std::atomic<int> stays = 0;
  std::atomic<int> freed = 0;
  const auto make = [&] {
    Make({.add = PlayTwin, .stay_at_exit = [&] { ++stays; }, .free = [&] { ++freed; }});
    ASSERT_TRUE(Wait(Start()).ok());
  };
  make();
  Abort("worker 1 was lost");
  End();
  EXPECT_EQ(stays, 1);
  EXPECT_EQ(freed, 0);
  make();
  RunOn(&loop_, [&] { mpi_->Abort(Status::Cancelled("the worker was closed")); });
  End();
  EXPECT_EQ(stays, 1) << "all is well";
  EXPECT_EQ(freed, 1);
}

// Counts calls of MpiLibrary::Progress.  MPI ends with the test.
struct Helped {
  std::atomic<int> times = 0;
  std::atomic<bool> over = false;
  Notification enough;

  std::function<bool()> ToProgress(const std::shared_ptr<Helped>& self) {
    return [self] {
      if (self->over) return false;
      if (++self->times % 3 == 0) self->enough.Notify();
      return true;
    };
  }
};

// No call of MPI follows.
void ExpectQuiet(Helped* helped) {
  const int before = helped->times;
  Notification nothing;
  EXPECT_FALSE(nothing.WaitFor(milliseconds(50)));
  EXPECT_EQ(helped->times, before);
  helped->over = true;
}

TEST_F(MpiCollectiveTest, CallsMpiAfterItsSumsSoThatPeersEndTheirs) {
  const auto helped = std::make_shared<Helped>();
  Make({.add = PlayTwin, .progress = helped->ToProgress(helped)});
  ASSERT_TRUE(Wait(Start()).ok());
  std::vector<float> values = {1};
  ASSERT_TRUE(Wait(Sum(&values, 0)).ok());
  EXPECT_TRUE(helped->enough.WaitFor(seconds(20)));
  helped->over = true;
}

TEST_F(MpiCollectiveTest, CallsMpiAfterItsGoodEnd) {
  const auto helped = std::make_shared<Helped>();
  const auto closed = std::make_shared<std::atomic<bool>>(false);
  const auto called = std::make_shared<Notification>();
  Make({.add = PlayTwin, .progress = [helped, closed, called, help = helped->ToProgress(helped)] {
          if (*closed) called->Notify();
          return help();
        }});
  ASSERT_TRUE(Wait(Start()).ok());
  RunOn(&loop_, [&] { mpi_->Abort(Status::Cancelled("the worker was closed")); });
  End();
  *closed = true;
  EXPECT_TRUE(called->WaitFor(seconds(20)));
  helped->over = true;
}

TEST_F(MpiCollectiveTest, CallsMpiNoMoreAfterAFailure) {
  const auto helped = std::make_shared<Helped>();
  Make({.add = PlayTwin, .progress = helped->ToProgress(helped)});
  ASSERT_TRUE(Wait(Start()).ok());
  EXPECT_TRUE(helped->enough.WaitFor(seconds(20)));
  Abort("worker 1 was lost");
  End();
  ExpectQuiet(helped.get());
}

TEST_F(MpiCollectiveTest, CallsMpiNoMoreAfterItsError) {
  const auto helped = std::make_shared<Helped>();
  const auto sum_fails = std::make_shared<std::atomic<bool>>(false);
  Make({.add = PlayTwin,
        .test =
            [sum_fails] {
              return *sum_fails ? Status::Unavailable("MPI_Testsome: a rank is gone")
                                : Status::Ok();
            },
        .progress = helped->ToProgress(helped)},
       {.blame = milliseconds(10)});
  ASSERT_TRUE(Wait(Start()).ok());
  *sum_fails = true;
  std::vector<float> values = {1};
  EXPECT_FALSE(Wait(Sum(&values, 0)).ok());
  ExpectQuiet(helped.get());
}

TEST_F(MpiCollectiveTest, KeepsMemoryThatMpiHas) {
  for (const bool ends : {true, false}) {
    const auto token = std::make_shared<int>();  // lives as long as the library, and so its sums
    const auto has_sum = std::make_shared<Notification>();
    Make({.add = PlayTwin, .ends = [token, ends, has_sum](const FakeMpiLibrary::Call& call) {
            if (call.channel == MpiChannel::kSums) has_sum->Notify();
            return ends || call.channel == MpiChannel::kDescriptions;
          }});
    ASSERT_TRUE(Wait(Start()).ok());
    std::vector<float> values = {1};
    const auto sum = Sum(&values, 0);
    if (ends) {
      ASSERT_TRUE(Wait(sum).ok());
    } else {
      ASSERT_TRUE(has_sum->WaitFor(seconds(20)));
      Abort("worker 1 was lost");
      EXPECT_FALSE(Wait(sum).ok());
    }
    End();
    EXPECT_EQ(token.use_count() == 1, ends);
  }
}

TEST_F(MpiCollectiveTest, AnErrorOfMpiWaitsForTheNameOfTheLostRank) {
  std::atomic<bool> fails = false;
  Make({.add = PlayTwin,
        .ends =
            [](const FakeMpiLibrary::Call& call) {
              return call.channel == MpiChannel::kDescriptions;
            },
        .test =
            [&] {
              return fails ? Status::Unavailable("MPI_Testsome: a rank is gone") : Status::Ok();
            }},
       {.blame = seconds(60)});
  ASSERT_TRUE(Wait(Start()).ok());
  std::vector<float> values = {1};
  const auto sum = Sum(&values, 0);
  fails = true;
  EXPECT_FALSE(sum->ended.WaitFor(milliseconds(50)));
  Abort("worker 1 was lost");
  EXPECT_EQ(Wait(sum).message(), "worker 1 was lost");
}

TEST_F(MpiCollectiveTest, AnErrorOfMpiWithoutAnotherReasonIsTheStatus) {
  Make({.test = [] { return Status::Unavailable("MPI_Testsome: a rank is gone"); }},
       {.blame = milliseconds(10)});
  EXPECT_EQ(Wait(Start()).message(), "MPI_Testsome: a rank is gone");
}

TEST_F(MpiCollectiveTest, NoCallbackRunsAfterItsEnd) {
  Make({.test = [] { return Status::Unavailable("MPI_Testsome: a rank is gone"); }},
       {.blame = milliseconds(30)});
  const auto started = Start();
  End();
  EXPECT_FALSE(started->ended.WaitFor(milliseconds(100)));
}

// A call of MPI that does not return, until the test lets it.
struct Blocked {
  std::atomic<bool> blocks = false;
  Notification entered;
  Notification goes_on;

  Status Test() {
    if (blocks) {
      entered.Notify();
      goes_on.Wait();
    }
    return Status::Ok();
  }
};

TEST_F(MpiCollectiveTest, AbortDoesNotWaitForACallThatBlocks) {
  const auto blocked = std::make_shared<Blocked>();
  Make({.add = PlayTwin, .test = [blocked] { return blocked->Test(); }},
       {.patience = milliseconds(50)});
  ASSERT_TRUE(Wait(Start()).ok());
  blocked->blocks = true;
  std::vector<float> values = {1};
  const auto sum = Sum(&values, 0);
  blocked->entered.Wait();
  Abort("worker 1 was lost");
  EXPECT_EQ(Wait(sum).message(), "worker 1 was lost");
  blocked->blocks = false;
  blocked->goes_on.Notify();
}

TEST_F(MpiCollectiveTest, CountsItsSumsUnlessACallBlocks) {
  const auto blocked = std::make_shared<Blocked>();
  Make({.add = PlayTwin, .test = [blocked] { return blocked->Test(); }});
  ASSERT_TRUE(Wait(Start()).ok());
  std::vector<float> values = {1};
  ASSERT_TRUE(Wait(Sum(&values, 0)).ok());
  const auto ask = [this] {
    auto told = std::make_shared<Notification>();
    RunOn(&loop_, [&] {
      mpi_->TellBegun([told](uint64_t num_begun) {
        EXPECT_GE(num_begun, 1U);
        told->Notify();
      });
    });
    return told;
  };
  EXPECT_TRUE(ask()->WaitFor(seconds(20)));
  blocked->blocks = true;
  const auto sum = Sum(&values, 1);
  blocked->entered.Wait();
  const auto told = ask();
  EXPECT_FALSE(told->WaitFor(milliseconds(50)));
  blocked->blocks = false;
  blocked->goes_on.Notify();
  EXPECT_TRUE(told->WaitFor(seconds(20)));
  EXPECT_TRUE(Wait(sum).ok());
}

TEST_F(MpiCollectiveTest, SumsThatWaitedForACallNeverReachMpiAfterAbort) {
  const auto blocked = std::make_shared<Blocked>();
  std::atomic<int> calls = 0;
  Make({.add =
            [&](const FakeMpiLibrary::Call& call) {
              ++calls;
              PlayTwin(call);
            },
        .test =
            [&, blocked] {
              ++calls;
              return blocked->Test();
            }},
       {.patience = milliseconds(50)});
  ASSERT_TRUE(Wait(Start()).ok());
  blocked->blocks = true;
  std::vector<float> values = {1};
  const auto sum = Sum(&values, 0);
  blocked->entered.Wait();
  std::vector<float> late = {1};
  const auto waits = Sum(&late, 1);
  Abort("worker 1 was lost");
  EXPECT_EQ(Wait(waits).message(), "worker 1 was lost");
  const int before = calls;
  blocked->blocks = false;
  blocked->goes_on.Notify();
  EXPECT_EQ(Wait(sum).message(), "worker 1 was lost");
  End();
  EXPECT_EQ(calls, before) << "callers have freed the memory";
  EXPECT_EQ(late, std::vector<float>{1});
}

TEST_F(MpiCollectiveTest, TheThreadIsLeftBehindInACallThatBlocks) {
  const auto blocked = std::make_shared<Blocked>();
  Make({.add = PlayTwin, .test = [blocked] { return blocked->Test(); }},
       {.patience = milliseconds(50)});
  ASSERT_TRUE(Wait(Start()).ok());
  blocked->blocks = true;
  std::vector<float> values = {1};
  const auto sum = Sum(&values, 0);
  blocked->entered.Wait();
  const TimePoint begun = LoopThread::SteadyTime();
  End();
  EXPECT_LT(LoopThread::SteadyTime() - begun, seconds(10));
  EXPECT_EQ(sum->times, 0);
  // The thread comes back later, and posts to no executor.
  blocked->goes_on.Notify();
}

}  // namespace
}  // namespace bs::backend::collective
