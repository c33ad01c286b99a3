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
struct Hosts {
  explicit Hosts(uint64_t seed, const bs::sim::SimNetworkOptions& network = {})
      : job(seed, network) {
    job.options.num_workers = 3;
    job.AddNative(Role::kServer, "10.0.0.7");
    for (const char* host : {"10.0.0.9", "10.0.0.9", "10.0.0.7"}) {
      MembershipOptions own = job.options;
      own.role = Role::kWorker;
      own.node_host = host;
      own.node_port = job.NextPort();
      own.joins_host = true;
      workers.push_back(job.AddNative(own));
    }
  }

  Job job;
  std::vector<NativeNode*> workers;
};

class HostsJob : public ::testing::Test, protected Hosts {
 protected:
  HostsJob() : Hosts(7) {}
  void Start() {
    job.StartAll();
    job.Run(seconds(1));
    for (const NativeNode* const worker : workers) ASSERT_TRUE(worker->ready());
  }
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
TEST(HostsJobs, EarlyDataWaitsUntilTheWorkerIsReady) {
  int early = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Hosts hosts(seed, {.delay_min = bs::Duration(0), .delay_max = std::chrono::milliseconds(50)});
    NativeNode* const first = hosts.workers[0];
    NativeNode* const second = hosts.workers[1];
    hosts.job.StartAll();
    while (!first->ready()) ASSERT_TRUE(hosts.job.clock.Step());
    first->Send(WorkerId(1), "early");  // ranks follow the order of ports
    hosts.job.Run(std::chrono::milliseconds(1));
    early += second->ready() ? 0 : 1;
    hosts.job.Run(seconds(1));
    EXPECT_THAT(second->data, ElementsAre("9: early")) << "seed " << seed;
  }
  EXPECT_GT(early, 5);
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
