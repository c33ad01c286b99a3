// Lines of the log on the copies that cross the links of hosts.
#include "node/worker/link_copies.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/snapshot.h"

namespace bs::node {
namespace {

// Four workers on two hosts.
job::View TwoEach() {
  job::View view = job::MakeView({.rank = 0}, 4, 1);
  view.workers[0].host = view.workers[1].host = 0;
  view.workers[2].host = view.workers[3].host = 1;
  return view;
}

TEST(LinkCopiesTest, WorkersOfAHostSendACopyTogether) {
  EXPECT_EQ(WhyCopyAWorker({}, {}), "");
  EXPECT_SNAPSHOT(
      DescribeCopies(TwoEach(), ""),
      "workers of a host add up first: 4 workers send 2 copies of each large tensor over the links "
      "(BYTESCHEDULER_LOCAL_SUMS)");
}

TEST(LinkCopiesTest, AWrappedStoreOfMXNetSendsACopyAWorker) {
  const std::string why = WhyCopyAWorker({}, {.beside = true, .in_job = true});
  EXPECT_SNAPSHOT(DescribeCopies(TwoEach(), why),
                  "each worker sends its own copy of a tensor over the links: it wraps a store of "
                  "MXNet's own, and with ScheduledKVS() in place of that the workers of a host add "
                  "up");
}

TEST(LinkCopiesTest, AStockWorkerOrAPlaceToRejoinIsNamedAsTheReason) {
  EXPECT_SNAPSHOT(WhyCopyAWorker({}, {.in_job = true}), "a worker of this job is MXNet's own");
  Config config;
  config.rejoin_timeout = std::chrono::seconds(30);
  EXPECT_SNAPSHOT(WhyCopyAWorker(config, {}),
                  "a worker that takes a lost place (BYTESCHEDULER_REJOIN_TIMEOUT) has no part in "
                  "sums of its host");
}

}  // namespace
}  // namespace bs::node
