// Keys of stock workers whose values the hosting process updates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/fake_host.h"
#include "server/stock/stock_slot.h"
#include "server/stock/stock_support.h"

namespace bs::server {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

class StockSlotUpdateTest : public testing::Test, protected HostedBench {
 protected:
  StockSlotUpdateTest() {
    state_.view = job::ShareView({.role = job::Role::kServer}, 2, 1);
    state_.max_queued_bytes = 1U << 20U;
    state_.synchronous = true;
    state_.send = outbox.sender();
    state_.fail = [this](const Status& why) { failures_.push_back(why.message()); };
    state_.executor = &executor;
    state_.hosted = std::make_shared<HostedUpdates>(host.Updater());
    state_.optimizer = MakePickle();
  }
  ~StockSlotUpdateTest() override {
    EXPECT_EQ(host.dtype, DType::kFloat32);
    for (const std::string& call : host.calls) EXPECT_THAT(call, AnyOf("set p", "update 3"));
  }

  void Post(const StockAsk& ask) { slot_.Handle(MakeStockCall(ask)); }
  std::vector<ps::Message> Do(const StockAsk& ask) {
    Post(ask);
    return Settle();
  }
  std::vector<float> Pulled(int32_t rank) {
    const std::vector<ps::Message> answers = Do(StockPull(rank));
    return answers.size() == 1 ? FloatsIn(answers[0]) : std::vector<float>{};
  }

  std::vector<std::string> failures_;
  StockState state_;
  StockSlot slot_{&state_, 3};
};

TEST_F(StockSlotUpdateTest, ARoundUpdatesTheValueOnceWithTheSum) {
  Do(StockPush(0, Floats({100, 200})));
  EXPECT_TRUE(host.abouts.empty()) << "the first push is the value";
  EXPECT_TRUE(Do(StockPush(0, Floats({1, 2}))).empty());
  StockAsk both = StockPush(1, Floats({10, 20}));
  both.pull = true;
  Post(both);
  EXPECT_TRUE(outbox.empty()) << "not before it is updated";
  StockAsk other = StockPull(1);
  other.customer_id = 5;
  Post(other);
  EXPECT_EQ(FloatsIn(outbox.Next()), (std::vector<float>{100, 200}))
      << "who has not pushed gets the value as it is";
  const std::vector<ps::Message> answers = Settle();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(FloatsIn(answers[1]), (std::vector<float>{111, 222}));
  EXPECT_EQ(host.gradient, (std::vector<float>{11, 22}));
  EXPECT_THAT(host.abouts, ElementsAre(""));
}

TEST_F(StockSlotUpdateTest, MemoryForAnUpdateIsAskedForOnce) {
  uint64_t available_bytes = uint64_t{2} << 20U;
  state_.bounds.room = std::make_shared<MemoryRoom>([&] { return available_bytes; });
  const std::vector<std::byte> value = Floats(std::vector<float>(1U << 18U, 1));  // a MiB
  EXPECT_EQ(Do(StockPush(0, value)).size(), 1u);
  Do(StockPush(0, value));
  EXPECT_EQ(Do(StockPush(1, value)).size(), 2u);
  available_bytes = 0;
  Do(StockPush(0, value));
  EXPECT_EQ(Do(StockPush(1, value)).size(), 2u);
  EXPECT_TRUE(failures_.empty());
}

TEST_F(StockSlotUpdateTest, AnUpdateThatDoesNotFitIntoMemoryFailsTheJob) {
  uint64_t available_bytes = uint64_t{2} << 20U;
  state_.bounds.room = std::make_shared<MemoryRoom>([&] { return available_bytes; });
  const std::vector<std::byte> value = Floats(std::vector<float>(1U << 18U, 1));
  Do(StockPush(0, value));
  Do(StockPush(0, value));
  available_bytes = (1U << 20U) - 1;
  EXPECT_TRUE(Do(StockPush(1, value)).empty());
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("key 3: the copy of it that the optimizer on the "
                                               "server changes: its 1048576 bytes do not fit")));
}

TEST_F(StockSlotUpdateTest, PushesDuringAnUpdateAreOfTheNextRound) {
  Do(StockPush(0, Floats({0})));
  for (const int32_t rank : {0, 1, 0, 1, 1, 0}) Post(StockPush(rank, Floats({1})));
  EXPECT_EQ(Settle().size(), 6u);
  EXPECT_EQ(host.abouts.size(), 3u);
  EXPECT_EQ(Pulled(0), std::vector<float>{6});
}

TEST_F(StockSlotUpdateTest, AsynchronousPushesUpdateOneByOneAsTheyCame) {
  state_.synchronous = false;
  Do(StockPush(0, Floats({0})));
  Post(StockPush(1, Floats({1})));
  Post(StockPush(0, Floats({10})));
  Post(StockPush(1, Floats({100})));
  Post(StockPull(1));
  const std::vector<ps::Message> answers = Settle();
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(RankOf(answers[0]), 1);
  EXPECT_EQ(RankOf(answers[1]), 0);
  EXPECT_EQ(FloatsIn(answers[3]), std::vector<float>{111}) << "its own pushes are in it";
  EXPECT_EQ(host.abouts.size(), 3u);
  EXPECT_EQ(state_.queued_bytes, 0u);
}

TEST_F(StockSlotUpdateTest, AnswersThatAreUnderWayKeepTheirBytes) {
  state_.synchronous = false;
  Do(StockPush(0, Floats({0})));
  std::vector<ps::Message> kept;
  for (int i = 1; i <= 4; ++i) {
    StockAsk both = StockPush(0, Floats({1}));
    both.pull = true;
    for (ps::Message& answer : Do(both)) kept.push_back(std::move(answer));
    ASSERT_EQ(kept.size(), static_cast<size_t>(i));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(FloatsIn(kept[i]), std::vector<float>{static_cast<float>(i + 1)});
  }
}

TEST_F(StockSlotUpdateTest, RowsComeWithFlagsAndTheirShape) {
  Do(StockRows(StockPush(0, Floats({0, 0, 1, 1, 2, 2})), {0, 1, 2}));
  Do(StockRows(StockPush(0, Floats({5, 6})), {1}));
  Do(StockRows(StockPush(1, Floats({1, 1})), {2}));
  EXPECT_THAT(host.abouts, ElementsAre(R"({"key":3,"shape":[3,2],"rows":true})"));
  EXPECT_EQ(host.gradient, (std::vector<float>{0, 0, 5, 6, 1, 1, 0, 1, 1}));
  const std::vector<ps::Message> pulled = Do(StockRows(StockPull(0), {2, 1}));
  EXPECT_EQ(FloatsIn(pulled.at(0)), (std::vector<float>{3, 3, 6, 7}));
  Do(StockRows(StockPush(0, {}), {}));
  Do(StockRows(StockPush(1, {}), {}));
  EXPECT_EQ(FloatsIn(Do(StockRows(StockPull(0), {2, 1})).at(0)), (std::vector<float>{3, 3, 6, 7}));
}

TEST_F(StockSlotUpdateTest, WideWeightsAreKeptWideFromUpdateToUpdate) {
  state_.wide = true;
  const auto half = [](uint16_t bits) {
    return std::vector<std::byte>{static_cast<std::byte>(bits & 255),
                                  static_cast<std::byte>(bits >> 8)};
  };
  const auto push = [&](int32_t rank, uint16_t bits) {
    StockAsk ask = StockPush(rank, half(bits));
    ask.dtype = DType::kFloat16;
    Do(ask);
  };
  push(0, 0x6800);  // 2048, where float16 goes in steps of 2
  for (const uint16_t wanted : {uint16_t{0x6800}, uint16_t{0x6801}}) {
    push(0, 0x3800);  // a half
    push(1, 0x3800);
    EXPECT_EQ(ToBytes(Do(StockPull(0)).at(0).data.at(1)), half(wanted));
  }
}

TEST_F(StockSlotUpdateTest, CodesAreUpdatedWithTheirValues) {
  state_.threshold = 0.5F;
  Do(StockPush(0, Floats({1, 1})));
  for (const int32_t rank : {0, 1}) Do(StockTwoBit(rank, 2, {std::byte{0b11100000}, {}, {}, {}}));
  EXPECT_EQ(host.gradient, (std::vector<float>{1, -1}));
  EXPECT_EQ(Pulled(0), (std::vector<float>{2, 0}));
}

TEST_F(StockSlotUpdateTest, AnUpdateThatFailsFailsTheJob) {
  host.fails = "ValueError: no";
  Do(StockPush(0, Floats({0})));
  Do(StockPush(0, Floats({1})));
  EXPECT_TRUE(Do(StockPush(1, Floats({1}))).empty());
  EXPECT_THAT(failures_, ElementsAre("key 3: the optimizer on the server: ValueError: no"));
}

TEST_F(StockSlotUpdateTest, IntegersCannotBeUpdated) {
  StockAsk ask = StockPush(0, Encode(DType::kInt32, {1}));
  ask.dtype = DType::kInt32;
  Do(ask);
  Do(ask);
  EXPECT_THAT(failures_, ElementsAre(HasSubstr("int32 of 4 bytes cannot be updated")));
}

}  // namespace
}  // namespace bs::server
