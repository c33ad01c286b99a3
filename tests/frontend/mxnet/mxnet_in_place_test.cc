// Arrays sent from their own memory: plain by then, kept until the round ends, freed once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "frontend/mxnet/mxnet_fixture.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InPlaceTest : public MxnetTest {
 protected:
  ~InPlaceTest() override { EXPECT_EQ(value_.num_shared, 0) << "freed, however the round ended"; }
  int InPlace(int joined = 0) { return PushPull(0, {}, joined, &value_); }

  FakeMxnet::Array value_{{3, 4}, false, /*plain=*/false};
};

TEST_F(InPlaceTest, SendsTheValueAndNotTheStage) {
  ASSERT_EQ(InPlace(), 0);
  EXPECT_TRUE(value_.is_plain);
  ASSERT_EQ(mxnet_.operations.size(), 2U);
  EXPECT_EQ(static_cast<FakeMxnet::Array*>(mxnet_[kPush].array)->of, &value_);
  EXPECT_FALSE(mxnet_[kPush].writes);
  EXPECT_EQ(mxnet_[kPull].array, &recv_);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  EXPECT_EQ(worker_.requests.at(0).in, value_.values.data());
  worker_.Push(0);
  EXPECT_TRUE(ended(kPush)) << "the value can be written again";
  EXPECT_FALSE(ended(kPull));
  worker_.Pull(0);
  EXPECT_THAT(recv_.values, ElementsAre(3, 4));
  EXPECT_THAT(send_.values, ElementsAre(1, 2));
}

TEST_F(InPlaceTest, KeepsTheMemoryUntilTheRoundEndsWhicheverHalfIsLast) {
  for (const bool push_last : {false, true}) {
    worker_.requests.clear();
    mxnet_.operations.clear();
    ASSERT_EQ(InPlace(), 0);
    EXPECT_EQ(value_.num_shared, 1);
    mxnet_.Run(kPush);
    mxnet_.Run(kPull);
    push_last ? worker_.Pull(0) : worker_.Push(0);
    EXPECT_EQ(value_.num_shared, 1);
    push_last ? worker_.Push(0) : worker_.Pull(0);
    EXPECT_EQ(value_.num_shared, 0);
  }
}

TEST_F(InPlaceTest, OneProxyMayStandForBothDirections) {
  ASSERT_EQ(InPlace(/*joined=*/1), 0);
  ASSERT_EQ(mxnet_.operations.size(), 1U);
  EXPECT_EQ(static_cast<FakeMxnet::Array*>(mxnet_[0].array)->of, &value_);
  EXPECT_TRUE(mxnet_[0].writes);
  mxnet_.Run(0);
  EXPECT_EQ(worker_.requests.at(0).in, value_.values.data());
  worker_.Push(0);
  EXPECT_FALSE(ended(0));
  worker_.Pull(0);
  EXPECT_THAT(recv_.values, ElementsAre(3, 4));
}

TEST_F(InPlaceTest, AValueThatCannotBeKeptIsSaid) {
  value_.fails = true;
  EXPECT_NE(InPlace(), 0);
  EXPECT_EQ(std::string(error_.message), "MXNet's array: out of luck");
  EXPECT_TRUE(mxnet_.operations.empty());
}

TEST_F(InPlaceTest, IsFreedWhereMxnetTakesNoOperation) {
  mxnet_.pushes_left = 0;
  EXPECT_NE(InPlace(), 0);
}

TEST_F(InPlaceTest, IsFreedWhereItsInputCarriesAnError) {
  ASSERT_EQ(InPlace(), 0);
  mxnet_.Skip(kPush);
  mxnet_.Run(kPull);
  EXPECT_THAT(error_of(kPull), HasSubstr("skipped the push of key 'fc1'"));
}

TEST_F(InPlaceTest, IsFreedWhereTheEngineRefuses) {
  worker_.refusal = "lost server 0";
  ASSERT_EQ(InPlace(), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  EXPECT_THAT(error_of(kPull), HasSubstr("lost server 0"));
}

TEST_F(InPlaceTest, EndsInsideTheCallUnderNaiveEngine) {
  int step = 0;
  mxnet_.naive_wait = [&] { step++ == 0 ? worker_.Push(0) : worker_.Pull(0); };
  EXPECT_EQ(InPlace(), 0);
  EXPECT_THAT(recv_.values, ElementsAre(3, 4));
}

}  // namespace
