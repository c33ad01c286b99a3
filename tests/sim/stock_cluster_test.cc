// Simulated jobs of stock MXNet workers on our scheduler node and servers: delays, messages of
// different peers in any order, nodes that resend, and death; every value checked.
//
//   stock_cluster_test --seed=N [--death | --losses] [--resends] [--async]   replays one job and
//   prints what happened
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cluster_node.h"
#include "sim/scheduler_host.h"
#include "sim/stock_worker.h"

namespace bs::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kJobs = (BS_CLUSTER_SEEDS + 3) / 4;
constexpr uint64_t kDeaths = (BS_CLUSTER_SEEDS + 7) / 8;
constexpr uint64_t kLosses = (BS_CLUSTER_SEEDS + 11) / 12;
constexpr Duration kStuckAfter = seconds(90);

// A worker vanishes while it trains, and another takes its place.
struct StockLoss {
  int32_t rank = 0;
  uint64_t after_answers = 0;  // to all workers together, those that vanished too
  Duration until_next{};       // starts
};

struct StockCase {
  StockPlan plan;
  SimNetworkOptions network;
  int32_t num_shards = 1;
  bool deterministic = false;
  uint64_t hold_bytes = 0;
  std::optional<ps::Role> victim;
  uint64_t after_answers = 0;     // to all workers together
  std::vector<StockLoss> losses;  // in the order in which they are due
};

StockCase DrawCase(uint64_t seed, bool death, bool resends, bool asynchronous = false) {
  std::mt19937_64 random(seed);
  const auto draw = [&random](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random);
  };
  StockCase drawn;
  StockPlan& plan = drawn.plan;
  plan.num_workers = static_cast<int32_t>(draw(1, 4));
  plan.num_servers = static_cast<int32_t>(draw(1, 3));
  plan.longest_pause = microseconds(draw(0, 2) * 2000);
  plan.resends = resends;
  plan.asynchronous = asynchronous;
  plan.resend_timeout = milliseconds(resends ? draw(1, 5) * 10 : 1000);
  uint64_t answers = 0;
  for (uint64_t i = 0; i < draw(1, 6); ++i) {
    const auto way = static_cast<StockWay>(draw(0, asynchronous ? 1 : 4));
    const uint64_t rounds = draw(0, asynchronous ? 4 : 6);
    // Keys of rows are numbered like others.
    plan.keys.push_back({100 * i + draw(0, 2), way, draw(3, 60), rounds});
    answers += plan.keys.back().rounds + 1;
  }
  drawn.network.delay_min = microseconds(draw(0, 100));
  drawn.network.delay_max = drawn.network.delay_min + microseconds(draw(0, 2) * 10000 + 10);
  if (draw(0, 2) == 0) drawn.network.bytes_per_second = 20'000'000;
  drawn.num_shards = static_cast<int32_t>(draw(1, 3));
  drawn.deterministic = draw(0, 2) == 0;
  drawn.hold_bytes = draw(0, 1) * 1'000'000;
  constexpr ps::Role kRoles[] = {ps::Role::kWorker, ps::Role::kServer, ps::Role::kScheduler};
  if (death) drawn.victim = kRoles[draw(0, 2)];
  drawn.after_answers = draw(1, answers * static_cast<uint64_t>(plan.num_workers));
  return drawn;
}

// The same with workers that are lost and replaced.
StockCase DrawLosses(uint64_t seed, bool resends, bool asynchronous) {
  StockCase drawn = DrawCase(seed, false, resends, asynchronous);
  std::mt19937_64 random(~seed);
  const auto draw = [&random](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random);
  };
  uint64_t answers = 0;
  for (StockKeyPlan& key : drawn.plan.keys) {
    key.rounds += 1;
    answers += 2 * key.rounds + 1;
  }
  // A loss is noticed after a second, when the others would be at the end of the round or the job.
  drawn.plan.longest_pause = milliseconds(draw(0, 2) * 1000 + 10);
  drawn.losses.resize(draw(1, 3));
  for (StockLoss& loss : drawn.losses) {
    loss.rank = static_cast<int32_t>(draw(0, static_cast<uint64_t>(drawn.plan.num_workers) - 1));
    loss.after_answers = draw(1, answers * static_cast<uint64_t>(drawn.plan.num_workers));
    constexpr int64_t kUntilNext[] = {0, 200, 1100, 4000};
    loss.until_next = milliseconds(kUntilNext[draw(0, 3)]);
  }
  std::sort(drawn.losses.begin(), drawn.losses.end(),
            [](const auto& a, const auto& b) { return a.after_answers < b.after_answers; });
  return drawn;
}

class StockCluster {
 public:
  StockCluster(const StockCase& drawn, uint64_t seed, const Journal::Trace& trace);
  StockCluster(const StockCluster&) = delete;
  StockCluster& operator=(const StockCluster&) = delete;
  ~StockCluster();

  // The promises that were broken.
  std::string Run();
  uint64_t resent() const;
  bool ended_somebody() const;
  // Workers that got the place of a lost one.
  uint64_t replaced() const;

 private:
  bool Over() const;
  void MaybeKill();
  void MaybeLose();
  // True if the job ended because of the victim; the loss of a replaceable one need not end it.
  bool failed() const;
  void CheckEnd();
  std::string WhatIsMissing() const;

  const StockCase drawn_;
  SimClock clock_;
  Journal journal_;
  SimNetwork network_;
  Job job_;
  StockLedger ledger_;
  const protocol::Rules rules_;
  size_t num_lost_ = 0;
  std::unique_ptr<SchedulerHost> scheduler_;
  std::vector<std::unique_ptr<ServerNode>> servers_;
  std::vector<std::unique_ptr<StockWorker>> workers_;
};

StockCluster::StockCluster(const StockCase& drawn, uint64_t seed, const Journal::Trace& trace)
    : drawn_(drawn),
      clock_(seed),
      journal_(&clock_, trace),
      network_(&clock_, drawn.network),
      job_{.clock = &clock_, .network = &network_, .journal = &journal_, .membership = {}},
      ledger_(drawn.plan.num_workers, drawn.plan.keys.size()) {
  job_.stock = true;
  if (!drawn.losses.empty()) {
    job_.ledger = &ledger_;
    job_.membership.rejoin_timeout = seconds(60);
  }
  job_.membership.num_workers = drawn.plan.num_workers;
  job_.membership.num_servers = drawn.plan.num_servers;
  job_.membership.root = {"10.0.0.1", 9091};
  const Logger log("", LogLevel::kDebug, [this](LogLevel, std::string_view line) {
    journal_.Note("scheduler node", [&] { return std::string(line); });
  });
  scheduler_ = std::make_unique<SchedulerHost>(&job_, log);
  ServerOptions server;
  server.deterministic = drawn.deterministic;
  server.hold_bytes = drawn.hold_bytes;
  for (int32_t i = 0; i < drawn.plan.num_servers; ++i) {
    servers_.push_back(std::make_unique<ServerNode>(&job_, i, server, drawn.num_shards, rules_));
  }
  for (int32_t i = 0; i < drawn.plan.num_workers; ++i) {
    workers_.push_back(std::make_unique<StockWorker>(&job_, i, drawn.plan));
  }
}

StockCluster::~StockCluster() {
  workers_.clear();
  clock_.RunUntil(clock_.Now() + seconds(5));
  scheduler_->Destroy();
  for (const auto& server : servers_) server->DestroyMember();
  clock_.RunUntil(clock_.Now() + seconds(1));
}

bool StockCluster::Over() const {
  // Who comes for a place after the end finds nobody.
  const auto over = [](const auto& node) { return node->over() || node->rank() < 0; };
  return scheduler_->over() && std::all_of(workers_.begin(), workers_.end(), over) &&
         std::all_of(servers_.begin(), servers_.end(), over);
}

void StockCluster::MaybeLose() {
  if (num_lost_ == drawn_.losses.size()) return;
  const StockLoss& loss = drawn_.losses[num_lost_];
  uint64_t answers = 0;
  StockWorker* holder = nullptr;
  for (const auto& worker : workers_) {
    answers += worker->answers();
    if (worker->over()) continue;
    if (worker->rank() == loss.rank) holder = worker.get();
    // Its loss, if others wait for it at a barrier of the start or the end, ends the job.
    if (!worker->trains()) return;
  }
  if (answers < loss.after_answers || holder == nullptr) return;
  ++num_lost_;
  job_.victim = "lost worker";
  ledger_.lost[static_cast<size_t>(loss.rank)].push_back(holder->life());
  holder->Kill();
  const auto index = static_cast<int32_t>(workers_.size());
  workers_.push_back(std::make_unique<StockWorker>(&job_, index, drawn_.plan));
  workers_.back()->Start(loss.until_next);
}

bool StockCluster::failed() const {
  if (drawn_.losses.empty()) return job_.victim.has_value();
  return !scheduler_->finished()->ok();
}

void StockCluster::MaybeKill() {
  if (!drawn_.victim || job_.victim) return;
  uint64_t answers = 0;
  for (const auto& worker : workers_) {
    if (!worker->ready() || worker->done()) return;
    answers += worker->answers();
  }
  if (answers < drawn_.after_answers) return;
  switch (*drawn_.victim) {
    case ps::Role::kWorker:
      job_.victim = "lost " + workers_.back()->name();
      return workers_.back()->Kill();
    case ps::Role::kServer:
      job_.victim = "lost " + servers_.back()->name();
      return servers_.back()->Kill();
    case ps::Role::kScheduler:
      job_.victim = "lost the scheduler node";
      return scheduler_->Kill();
  }
}

void StockCluster::CheckEnd() {
  for (const auto& server : servers_) {
    const bool well = failed() ? server->killed() || server->failure() : server->left_well();
    if (!well) journal_.Report(Broken::kStatus, server->name(), "it ended as if nothing was wrong");
  }
  bool waited = false;
  for (const auto& worker : workers_) {
    // The end of a job lets those go who wait in a barrier; the last one may be all they waited
    // for.
    const bool well = failed() ? worker->over() || !worker->ready()
                               : worker->done() || (worker->killed() && !drawn_.losses.empty());
    if (!well) journal_.Report(Broken::kStatus, worker->name(), "it did not end as it should");
    if (!failed() && worker->missed_some()) {
      journal_.Report(Broken::kSum, worker->name(), "it did not see everyone's last round");
    }
    waited = waited || (worker->ready() && !worker->killed() && !worker->trains());
  }
  if (scheduler_->killed()) return;
  const bool right = failed()
                         ? scheduler_->finished()->message().find(*job_.victim) != std::string::npos
                         : scheduler_->finished()->ok();
  if (!right || (!drawn_.losses.empty() && failed() && !waited)) {
    journal_.Report(Broken::kStatus, "scheduler node", scheduler_->finished()->ToString());
  }
}

std::string StockCluster::WhatIsMissing() const {
  std::string text = scheduler_->finished() ? "" : "the scheduler node has not finished";
  for (const auto& server : servers_) {
    if (!server->over()) text += "; " + server->name() + " is not over";
  }
  for (const auto& worker : workers_) {
    if (!worker->over()) text += "; " + worker->name() + " is not over";
  }
  return text;
}

bool StockCluster::ended_somebody() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker->ended(); });
}

uint64_t StockCluster::replaced() const {
  const auto first = workers_.begin() + drawn_.plan.num_workers;
  return static_cast<uint64_t>(
      std::count_if(first, workers_.end(), [](const auto& worker) { return worker->ready(); }));
}

uint64_t StockCluster::resent() const {
  uint64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->resent();
  return sum;
}

std::string StockCluster::Run() {
  const auto some = [this] { return milliseconds(clock_.Uniform(0, 50)); };
  scheduler_->Start(some());
  for (const auto& server : servers_) server->Start(some());
  for (const auto& worker : workers_) worker->Start(some());
  bool stuck = false;
  while (!Over() && !stuck) {
    stuck = clock_.Now() > journal_.last_progress() + kStuckAfter || !clock_.Step();
    MaybeKill();
    MaybeLose();
  }
  if (stuck) {
    journal_.Report(Broken::kStuck, "everyone", WhatIsMissing());
  } else {
    CheckEnd();
  }
  std::string text;
  for (const Journal::Problem& problem : journal_.problems()) text += problem.text + "\n";
  return text;
}

TEST(StockCluster, EveryValueIsRightAndTheJobEnds) {
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    ASSERT_EQ(StockCluster(DrawCase(seed, false, false), seed, {}).Run(), "") << "--seed=" << seed;
  }
}

TEST(StockCluster, EveryAsynchronousPushCountsOnce) {
  for (uint64_t seed = 0; seed < kDeaths; ++seed) {
    const bool resends = seed % 2 > 0;
    ASSERT_EQ(StockCluster(DrawCase(seed, false, resends, true), seed, {}).Run(), "")
        << "--async --seed=" << seed << (resends ? " --resends" : "");
  }
}

TEST(StockCluster, ADeathBetweenAsynchronousPushesIsNamedAndNothingCountsTwice) {
  uint64_t ended = 0;
  for (uint64_t seed = 0; seed < kDeaths; ++seed) {
    StockCluster cluster(DrawCase(seed, true, false, true), seed, {});
    ASSERT_EQ(cluster.Run(), "") << "--async --death --seed=" << seed;
    if (cluster.ended_somebody()) ++ended;
  }
  EXPECT_GT(ended, kDeaths / 4);
}

TEST(StockCluster, ADeathIsNamedAndEndsEveryStockWorker) {
  uint64_t ended = 0;
  for (uint64_t seed = 0; seed < kDeaths; ++seed) {
    StockCluster cluster(DrawCase(seed, true, false), seed, {});
    ASSERT_EQ(cluster.Run(), "") << "--death --seed=" << seed;
    if (cluster.ended_somebody()) ++ended;
  }
  EXPECT_GT(ended, kDeaths / 4);
}

TEST(StockCluster, ResentMessagesCountOnceAndAreAcknowledged) {
  uint64_t resent = 0;
  for (uint64_t seed = 0; seed < kDeaths; ++seed) {
    StockCluster cluster(DrawCase(seed, false, true), seed, {});
    ASSERT_EQ(cluster.Run(), "") << "--resends --seed=" << seed;
    resent += cluster.resent();
  }
  EXPECT_GT(resent, kDeaths);
}

TEST(StockCluster, ADeathEndsNodesThatResendToo) {
  uint64_t ended = 0;
  for (uint64_t seed = 0; seed < kDeaths; ++seed) {
    StockCluster cluster(DrawCase(seed, true, true), seed, {});
    ASSERT_EQ(cluster.Run(), "") << "--death --resends --seed=" << seed;
    if (cluster.ended_somebody()) ++ended;
  }
  EXPECT_GT(ended, kDeaths / 4);
}

TEST(StockCluster, LostWorkersAreReplacedAgainAndAgainAndEveryPushCountsOnce) {
  uint64_t replaced = 0;
  for (uint64_t seed = 0; seed < kLosses; ++seed) {
    const bool asynchronous = seed % 2 > 0;
    const bool resends = seed % 3 == 0;
    StockCluster cluster(DrawLosses(seed, resends, asynchronous), seed, {});
    ASSERT_EQ(cluster.Run(), "") << "--losses --seed=" << seed << (resends ? " --resends" : "")
                                 << (asynchronous ? " --async" : "");
    replaced += cluster.replaced();
  }
  EXPECT_GT(replaced, kLosses);
}

}  // namespace
}  // namespace bs::sim

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::optional<uint64_t> seed;
  bool death = false;
  bool resends = false;
  bool asynchronous = false;
  bool losses = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    death = death || argument == "--death";
    resends = resends || argument == "--resends";
    losses = losses || argument == "--losses";
    asynchronous = asynchronous || argument == "--async";
    if (argument.starts_with("--seed=")) seed = std::strtoull(argv[i] + 7, nullptr, 10);
  }
  if (!seed) return RUN_ALL_TESTS();
  const auto print = [](const std::string& line) { std::cout << line << '\n'; };
  const bs::sim::StockCase drawn = losses ? bs::sim::DrawLosses(*seed, resends, asynchronous)
                                          : bs::sim::DrawCase(*seed, death, resends, asynchronous);
  bs::sim::StockCluster cluster(drawn, *seed, print);
  const std::string problems = cluster.Run();
  std::cout << problems << (problems.empty() ? "every promise was kept\n" : "");
  return problems.empty() ? 0 : 1;
}
