// The promises of the store functions: what MXNet is asked for, and one end for each operation.
#include "frontend/mxnet/mxnet_store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frontend/mxnet/fake_mxnet.h"

// The engine's side: how the store functions report to it.
struct bs_worker {
  struct End {
    int code;
    std::string message;
    const void* value;
  };
  std::map<uint64_t, std::vector<End>> ends;  // by token
};

void bs_store_done(bs_worker* worker, uint64_t token, int code, const char* message,
                   const void* value) {
  worker->ends[token].push_back({code, message, value});
}

namespace {

class MxnetStoreTest : public testing::Test {
 protected:
  MxnetStoreTest() {
    const bs_mxnet_functions functions = mxnet_.functions_for_stores();
    bs_error error{};
    EXPECT_EQ(bs_mxnet_store_open(&mxnet_, &functions, &store_, &error), 0);
  }
  ~MxnetStoreTest() override {
    if (store_ != nullptr) bs_mxnet_store_close(store_);
  }
  void Begin(int what, uint64_t token, const float* in) {
    const bs_store_request request{.what = what,
                                   .store_key = 70000,
                                   .dtype = 0,
                                   .priority = -3,
                                   .size_bytes = 2 * sizeof(float),
                                   .in = in,
                                   .token = token};
    bs_mxnet_store_begin(store_, &worker_, &request);
  }
  // MXNet runs operation `index`.
  void Run(size_t index) {
    const FakeMxnet::Operation& operation = mxnet_[index];
    EXPECT_NE(operation.reads, operation.writes);
    EXPECT_FALSE(operation.async);
    mxnet_.Run(index);
    EXPECT_EQ(operation.times_ended, 1);
    EXPECT_EQ(operation.error, std::nullopt);
  }
  const bs_worker::End& end(uint64_t token) {
    EXPECT_EQ(worker_.ends[token].size(), 1U);
    return worker_.ends[token].front();
  }

  FakeMxnet mxnet_;
  bs_worker worker_;
  bs_mxnet_store* store_ = nullptr;
};

TEST_F(MxnetStoreTest, APushPullCopiesInAndEndsWithTheArraysValue) {
  const std::vector<float> in = {1, 2};
  Begin(2, 11, in.data());
  ASSERT_EQ(mxnet_.calls.size(), 1U);
  EXPECT_EQ(mxnet_.calls[0].name, "push_pull");
  EXPECT_EQ(mxnet_.calls[0].key, 70000);
  EXPECT_EQ(mxnet_.calls[0].priority, -3);
  EXPECT_EQ(mxnet_.calls[0].values, in);
  ASSERT_EQ(mxnet_.operations.size(), 1U);
  EXPECT_FALSE(mxnet_.operations[0].writes);
  EXPECT_TRUE(worker_.ends.empty());
  mxnet_.created[0]->values = {5, 6};
  Run(0);
  EXPECT_EQ(end(11).code, 0);
  float out[2];
  std::memcpy(out, end(11).value, sizeof(out));
  EXPECT_EQ(out[1], 6);
}

TEST_F(MxnetStoreTest, APushEndsBehindItsReadersAndAPullReadsNothing) {
  const std::vector<float> in = {1, 2};
  Begin(0, 1, in.data());
  EXPECT_TRUE(mxnet_.operations[0].writes);
  Run(0);
  EXPECT_EQ(end(1).value, nullptr);
  Begin(1, 2, nullptr);
  Run(1);
  EXPECT_EQ(mxnet_.calls[1].name, "pull");
  EXPECT_NE(end(2).value, nullptr);
  EXPECT_EQ(mxnet_.created.size(), 1U) << "a key has one array";
}

TEST_F(MxnetStoreTest, AnOperationThatMxnetRefusesEndsWithItsMessage) {
  mxnet_.refused = {"push_pull"};
  const std::vector<float> in = {1, 2};
  Begin(2, 1, in.data());
  EXPECT_EQ(end(1).code, 10);
  EXPECT_EQ(end(1).message, "MXNet's store: out of luck");
  EXPECT_TRUE(mxnet_.operations.empty());
}

TEST_F(MxnetStoreTest, AnArrayThatCarriesAnErrorEndsWithOne) {
  Begin(1, 1, nullptr);
  mxnet_.Skip(0);
  EXPECT_EQ(end(1).code, 10);
  EXPECT_EQ(end(1).value, nullptr);
}

TEST_F(MxnetStoreTest, ArraysStayUntilTheLastOperationHasEnded) {
  Begin(1, 1, nullptr);
  bs_mxnet_store_close(store_);
  store_ = nullptr;
  EXPECT_EQ(mxnet_.created.size(), 1U);
  Run(0);
  EXPECT_EQ(end(1).code, 0);
  EXPECT_TRUE(mxnet_.created.empty());
}

// Handlers that were registered before, such as the destructors of MXNet, do not run.
TEST(MxnetStoreExit, KeepsTheStatusAndSkipsHandlersThatWereRegisteredBefore) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        std::atexit([] { std::abort(); });
        bs_mxnet_store_exit_at_once();
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
