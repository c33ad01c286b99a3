// Workers that connect to the workers of their host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Workers 0 and 1 on one host, worker 2 and the server on another.
class HostsJob : public ::testing::Test {
 protected:
  HostsJob() {
    job.options.num_workers = 3;
    server = job.AddNative(Role::kServer, "10.0.0.7");
    for (const char* host : {"10.0.0.9", "10.0.0.9", "10.0.0.7"}) {
      MembershipOptions own = job.options;
      own.role = Role::kWorker;
      own.node_host = host;
      own.node_port = job.NextPort();
      own.joins_host = true;
      workers.push_back(job.AddNative(own));
    }
  }
  void Start() {
    job.StartAll();
    job.Run(seconds(1));
    for (const NativeNode* const worker : workers) ASSERT_TRUE(worker->ready());
  }

  Job job{7};
  NativeNode* server;
  std::vector<NativeNode*> workers;
};

TEST_F(HostsJob, DataTravelsBetweenTheWorkersOfAHostAlone) {
  Start();
  EXPECT_TRUE(workers[0]->view->all_native);
  workers[0]->Send(WorkerId(workers[1]->view->rank), "beside");
  workers[0]->Send(WorkerId(workers[2]->view->rank), "elsewhere");
  job.Run(seconds(1));
  EXPECT_THAT(workers[1]->data,
              ElementsAre(std::to_string(WorkerId(workers[0]->view->rank)) + ": beside"));
  EXPECT_THAT(workers[2]->data, IsEmpty());
}

// The start barrier ends at one worker before it ends at the other.
TEST_F(HostsJob, EarlyDataWaitsUntilTheWorkerIsReady) {
  job.StartAll();
  bool sent = false;
  while (!workers[1]->ready() || !sent) {
    ASSERT_TRUE(job.clock.Step());
    if (sent || !workers[0]->ready()) continue;
    sent = true;
    // Ranks follow the order of ports.
    workers[0]->Send(WorkerId(1), "early");
  }
  job.Run(seconds(1));
  EXPECT_THAT(workers[1]->data, ElementsAre("9: early"));
}

TEST_F(HostsJob, EndOfTheConnectionOfAWorkerOfTheHostIsNoLossByItself) {
  Start();
  workers[0]->Leave();
  job.Run(seconds(10));
  EXPECT_THAT(workers[1]->failures, IsEmpty());
  workers[1]->Leave();
  workers[2]->Leave();
  job.Run(seconds(10));
  ASSERT_TRUE(job.finished.has_value());
  EXPECT_TRUE(job.finished->ok()) << job.finished->ToString();
}

}  // namespace
}  // namespace ps::test
