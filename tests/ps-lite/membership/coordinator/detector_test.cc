// Detector: which evidence makes a holder a lost one, and which does not.
#include "membership/coordinator/detector.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "sim/sim_executor.h"

namespace ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kWorker = 9;
constexpr int32_t kServer = 8;

class DetectorTest : public ::testing::Test {
 protected:
  DetectorTest() {
    detector_.Begin(kWorker, {"10.0.0.9", 4711}, options_.timeout);
    detector_.Begin(kServer, {"10.0.0.8", 4712}, options_.timeout);
    detector_.OnConnected(kWorker);
    detector_.OnConnected(kServer);
    detector_.Start();
  }
  ~DetectorTest() override { scope_.Close(); }

  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  // Calls CheckSilence at each heartbeat interval.
  void RunAndCheck(bs::Duration duration) {
    for (bs::Duration passed{}; passed < duration; passed += options_.heartbeat_interval) {
      Run(options_.heartbeat_interval);
      detector_.CheckSilence({kWorker, kServer});
    }
  }

  const MembershipOptions options_;
  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  TaskScope scope_{&executor_};
  std::vector<std::string> lost_;     // "9: why"
  std::vector<std::string> unheard_;  // the same
  Detector detector_{options_, &scope_,
                     [this](int32_t id, const std::string& why) {
                       lost_.push_back(std::to_string(id) + ": " + why);
                     },
                     [this](int32_t id, const std::string& why) {
                       unheard_.push_back(std::to_string(id) + ": " + why);
                     }};
};

TEST_F(DetectorTest, AConnectionThatDoesNotComeBackIsALoss) {
  detector_.OnDisconnected(kWorker);
  Run(milliseconds(900));
  EXPECT_TRUE(lost_.empty());
  Run(milliseconds(200));
  EXPECT_EQ(lost_, std::vector<std::string>{"9: connection closed"});
}

TEST_F(DetectorTest, AConnectionThatComesBackIsNoLoss) {
  detector_.OnDisconnected(kWorker);
  Run(milliseconds(900));
  detector_.OnConnected(kWorker);
  Run(seconds(5));
  EXPECT_TRUE(lost_.empty());
  EXPECT_FALSE(detector_.NeverBroke(kWorker));
  EXPECT_TRUE(detector_.NeverBroke(kServer));
}

TEST_F(DetectorTest, AConnectionThatNeverCameUpNamesTheAddress) {
  detector_.Begin(11, {"10.0.0.7", 4713}, seconds(2));
  EXPECT_FALSE(detector_.WasConnected(11));
  detector_.OnAttempt(11, "10.0.0.7:4713: Connection refused");
  Run(seconds(3));
  ASSERT_EQ(lost_.size(), 1U);
  EXPECT_EQ(lost_[0].find("11: no connection to 10.0.0.7:4713 (Connection refused)"), 0U)
      << lost_[0];
}

TEST_F(DetectorTest, AForgottenConnectionIsNotMissed) {
  detector_.OnDisconnected(kWorker);
  detector_.ForgetConnection(kWorker);
  Run(seconds(5));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(DetectorTest, SilenceForTheHeartbeatTimeoutIsALoss) {
  RunAndCheck(seconds(29));
  detector_.OnHeard(kServer);
  EXPECT_EQ(detector_.SilenceOf(kServer), bs::Duration(0));
  RunAndCheck(seconds(2));
  EXPECT_EQ(lost_,
            std::vector<std::string>{"9: silent for 30 s (BYTESCHEDULER_HEARTBEAT_TIMEOUT)"});
}

TEST_F(DetectorTest, SilenceDuringAPauseOfTheSchedulerNodeIsNoLoss) {
  Run(seconds(60));
  detector_.CheckSilence({kWorker, kServer});
  RunAndCheck(seconds(5));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(DetectorTest, AnotherRegistrationMeansAGoneHolderIfNothingCameSinceTheBreak) {
  EXPECT_FALSE(detector_.IsGone(kWorker)) << "nothing broke";
  detector_.OnDisconnected(kWorker);
  detector_.OnConnected(kWorker);
  EXPECT_FALSE(detector_.IsGone(kWorker)) << "a live holder has time for a heartbeat";
  Run(seconds(2));
  EXPECT_TRUE(detector_.IsGone(kWorker));
  detector_.OnHeard(kWorker);
  EXPECT_FALSE(detector_.IsGone(kWorker));
  EXPECT_TRUE(detector_.HeardSinceBreak(kWorker));
}

TEST_F(DetectorTest, AMessageFromBeforeTheKillIsNoSignOfLife) {
  detector_.OnDisconnected(kWorker);
  Run(milliseconds(200));
  detector_.OnHeard(kWorker);
  Run(seconds(2));
  EXPECT_TRUE(detector_.IsGone(kWorker));
}

TEST_F(DetectorTest, AWorkerThatReportsALiveServerIsTheLostOne) {
  EXPECT_FALSE(detector_.ReportsLiveServer(kWorker, kServer));
  Run(milliseconds(1100));
  EXPECT_FALSE(detector_.ReportsLiveServer(kWorker, kServer)) << "the server was not heard since";
  detector_.OnHeard(kServer);
  EXPECT_TRUE(detector_.ReportsLiveServer(kWorker, kServer));
  EXPECT_FALSE(detector_.ReportsLiveServer(77, kServer)) << "no such worker";
}

TEST_F(DetectorTest, AReportThatIsNotRepeatedIsForgotten) {
  detector_.ReportsLiveServer(kWorker, kServer);
  for (int heartbeat = 0; heartbeat < 4; ++heartbeat) detector_.ForgetOldReport(kWorker);
  Run(seconds(2));
  detector_.OnHeard(kServer);
  EXPECT_FALSE(detector_.ReportsLiveServer(kWorker, kServer)) << "it is the first report again";
}

TEST_F(DetectorTest, TooManyViolationsDismissTheHolderAndNotTheNextOne) {
  for (uint32_t i = 0; i < ViolationLimiter::kMost; ++i) {
    ASSERT_FALSE(detector_.CountViolation(kWorker));
  }
  EXPECT_TRUE(detector_.CountViolation(kWorker));
  EXPECT_TRUE(detector_.IsDismissed(kWorker));
  EXPECT_FALSE(detector_.IsDismissed(kServer));
  detector_.Begin(kWorker, {"10.0.0.9", 4711}, options_.timeout);
  EXPECT_FALSE(detector_.IsDismissed(kWorker));
}

TEST_F(DetectorTest, AStockNodeThatDoesNotReconnectIsUnheard) {
  detector_.OnInbound(kWorker);
  detector_.OnInboundEnded(kWorker, true, false);
  Run(seconds(2));
  ASSERT_EQ(unheard_.size(), 1U);
  EXPECT_TRUE(lost_.empty());
}

TEST_F(DetectorTest, AForgottenInboundConnectionDoesNotMatter) {
  detector_.OnInbound(kWorker);
  detector_.OnInboundEnded(kWorker, true, false);
  detector_.ForgetInbound(kWorker);
  Run(seconds(2));
  EXPECT_TRUE(unheard_.empty());
}

}  // namespace
}  // namespace ps
