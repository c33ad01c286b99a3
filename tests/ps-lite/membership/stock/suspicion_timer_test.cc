// SuspicionTimer: peers that are silent after a connection with them has ended.
#include "membership/stock/suspicion_timer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/sim_executor.h"

namespace ps {
namespace {

using std::chrono::seconds;

class SuspicionTimerTest : public ::testing::Test {
 protected:
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  TaskScope scope_{&executor_};
  std::vector<std::string> lost_;
  SuspicionTimer timer_{&scope_, seconds(10), [this](int32_t peer, const std::string& why) {
                          lost_.push_back(std::to_string(peer) + ": " + why);
                        }};
};

TEST_F(SuspicionTimerTest, ASilentPeerIsLostOnce) {
  timer_.Begin(9);
  Run(seconds(9));
  EXPECT_TRUE(lost_.empty());
  timer_.Begin(9);  // another connection ends: it has not been heard
  Run(seconds(100));
  EXPECT_EQ(lost_, std::vector<std::string>{
                       "9: after one of its connections was closed, with which messages may be "
                       "lost, nothing has come for 10 s (BYTESCHEDULER_STRAGGLER_TIMEOUT)"});
}

TEST_F(SuspicionTimerTest, APeerThatIsHeardIsNotLostUntilItIsSilent) {
  timer_.Begin(9);
  for (int i = 0; i < 20; ++i) {
    Run(seconds(9));
    timer_.OnHeard(9);
  }
  Run(seconds(9));
  EXPECT_TRUE(lost_.empty());
  Run(seconds(2));
  EXPECT_EQ(lost_.size(), 1);
}

TEST_F(SuspicionTimerTest, UnwatchedAndForgottenPeersDoNotMatter) {
  timer_.OnHeard(9);
  timer_.Forget(9);
  timer_.Begin(11);
  timer_.Forget(11);
  timer_.OnHeard(11);
  Run(seconds(100));
  EXPECT_TRUE(lost_.empty());
}

}  // namespace
}  // namespace ps
