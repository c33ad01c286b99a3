// InboundWatch: what the connections that a peer opens say about it.
#include "membership/stock/inbound_watch.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/sim_executor.h"

namespace ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class InboundWatchTest : public ::testing::Test {
 protected:
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  TaskScope scope_{&executor_};
  std::vector<std::string> lost_;
  InboundWatch inbound_{&scope_, seconds(1), [this](int32_t peer, const std::string& why) {
                          lost_.push_back(std::to_string(peer) + ": " + why);
                        }};
};

TEST_F(InboundWatchTest, APeerThatOpensNoOtherConnectionInTimeIsLostOnce) {
  inbound_.OnOpened(9);
  inbound_.OnEnded(9, true, false);
  Run(milliseconds(900));
  inbound_.OnEnded(9, true, true);  // told twice: nothing begins again
  EXPECT_TRUE(lost_.empty());
  Run(seconds(10));
  EXPECT_EQ(lost_, std::vector<std::string>{"9: connection closed, and no other opened in 1 s"});
}

TEST_F(InboundWatchTest, APeerThatOpensAnotherConnectionEachTimeIsNotLost) {
  for (int i = 0; i < 3; ++i) {
    inbound_.OnOpened(9);
    Run(seconds(2));
    inbound_.OnEnded(9, true, false);
    Run(milliseconds(900));
  }
  inbound_.OnOpened(9);
  Run(seconds(10));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(InboundWatchTest, APeerWithALostMessageIsLostThoughItOpensAnotherConnection) {
  inbound_.OnOpened(9);
  inbound_.OnEnded(9, true, true);
  inbound_.OnOpened(9);
  inbound_.OnEnded(9, true, false);
  inbound_.OnOpened(9);
  Run(seconds(10));
  EXPECT_EQ(lost_, std::vector<std::string>{
                       "9: connection closed in the middle of a message, which is lost"});
}

TEST_F(InboundWatchTest, UnwatchedForgottenAndUnknownPeersDoNotMatter) {
  for (const int32_t peer : {9, 11, 13}) inbound_.OnOpened(peer);
  inbound_.OnEnded(9, false, true);
  inbound_.OnEnded(11, true, true);
  inbound_.Forget(11);
  inbound_.Forget(13);  // what is open now is another's
  inbound_.OnEnded(13, true, true);
  inbound_.OnEnded(15, true, true);
  Run(seconds(10));
  EXPECT_TRUE(lost_.empty());
}

}  // namespace
}  // namespace ps
