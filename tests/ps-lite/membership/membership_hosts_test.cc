// Workers that connect to the workers of their host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

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

TEST_F(HostsJob, AConnectionThatStaysDownIsAGoodbyeToTheWorkersOfTheHost) {
  Start();
  workers[1]->Leave();
  job.Run(seconds(10));
  EXPECT_THAT(workers[0]->goodbyes, ElementsAre("kUnavailable: worker 1 left the job"));
  EXPECT_THAT(workers[0]->workers_left, ElementsAre(1));
  EXPECT_THAT(workers[0]->failures, IsEmpty());
  EXPECT_THAT(workers[2]->goodbyes, IsEmpty()) << "it is on another host";
}

TEST_F(HostsJob, AMessageToAWorkerThatLeftReleasesItsMemory) {
  Start();
  workers[1]->Leave();
  job.Run(seconds(3));
  bool released = false;
  Message message;
  message.peer = WorkerId(1);
  message.meta.extension.version = kExtensionVersion;
  const std::array<std::byte, 4> bytes{};
  message.data.push_back(Frame::Borrow(bytes, [&released] { released = true; }));
  workers[0]->transport()->Send(std::move(message));
  job.Run(seconds(3));
  EXPECT_TRUE(released);
}

TEST_F(HostsJob, ABriefBreakOfTheConnectionIsNoGoodbye) {
  Start();
  job.network.Part(workers[0]->transport(), workers[1]->transport(), /*for_good=*/false);
  job.Run(seconds(10));
  EXPECT_THAT(workers[0]->goodbyes, IsEmpty());
  workers[0]->Send(WorkerId(1), "beside");
  job.Run(seconds(1));
  EXPECT_THAT(workers[1]->data, ElementsAre("9: beside"));
}

TEST_F(HostsJob, ADeadWorkerOfTheHostIsLostAndHasNotLeft) {
  Start();
  workers[1]->Kill();
  job.Run(seconds(10));
  ASSERT_EQ(workers[0]->failures.size(), 1U);
  EXPECT_THAT(workers[0]->failures[0].message(), HasSubstr("lost worker 1"));
  EXPECT_THAT(workers[0]->goodbyes, IsEmpty());
}

TEST_F(HostsJob, AWorkerOfTheHostThatCannotBeReachedFailsTheJobByName) {
  job.network.Part(workers[0]->transport(), workers[1]->transport());
  Start();
  job.Run(job.options.timeout + seconds(10));
  for (const NativeNode* const worker : workers) {
    ASSERT_EQ(worker->failures.size(), 1U);
    EXPECT_THAT(worker->failures[0].message(),
                StartsWith("lost worker 1 (10.0.0.9:4713): no connection to 10.0.0.9:4713; set "
                           "DMLC_NODE_HOST"));
  }
}

TEST_F(HostsJob, TooMuchThatWaitsForAWorkerOfTheHostFailsTheJobByName) {
  Start();
  job.network.Overflow(workers[0]->transport(), WorkerId(1));
  job.Run(seconds(3));
  for (const NativeNode* const worker : workers) {
    ASSERT_EQ(worker->failures.size(), 1U);
    EXPECT_THAT(worker->failures[0].message(), StartsWith("lost worker 1"));
  }
}

}  // namespace
}  // namespace ps::test
