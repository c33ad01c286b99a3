// Copied rounds: the value is free as soon as it was read, the sum goes where it is wanted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "frontend/mxnet/mxnet_fixture.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kSum = 0, kRead = 1, kOut = 2;

class CopiedTest : public MxnetTest {
 protected:
  CopiedTest() {
    const bs_mxnet_functions functions = mxnet_.functions_for_copies();
    bs_mxnet* other = nullptr;
    EXPECT_EQ(bs_mxnet_open(&worker_, &functions, &other, &error_), 0);
    std::swap(other, plugin_);
    bs_mxnet_drain(other, 0);
    bs_mxnet_close(other);
  }
  ~CopiedTest() override {
    EXPECT_EQ(value_.num_shared, 0) << "freed, however the round ended";
    EXPECT_EQ(out_.num_shared, 0);
  }
  int Copied(FakeMxnet::Array* value, FakeMxnet::Array* out, uint64_t size_bytes = 8) {
    const bs_mxnet_round round{7,  name_, -3,    nullptr, &recv_, size_bytes,
                               {}, 0,     value, 1,       out,    nullptr};
    return bs_mxnet_push_pull(plugin_, &round, &error_);
  }
  int Copied() { return Copied(&value_, &out_); }
  void Answer(size_t index = 0) {
    worker_.Push(index);
    worker_.Pull(index);
  }

  FakeMxnet::Array value_{{3, 4}}, out_{{0, 0}};
};

TEST_F(CopiedTest, IsPossibleWhereMxnetShowsAllFunctionsForCopies) {
  EXPECT_EQ(bs_mxnet_copies(plugin_), 1);
  for (const int hidden : {0, 1, 2}) {
    bs_mxnet_functions functions = mxnet_.functions_for_copies();
    if (hidden == 0) functions.plain_copy = nullptr;
    if (hidden == 1) functions.is_blocked = nullptr;
    if (hidden == 2) functions.make_default = nullptr;
    bs_mxnet* other = nullptr;
    ASSERT_EQ(bs_mxnet_open(&worker_, &functions, &other, &error_), 0);
    EXPECT_EQ(bs_mxnet_copies(other), 0);
    bs_mxnet_drain(other, 0);
    bs_mxnet_close(other);
  }
}

TEST_F(CopiedTest, ThreeOperationsThatMayRunInsideTheCall) {
  ASSERT_EQ(Copied(), 0);
  ASSERT_EQ(mxnet_.operations.size(), 3U);
  for (const FakeMxnet::Operation& operation : mxnet_.operations) {
    EXPECT_TRUE(operation.async);
    EXPECT_EQ(operation.priority, -3);
  }
  EXPECT_EQ(mxnet_[kSum].array, &recv_);
  EXPECT_TRUE(mxnet_[kSum].writes);
  EXPECT_EQ(static_cast<FakeMxnet::Array*>(mxnet_[kRead].array)->of, &value_);
  EXPECT_FALSE(mxnet_[kRead].writes);
  EXPECT_EQ(static_cast<FakeMxnet::Array*>(mxnet_[kOut].array)->of, &out_);
  EXPECT_TRUE(mxnet_[kOut].writes);
  for (const size_t proxy : {kSum, kRead, kOut}) mxnet_.Run(proxy);
  Answer();
}

TEST_F(CopiedTest, EndsInsideAndOutsideTheCall) {
  mxnet_.all_ready = true;
  ASSERT_EQ(Copied(), 0);
  EXPECT_TRUE(ended(kRead));
  EXPECT_FALSE(ended(kSum));
  EXPECT_FALSE(ended(kOut));
  Answer();
  EXPECT_THAT(recv_.values, ElementsAre(3, 4));
  EXPECT_THAT(out_.values, ElementsAre(3, 4));
  EXPECT_TRUE(ended(kOut));
}

// In every order in which MXNet may run them, with the sum before and behind the last.
TEST_F(CopiedTest, AnyOrderGivesTheSame) {
  std::vector<size_t> order{kSum, kRead, kOut};
  do {
    for (const bool sum_first : {false, true}) {
      if (sum_first && order.back() != kOut) continue;
      worker_.requests.clear();
      mxnet_.operations.clear();
      value_.values = {3, 4};
      recv_.values = out_.values = {0, 0};
      ASSERT_EQ(Copied(), 0);
      for (const size_t proxy : order) {
        if (proxy == kOut && sum_first) {
          Answer();
          EXPECT_TRUE(ended(kSum)) << "whoever reads the sum need not wait for the other array";
          recv_.values = {-1, -1};  // the next round
        }
        mxnet_.Run(proxy);
        if (proxy == kRead) {
          EXPECT_TRUE(ended(kRead)) << "the value may be written";
          value_.values = {-1, -1};
        }
      }
      if (!sum_first) Answer();
      EXPECT_THAT(out_.values, ElementsAre(3, 4));
      for (const size_t proxy : order) EXPECT_TRUE(ended(proxy));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(CopiedTest, ArraysInAnotherLayout) {
  value_.is_plain = out_.is_plain = false;
  mxnet_.all_ready = true;
  ASSERT_EQ(Copied(), 0);
  EXPECT_FALSE(value_.is_plain) << "others may be reading it";
  EXPECT_TRUE(out_.is_plain);
  Answer();
  EXPECT_THAT(out_.values, ElementsAre(3, 4));
}

TEST_F(CopiedTest, WithoutAnArrayForTheSumItStaysInItsStage) {
  mxnet_.all_ready = true;
  ASSERT_EQ(Copied(&value_, nullptr), 0);
  ASSERT_EQ(mxnet_.operations.size(), 2U);
  Answer();
  EXPECT_THAT(recv_.values, ElementsAre(3, 4));
}

TEST_F(CopiedTest, ValuesWaitWhereTooMuchIsCopiedAlready) {
  constexpr size_t kFloats = size_t{4} << 20U;  // all that may be copied early
  FakeMxnet::Array large{std::vector<float>(kFloats, 5)}, sum{std::vector<float>(kFloats)};
  const bs_mxnet_round first{8,  "'large'", 0,      nullptr, &sum,    kFloats * 4,
                             {}, 0,         &large, 1,       nullptr, nullptr};
  ASSERT_EQ(bs_mxnet_push_pull(plugin_, &first, &error_), 0);
  mxnet_.Run(kRead);
  EXPECT_TRUE(ended(kRead));
  ASSERT_EQ(Copied(&value_, nullptr), 0);
  mxnet_.Run(2 + kRead);
  EXPECT_FALSE(ended(2 + kRead)) << "its stage is in use";
  mxnet_.Run(2 + kSum);
  EXPECT_TRUE(ended(2 + kRead));
  mxnet_.Run(kSum);
  Answer(0);
  Answer(1);
  EXPECT_THAT(recv_.values, ElementsAre(3, 4));
}

TEST_F(CopiedTest, AnErrorOfTheInputFailsTheJob) {
  ASSERT_EQ(Copied(), 0);
  mxnet_.Run(kSum);
  mxnet_.Skip(kRead);
  mxnet_.Run(kOut);
  EXPECT_THAT(worker_.failures.at(0), HasSubstr("skipped the push of key 'fc1'"));
  EXPECT_THAT(error_of(kSum), HasSubstr("skipped the push of key 'fc1'"));
  EXPECT_THAT(error_of(kOut), HasSubstr("skipped the push of key 'fc1'"));
}

TEST_F(CopiedTest, AnErrorOfTheOtherArrayIsItsOwn) {
  ASSERT_EQ(Copied(), 0);
  mxnet_.Run(kSum);
  mxnet_.Run(kRead);
  mxnet_.Skip(kOut);
  Answer();
  EXPECT_EQ(error_of(kSum), "");
  EXPECT_TRUE(worker_.failures.empty());
  EXPECT_THAT(recv_.values, ElementsAre(3, 4));
}

TEST_F(CopiedTest, ARefusalArrivesInBothArrays) {
  for (const bool out_last : {false, true}) {
    mxnet_.operations.clear();
    worker_.refusal = "lost server 0";
    ASSERT_EQ(Copied(), 0);
    if (!out_last) mxnet_.Run(kOut);
    mxnet_.Run(kSum);
    mxnet_.Run(kRead);
    if (out_last) mxnet_.Run(kOut);
    EXPECT_EQ(error_of(kRead), "");
    EXPECT_THAT(error_of(kSum), HasSubstr("lost server 0"));
    EXPECT_THAT(error_of(kOut), HasSubstr("lost server 0"));
  }
}

TEST_F(CopiedTest, AFailureArrivesInBothArrays) {
  mxnet_.all_ready = true;
  ASSERT_EQ(Copied(), 0);
  worker_.Pull(0, 3, "lost server 0");
  EXPECT_FALSE(ended(kSum)) << "the copy is in use";
  worker_.Push(0);
  EXPECT_THAT(error_of(kSum), HasSubstr("lost server 0"));
  EXPECT_THAT(error_of(kOut), HasSubstr("lost server 0"));
}

TEST_F(CopiedTest, AnArrayWithoutAnAddressIsSaid) {
  out_.values = std::vector<float>();
  mxnet_.all_ready = true;
  ASSERT_EQ(Copied(), 0);
  EXPECT_THAT(error_of(kOut), HasSubstr("cannot copy the sum of key 'fc1' out"));
  Answer();
  EXPECT_EQ(error_of(kSum), "");
}

TEST_F(CopiedTest, IsFreedWhereMxnetTakesNoOperation) {
  for (const size_t taken : {0, 1, 2}) {
    mxnet_.operations.clear();
    worker_.requests.clear();
    mxnet_.pushes_left = taken;
    mxnet_.all_ready = true;
    EXPECT_NE(Copied(), 0);
    EXPECT_EQ(std::string(error_.message), "MXNet's engine: out of luck");
    for (size_t i = 0; i < worker_.requests.size(); ++i) Answer(i);
  }
}

TEST_F(CopiedTest, RoundsThatAreReadyTogetherBeginWithOneVisitInTheirOrder) {
  mxnet_.all_ready = true;
  worker_.holds_visits = true;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Copied(), 0);
  ASSERT_EQ(worker_.visits.size(), 1U);
  EXPECT_TRUE(worker_.requests.empty());
  worker_.visits[0]();
  ASSERT_EQ(worker_.requests.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(worker_.requests[i].called, i + 1);
    Answer(i);
  }
  ASSERT_EQ(Copied(), 0);
  ASSERT_EQ(worker_.visits.size(), 2U);
  worker_.visits[1]();
  Answer(3);
}

TEST_F(CopiedTest, ARoundBeginsWhereNoVisitIsTaken) {
  mxnet_.all_ready = true;
  worker_.takes_visits = false;
  ASSERT_EQ(Copied(), 0);
  ASSERT_EQ(worker_.requests.size(), 1U);
  Answer();
  EXPECT_THAT(out_.values, ElementsAre(3, 4));
}

}  // namespace
