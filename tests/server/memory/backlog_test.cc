#include "server/memory/backlog.h"

#include <gtest/gtest.h>

#include "base/snapshot.h"

namespace bs::server {
namespace {

TEST(BacklogTest, OneWorkerMayHaveAllOfIt) {
  Backlog backlog(4, 100);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(backlog.Take(1, 10));
  EXPECT_FALSE(backlog.Take(1, 10));
  EXPECT_EQ(backlog.bytes(), 100u);
  backlog.Done(1, 10);
  EXPECT_TRUE(backlog.Take(1, 10));
}

TEST(BacklogTest, AWorkerBelowItsShareIsTakenWhateverOtherWorkersHave) {
  Backlog backlog(4, 100);
  EXPECT_TRUE(backlog.Take(1, 99));
  EXPECT_FALSE(backlog.Take(1, 10));
  for (const int rank : {0, 2, 3}) {
    EXPECT_TRUE(backlog.Take(rank, 24));
    EXPECT_TRUE(backlog.Take(rank, 24));
    EXPECT_FALSE(backlog.Take(rank, 24)) << "his share is 25";
  }
}

TEST(BacklogTest, ARefusalNamesTheBytesOfTheWorkerAndOfAll) {
  Backlog backlog(2, 100);
  EXPECT_TRUE(backlog.Take(0, 30));
  EXPECT_TRUE(backlog.Take(1, 60));
  EXPECT_SNAPSHOT(
      backlog.Why(1),
      "60 bytes of requests of this worker, of 90 of all, wait to be summed already, and "
      "there may be 100");
}

}  // namespace
}  // namespace bs::server
