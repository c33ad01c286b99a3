#include "server/stock_optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/stock_support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StockOptimizersTest : public testing::Test {
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
  size_t Run() {
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
    return outbox_.All().size();
  }

  sim::SimClock clock_{1};
  sim::SimExecutor front_{&clock_};
  sim::SimExecutor host_{&clock_};
  Outbox outbox_;
  std::vector<std::string> adopted_;
  std::vector<std::string> failures_;
  std::string refusal_;
  std::shared_ptr<HostedUpdates> hosted_ = std::make_shared<HostedUpdates>(ServerUpdater{
      .executor = &host_,
      .set_optimizer =
          [this](std::string_view) {
            return refusal_.empty() ? Status::Ok() : Status::InvalidArgument(refusal_);
          },
      .update = [](const ServerUpdate&) { return Status::Ok(); }});
  StockOptimizers optimizers_{
      &front_, hosted_, outbox_.sender(),
      [this](const HostedUpdates::Optimizer& optimizer) { adopted_.push_back(optimizer->pickle); },
      [this](const Status& why) { failures_.push_back(why.message()); }};
};

TEST_F(StockOptimizersTest, TheFirstCallOfEachNumberCounts) {
  optimizers_.Handle(Optimizer(1, "a"));
  EXPECT_TRUE(outbox_.empty()) << "not before it is loaded";
  optimizers_.Handle(Optimizer(0, "a, by another"));
  EXPECT_EQ(Run(), 2u);
  optimizers_.Handle(Optimizer(2, "a, late"));
  optimizers_.Handle(Optimizer(0, "a, of another store of the process", 1));
  EXPECT_EQ(Run(), 2u);
  EXPECT_THAT(adopted_, ElementsAre("a"));
  optimizers_.Handle(Optimizer(2, "b"));
  EXPECT_EQ(Run(), 1u);
  EXPECT_THAT(adopted_, ElementsAre("a", "b"));
  EXPECT_TRUE(failures_.empty());
}

TEST_F(StockOptimizersTest, WhatTheHostRefusesFailsTheJob) {
  refusal_ = "it names os.system";
  optimizers_.Handle(Optimizer(1, "cos\nsystem\n."));
  EXPECT_EQ(Run(), 0u);
  EXPECT_TRUE(adopted_.empty());
  EXPECT_THAT(failures_, ElementsAre("the optimizer of worker 1: it names os.system"));
}

TEST_F(StockOptimizersTest, WithoutAHostNoneIsTaken) {
  StockOptimizers alone(
      &front_, std::make_shared<HostedUpdates>(ServerUpdater{}), outbox_.sender(),
      [](const HostedUpdates::Optimizer&) { ADD_FAILURE(); },
      [this](const Status& why) { failures_.push_back(why.message()); });
  alone.Handle(Optimizer(0, "a"));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("this server is not run by Python")));
}

}  // namespace
}  // namespace bs::server
