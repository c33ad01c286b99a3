// The plug-in's promises: each proxy ends once, with the right error, whatever comes first.
#include "frontend/mxnet/mxnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/snapshot.h"
#include "frontend/mxnet/mxnet_fixture.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(MxnetTest, ReadsSendAndWritesReceiveWithTheGivenPriority) {
  ASSERT_EQ(PushPull(-3), 0);
  ASSERT_EQ(mxnet_.operations.size(), 2u);
  EXPECT_EQ(mxnet_[kPush].array, &send_);
  EXPECT_FALSE(mxnet_[kPush].writes);
  EXPECT_EQ(mxnet_[kPull].array, &recv_);
  EXPECT_TRUE(mxnet_[kPull].writes);
  EXPECT_EQ(mxnet_[kPush].priority, -3);
  EXPECT_EQ(mxnet_[kPull].priority, -3);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  EXPECT_EQ(worker_.requests[0].priority, -3);
  worker_.Push(0);
  worker_.Pull(0);
}

TEST_F(MxnetTest, PassesTheCodingOn) {
  for (const bs_coding& coding : {bs_coding{}, bs_coding{7, 3, 0, 0, {1, 2, 3}}}) {
    worker_.requests.clear();
    mxnet_.operations.clear();
    ASSERT_EQ(PushPull(0, coding), 0);
    mxnet_.Run(kPush);
    mxnet_.Run(kPull);
    EXPECT_EQ(std::memcmp(&worker_.requests.at(0).coding, &coding, sizeof(coding)), 0);
    worker_.Push(0);
    worker_.Pull(0);
  }
}

TEST_F(MxnetTest, SaysWhetherAGradientWasReadyAtItsCall) {
  const auto at_once = [this](uint64_t size_bytes, std::chrono::milliseconds waited) {
    worker_.requests.clear();
    mxnet_.operations.clear();
    const bs_mxnet_round round{7,  "'fc1'", 0,       &send_, &recv_,  size_bytes,
                               {}, 1,       nullptr, 0,      nullptr, nullptr};
    EXPECT_EQ(bs_mxnet_push_pull(plugin_, &round, &error_), 0);
    std::this_thread::sleep_for(waited);
    mxnet_.Run(0);
    worker_.Push(0);
    worker_.Pull(0, 3, "nobody copies so much");
    EXPECT_GE(worker_.requests.at(0).waited_ns, std::chrono::nanoseconds(waited).count());
    return worker_.requests.at(0).at_once != 0;
  };
  using std::chrono::milliseconds;
  EXPECT_FALSE(at_once(8, milliseconds(2)));
  EXPECT_FALSE(at_once(uint64_t{1} << 40U, milliseconds(6)));
  // The thread may be held up between the call and the operation, but not for ever.
  for (const uint64_t size_bytes : {uint64_t{8}, uint64_t{1} << 40U}) {
    bool seen = false;
    for (int i = 0; i < 1000 && !seen; ++i) seen = at_once(size_bytes, milliseconds(0));
    EXPECT_TRUE(seen);
  }
}

TEST_F(MxnetTest, SaysInWhichOrderRoundsWereCalledForWhateverIsReadyFirst) {
  ASSERT_EQ(PushPull(), 0);
  ASSERT_EQ(PushPull(), 0);
  for (const size_t proxy : {2, 3, 0, 1}) mxnet_.Run(proxy);
  EXPECT_EQ(worker_.requests.at(0).called, 2U);
  EXPECT_EQ(worker_.requests.at(1).called, 1U);
  for (const size_t request : {0, 1}) {
    worker_.Push(request);
    worker_.Pull(request);
  }
}

TEST_F(MxnetTest, StartsOnlyWhenBothProxiesHaveRun) {
  for (const auto& [first, second] : {std::pair{kPush, kPull}, std::pair{kPull, kPush}}) {
    worker_.requests.clear();
    mxnet_.operations.clear();
    ASSERT_EQ(PushPull(), 0);
    EXPECT_EQ(bs_mxnet_pending(plugin_), 2);
    mxnet_.Run(first);
    EXPECT_TRUE(worker_.requests.empty());
    mxnet_.Run(second);
    ASSERT_EQ(worker_.requests.size(), 1u);
    EXPECT_EQ(worker_.requests[0].key, 7u);
    EXPECT_EQ(worker_.requests[0].size_bytes, 8u);
    worker_.Push(0);
    worker_.Pull(0);
  }
}

TEST_F(MxnetTest, EndsEachProxyWithItsOwnCallback) {
  ASSERT_EQ(PushPull(), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  EXPECT_FALSE(ended(kPush));
  worker_.Push(0);
  EXPECT_TRUE(ended(kPush));
  EXPECT_FALSE(ended(kPull));
  EXPECT_EQ(bs_mxnet_pending(plugin_), 1);
  worker_.Pull(0);
  EXPECT_TRUE(ended(kPull));
  EXPECT_THAT(recv_.values, ElementsAre(1, 2));
  EXPECT_EQ(error_of(kPull), "");
}

TEST_F(MxnetTest, TheSumMayComeBeforeTheAcknowledgement) {
  ASSERT_EQ(PushPull(), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  worker_.Pull(0);
  EXPECT_TRUE(ended(kPull));
  EXPECT_FALSE(ended(kPush));
  worker_.Push(0);
  EXPECT_TRUE(ended(kPush));
}

TEST_F(MxnetTest, AJoinedRoundIsOneOperationThatReadsAndWrites) {
  ASSERT_EQ(Joined(), 0);
  ASSERT_EQ(mxnet_.operations.size(), 1u);
  EXPECT_EQ(mxnet_[0].array, &send_);
  EXPECT_FALSE(mxnet_[0].writes_what_it_reads);
  EXPECT_TRUE(mxnet_[0].writes);
  EXPECT_EQ(bs_mxnet_pending(plugin_), 1);
  mxnet_.Run(0);
  ASSERT_EQ(worker_.requests.size(), 1u);
  worker_.Push(0);
  worker_.Pull(0);
  EXPECT_THAT(recv_.values, ElementsAre(1, 2));
  EXPECT_EQ(error_of(0), "");
}

TEST_F(MxnetTest, AJoinedRoundEndsWithTheLaterCallback) {
  for (const bool push_first : {true, false}) {
    worker_.requests.clear();
    mxnet_.operations.clear();
    ASSERT_EQ(Joined(), 0);
    mxnet_.Run(0);
    push_first ? worker_.Push(0) : worker_.Pull(0);
    EXPECT_FALSE(ended(0));
    push_first ? worker_.Pull(0) : worker_.Push(0);
    EXPECT_TRUE(ended(0));
    EXPECT_EQ(bs_mxnet_pending(plugin_), 0);
  }
}

TEST_F(MxnetTest, AJoinedRoundEndsOnceWhateverGoesWrong) {
  ASSERT_EQ(Joined(), 0);
  mxnet_.Run(0);
  worker_.Push(0, 4, "lost server 0");
  EXPECT_FALSE(ended(0));
  worker_.Pull(0, 4, "lost server 0");
  EXPECT_EQ(error_of(0), "bytescheduler: lost server 0 (key 'fc1')");

  ASSERT_EQ(Joined(), 0);
  mxnet_.Skip(1);
  EXPECT_THAT(worker_.failures, ElementsAre(HasSubstr("skipped the push-pull of key 'fc1'")));

  worker_.refusal = "the worker was closed";
  ASSERT_EQ(Joined(), 0);
  mxnet_.Run(2);
  EXPECT_THAT(error_of(2), HasSubstr("the worker was closed"));

  send_.fails = true;  // its memory is asked for by the one proxy
  ASSERT_EQ(Joined(), 0);
  mxnet_.Run(3);
  EXPECT_THAT(error_of(3), HasSubstr("cannot push: out of luck"));
}

TEST_F(MxnetTest, AJoinedRoundUnderNaiveEngineReturnsItsError) {
  int step = 0;
  mxnet_.naive_wait = [&] {
    if (step++ == 0)
      worker_.Push(0);
    else
      worker_.Pull(0, 4, "lost server 0");
  };
  EXPECT_EQ(Joined(), 4);
  EXPECT_EQ(step, 2);
  EXPECT_EQ(std::string(error_.message), "bytescheduler: lost server 0 (key 'fc1')");
}

TEST_F(MxnetTest, AnUpdateIsAPushPullThatCarriesItsRates) {
  const bs_rates rates{0.5, 0.25, 2};
  ASSERT_EQ(Update(1, 1, &rates), 0);
  mxnet_.Run(kPush);
  EXPECT_TRUE(worker_.requests.empty());
  mxnet_.Run(kPull);
  ASSERT_EQ(worker_.rates.size(), 1u);
  ASSERT_TRUE(worker_.rates[0].has_value());
  EXPECT_EQ(worker_.rates[0]->learning_rate, 0.5);
  EXPECT_EQ(worker_.rates[0]->weight_decay, 0.25);
  EXPECT_EQ(worker_.rates[0]->rescale_grad, 2);
  worker_.Push(0);
  worker_.Pull(0);
  EXPECT_THAT(recv_.values, ElementsAre(1, 2));
}

TEST_F(MxnetTest, APushPullMayCarryRates) {
  const auto register_round = [this] {
    const bs_rates rates{0.5, 0, 0.25};  // copied
    const bs_mxnet_round round{7, name_, 0, &send_, &recv_, 8, {}, 0, nullptr, 0, nullptr, &rates};
    return bs_mxnet_push_pull(plugin_, &round, &error_);
  };
  ASSERT_EQ(register_round(), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  ASSERT_EQ(worker_.requests.size(), 1u);
  ASSERT_NE(worker_.requests[0].rates, nullptr);
  EXPECT_EQ(worker_.requests[0].rates->learning_rate, 0.5);
  EXPECT_EQ(worker_.requests[0].rates->rescale_grad, 0.25);
  worker_.Push(0);
  worker_.Pull(0);
}

TEST_F(MxnetTest, AnUpdateMayOnlyPushAndHoldsTheNextPull) {
  ASSERT_EQ(Update(1, 0, nullptr), 0);
  ASSERT_EQ(mxnet_.operations.size(), 1u);
  EXPECT_EQ(mxnet_[kPush].array, &send_);
  EXPECT_TRUE(mxnet_[kPush].writes) << "recv_stage, or a later pull would overtake it";
  mxnet_.Run(kPush);
  ASSERT_EQ(worker_.requests.size(), 1u);
  EXPECT_EQ(worker_.requests[0].kind, BS_PUSH);
  EXPECT_FALSE(worker_.rates[0].has_value());
  EXPECT_FALSE(ended(kPush));
  EXPECT_EQ(bs_mxnet_pending(plugin_), 1);
  worker_.Push(0, 5, "push key=7 round=1: no optimizer is set");
  EXPECT_SNAPSHOT(error_of(kPush), "bytescheduler: push key='fc1' round=1: no optimizer is set");
}

TEST_F(MxnetTest, AnUpdateMayOnlyPull) {
  ASSERT_EQ(Update(0, 1, nullptr), 0);
  ASSERT_EQ(mxnet_.operations.size(), 1u);
  EXPECT_EQ(mxnet_[0].array, &recv_);
  EXPECT_TRUE(mxnet_[0].writes);
  mxnet_.Run(0);
  ASSERT_EQ(worker_.requests.size(), 1u);
  EXPECT_EQ(worker_.requests[0].kind, BS_PULL);
  EXPECT_FALSE(ended(0));
  worker_.Pull(0);
  EXPECT_TRUE(ended(0));
}

TEST_F(MxnetTest, HalfAnUpdateEndsOnceWhateverGoesWrong) {
  ASSERT_EQ(Update(1, 0, nullptr), 0);
  mxnet_.Skip(0);
  EXPECT_THAT(worker_.failures, ElementsAre(HasSubstr("MXNet skipped the push of key 'fc1'")));
  worker_.refusal = "the worker was closed";
  ASSERT_EQ(Update(0, 1, nullptr), 0);
  mxnet_.Run(1);
  EXPECT_THAT(error_of(1), HasSubstr("the worker was closed"));
  mxnet_.pushes_left = 0;
  EXPECT_NE(Update(0, 1, nullptr), 0);
  EXPECT_NE(Update(1, 0, nullptr), 0);
  EXPECT_NE(Update(0, 0, nullptr), 0);
}

TEST_F(MxnetTest, AnErrorOfTheRoundNamesCauseAndKeyOnThePulledArray) {
  ASSERT_EQ(PushPull(), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  worker_.Push(0, 4, "lost server 0 (127.0.0.1:1234): connection closed");
  worker_.Pull(0, 4, "lost server 0 (127.0.0.1:1234): connection closed");
  EXPECT_EQ(error_of(kPull),
            "bytescheduler: lost server 0 (127.0.0.1:1234): connection closed (key 'fc1')");
  EXPECT_EQ(error_of(kPush), "");
  EXPECT_TRUE(worker_.failures.empty());
}

TEST_F(MxnetTest, AKeyThatTheCauseNamesIsNamedOnce) {
  ASSERT_EQ(PushPull(), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  worker_.Push(0);
  worker_.Pull(0, 2, "push key=7 round=3 to server 1: no response");
  EXPECT_SNAPSHOT(error_of(kPull),
                  "bytescheduler: push key='fc1' round=3 to server 1: no response");
}

TEST_F(MxnetTest, AKeyWithoutANameIsCalledByItsNumber) {
  name_ = nullptr;
  ASSERT_EQ(Joined(), 0);
  mxnet_.Run(0);
  worker_.Push(0);
  worker_.Pull(0, 4, "lost server 0");
  EXPECT_EQ(error_of(0), "bytescheduler: lost server 0 (key 7)");
  ASSERT_EQ(Joined(), 0);
  mxnet_.Run(1);
  worker_.Push(1);
  worker_.Pull(1, 2, "push key=7 round=3 to server 1: no response");
  EXPECT_SNAPSHOT(error_of(1), "bytescheduler: push key=7 round=3 to server 1: no response");
}

TEST_F(MxnetTest, ASkippedPushFailsTheJobAndEndsThePull) {
  for (const bool pull_first : {false, true}) {
    worker_.failures.clear();
    mxnet_.operations.clear();
    ASSERT_EQ(PushPull(), 0);
    if (pull_first) mxnet_.Run(kPull);
    mxnet_.Skip(kPush);
    EXPECT_THAT(worker_.failures,
                ElementsAre(HasSubstr("MXNet skipped the push of key 'fc1' because its input")));
    if (!pull_first) mxnet_.Run(kPull);
    EXPECT_THAT(error_of(kPull), HasSubstr("MXNet skipped the push of key 'fc1'"));
    EXPECT_TRUE(worker_.requests.empty());
  }
}

TEST_F(MxnetTest, ASkippedPullFailsTheJobAndEndsThePush) {
  for (const bool push_first : {false, true}) {
    worker_.failures.clear();
    mxnet_.operations.clear();
    ASSERT_EQ(PushPull(), 0);
    if (push_first) mxnet_.Run(kPush);
    mxnet_.Skip(kPull);
    if (!push_first) mxnet_.Run(kPush);
    EXPECT_THAT(worker_.failures, ElementsAre(HasSubstr("skipped the pull of key 'fc1'")));
    EXPECT_TRUE(ended(kPush));
    EXPECT_TRUE(worker_.requests.empty());
  }
}

TEST_F(MxnetTest, BothProxiesMayBeSkipped) {
  ASSERT_EQ(PushPull(), 0);
  mxnet_.Skip(kPull);
  mxnet_.Skip(kPush);
  EXPECT_EQ(worker_.failures.size(), 2u);
}

TEST_F(MxnetTest, ARefusedRoundEndsBothProxies) {
  worker_.refusal = "the store was created before fork";
  ASSERT_EQ(PushPull(), 0);
  mxnet_.Run(kPull);
  mxnet_.Run(kPush);
  EXPECT_TRUE(ended(kPush));
  EXPECT_SNAPSHOT(error_of(kPull), "bytescheduler: the store was created before fork (key 'fc1')");
}

TEST_F(MxnetTest, AnArrayWithoutMemoryFailsTheJob) {
  recv_.fails = true;
  ASSERT_EQ(PushPull(), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  EXPECT_SNAPSHOT(error_of(kPull), "bytescheduler: cannot pull: out of luck (key 'fc1')");
  EXPECT_EQ(worker_.failures.size(), 1u);
}

TEST_F(MxnetTest, AnEngineThatTakesNoOperationFailsTheJob) {
  mxnet_.pushes_left = 0;
  EXPECT_NE(PushPull(), 0);
  EXPECT_EQ(std::string(error_.message), "MXNet's engine: out of luck");
  EXPECT_FALSE(worker_.failures.empty());
}

TEST_F(MxnetTest, AnEngineThatTakesOnlyThePushEndsIt) {
  mxnet_.pushes_left = 1;
  EXPECT_NE(PushPull(), 0);
  EXPECT_FALSE(worker_.failures.empty());
  mxnet_.Run(kPush);
  EXPECT_TRUE(ended(kPush));
}

TEST_F(MxnetTest, DrainsWhenTheLastOperationEnds) {
  ASSERT_EQ(PushPull(), 0);
  EXPECT_EQ(bs_mxnet_drain(plugin_, 0), 0);
  EXPECT_EQ(bs_mxnet_pending(plugin_), 2);
  EXPECT_EQ(PushPull(), 3);
  EXPECT_EQ(std::string(error_.message), "the store was closed");
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  worker_.Push(0);
  EXPECT_EQ(bs_mxnet_drain(plugin_, 0), 0);
  worker_.Pull(0);
  EXPECT_EQ(bs_mxnet_drain(plugin_, 0), 1);
}

TEST_F(MxnetTest, ProxiesAndCallbacksMayMeetOnManyThreads) {
  for (int i = 0; i < 200; ++i) {
    worker_.requests.clear();
    mxnet_.operations.clear();
    ASSERT_EQ(PushPull(), 0);
    std::thread push([&] { mxnet_.Run(kPush); });
    std::thread pull([&] { mxnet_.Run(kPull); });
    push.join();
    pull.join();
    ASSERT_EQ(worker_.requests.size(), 1u);
    std::thread engine([&] {
      worker_.Push(0);
      worker_.Pull(0);
    });
    engine.join();
  }
}

TEST_F(MxnetTest, NaiveEngineWaitsInsideTheCallForBothCallbacks) {
  int step = 0;
  mxnet_.naive_wait = [&] {
    EXPECT_FALSE(ended(kPull));
    if (step++ == 0)
      worker_.Pull(0);
    else
      worker_.Push(0);
  };
  EXPECT_EQ(PushPull(), 0);
  EXPECT_EQ(step, 2);
  EXPECT_THAT(recv_.values, ElementsAre(1, 2));
}

TEST_F(MxnetTest, NaiveEngineLosesErrorsSoTheCallReturnsThem) {
  int step = 0;
  mxnet_.naive_wait = [&] {
    if (step++ == 0)
      worker_.Push(0, 4, "lost server 0");
    else
      worker_.Pull(0, 4, "lost server 0");
  };
  EXPECT_EQ(PushPull(), 4);
  EXPECT_EQ(std::string(error_.message), "bytescheduler: lost server 0 (key 'fc1')");
}

}  // namespace
