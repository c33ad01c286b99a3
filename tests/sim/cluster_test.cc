// Thousands of simulated jobs under delay, loss, repetition and death, each promise checked.
//
//   cluster_test                  all tests
//   cluster_test --seed=N         replays one job and prints what happened
//   cluster_test --death --seed=N the same for a job in which a node dies
//   cluster_test --goodbye --seed=N      of one in which a worker leaves with a reason
//   cluster_test --early-death --seed=N  of one in which a node dies while they meet
//   cluster_test --async --seed=N the same for a job with asynchronous keys
//   cluster_test --async-death --seed=N  the same for both
//   cluster_test --rejoin --seed=N  of one whose workers are lost and replaced
//   cluster_test --tuning --seed=N, --tuning-death  of jobs that cut their tensors anew
//   cluster_test --coded --seed=N, --coded-giving-back  of jobs whose keys are coded
//   cluster_test --giving-back --seed=N, --giving-back-death  of jobs that give keys back
//   cluster_test --grants --seed=N, --grants-death  of jobs whose sums a library makes
//   cluster_test --host-grants --seed=N, --host-grants-death  of those with a library on each host
//   cluster_test --hosts --seed=N, --hosts-death, --hosts-goodbye, --hosts-coded  of jobs that add
//                                 up on hosts
//   cluster_test --training --seed=N, --training-death  of jobs that learn the order of their keys
#include "sim/cluster.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trace/trace_text.h"

namespace bs::sim {
namespace {

// The sweep is cut into tests, so that several cores can share it.
constexpr uint64_t kParts = 8;
constexpr uint64_t kSeedsOfPart = (BS_CLUSTER_SEEDS + kParts - 1) / kParts;
constexpr uint64_t kDeaths = (BS_CLUSTER_SEEDS + 4) / 5;
constexpr uint64_t kCoded = (BS_CLUSTER_SEEDS + 15) / 16;
constexpr uint64_t kAsync = (BS_CLUSTER_SEEDS + 3) / 4;
constexpr uint64_t kRejoin = (BS_CLUSTER_SEEDS + 15) / 16;
constexpr uint64_t kTuning = (BS_CLUSTER_SEEDS + 9) / 10;
constexpr uint64_t kTraining = (BS_CLUSTER_SEEDS + 19) / 20;
constexpr uint64_t kTimelines = (BS_CLUSTER_SEEDS + 47) / 48;

class ClusterSweep : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ClusterSweep, EverySumIsRightAndEveryPromiseIsKept) {
  const uint64_t first = GetParam() * kSeedsOfPart;
  uint64_t put_off = 0;
  for (uint64_t seed = first; seed < first + kSeedsOfPart; ++seed) {
    const Report report = RunCluster(DrawCluster(seed), seed);
    put_off += report.put_off;
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --seed=" << seed;
  }
  EXPECT_GT(put_off, kSeedsOfPart / 10) << "servers without room are to be seen too";
}

INSTANTIATE_TEST_SUITE_P(Seeds, ClusterSweep, ::testing::Range<uint64_t>(0, kParts));

// In most of which somebody dies, which is all right; `flag` replays one.
void ExpectDeathsAreNamed(ClusterOptions (*draw)(uint64_t), const char* flag, uint64_t seeds) {
  uint64_t died = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Report report = RunCluster(draw(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test " << flag << " --seed=" << seed;
    died += report.died ? 1 : 0;
  }
  EXPECT_GT(died, seeds / 2);
}

TEST(Cluster, DeathOfANodeFailsEveryOtherWithItsName) {
  ExpectDeathsAreNamed(DrawDeath, "--death", kDeaths);
}

TEST(Cluster, CodedSumsAreRightWhateverIsCutRepeatedOrLost) {
  for (uint64_t seed = 0; seed < kCoded; ++seed) {
    const Report report = RunCluster(DrawCoded(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --coded --seed=" << seed;
  }
}

TEST(Cluster, CodedSumsOfKeysThatAreGivenBackAreRight) {
  for (uint64_t seed = 0; seed < kCoded; ++seed) {
    const Report report = RunCluster(DrawCodedGivingBack(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --coded-giving-back --seed=" << seed;
  }
}

TEST(Cluster, WorkersThatMissAWorkerTellTheReasonOfItsGoodbye) {
  ExpectDeathsAreNamed(DrawGoodbye, "--goodbye", kDeaths / 4);
}

TEST(Cluster, DeathWhileTheNodesMeetIsMadeGoodOrNamed) {
  uint64_t made_good = 0;
  for (uint64_t seed = 0; seed < kDeaths; ++seed) {
    const Report report = RunCluster(DrawEarlyDeath(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --early-death --seed=" << seed;
    made_good += report.made_good ? 1 : 0;
  }
  EXPECT_GT(made_good, kDeaths / 10);
}

TEST(Cluster, EveryAsynchronousPushIsAppliedOnceAndSeenInTime) {
  for (uint64_t seed = 0; seed < kAsync; ++seed) {
    const Report report = RunCluster(DrawAsync(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --async --seed=" << seed;
  }
}

TEST(Cluster, DeathInTheMiddleOfAsynchronousPushesIsNamedAndNothingIsAppliedTwice) {
  ExpectDeathsAreNamed(DrawAsyncDeath, "--async-death", kAsync);
}

TEST(Cluster, LostWorkersAreReplacedAgainAndAgainAndEveryPushCountsOnce) {
  uint64_t replaced = 0;
  for (uint64_t seed = 0; seed < kRejoin; ++seed) {
    const Report report = RunCluster(DrawRejoin(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --rejoin --seed=" << seed;
    replaced += report.replaced;
  }
  EXPECT_GT(replaced, kRejoin);
}

std::map<Key, Priority> CallersOf(const ClusterOptions& options) {
  std::map<Key, Priority> priorities;
  for (const KeyPlan& plan : options.keys) priorities[plan.key] = plan.priority;
  return priorities;
}

// The first plan is ready last, so it is the most urgent.
std::map<Key, Priority> MeasuredOf(const ClusterOptions& options) {
  std::map<Key, Priority> priorities;
  for (const KeyPlan& plan : options.keys) priorities[plan.key] = -static_cast<Priority>(plan.key);
  return priorities;
}

// Without those of the engine's own keys.
std::map<Key, Priority> PushedOf(const ClusterOptions& options, std::map<Key, Priority> pushed) {
  std::erase_if(pushed, [&](const auto& each) { return each.first >= options.keys.size(); });
  return pushed;
}

TEST(Cluster, WorkersThatSeeDifferentOrdersUseOne) {
  for (uint64_t seed = 0; seed < kTraining; ++seed) {
    const ClusterOptions options = DrawTraining(seed);
    const Report report = RunCluster(options, seed);
    const std::string replay = "replay it: cluster_test --training --seed=" + std::to_string(seed);
    ASSERT_TRUE(report.problems.empty()) << report.ToString() << replay;
    for (const auto& pushed : report.priorities) {
      ASSERT_EQ(PushedOf(options, pushed), MeasuredOf(options)) << replay;
    }
  }
}

TEST(Cluster, DeathWhileTheOrderIsSharedIsNamed) {
  for (uint64_t seed = 0; seed < kTraining; ++seed) {
    const Report report = RunCluster(DrawTrainingDeath(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --training-death --seed=" << seed;
  }
}

// Without rank 0 nobody has a measured order; another worker is alone without one.
void ExpectRunsWithASilentOne(int32_t silent, uint64_t seed) {
  ClusterOptions options = DrawTraining(seed);
  options.num_workers = 3;
  options.silent_rank = silent;
  const Report report = RunCluster(options, seed);
  EXPECT_TRUE(report.problems.empty()) << report.ToString() << "seed " << seed;
  for (const size_t rank : {0U, 1U, 2U}) {
    const bool measures = silent != 0 && rank != 1;
    EXPECT_EQ(PushedOf(options, report.priorities.at(rank)),
              measures ? MeasuredOf(options) : CallersOf(options))
        << "seed " << seed << ", rank " << rank;
  }
}

TEST(Cluster, WorkerThatLearnsNothingHoldsUpNoWorker) {
  for (uint64_t seed = 0; seed < kTraining; seed += 4) {
    for (const int32_t silent : {0, 1}) ExpectRunsWithASilentOne(silent, seed);
  }
}

TEST(Cluster, TensorsAreCutAnewInTheSameRoundEverywhereAndEverySumIsRight) {
  uint64_t cuts = 0;
  for (uint64_t seed = 0; seed < kTuning; ++seed) {
    const Report report = RunCluster(DrawTuning(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --tuning --seed=" << seed;
    cuts += report.cuts;
  }
  EXPECT_GT(cuts, 2 * kTuning);
}

TEST(Cluster, DeathWhileTensorsAreCutAnewIsNamed) {
  uint64_t cuts = 0;
  uint64_t in_the_middle = 0;
  for (uint64_t seed = 0; seed < kTuning; ++seed) {
    const Report report = RunCluster(DrawTuningDeath(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --tuning-death --seed=" << seed;
    cuts += report.cuts;
    in_the_middle += report.died_while_changing ? 1 : 0;
  }
  EXPECT_GT(cuts, kTuning / 2);
  // One death in sixteen is in the middle of a change, so that few jobs may have none.
  if (kTuning >= 120) {
    EXPECT_GT(in_the_middle, kTuning / 40);
  }
}

TEST(Cluster, KeysAreGivenBackAtAnyTimeAndEverySumIsRight) {
  uint64_t forgotten = 0;
  for (uint64_t seed = 0; seed < kTuning; ++seed) {
    const Report report = RunCluster(DrawGivingBack(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --giving-back --seed=" << seed;
    forgotten += report.forgotten;
  }
  EXPECT_GT(forgotten, kTuning);
}

TEST(Cluster, DeathWhileKeysAreGivenBackIsNamed) {
  uint64_t forgotten = 0;
  for (uint64_t seed = 0; seed < kTuning; ++seed) {
    const Report report = RunCluster(DrawGivingBackDeath(seed), seed);
    ASSERT_TRUE(report.problems.empty())
        << report.ToString() << "replay it: cluster_test --giving-back-death --seed=" << seed;
    forgotten += report.forgotten;
  }
  EXPECT_GT(forgotten, kTuning / 4);
}

TEST(Cluster, SameSeedIsTheSameTrace) {
  for (const uint64_t seed : {1ULL, 2ULL, 3ULL, 4ULL, 5ULL}) {
    const Report once = RunCluster(DrawCluster(seed), seed);
    const Report again = RunCluster(DrawCluster(seed), seed);
    EXPECT_EQ(once.trace_hash, again.trace_hash);
    EXPECT_EQ(once.steps, again.steps);
    EXPECT_NE(once.trace_hash, RunCluster(DrawCluster(seed), seed + 1000).trace_hash);
  }
}

// The traces of a job's workers.
class TracedRun {
 public:
  explicit TracedRun(uint64_t seed) : options(DrawCluster(seed)) {
    for (int32_t i = 0; i < options.num_workers; ++i) {
      traces_.push_back(std::make_unique<trace::Trace>(size_t{1} << 12U));
      options.traces.push_back(traces_.back().get());
    }
    EXPECT_TRUE(RunCluster(options, seed).problems.empty());
    for (const auto& trace : traces_) {
      EXPECT_EQ(trace->lost(), 0U);
      std::vector<trace::TraceEvent>& of_worker = workers.emplace_back();
      trace::TraceEvent event;
      while (trace->Take(&event)) of_worker.push_back(event);
    }
  }

  std::string Text() const {
    std::string text;
    for (const auto& of_worker : workers) {
      trace::TraceText writer({});
      for (const trace::TraceEvent& event : of_worker) writer.Event(event, &text);
    }
    return text;
  }

  ClusterOptions options;
  std::vector<std::vector<trace::TraceEvent>> workers;

 private:
  std::vector<std::unique_ptr<trace::Trace>> traces_;
};

TEST(Cluster, SameSeedIsTheSameTimeline) {
  for (const uint64_t seed : {1ULL, 2ULL, 3ULL}) {
    const std::string text = TracedRun(seed).Text();
    EXPECT_EQ(text, TracedRun(seed).Text());
    EXPECT_FALSE(text.empty());
  }
}

// Each partition of each round is queued, pushed and pulled once, in this order, and its bytes and
// those of its tensor are the plan's.
void CheckTimeline(const std::vector<trace::TraceEvent>& events, const KeyPlan& plan) {
  using Kind = trace::TraceEvent::Kind;
  struct Life {
    std::vector<trace::TraceEvent> queued, pushed, pulled;
  };
  std::map<std::pair<Round, uint32_t>, Life> lives;
  uint64_t tensors = 0;
  for (const trace::TraceEvent& event : events) {
    if (event.key != plan.key || event.kind == Kind::kCredit || event.round == 0) continue;
    EXPECT_LE(event.begin, event.end);
    Life& life = lives[{event.round, event.partition}];
    if (event.kind == Kind::kTensor) ++tensors;
    if (event.kind == Kind::kQueued) life.queued.push_back(event);
    if (event.kind == Kind::kPush) life.pushed.push_back(event);
    if (event.kind == Kind::kPull) life.pulled.push_back(event);
  }
  EXPECT_EQ(tensors, plan.rounds);
  uint64_t pulled_bytes = 0;
  for (const auto& [place, life] : lives) {
    ASSERT_TRUE(life.queued.size() == 1 && life.pushed.size() == 1 && life.pulled.size() == 1);
    EXPECT_EQ(life.queued[0].end, life.pushed[0].begin);
    EXPECT_EQ(life.pushed[0].begin, life.pulled[0].begin);
    EXPECT_EQ(life.queued[0].bytes, life.pushed[0].bytes);
    if (plan.threshold == 0) {
      EXPECT_EQ(life.pushed[0].bytes, life.pulled[0].bytes);
    }
    pulled_bytes += life.pulled[0].bytes;
  }
  EXPECT_EQ(pulled_bytes, plan.rounds * plan.count * SizeOf(plan.dtype));
}

// Bytes in flight to all servers as a worker's timeline shows them last.
uint64_t InFlightInTheEnd(const std::vector<trace::TraceEvent>& events) {
  std::map<uint32_t, uint64_t> of_server;
  for (const trace::TraceEvent& event : events) {
    if (event.kind == trace::TraceEvent::Kind::kCredit) of_server[event.server] = event.bytes;
  }
  uint64_t sum = 0;
  for (const auto& [server, bytes] : of_server) sum += bytes;
  return sum;
}

TEST(Cluster, TheTimelineHasEveryPartitionOnceWithItsBytesAndAllCreditComesBack) {
  for (uint64_t seed = 0; seed < kTimelines; ++seed) {
    const TracedRun run(seed);
    for (const auto& of_worker : run.workers) {
      for (const KeyPlan& plan : run.options.keys) CheckTimeline(of_worker, plan);
      EXPECT_EQ(InFlightInTheEnd(of_worker), 0U);
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

int Replay(uint64_t seed, const ClusterOptions& options) {
  std::cout << "seed " << seed << ": " << Describe(options) << "\n";
  const Report report =
      RunCluster(options, seed, [](const std::string& line) { std::cout << line << "\n"; });
  std::cout << report.steps << " steps, trace " << report.trace_hash << ": "
            << (report.problems.empty() ? "every promise was kept\n" : report.ToString());
  return report.problems.empty() ? 0 : 1;
}

}  // namespace
}  // namespace bs::sim

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  static constexpr char kSeed[] = "--seed=";
  const char* seed = nullptr;
  bs::sim::ClusterOptions (*draw)(uint64_t) = bs::sim::DrawCluster;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--death") == 0) draw = bs::sim::DrawDeath;
    if (std::strcmp(argv[i], "--coded") == 0) draw = bs::sim::DrawCoded;
    if (std::strcmp(argv[i], "--coded-giving-back") == 0) draw = bs::sim::DrawCodedGivingBack;
    if (std::strcmp(argv[i], "--goodbye") == 0) draw = bs::sim::DrawGoodbye;
    if (std::strcmp(argv[i], "--early-death") == 0) draw = bs::sim::DrawEarlyDeath;
    if (std::strcmp(argv[i], "--async") == 0) draw = bs::sim::DrawAsync;
    if (std::strcmp(argv[i], "--async-death") == 0) draw = bs::sim::DrawAsyncDeath;
    if (std::strcmp(argv[i], "--rejoin") == 0) draw = bs::sim::DrawRejoin;
    if (std::strcmp(argv[i], "--tuning") == 0) draw = bs::sim::DrawTuning;
    if (std::strcmp(argv[i], "--tuning-death") == 0) draw = bs::sim::DrawTuningDeath;
    if (std::strcmp(argv[i], "--giving-back") == 0) draw = bs::sim::DrawGivingBack;
    if (std::strcmp(argv[i], "--giving-back-death") == 0) draw = bs::sim::DrawGivingBackDeath;
    if (std::strcmp(argv[i], "--grants") == 0) draw = bs::sim::DrawGrants;
    if (std::strcmp(argv[i], "--grants-death") == 0) draw = bs::sim::DrawGrantsDeath;
    if (std::strcmp(argv[i], "--host-grants") == 0) draw = bs::sim::DrawHostGrants;
    if (std::strcmp(argv[i], "--host-grants-death") == 0) draw = bs::sim::DrawHostGrantsDeath;
    if (std::strcmp(argv[i], "--hosts") == 0) draw = bs::sim::DrawHosts;
    if (std::strcmp(argv[i], "--hosts-death") == 0) draw = bs::sim::DrawHostsDeath;
    if (std::strcmp(argv[i], "--hosts-coded") == 0) draw = bs::sim::DrawCodedHosts;
    if (std::strcmp(argv[i], "--hosts-goodbye") == 0) draw = bs::sim::DrawHostsGoodbye;
    if (std::strcmp(argv[i], "--training") == 0) draw = bs::sim::DrawTraining;
    if (std::strcmp(argv[i], "--training-death") == 0) draw = bs::sim::DrawTrainingDeath;
    if (std::strncmp(argv[i], kSeed, std::strlen(kSeed)) == 0) seed = argv[i] + std::strlen(kSeed);
  }
  if (seed != nullptr) {
    const uint64_t number = std::strtoull(seed, nullptr, 10);
    return bs::sim::Replay(number, draw(number));
  }
  return RUN_ALL_TESTS();
}
