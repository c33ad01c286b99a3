#include "server/stock/stock_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "server/fake_host.h"
#include "server/stock/stock_support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

MATCHER_P(EndOf, rank, "") { return IsEnd(arg) && arg.peer == ps::WorkerId(rank); }
MATCHER_P(WordOf, rank, "") {
  return arg.meta.is_control && arg.meta.control.command == ps::Command::kAck &&
         arg.meta.body == "bytescheduler: lost worker 7" && arg.peer == ps::WorkerId(rank);
}
const Status kWhy = Status::Unavailable("lost worker 7");

// A store with two shards on simulated time.
class StockStoreTest : public testing::Test {
 protected:
  explicit StockStoreTest(int32_t num_workers = 2, bool hosts = false, size_t max_keys = 100) {
    ServerOptions options;
    options.max_stock_keys = max_keys;
    options.max_backlog_bytes = uint64_t{8} << 20U;
    options.available_bytes = [this] { return available_bytes_; };
    options.view = job::ShareView({.role = job::Role::kServer, .rank = 1}, num_workers, 2);
    options.straggler_timeout = std::chrono::seconds(10);
    const auto send = [this](ps::Message message) {
      ++answers_of_[shards_[1].IsCurrent() ? 1 : 0];
      outbox_.sender()(std::move(message));
    };
    store_ = std::make_unique<StockStore>(
        options, &dispatcher_, std::vector<ServerShard>{{&shards_[0], 0}, {&shards_[1], 0}},
        StockWays{send, [this](const Status& why) { failures_.push_back(why.message()); },
                  std::make_shared<HostedUpdates>(hosts ? hangs_.Updater() : ServerUpdater{}),
                  MakeBounds(options)},
        log_);
    store_->SetSynchronous();
  }

  // Of `key` as MXNet numbers it.
  std::vector<ps::Message> Do(StockAsk ask, uint64_t key = 3) {
    ask.keys = {StockRangeOf(1, 2).begin + key};
    return Do(StockRequest(ask));
  }
  std::vector<ps::Message> Do(ps::Message message) {
    store_->OnData(std::move(message));
    Run();
    return outbox_.All();
  }
  void Run() { Wait(std::chrono::seconds(1)); }
  void Wait(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }

  sim::SimClock clock_{1};
  sim::SimExecutor dispatcher_{&clock_};
  sim::SimExecutor shards_[2] = {sim::SimExecutor(&clock_), sim::SimExecutor(&clock_)};
  sim::SimClock stands_still_{1};
  FakeHost hangs_{&stands_still_};
  Outbox outbox_;
  std::map<int, int> answers_of_;
  uint64_t available_bytes_ = uint64_t{1} << 30U;
  std::vector<std::string> failures_;
  std::vector<std::string> lines_;
  Logger log_{"server 1", LogLevel::kInfo,
              [this](LogLevel, std::string_view line) { lines_.emplace_back(line); }};
  std::unique_ptr<StockStore> store_;
};

TEST_F(StockStoreTest, KeysAreSpreadOverShardsByTheirBytes) {
  EXPECT_EQ(Do(StockPush(0, Floats({1, 2, 3, 4})), 3).size(), 1u);
  for (const uint64_t key : {4u, 5u, 6u}) EXPECT_EQ(Do(StockPush(0, Floats({1})), key).size(), 1u);
  EXPECT_THAT(answers_of_, ElementsAre(std::pair(0, 1), std::pair(1, 3)));
}

TEST_F(StockStoreTest, ARoundOfTwoWorkersOnTheSecondServer) {
  Do(StockPush(0, Floats({0})));
  EXPECT_TRUE(Do(StockPush(0, Floats({1}))).empty());
  EXPECT_EQ(Do(StockPush(1, Floats({2}))).size(), 2u);
  EXPECT_EQ(FloatsIn(Do(StockPull(0)).at(0)), std::vector<float>{3});
}

TEST_F(StockStoreTest, TwoHundredWorkersHaveIdsAbove255) {
  ServerOptions options;
  options.view = job::ShareView({.role = job::Role::kServer}, 200, 1);
  StockStore store(
      options, &dispatcher_, {{&shards_[0], 0}},
      StockWays{outbox_.sender(), [](const Status& why) { ADD_FAILURE() << why.message(); },
                std::make_shared<HostedUpdates>(ServerUpdater{}), MakeBounds(options)},
      log_);
  store.SetSynchronous();
  for (int32_t rank = -1; rank < 200; ++rank) {  // the first is the initial value
    store.OnData(StockRequest(StockPush(std::max(rank, 0), Floats({1}))));
  }
  Run();
  std::set<int32_t> answered;
  for (const ps::Message& answer : outbox_.All()) answered.insert(answer.peer);
  EXPECT_EQ(answered.size(), 200u);
  EXPECT_EQ(*answered.rbegin(), 9 + 2 * 199);
  store.OnData(StockRequest(StockPull(199)));
  Run();
  EXPECT_EQ(FloatsIn(outbox_.Next()), std::vector<float>{200});
}

TEST_F(StockStoreTest, ARequestThatNoWorkerOfTheJobSendsIsDroppedWithALine) {
  ps::Message attached = StockRequest(StockPull(0));
  attached.peer = ps::AttachedId(0);
  ps::Message server = StockRequest(StockPull(0));
  server.peer = ps::ServerId(1);
  EXPECT_TRUE(Do(std::move(attached)).empty());
  EXPECT_TRUE(Do(std::move(server)).empty());
  EXPECT_TRUE(Do(StockPull(2)).empty());
  EXPECT_THAT(lines_, Each(HasSubstr("dropped: ")));
  EXPECT_EQ(lines_.size(), 3u);
  for (int i = 0; i < 100; ++i) Do(StockPull(2));
  EXPECT_EQ(lines_.size(), 20u);
  EXPECT_THAT(lines_.back(), HasSubstr("no more of these will be told"));
  EXPECT_TRUE(failures_.empty());
}

TEST_F(StockStoreTest, AMalformedRequestFailsTheJobAndEndsTheWorkersThatWait) {
  ps::Message garbage = StockRequest(StockPull(1));
  garbage.data.pop_back();
  EXPECT_TRUE(Do(std::move(garbage)).empty());
  EXPECT_THAT(failures_, ElementsAre("a request of worker 1 makes no sense: 1 data frames, want "
                                     "2 or 3"));
  store_->Fail(kWhy);
  EXPECT_THAT(outbox_.All(), ElementsAre(WordOf(0), EndOf(0), WordOf(1), EndOf(1)));
  garbage = StockRequest(StockPull(1));
  garbage.data.clear();
  EXPECT_THAT(Do(std::move(garbage)), ElementsAre(EndOf(1)));
  EXPECT_EQ(failures_.size(), 1u);
}

TEST_F(StockStoreTest, TheOwnerIsToldOfTheFirstFailureOnly) {
  Do(StockPush(0, {std::byte{}}), 3);
  Do(StockPush(0, {std::byte{}}), 4);
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("push of key 3 from worker 0")));
}

TEST_F(StockStoreTest, AFailureEndsAllStockWorkersAndWorkersThatComeLater) {
  Do(StockPull(0));
  store_->Fail(kWhy);
  store_->Fail(kWhy);
  EXPECT_THAT(outbox_.All(), ElementsAre(WordOf(0), EndOf(0), WordOf(1), EndOf(1)));
  EXPECT_THAT(Do(StockPush(1, Floats({1})), 9), ElementsAre(EndOf(1)));
}

TEST_F(StockStoreTest, AValueThatDoesNotFitIntoMemoryFailsTheJobAndNamesItsWorker) {
  constexpr size_t kMiB = size_t{1} << 18U;  // floats
  const std::vector<std::byte> value = Floats(std::vector<float>(kMiB, 1));
  available_bytes_ = 8 * kMiB;  // for a value and its sum
  EXPECT_EQ(Do(StockPush(0, value), 3).size(), 1U);
  // The sum of the first has no memory yet, which the system does not know.
  available_bytes_ = 12 * kMiB - 1;
  EXPECT_TRUE(Do(StockPush(1, value), 4).empty());
  EXPECT_THAT(failures_, ElementsAre(HasSubstr(
                             "push of key 4 from worker 1: value and sum: its 2097152 bytes do not "
                             "fit into memory, of which 2097151 are left here")));
}

TEST_F(StockStoreTest, ASumThatIsThereIsNotCountedOnceMore) {
  constexpr size_t kMiB = size_t{1} << 18U;  // floats
  const std::vector<std::byte> value = Floats(std::vector<float>(kMiB, 1));
  available_bytes_ = 8 * kMiB;
  Do(StockPush(0, value), 3);
  for (const int32_t rank : {0, 1}) Do(StockPush(rank, value), 3);
  EXPECT_EQ(Do(StockPush(1, value), 4).size(), 1u);
  available_bytes_ = 0;  // rounds need no more
  for (const int32_t rank : {0, 1, 1, 0}) Do(StockPush(rank, value), 3);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(StockStoreTest, RowsOfNothingHaveASumThatIsCounted) {
  StockAsk ask = StockPush(0, {});
  ask.keys = {StockRangeOf(1, 2).begin + 3};
  std::vector<uint64_t> rows(size_t{1} << 19U);
  std::iota(rows.begin(), rows.end(), 0);
  available_bytes_ = (2U << 20U) - 1;
  EXPECT_TRUE(Do(StockRequest(StockRows(ask, rows))).empty());
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("value and sum: its 2097152 bytes do not fit")));
}

TEST_F(StockStoreTest, ManySmallValuesThatDoNotFitIntoMemoryFailTheJobToo) {
  available_bytes_ = 1000;
  const std::vector<std::byte> value = Floats(std::vector<float>(16384, 1));
  for (uint64_t key = 0; key < 64 && failures_.empty(); ++key) Do(StockPush(0, value), key);
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("its 131072 bytes do not fit into memory")));
}

TEST_F(StockStoreTest, WorkerThatSendsMoreThanAShardHoldsFailsTheJobAndIsNamed) {
  const auto push = [this](int32_t rank) {
    StockAsk ask = StockPush(rank, Floats(std::vector<float>(1U << 18U, 1)));  // a MiB
    ask.keys = {StockRangeOf(1, 2).begin + 3};
    store_->OnData(StockRequest(ask));
  };
  for (int round = 0; round < 3; ++round) {  // no shard runs in between
    for (int i = 0; i < 3; ++i) push(1);
    for (int i = 0; i < 4; ++i) push(0);
    Run();
    EXPECT_TRUE(failures_.empty());
    for (int i = 0; i < 3; ++i) push(0);
    for (int i = 0; i < 4; ++i) push(1);
    Run();
  }
  EXPECT_TRUE(failures_.empty());
  for (int i = 0; i < 7; ++i) push(1);
  push(0);
  EXPECT_TRUE(failures_.empty());
  push(1);
  Run();
  EXPECT_THAT(failures_, ElementsAre(HasSubstr(
                             "push of key 3 from worker 1: 7347256 bytes of requests of this "
                             "worker, of 8396864 of all, wait to be summed already")));
}

class StockStoreOfThreeKeysTest : public StockStoreTest {
 protected:
  StockStoreOfThreeKeysTest() : StockStoreTest(2, false, 3) {}
};

TEST_F(StockStoreOfThreeKeysTest, WorkerThatAsksForOneMoreFailsTheJobAndIsNamed) {
  for (const uint64_t key : {3u, 4u}) EXPECT_EQ(Do(StockPush(0, Floats({1})), key).size(), 1u);
  EXPECT_TRUE(Do(StockPull(1), 5).empty());  // one that nobody has initialised
  for (const uint64_t key : {3u, 4u}) EXPECT_EQ(Do(StockPull(1), key).size(), 1u);
  EXPECT_TRUE(failures_.empty());
  EXPECT_TRUE(Do(StockPull(1), 6).empty());
  EXPECT_THAT(failures_, ElementsAre("pull of key 6 from worker 1: there are 3 keys already, and "
                                     "no room for more"));
}

ps::Message Optimizer(int32_t id) {
  ps::Message request;
  request.peer = id;
  request.meta.request = true;
  request.meta.simple_app = true;
  request.meta.body = "pickle";
  return request;
}

TEST_F(StockStoreTest, AnOptimizerOnAServerThatPythonDoesNotRunFailsTheJob) {
  store_->SetOptimizer(Optimizer(ps::ServerId(0)));
  EXPECT_TRUE(failures_.empty());
  store_->SetOptimizer(Optimizer(ps::WorkerId(1)));
  Run();
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("the optimizer of worker 1: this server is not run "
                                               "by Python")));
  // Who sends one has not wrapped its store, and waits for the answer.
  store_->Fail(kWhy);
  EXPECT_THAT(outbox_.All(), ElementsAre(WordOf(0), EndOf(0), WordOf(1), EndOf(1)));
}

TEST_F(StockStoreTest, AFailureLeavesStoresAloneThatAreNotUsed) {
  store_->Fail(kWhy);
  EXPECT_TRUE(outbox_.empty());
}

// -- a worker that lives and does not push: Do() takes a second -----------------------------------

TEST_F(StockStoreTest, ARoundThatIsNotCompleteInTimeFailsTheJobAndNamesTheMissingWorker) {
  Do(StockPush(0, Floats({0})));
  EXPECT_TRUE(Do(StockPush(1, Floats({1}))).empty());
  Wait(std::chrono::milliseconds(8999));
  EXPECT_TRUE(failures_.empty());
  Wait(std::chrono::milliseconds(1));
  EXPECT_THAT(failures_, ElementsAre("key 3: after 10 s still waiting for worker 0 to push it "
                                     "(BYTESCHEDULER_STRAGGLER_TIMEOUT)"));
}

TEST_F(StockStoreTest, ItIsNoMatterHowLateThePushesOfARoundAreIfItIsCompleteInTime) {
  Do(StockPush(0, Floats({0})));
  for (int32_t step = 0; step < 10; ++step) {
    EXPECT_TRUE(Do(StockPush(step % 2, Floats({1}))).empty());
    Wait(std::chrono::seconds(7));
    EXPECT_EQ(Do(StockPush(1 - step % 2, Floats({1}))).size(), 2u);
  }
  EXPECT_TRUE(failures_.empty());
}

TEST_F(StockStoreTest, AWorkerThatIsAheadHasTheTimeAnewForEachRound) {
  Do(StockPush(0, Floats({0})));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Do(StockPush(0, Floats({1}))).empty());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Do(StockPush(1, Floats({1}))).size(), 2u);
    Wait(std::chrono::seconds(8));
  }
  Wait(std::chrono::minutes(5));
  EXPECT_TRUE(failures_.empty()) << "nobody waits";
  Do(StockPush(1, Floats({1})));
  Wait(std::chrono::seconds(9));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("still waiting for worker 0 to push it")));
}

TEST_F(StockStoreTest, APullOfAKeyThatNoWorkerInitialisesFailsTheJobToo) {
  EXPECT_TRUE(Do(StockPull(1)).empty());
  Wait(std::chrono::seconds(9));
  EXPECT_THAT(failures_,
              ElementsAre("key 3: after 10 s still waiting for a worker to initialise it "
                          "(BYTESCHEDULER_STRAGGLER_TIMEOUT)"));
}

TEST_F(StockStoreTest, AStoreThatIsGoneLooksAtNothing) {
  Do(StockPush(0, Floats({0})));
  Do(StockPush(0, Floats({0})));
  store_.reset();
  Wait(std::chrono::minutes(1));
  EXPECT_TRUE(failures_.empty());
}

class StockStoreOfFiveTest : public StockStoreTest {
 protected:
  StockStoreOfFiveTest() : StockStoreTest(5) {}
};

TEST_F(StockStoreOfFiveTest, AllThatAreMissingAreNamed) {
  Do(StockPush(0, Floats({0})));
  for (const int32_t rank : {0, 1, 2, 3, 4}) Do(StockPush(rank, Floats({1})));
  for (const int32_t rank : {0, 2}) Do(StockPush(rank, Floats({1})));
  Wait(std::chrono::minutes(1));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("still waiting for workers 1, 3, 4 to push it")));
}

TEST_F(StockStoreOfFiveTest, WorkersThatHaveNeverPushedAreNamedToo) {
  for (const int32_t rank : {0, 0, 3}) Do(StockPush(rank, Floats({1})));
  Wait(std::chrono::minutes(1));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("still waiting for workers 1, 2, 4 to push it")));
}

// Its hosting process takes an optimizer, and then returns no more.
class StockStoreHangingTest : public StockStoreTest {
 protected:
  StockStoreHangingTest() : StockStoreTest(2, true) {
    store_->SetOptimizer(Optimizer(ps::WorkerId(0)));
    stands_still_.RunUntil(stands_still_.Now() + std::chrono::seconds(1));
    Run();
    EXPECT_EQ(outbox_.All().size(), 1u);
  }
};

TEST_F(StockStoreHangingTest, AnUpdateThatDoesNotReturnFailsTheJob) {
  for (const int32_t rank : {0, 0, 1}) Do(StockPush(rank, Floats({1})));
  Wait(std::chrono::seconds(9));
  EXPECT_THAT(failures_, ElementsAre("key 3: after 10 s still waiting for the optimizer on the "
                                     "server to update it (BYTESCHEDULER_STRAGGLER_TIMEOUT)"));
}

}  // namespace
}  // namespace bs::server
