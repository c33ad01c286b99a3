// Membership under delay, loss and repetition: whole lives of jobs, one a seed.
#include <gtest/gtest.h>

#include <string>

#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSweepSeeds = BS_SWEEP_SEEDS;

struct Shape {
  bool stock = false;  // stock workers with attached ones, else native workers
  int32_t num_workers = 1;
  int32_t num_servers = 1;
};

bs::sim::SimNetworkOptions SweptNetwork(uint64_t seed) {
  bs::sim::SimNetworkOptions network;
  network.delay_max = seed % 3 == 0 ? milliseconds(1) : milliseconds(400);
  network.loss = seed % 2 == 0 ? 0 : 0.2;
  network.repeat = seed % 5 == 0 ? 0 : 0.2;
  return network;
}

// The job's nodes, sorted by what they do.
struct Cast {
  std::vector<NativeNode*> servers;
  std::vector<NativeNode*> workers;  // those that train: native, or attached
};

Cast Start(Job* job, const Shape& shape) {
  const auto some = [job] { return milliseconds(job->clock.Uniform(0, 8000)); };
  job->options.num_workers = shape.num_workers;
  job->options.num_servers = shape.num_servers;
  job->options.settings = "num_workers=" + std::to_string(shape.num_workers) + "\n";
  Cast cast;
  for (int32_t i = 0; i < shape.num_servers; ++i) {
    cast.servers.push_back(job->AddNative(Role::kServer));
  }
  for (int32_t i = 0; i < shape.num_workers; ++i) {
    if (shape.stock) job->AddStock(Role::kWorker);
    cast.workers.push_back(shape.stock ? job->AddAttached(i) : job->AddNative(Role::kWorker));
  }
  job->StartCoordinator(some());
  for (const auto& node : job->natives) node->Start(some());
  for (const auto& node : job->stocks) node->Start(some());
  return cast;
}

void ExpectGoodEnd(const Job& job) {
  ASSERT_TRUE(job.finished.has_value());
  EXPECT_TRUE(job.finished->ok()) << job.finished->ToString();
  EXPECT_EQ(job.calls_of_finished, 1);
  for (const auto& node : job.natives) {
    EXPECT_EQ(node->calls_of_ready, 1);
    EXPECT_TRUE(node->failures.empty()) << node->failures.at(0).ToString();
    ASSERT_TRUE(node->left.has_value());
    EXPECT_TRUE(node->left->ok()) << node->left->ToString();
    for (const bs::Status& status : node->barriers) EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

uint64_t RunWholeLife(uint64_t seed) {
  Job job(seed, SweptNetwork(seed));
  const Shape shape{job.clock.Chance(0.5), static_cast<int32_t>(job.clock.Uniform(1, 4)),
                    static_cast<int32_t>(job.clock.Uniform(1, 3))};
  const Cast cast = Start(&job, shape);
  job.Run(seconds(30));
  for (const auto& node : job.natives) EXPECT_TRUE(node->ready());
  const size_t barriers = job.clock.Uniform(0, 4);
  for (size_t i = 0; i < barriers; ++i) {
    for (NativeNode* node : cast.workers) {
      node->Barrier(kWorkerGroup);
      job.Run(milliseconds(job.clock.Uniform(0, 1000)));
    }
  }
  job.Run(seconds(40));
  for (NativeNode* node : cast.workers) EXPECT_EQ(node->barriers.size(), barriers);
  for (NativeNode* node : cast.workers) {
    node->Leave();
    job.Run(milliseconds(job.clock.Uniform(0, 3000)));
  }
  if (shape.stock) {
    for (const auto& node : job.stocks) node->Barrier(kWorkerGroup);
    job.Run(seconds(2));
    for (NativeNode* node : cast.servers) node->JoinFinalBarrier();
    for (const auto& node : job.stocks) node->Barrier(kEveryone);
    job.Run(seconds(15));
    for (const auto& node : job.stocks) EXPECT_EQ(node->barrier_answers, 3);
    for (const auto& node : job.stocks) node->Close();
  }
  job.Run(seconds(60));
  for (NativeNode* node : cast.servers) {
    EXPECT_EQ(node->shutdowns, 1);
    EXPECT_EQ(node->workers_left.size(), cast.workers.size());
  }
  ExpectGoodEnd(job);
  return job.clock.trace_hash();
}

TEST(MembershipSweep, JobsBeginRunAndEndWellOnABadNetwork) {
  for (int seed = 0; seed < kSweepSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RunWholeLife(static_cast<uint64_t>(seed));
  }
}

TEST(MembershipSweep, SameSeedIsTheSameTrace) {
  for (const uint64_t seed : {3ULL, 4ULL, 5ULL}) EXPECT_EQ(RunWholeLife(seed), RunWholeLife(seed));
}

// Kills one node of a running job; all others get its name, once.
void RunDeath(uint64_t seed) {
  Job job(seed, SweptNetwork(seed));
  const Shape shape{job.clock.Chance(0.5), static_cast<int32_t>(job.clock.Uniform(1, 3)),
                    static_cast<int32_t>(job.clock.Uniform(1, 3))};
  const Cast cast = Start(&job, shape);
  job.Run(seconds(30));
  const bool server = job.clock.Chance(0.5);
  const auto& from = server ? cast.servers : cast.workers;
  NativeNode* const victim = from.at(job.clock.Uniform(0, from.size() - 1));
  ASSERT_TRUE(victim->ready());
  const std::string name =
      "lost " + std::string(server ? "server " : "worker ") + std::to_string(victim->view->rank);
  for (NativeNode* node : cast.workers) {
    if (job.clock.Chance(0.5)) node->Barrier(kWorkerGroup);
  }
  job.Run(milliseconds(job.clock.Uniform(0, 3000)));
  victim->Kill();
  job.Run(seconds(20));
  ASSERT_TRUE(job.finished.has_value());
  EXPECT_NE(job.finished->message().find(name), std::string::npos) << job.finished->ToString();
  for (const auto& node : job.natives) {
    if (node.get() == victim) continue;
    ASSERT_EQ(node->failures.size(), 1U);
    EXPECT_NE(node->failures.at(0).message().find(name), std::string::npos)
        << node->failures.at(0).ToString() << " instead of " << name;
  }
}

TEST(MembershipSweep, DeathOfANodeIsNamedToAll) {
  for (int seed = 0; seed < kSweepSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RunDeath(static_cast<uint64_t>(seed));
  }
}

// Kills the scheduler node before or while the others train; they all name it, once, within the
// time-outs.
void RunDeathOfTheSchedulerNode(uint64_t seed, int* while_registering) {
  Job job(seed, SweptNetwork(seed));
  const Shape shape{job.clock.Chance(0.5), static_cast<int32_t>(job.clock.Uniform(1, 3)),
                    static_cast<int32_t>(job.clock.Uniform(1, 3))};
  Start(&job, shape);
  job.Run(milliseconds(job.clock.Uniform(0, 20000)));
  std::vector<NativeNode*> ready;
  for (const auto& node : job.natives) {
    if (node->ready()) ready.push_back(node.get());
  }
  *while_registering += static_cast<int>(job.natives.size() - ready.size());
  job.KillCoordinator();
  // What was repeated may arrive seconds after the death, and is a sign of life.
  job.Run(job.options.heartbeat_timeout + seconds(10));
  for (const NativeNode* node : ready) EXPECT_EQ(node->failures.size(), 1U);
  job.Run(job.options.timeout);
  for (const auto& node : job.natives) {
    ASSERT_EQ(node->failures.size() + (node->refused ? 1 : 0), 1U);
    const bs::Status& why = node->refused ? *node->refused : node->failures.at(0);
    EXPECT_NE(why.message().find("the scheduler node"), std::string::npos) << why.ToString();
  }
}

TEST(MembershipSweep, DeathOfTheSchedulerNodeAtAnyMomentIsNamedByAll) {
  int while_registering = 0;
  for (int seed = 0; seed < kSweepSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RunDeathOfTheSchedulerNode(static_cast<uint64_t>(seed), &while_registering);
  }
  EXPECT_GT(while_registering, kSweepSeeds / 4);
}

}  // namespace
}  // namespace ps::test
