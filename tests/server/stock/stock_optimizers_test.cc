#include "server/stock/stock_optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/fake_host.h"
#include "server/stock/stock_support.h"

namespace bs::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StockOptimizersTest : public testing::Test, protected HostedBench {
 protected:
  static ps::Message Optimizer(int32_t rank, const std::string& pickle, int32_t customer_id = 0) {
    ps::Message request;
    request.peer = ps::WorkerId(rank);
    request.meta.head = 0;
    request.meta.body = pickle;
    request.meta.request = true;
    request.meta.simple_app = true;
    request.meta.customer_id = customer_id;
    return request;
  }

  std::vector<std::string> adopted_;
  std::vector<std::string> failures_;
  StockOptimizers optimizers_{
      &executor,
      std::make_shared<HostedUpdates>(host.Updater()),
      outbox.sender(),
      [this](const HostedUpdates::Optimizer& optimizer) { adopted_.push_back(optimizer->pickle); },
      [this](const Status& why) { failures_.push_back(why.message()); },
      std::chrono::seconds(10)};
};

TEST_F(StockOptimizersTest, TheFirstCallOfEachNumberCounts) {
  optimizers_.Handle(Optimizer(1, "a"));
  EXPECT_TRUE(outbox.empty()) << "not before it is loaded";
  optimizers_.Handle(Optimizer(0, "a, by another"));
  EXPECT_EQ(Settle().size(), 2u);
  optimizers_.Handle(Optimizer(2, "a, late"));
  optimizers_.Handle(Optimizer(0, "a, of another store of the process", 1));
  EXPECT_EQ(Settle().size(), 2u);
  EXPECT_THAT(adopted_, ElementsAre("a"));
  optimizers_.Handle(Optimizer(2, "b"));
  EXPECT_EQ(Settle().size(), 1u);
  EXPECT_THAT(adopted_, ElementsAre("a", "b"));
  EXPECT_TRUE(failures_.empty());
}

TEST_F(StockOptimizersTest, AnOptimizerThatTheHostRefusesFailsTheJob) {
  optimizers_.Handle(Optimizer(1, "bad"));
  EXPECT_EQ(Settle().size(), 0u);
  EXPECT_TRUE(adopted_.empty());
  EXPECT_THAT(failures_, ElementsAre("the optimizer of worker 1: no such class"));
}

TEST_F(StockOptimizersTest, WithoutAHostNoneIsTaken) {
  StockOptimizers alone(
      &executor, std::make_shared<HostedUpdates>(ServerUpdater{}), outbox.sender(),
      [](const HostedUpdates::Optimizer&) { ADD_FAILURE(); },
      [this](const Status& why) { failures_.push_back(why.message()); }, std::chrono::seconds(10));
  alone.Handle(Optimizer(0, "a"));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("this server is not run by Python")));
}

TEST_F(StockOptimizersTest, OneThatIsNotLoadedInTimeFailsTheJob) {
  sim::SimClock stands_still{1};
  FakeHost hangs(&stands_still);
  StockOptimizers waiting(
      &executor, std::make_shared<HostedUpdates>(hangs.Updater()), outbox.sender(),
      [](const HostedUpdates::Optimizer&) { ADD_FAILURE(); },
      [this](const Status& why) { failures_.push_back(why.message()); }, std::chrono::seconds(10));
  waiting.Handle(Optimizer(1, "a"));
  Pass(std::chrono::milliseconds(9999));
  EXPECT_TRUE(failures_.empty());
  Pass(std::chrono::milliseconds(1));
  EXPECT_THAT(failures_,
              ElementsAre("the optimizer of worker 1: after 10 s the server is still loading it "
                          "(BYTESCHEDULER_STRAGGLER_TIMEOUT)"));
}

TEST_F(StockOptimizersTest, ALoadedOptimizerIsNotLate) {
  optimizers_.Handle(Optimizer(1, "a"));
  Pass(std::chrono::minutes(5));
  EXPECT_THAT(adopted_, ElementsAre("a"));
  EXPECT_TRUE(failures_.empty());
}

}  // namespace
}  // namespace bs::server
