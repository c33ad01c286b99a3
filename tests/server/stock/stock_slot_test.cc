#include "server/stock/stock_slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/stock/stock_support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class StockSlotTest : public testing::Test {
 protected:
  explicit StockSlotTest(int32_t num_workers = 2) {
    state_.view = job::ShareView({.role = job::Role::kServer}, num_workers, 1);
    state_.hold_bytes = 1024;
    state_.max_queued_bytes = (4U << 10U) + 256;
    state_.synchronous = true;
    state_.send = outbox_.sender();
    state_.fail = [this](const Status& why) { failures_.push_back(why.message()); };
    state_.executor = &executor_;
  }

  void Do(const StockAsk& ask) { slot_.Handle(MakeStockCall(ask)); }
  void Init(std::vector<float> values) {
    Do(StockPush(0, Floats(values)));
    EXPECT_EQ(outbox_.All().size(), 1u);
  }
  std::vector<float> Pulled(int32_t rank) {
    Do(StockPull(rank));
    if (outbox_.size() != 1) return {};
    return FloatsIn(outbox_.Next());
  }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  Outbox outbox_;
  std::vector<std::string> failures_;
  StockState state_;
  StockSlot slot_{&state_, 3};
};

TEST_F(StockSlotTest, TheSumReplacesTheValueAndPushesAreAnsweredThen) {
  Init({5, 5});
  EXPECT_EQ(Pulled(1), (std::vector<float>{5, 5}));
  Do(StockPush(1, Floats({1, 2})));
  EXPECT_TRUE(outbox_.empty());
  EXPECT_EQ(Pulled(0), (std::vector<float>{5, 5})) << "a pull in the middle of a round";
  Do(StockPush(0, Floats({10, 20})));
  const std::vector<ps::Message> answers = outbox_.All();
  ASSERT_EQ(answers.size(), 2u);
  for (const ps::Message& answer : answers) {
    EXPECT_FALSE(answer.meta.pull);
    EXPECT_TRUE(answer.data.empty());
  }
  EXPECT_EQ(Pulled(0), (std::vector<float>{11, 22}));
  EXPECT_EQ(Pulled(1), (std::vector<float>{11, 22}));
}

TEST_F(StockSlotTest, EachIsAnsweredByItsOwnFlags) {
  Init({0});
  StockAsk both = StockPush(0, Floats({1}));
  both.pull = true;
  Do(both);
  Do(StockPush(1, Floats({2})));
  const std::vector<ps::Message> answers = outbox_.All();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(FloatsIn(answers[0]), std::vector<float>{3});
  EXPECT_EQ(LengthsIn(answers[0]), std::vector<int32_t>{4});
  EXPECT_TRUE(answers[1].data.empty());
}

TEST_F(StockSlotTest, ARoundCountsWorkersAndNotRequests) {
  Init({0});
  for (const float value : {1.0F, 2.0F, 3.0F}) Do(StockPush(0, Floats({value})));
  EXPECT_TRUE(outbox_.empty());
  // Its own pull sees its pushes; that of the other, which has not pushed, the value as it is.
  Do(StockPull(0));
  EXPECT_TRUE(outbox_.empty());
  EXPECT_EQ(Pulled(1), std::vector<float>{0});
  Do(StockPush(1, Floats({10})));
  EXPECT_EQ(outbox_.All().size(), 2u);
  EXPECT_EQ(Pulled(1), std::vector<float>{11});
  Do(StockPush(1, Floats({20})));
  Do(StockPush(1, Floats({30})));
  const std::vector<ps::Message> answers = outbox_.All();
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(FloatsIn(answers.back()), std::vector<float>{33});
  EXPECT_EQ(state_.queued_bytes, 0u);
}

TEST_F(StockSlotTest, CustomersOfOneProcessAreWorkers) {
  Init({0});
  StockAsk first = StockPush(0, Floats({1}));
  StockAsk second = StockPush(0, Floats({2}));
  second.customer_id = 1;
  Do(first);
  EXPECT_TRUE(outbox_.empty());
  Do(second);
  std::vector<ps::Message> answers = outbox_.All();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].meta.customer_id, 0);
  EXPECT_EQ(answers[1].meta.customer_id, 1);
  EXPECT_EQ(Pulled(0), std::vector<float>{3});
  // There are two of them, so this is none of the job's.
  Do(StockPush(1, Floats({1})));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("this key is pushed by 2 other workers already")));
}

TEST_F(StockSlotTest, AnswersThatAreUnderWayKeepTheirBytes) {
  Init({0});
  std::vector<ps::Message> kept;
  for (int round = 1; round <= 4; ++round) {
    for (const int32_t rank : {0, 1}) {
      StockAsk both = StockPush(rank, Floats({static_cast<float>(round)}));
      both.pull = true;
      Do(both);
    }
    for (ps::Message& answer : outbox_.All()) kept.push_back(std::move(answer));
  }
  ASSERT_EQ(kept.size(), 8u);
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(FloatsIn(kept[i]), std::vector<float>{2.0F * static_cast<float>(i / 2 + 1)});
  }
}

TEST_F(StockSlotTest, APullBeforeTheFirstPushWaitsForIt) {
  Do(StockPull(1));
  EXPECT_TRUE(outbox_.empty());
  Do(StockPush(0, Floats({5})));
  const std::vector<ps::Message> answers = outbox_.All();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(FloatsIn(answers[1]), std::vector<float>{5});
}

TEST_F(StockSlotTest, CompressedPushesAreSummedAndPullsAreNot) {
  state_.threshold = 0.5F;
  Init({9, 9, 9});
  Do(StockTwoBit(0, 3, {std::byte{0b11100000}, {}, {}, {}}));
  Do(StockPush(1, Floats({1, 2, 3})));
  outbox_.All();
  StockAsk pull = StockPull(0);
  pull.layout = StockLayout::kTwoBit;
  Do(pull);
  EXPECT_EQ(FloatsIn(outbox_.Next()), (std::vector<float>{1.5F, 1.5F, 3}));
}

TEST_F(StockSlotTest, CodesWithoutAThresholdFailTheJob) {
  Init({9});
  Do(StockTwoBit(0, 1, std::vector<std::byte>(4)));
  EXPECT_TRUE(outbox_.empty());
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("set_gradient_compression has not been called")));
}

TEST_F(StockSlotTest, Float16IsSummedInFloat32AfterTheCommand) {
  const auto halves = [](uint16_t bits) {
    return std::vector<std::byte>{static_cast<std::byte>(bits & 255),
                                  static_cast<std::byte>(bits >> 8)};
  };
  const auto round = [&](uint16_t a, uint16_t b) {
    for (const auto& [rank, bits] : {std::pair{0, a}, {1, b}, {2, uint16_t{0x3c00}}}) {
      StockAsk push = StockPush(rank, halves(bits));
      push.dtype = DType::kFloat16;
      Do(push);
    }
    outbox_.All();
    Do(StockPull(0));
    return ToBytes(outbox_.Next().data.at(1));
  };
  state_.view = job::ShareView({.role = job::Role::kServer}, 3, 1);
  StockAsk init = StockPush(0, halves(0));
  init.dtype = DType::kFloat16;
  Do(init);
  // 2048 + 1 + 1 is 2050, but in steps of 2 as float16 has them there it is 2048.
  EXPECT_EQ(round(0x6800, 0x3c00), halves(0x6800));
  state_.wide = true;
  EXPECT_EQ(round(0x6800, 0x3c00), halves(0x6801));
  EXPECT_EQ(round(0x6800, 0x3c00), halves(0x6801)) << "and again, over answers that are gone";
}

TEST_F(StockSlotTest, RowsArePulledByTheirNumbers) {
  Do(StockRows(StockPush(0, Floats({0, 0, 1, 1, 2, 2})), {0, 1, 2}));
  outbox_.All();
  Do(StockRows(StockPull(1), {2, 0}));
  ps::Message answer = outbox_.Next();
  EXPECT_EQ(FloatsIn(answer), (std::vector<float>{2, 2, 0, 0}));
  EXPECT_EQ(LengthsIn(answer), (std::vector<int32_t>{0, 2, 2}));
  Do(StockRows(StockPush(0, Floats({5, 6})), {1}));
  Do(StockRows(StockPush(1, {}), {}));
  EXPECT_EQ(outbox_.All().size(), 2u);
  Do(StockRows(StockPull(1), {0, 1, 2}));
  EXPECT_EQ(FloatsIn(outbox_.Next()), (std::vector<float>{0, 0, 5, 6, 0, 0}));
  Do(StockRows(StockPull(1), {}));
  answer = outbox_.Next();
  EXPECT_EQ(answer.data.at(1).size(), 0u);
  EXPECT_EQ(LengthsIn(answer), std::vector<int32_t>{0});
}

TEST_F(StockSlotTest, AnImpossiblePushFailsTheJob) {
  Init({0, 0});
  Do(StockPush(1, Floats({1})));
  EXPECT_TRUE(outbox_.empty());
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("push of key 3 from worker 1: it brings")));
  state_.synchronous = false;
  Do(StockPush(1, Floats({1, 1})));
  EXPECT_THAT(failures_.back(), HasSubstr("call set_optimizer before the first push"));
}

TEST_F(StockSlotTest, PushesOfRoundsToComeAreBounded) {
  Init({0, 0, 0, 0});
  const std::vector<std::byte> values = Floats({1, 2, 3, 4});
  for (int i = 0; i < 5; ++i) Do(StockPush(0, values));
  EXPECT_TRUE(failures_.empty());
  Do(StockPush(0, values));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("wait for some of it")));
}

TEST_F(StockSlotTest, PullsThatWaitAreBoundedWithAllThatTheyCarry) {
  for (int i = 0; i < 4; ++i) Do(StockPull(1));  // before there is a value
  EXPECT_GT(state_.queued_bytes, 4U << 10U);
  EXPECT_TRUE(failures_.empty());
  Do(StockPush(0, Floats({0})));
  EXPECT_EQ(outbox_.All().size(), 5U);
  EXPECT_EQ(state_.queued_bytes, 0U);
  Do(StockPush(0, Floats({1})));
  for (int i = 0; i < 4; ++i) Do(StockPull(0));  // they see that push
  EXPECT_TRUE(failures_.empty());
  Do(StockPush(1, Floats({1})));
  EXPECT_EQ(outbox_.All().size(), 6U);
  EXPECT_EQ(state_.queued_bytes, 0U);
  Do(StockPush(0, Floats({1})));
  for (int i = 0; i < 5; ++i) Do(StockPull(0));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("pull of key 3 from worker 0: what waits for rounds "
                                               "to come, 5 requests of this worker")));
  failures_.clear();
  slot_.OnWorkerVacant(ps::WorkerId(0));
  EXPECT_EQ(state_.queued_bytes, 0U);
}

TEST_F(StockSlotTest, ACommandThatAWaitingPullBringsCounts) {
  StockAsk ask = StockPull(1);
  StockCall call = MakeStockCall(ask);
  call.meta.body.assign(5000, 'x');
  slot_.Handle(std::move(call));
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("0 requests of all workers for this key and 0 bytes "
                                               "of all workers for any, does not fit")));
  failures_.clear();
  call = MakeStockCall(ask);
  call.keys = ps::Frame::Copy(std::string(5000, 'x'));
  slot_.Handle(std::move(call));
  EXPECT_EQ(failures_.size(), 1U);
}

class FourWorkersTest : public StockSlotTest {
 protected:
  FourWorkersTest() : StockSlotTest(4) {}
  // Values whose sum shows the order: by worker 1, with the third last 0.
  float SumOf(const std::vector<int32_t>& order) {
    const float values[] = {1e8f, 1, -1e8f, 1};
    for (const int32_t rank : order) {
      Do(StockPush(rank, Floats({values[rank]})));
    }
    outbox_.All();
    return Pulled(0).at(0);
  }
};

TEST_F(FourWorkersTest, SumsAreInTheOrderOfRanksAsFarAsThereIsMemory) {
  Init({0});
  EXPECT_EQ(SumOf({2, 0, 3, 1}), 1);
  EXPECT_EQ(SumOf({3, 2, 1, 0}), 1);
  EXPECT_EQ(state_.early_bytes, 0u);
  state_.hold_bytes = 4;
  EXPECT_EQ(SumOf({2, 0, 3, 1}), 0);
  EXPECT_EQ(state_.early_bytes, 0u);
  state_.deterministic = true;
  EXPECT_EQ(SumOf({2, 0, 3, 1}), 1);
}

TEST_F(StockSlotTest, ALostWorkersPushIntoTheOpenRoundCountsOnceAndLaterPushesDoNot) {
  Init({0});
  for (const float value : {1.0F, 100.0F}) Do(StockPush(1, Floats({value})));
  slot_.OnWorkerVacant(ps::WorkerId(1));
  EXPECT_EQ(state_.queued_bytes, 0u);
  Do(StockPush(1, Floats({20})));  // of who has the place now: for the next round
  EXPECT_TRUE(outbox_.empty());
  Do(StockPush(0, Floats({2})));
  std::vector<ps::Message> answers = outbox_.All();
  ASSERT_EQ(answers.size(), 1u) << "nobody is told for the lost one";
  EXPECT_EQ(answers[0].peer, ps::WorkerId(0));
  EXPECT_EQ(Pulled(0), std::vector<float>{3});
  Do(StockPush(0, Floats({10})));
  EXPECT_EQ(outbox_.All().size(), 2u);
  EXPECT_EQ(Pulled(0), std::vector<float>{30});
  EXPECT_TRUE(failures_.empty());
}

TEST_F(StockSlotTest, ALateRoundAfterALossTellsOfAPossibleSecondPush) {
  Init({0});
  Do(StockPush(1, Floats({1})));
  EXPECT_THAT(slot_.Overdue().message(), EndsWith("(BYTESCHEDULER_STRAGGLER_TIMEOUT)"));
  slot_.OnWorkerVacant(ps::WorkerId(1));
  Do(StockPush(1, Floats({1})));  // again: it is one of the next round
  Do(StockPush(0, Floats({2})));
  EXPECT_THAT(slot_.Overdue().message(),
              HasSubstr("still waiting for worker 0 to push it (BYTESCHEDULER_STRAGGLER_TIMEOUT); "
                        "another has the place of worker 1, and has perhaps pushed this key once"));
}

TEST_F(StockSlotTest, TheInitialValueOfANewWorkerInPlaceOfTheFirstIsDropped) {
  Init({5});
  slot_.OnWorkerVacant(ps::WorkerId(0));
  Do(StockPush(0, Floats({77})));
  EXPECT_EQ(outbox_.All().size(), 1u);
  EXPECT_EQ(Pulled(0), std::vector<float>{5});
  Do(StockPush(0, Floats({1})));
  Do(StockPush(1, Floats({2})));
  EXPECT_EQ(outbox_.All().size(), 2u);
  EXPECT_EQ(Pulled(0), std::vector<float>{3});
}

TEST_F(StockSlotTest, TheInitialValueIsDroppedAlsoIfAnotherWasLostAfterTheFirst) {
  Init({5});
  slot_.OnWorkerVacant(ps::WorkerId(0));
  slot_.OnWorkerVacant(ps::WorkerId(1));
  Do(StockPush(0, Floats({77})));
  EXPECT_EQ(outbox_.All().size(), 1u);
  Do(StockPush(0, Floats({1})));
  Do(StockPush(1, Floats({2})));
  EXPECT_EQ(outbox_.All().size(), 2u);
  EXPECT_EQ(Pulled(0), std::vector<float>{3});
}

TEST_F(StockSlotTest, ASecondInitialValueMustFitTheKey) {
  Init({5});
  slot_.OnWorkerVacant(ps::WorkerId(0));
  Do(StockPush(0, Floats({77, 78})));
  EXPECT_TRUE(outbox_.empty());
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_THAT(failures_[0], HasSubstr("8 bytes"));
}

TEST_F(StockSlotTest, ANewWorkerInitialisesTheKeyThatALostWorkerDidNot) {
  Do(StockPull(1));
  slot_.OnWorkerVacant(ps::WorkerId(1));
  slot_.OnWorkerVacant(ps::WorkerId(0));
  Init({4});
  EXPECT_EQ(Pulled(1), std::vector<float>{4});
}

}  // namespace
}  // namespace bs::server
