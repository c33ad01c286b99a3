// Barriers: counting by group and customer, repeats, departures, start and final barrier.
#include "membership/coordinator/barriers.h"

#include <gtest/gtest.h>

#include <vector>

namespace ps {
namespace {

BarrierRequest Stock(int32_t id, int32_t group, int32_t customer = 0) {
  BarrierRequest request;
  request.id = id;
  request.group = group;
  request.customer_id = customer;
  return request;
}

BarrierRequest Native(int32_t id, int32_t group, uint64_t sequence, bool last = false) {
  BarrierRequest request;
  request.id = id;
  request.group = group;
  request.native = true;
  request.sequence = sequence;
  request.last = last;
  return request;
}

std::vector<int32_t> Receivers(const Barriers::Answers& answers) {
  std::vector<int32_t> ids;
  for (const BarrierAnswer& answer : answers) ids.push_back(answer.id);
  return ids;
}

// Workers 0 and 1, server 0.
class BarriersTest : public ::testing::Test {
 protected:
  static Node Entry(Role role, int32_t id) { return {role, id, "a", id, false, 0}; }
  BarriersTest() {
    barriers_.SetNodes(
        {Entry(Role::kServer, 8), Entry(Role::kWorker, 9), Entry(Role::kWorker, 11)});
  }
  Barriers barriers_{2};
};

TEST_F(BarriersTest, AnswersGoToWorkersThenServersOnceAllCame) {
  EXPECT_TRUE(barriers_.Arrive(Stock(9, kEveryone)).empty());
  EXPECT_TRUE(barriers_.Arrive(Native(8, kEveryone, 1)).empty());
  EXPECT_EQ(barriers_.WaitsFor(Stock(9, kEveryone)), "worker 1");
  EXPECT_EQ(Receivers(barriers_.Arrive(Stock(11, kEveryone))), (std::vector<int32_t>{9, 11, 8}));
  EXPECT_FALSE(barriers_.final_done());
}

TEST_F(BarriersTest, StockAnswersNameTheCustomerOfTheLastRequest) {
  EXPECT_TRUE(barriers_.Arrive(Stock(11, kWorkerGroup, 3)).empty());
  const Barriers::Answers answers = barriers_.Arrive(Stock(9, kWorkerGroup, 5));
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers.at(0).request.customer_id, 5);
  EXPECT_EQ(answers.at(1).request.customer_id, 5);
}

TEST_F(BarriersTest, OneSenderWaitsForSoManyCustomersAndNoMore) {
  const auto most = static_cast<int32_t>(Barriers::kMostCustomers);
  for (int32_t customer = 0; customer < most; ++customer) {
    const BarrierRequest request = Stock(9, kWorkerGroup, customer);
    EXPECT_TRUE(barriers_.Check(request).ok());
    EXPECT_TRUE(barriers_.Arrive(request).empty());
  }
  EXPECT_EQ(barriers_.Check(Stock(9, kWorkerGroup, most)).ToString(),
            "kResourceExhausted: worker 0 waits at a barrier of the workers for 64 customers "
            "already, and no more may");
  EXPECT_TRUE(barriers_.Check(Stock(9, kWorkerGroup, 0)).ok());  // a repeat
  EXPECT_TRUE(barriers_.Check(Stock(9, kEveryone, most)).ok());
  EXPECT_TRUE(barriers_.Check(Stock(11, kWorkerGroup, most)).ok());
  EXPECT_EQ(barriers_.Arrive(Stock(11, kWorkerGroup)).size(), 2U);
  EXPECT_TRUE(barriers_.Check(Stock(9, kWorkerGroup, most)).ok());
}

TEST_F(BarriersTest, RepeatsCountOnceAndAreAnsweredAgainAfterwards) {
  EXPECT_TRUE(barriers_.Arrive(Native(9, kWorkerGroup, 4)).empty());
  EXPECT_TRUE(barriers_.Arrive(Native(9, kWorkerGroup, 4)).empty());
  EXPECT_EQ(barriers_.Arrive(Native(11, kWorkerGroup, 6)).size(), 2U);
  const Barriers::Answers again = barriers_.Arrive(Native(9, kWorkerGroup, 4));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again.at(0).request.sequence, 4U);
  // A new request after a late repeat still needs the other one.
  EXPECT_TRUE(barriers_.Arrive(Native(9, kWorkerGroup, 5)).empty());
}

TEST_F(BarriersTest, OnlyStockWorkersThatWaitForWorkersAreFoundLate) {
  const auto came = [](BarrierRequest request, int second) {
    request.since = bs::TimePoint(std::chrono::seconds(second));
    return request;
  };
  const bs::TimePoint later(std::chrono::seconds(9));
  barriers_.Arrive(came(Stock(9, kEveryone), 1));
  EXPECT_EQ(barriers_.FindStockBefore(later), nullptr);
  barriers_.Arrive(came(Stock(9, kWorkerGroup, 0), 5));
  barriers_.Arrive(came(Stock(9, kWorkerGroup, 0), 9));  // a repeat
  ASSERT_NE(barriers_.FindStockBefore(later), nullptr);
  EXPECT_EQ(barriers_.FindStockBefore(later)->id, 9);
  EXPECT_EQ(barriers_.FindStockBefore(bs::TimePoint(std::chrono::seconds(5))), nullptr);
  EXPECT_EQ(barriers_.Arrive(came(Stock(11, kWorkerGroup), 9)).size(), 2U);
  barriers_.Arrive(came(Native(11, kWorkerGroup, 1), 1));
  EXPECT_EQ(barriers_.FindStockBefore(later), nullptr);
}

TEST_F(BarriersTest, AStockWorkerThatWaitsAtABarrierIsKnown) {
  EXPECT_FALSE(barriers_.stock_waits());
  barriers_.Arrive(Native(8, kEveryone, 1));
  EXPECT_FALSE(barriers_.stock_waits());
  for (const int32_t group : {kWorkerGroup, kEveryone}) {
    barriers_.Arrive(Stock(9, group));
    EXPECT_TRUE(barriers_.stock_waits());
    EXPECT_FALSE(barriers_.Arrive(Stock(11, group)).empty());
    EXPECT_FALSE(barriers_.stock_waits());
  }
}

TEST_F(BarriersTest, FinalBarrierIsOneWithoutANativeOneOfItsOwn) {
  const auto everyone = [this](bool last, uint64_t sequence) {
    barriers_.Arrive(Stock(9, kEveryone));
    barriers_.Arrive(Stock(11, kEveryone));
    barriers_.Arrive(Native(8, kEveryone, sequence, last));
  };
  everyone(false, 1);
  EXPECT_FALSE(barriers_.final_done());
  everyone(false, 2);
  EXPECT_FALSE(barriers_.final_done());
  everyone(true, 3);
  EXPECT_TRUE(barriers_.final_done());
}

TEST_F(BarriersTest, AWorkerThatLeftCountsAsArrivedForStockNodes) {
  EXPECT_TRUE(barriers_.Arrive(Stock(9, kWorkerGroup)).empty());
  EXPECT_EQ(Receivers(barriers_.Leave(11)), (std::vector<int32_t>{9}));
}

TEST_F(BarriersTest, ANativeWorkerThatWaitsForALeftWorkerGetsAnErrorNowAndLater) {
  EXPECT_TRUE(barriers_.Arrive(Native(9, kWorkerGroup, 1)).empty());
  Barriers::Answers answers = barriers_.Leave(11);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.at(0).status.code(), bs::StatusCode::kUnavailable);
  answers = barriers_.Arrive(Native(9, kWorkerGroup, 2));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_FALSE(answers.at(0).status.ok());
  // A repeat of a failed one gets the same answer.
  answers = barriers_.Arrive(Native(9, kWorkerGroup, 2));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_FALSE(answers.at(0).status.ok());
}

TEST_F(BarriersTest, AWorkerThatWaitsForALeftWorkerHearsItsReason) {
  EXPECT_TRUE(barriers_.Arrive(Native(9, kWorkerGroup, 1)).empty());
  const Barriers::Answers answers = barriers_.Leave(11, "no luck");
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.at(0).status.message(), "barrier of the workers: worker 1 gave up: no luck");
}

TEST_F(BarriersTest, AttachedWorkersCountAmongThemselves) {
  EXPECT_TRUE(barriers_.Arrive(Native(AttachedId(0), kWorkerGroup, 1)).empty());
  EXPECT_TRUE(barriers_.Arrive(Stock(9, kWorkerGroup)).empty());
  EXPECT_EQ(barriers_.Arrive(Native(AttachedId(1), kWorkerGroup, 1)).size(), 2U);
  EXPECT_FALSE(barriers_.Check(Native(AttachedId(0), kEveryone, 2)).ok());
  EXPECT_FALSE(barriers_.Check(Native(AttachedId(2), kWorkerGroup, 2)).ok());
}

TEST_F(BarriersTest, OnlyMembersOfARealGroupMayWait) {
  EXPECT_TRUE(barriers_.Check(Stock(8, kServerGroup)).ok());
  EXPECT_TRUE(barriers_.Check(Stock(8, 3)).ok());
  EXPECT_FALSE(barriers_.Check(Stock(8, kWorkerGroup)).ok());
  EXPECT_FALSE(barriers_.Check(Stock(13, kWorkerGroup)).ok());
  for (const int32_t group : {0, -1, 8, kEmpty}) {
    EXPECT_FALSE(barriers_.Check(Stock(9, group)).ok());
  }
}

TEST_F(BarriersTest, FailureOfTheJobFreesStockNodesOnly) {
  barriers_.Arrive(Stock(9, kWorkerGroup));
  barriers_.Arrive(Native(8, kEveryone, 1));
  EXPECT_EQ(Receivers(barriers_.ReleaseStock()), (std::vector<int32_t>{9}));
  EXPECT_TRUE(barriers_.ReleaseStock().empty());
}

TEST_F(BarriersTest, ANewWorkerInAPlaceIsNotHeldByBarriersThatAreOver) {
  for (const uint64_t sequence : {5, 6}) {
    EXPECT_TRUE(barriers_.Arrive(Native(9, kWorkerGroup, sequence)).empty());
    EXPECT_EQ(barriers_.Arrive(Native(11, kWorkerGroup, sequence)).size(), 2U);
  }
  EXPECT_TRUE(barriers_.Arrive(Native(11, kWorkerGroup, 7)).empty());
  barriers_.Vacate(11);  // what it waited for does not count
  EXPECT_TRUE(barriers_.Arrive(Native(9, kWorkerGroup, 7)).empty());
  // Its sequences may be smaller: it may be another host.
  EXPECT_EQ(Receivers(barriers_.Arrive(Native(11, kWorkerGroup, 1))), std::vector<int32_t>{11});
  EXPECT_EQ(Receivers(barriers_.Arrive(Native(11, kWorkerGroup, 1))), std::vector<int32_t>{11});
  EXPECT_EQ(Receivers(barriers_.Arrive(Native(11, kWorkerGroup, 2))), std::vector<int32_t>{11});
  EXPECT_EQ(barriers_.Arrive(Native(11, kWorkerGroup, 3)).size(), 2U);
}

}  // namespace
}  // namespace ps
