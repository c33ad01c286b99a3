// Membership: nodes that ask for a rank, in any order of start, twice, and in the place of another.
#include <gtest/gtest.h>

#include <array>

#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

NativeNode* AddRanked(Job* job, Role role, const std::string& host, int32_t rank) {
  MembershipOptions own = job->options;
  own.role = role;
  own.node_host = host;
  own.node_port = job->NextPort();
  own.wanted_rank = rank;
  return job->AddNative(own);
}

// -1: it is not in the job.
int32_t RankIn(const NativeNode* node) { return node->view ? node->view->rank : -1; }

std::string WhyRefused(const NativeNode* node) {
  return node->refused ? node->refused->message() : "";
}

TEST(ChosenRanks, AreGivenWhateverTheOrderOfStart) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Job job(seed);
    job.options.num_workers = 3;
    job.options.num_servers = 2;
    // By address it would be the other way round.
    const std::array servers = {AddRanked(&job, Role::kServer, "10.0.0.1", 0),
                                AddRanked(&job, Role::kServer, "10.0.0.2", 1)};
    const std::array workers = {AddRanked(&job, Role::kWorker, "10.0.0.1", 0),
                                AddRanked(&job, Role::kWorker, "10.0.0.2", 1),
                                AddRanked(&job, Role::kWorker, "10.0.0.3", 2)};
    job.StartCoordinator();
    for (const auto& node : job.natives) node->Start(milliseconds(job.clock.Uniform(0, 20000)));
    job.Run(seconds(25));
    for (size_t rank = 0; rank < workers.size(); ++rank) {
      EXPECT_EQ(RankIn(workers.at(rank)), static_cast<int32_t>(rank)) << "seed " << seed;
    }
    for (size_t rank = 0; rank < servers.size(); ++rank) {
      EXPECT_EQ(RankIn(servers.at(rank)), static_cast<int32_t>(rank));
    }
  }
}

TEST(ChosenRanks, ARankTakenTwiceNamesBoth) {
  Job job(2);
  job.options.timeout = seconds(10);
  NativeNode* const server = job.AddNative(Role::kServer);
  NativeNode* const first = AddRanked(&job, Role::kWorker, "10.0.0.1", 1);
  NativeNode* const second = AddRanked(&job, Role::kWorker, "10.0.0.2", 1);
  job.StartCoordinator();
  server->Start();
  first->Start();
  second->Start(seconds(2));
  job.Run(seconds(5));
  EXPECT_EQ(WhyRefused(second),
            "worker 10.0.0.2:4713 asks for rank 1, which worker 10.0.0.1:4712 has asked for: give "
            "each worker a rank of its own (DMLC_WORKER_ID)");
  EXPECT_FALSE(first->refused);
  job.Run(seconds(20));
  EXPECT_NE(WhyRefused(first).find(WhyRefused(second)), std::string::npos) << WhyRefused(first);
}

TEST(ChosenRanks, AWorkerThatIsStartedAgainBeforeAllAreThereHasItsRank) {
  Job job(3);
  job.AddNative(Role::kServer);
  NativeNode* const dead = AddRanked(&job, Role::kWorker, "10.0.0.1", 1);
  NativeNode* const other = AddRanked(&job, Role::kWorker, "10.0.0.2", 0);
  NativeNode* const again = AddRanked(&job, Role::kWorker, "10.0.0.1", 1);
  job.StartCoordinator();
  job.natives.at(0)->Start();
  dead->Start();
  job.Run(seconds(1));
  dead->Kill();
  again->Start();
  other->Start(seconds(3));
  job.Run(seconds(20));
  EXPECT_EQ(RankIn(again), 1);
  EXPECT_EQ(RankIn(other), 0);
}

TEST(ChosenRanks, ANewcomerTakesThePlaceOfItsRank) {
  Job job(4);
  job.options.rejoin_timeout = seconds(60);
  job.options.num_workers = 3;
  job.AddNative(Role::kServer);
  for (int32_t rank = 0; rank < 3; ++rank) AddRanked(&job, Role::kWorker, "10.0.0.1", rank);
  job.StartAll();
  job.Run(seconds(1));
  ASSERT_TRUE(job.natives.at(3)->ready());
  // One comes before its loss is noticed, one behind it; each has the host of the other.
  job.natives.at(2)->Kill();
  job.natives.at(3)->Kill();
  NativeNode* const two = AddRanked(&job, Role::kWorker, "10.0.0.7", 2);
  NativeNode* const one = AddRanked(&job, Role::kWorker, "10.0.0.8", 1);
  two->Start(milliseconds(300));
  one->Start(seconds(4));
  job.Run(seconds(10));
  EXPECT_EQ(RankIn(one), 1);
  EXPECT_EQ(RankIn(two), 2);
  // A place is free, but not this one.
  job.natives.at(4)->Kill();
  NativeNode* const late = AddRanked(&job, Role::kWorker, "10.0.0.9", 0);
  late->Start(seconds(3));
  job.Run(seconds(45));
  EXPECT_NE(WhyRefused(late).find("it asks for rank 0, which worker 0 (10.0.0.1:4712) has"),
            std::string::npos)
      << WhyRefused(late);
}

}  // namespace
}  // namespace ps::test
