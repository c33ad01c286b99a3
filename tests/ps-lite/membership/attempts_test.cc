// Why a peer counts as lost: it fell silent, or no connection ever reached it.
#include "membership/attempts.h"

#include <gtest/gtest.h>

namespace ps::test {
namespace {

const Address kAddress{"172.17.0.1", 4711};

TEST(Attempts, APeerThatWasNeverReachedIsSaidToBeSo) {
  Attempts attempts;
  EXPECT_EQ(attempts.WhyLost(9, kAddress, "silent for 5 s"),
            "no connection to 172.17.0.1:4711; set DMLC_NODE_HOST on that host to its address that "
            "the others reach");
  attempts.OnAttempt(9, "172.17.0.1:4711: Connection refused");
  EXPECT_TRUE(attempts.WhyLost(9, kAddress, "silent for 5 s")
                  .starts_with("no connection to 172.17.0.1:4711 (Connection refused); set "));
  attempts.OnAttempt(9, "172.17.0.1:4711 does not answer");
  EXPECT_TRUE(attempts.WhyLost(9, kAddress, "silent for 5 s")
                  .starts_with("no connection to 172.17.0.1:4711 (does not answer); set "));
}

TEST(Attempts, AHostNameIsReportedWithItsAddress) {
  Attempts attempts;
  attempts.OnAttempt(9, "10.0.0.7:4711: No route to host");
  EXPECT_TRUE(attempts.WhyLost(9, {"node7", 4711}, "")
                  .starts_with("no connection to node7:4711 (10.0.0.7:4711: No route to host); "));
}

TEST(Attempts, APeerThatWasReachedKeepsItsReason) {
  Attempts attempts;
  attempts.OnConnected(9);
  attempts.OnAttempt(9, "172.17.0.1:4711: Connection refused");
  EXPECT_EQ(attempts.WhyLost(9, kAddress, "silent for 5 s"), "silent for 5 s");
  attempts.Forget(9);
  EXPECT_FALSE(attempts.Reached(9));
  EXPECT_EQ(attempts.Latest(9), "");
}

}  // namespace
}  // namespace ps::test
