// The copier's promises: what it takes, what it asks MXNet for, and what is left when that fails.
#include "frontend/mxnet/mxnet_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "frontend/mxnet/fake_mxnet.h"

namespace {

using testing::ElementsAre;
using testing::Pair;

class MxnetCopyTest : public testing::Test {
 protected:
  MxnetCopyTest() : MxnetCopyTest(&FakeMxnet::functions_for_stores) {}
  explicit MxnetCopyTest(bs_mxnet_functions (FakeMxnet::*functions)() const) {
    const bs_mxnet_functions shown = (mxnet_.*functions)();
    EXPECT_EQ(bs_mxnet_copier_open(&shown, &copier_, &error_), 0);
  }
  ~MxnetCopyTest() override {
    bs_mxnet_copier_close(copier_);
    EXPECT_TRUE(mxnet_.created.empty());
    EXPECT_EQ(mxnet_.num_stores, 0);
  }
  bool Fits(const FakeMxnet::Form& form, const FakeMxnet::Form& second_form) {
    FakeMxnet::Array first(form), second(second_form);
    const int fits = bs_mxnet_copier_fits(copier_, &first, &second);
    EXPECT_EQ(bs_mxnet_copier_fits(copier_, &second, &first), fits);
    return fits == 1;
  }
  // Names and priorities.
  std::vector<std::pair<std::string, int>> Calls() const {
    std::vector<std::pair<std::string, int>> calls;
    for (const FakeMxnet::Call& call : mxnet_.calls) calls.emplace_back(call.name, call.priority);
    return calls;
  }

  FakeMxnet mxnet_;
  bs_mxnet_copier* copier_ = nullptr;
  bs_error error_{};
};

// An MXNet that shows its function that copies.
class MxnetShownCopyTest : public MxnetCopyTest {
 protected:
  MxnetShownCopyTest() : MxnetCopyTest(&FakeMxnet::functions_that_copy) {}
};

TEST_F(MxnetCopyTest, TakesPlainArraysOfOneShapeAndType) {
  EXPECT_TRUE(Fits({}, {}));
  EXPECT_TRUE(Fits({.shape = {}}, {.shape = {}}));
  EXPECT_FALSE(Fits({}, {.shape = {3, 2}})) << "as large, but of another shape";
  EXPECT_FALSE(Fits({}, {.shape = {2, 3, 1}}));
  EXPECT_FALSE(Fits({}, {.dtype = 1}));
  EXPECT_FALSE(Fits({}, {.kind = 1})) << "row_sparse";
  EXPECT_FALSE(Fits({}, {.dev_type = 2})) << "on a GPU";
  EXPECT_FALSE(Fits({}, {.is_shown = false}));
  EXPECT_FALSE(Fits({.shape = {2, 0}}, {.shape = {2, 0}})) << "nothing to copy";
  EXPECT_FALSE(
      Fits({.shape = std::vector<int64_t>(33, 1)}, {.shape = std::vector<int64_t>(33, 1)}));
}

TEST_F(MxnetCopyTest, ACopyIsAnAliasAndAPull) {
  FakeMxnet::Array from, to;
  ASSERT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, -7, &error_), 0);
  ASSERT_THAT(Calls(), ElementsAre(Pair("create local", 0), Pair("init", 0), Pair("push", -7),
                                   Pair("pull", -7)));
  EXPECT_EQ(mxnet_.calls[2].array, &from);
  EXPECT_EQ(mxnet_.calls[3].array, &to);
}

TEST_F(MxnetCopyTest, FailsWithTheMessageOfMxnet) {
  mxnet_.refused = {"pull"};
  FakeMxnet::Array from, to;
  EXPECT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, 0, &error_), 10);
  EXPECT_STREQ(error_.message, "MXNet's copy: out of luck");
}

TEST_F(MxnetShownCopyTest, ACopyIsOneCallWithoutAStore) {
  FakeMxnet::Array from, to;
  ASSERT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, -7, &error_), 0);
  ASSERT_THAT(Calls(), ElementsAre(Pair("copy", -7)));
  EXPECT_EQ(mxnet_.calls[0].array, &from);
  EXPECT_EQ(mxnet_.num_stores, 0);
  EXPECT_TRUE(Fits({}, {}));
  EXPECT_FALSE(Fits({}, {.dtype = 1}));
}

TEST_F(MxnetShownCopyTest, FailsWithTheMessageThatMxnetThrew) {
  mxnet_.refused = {"copy"};
  FakeMxnet::Array from, to;
  EXPECT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, 0, &error_), 10);
  EXPECT_STREQ(error_.message, "MXNet's copy: no such luck");
}

TEST_F(MxnetCopyTest, ACopierThatDoesNotOpenLeavesNothing) {
  mxnet_.refused = {"init"};
  bs_mxnet_copier* other = nullptr;
  const bs_mxnet_functions functions = mxnet_.functions_for_stores();
  EXPECT_EQ(bs_mxnet_copier_open(&functions, &other, &error_), 10);
  EXPECT_STREQ(error_.message, "MXNet's local store: out of luck");
  EXPECT_EQ(mxnet_.created.size(), 1U);  // that of the fixture's copier
  EXPECT_EQ(mxnet_.num_stores, 1);
}

}  // namespace
