// The promises of the store functions: what MXNet is asked for, and one end for each operation.
#include "frontend/mxnet/mxnet_store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/mxnet/mxnet_abi.h"

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

// MXNet's side.  One at a time: C functions have no argument that could tell several apart.
struct FakeMxnet {
  struct Array {
    std::vector<float> values;
    bool freed = false;
  };
  struct Call {
    std::string what;
    int key;
    int priority;
    std::vector<float> values;  // of the array, as of the call
  };
  struct Operation {
    void (*run)(void*, void*, void*);
    void* param;
    void (*deleter)(void*);
    bool writes;
  };
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<Call> calls;
  std::vector<Operation> operations;
  bool fails = false;
};
FakeMxnet* current = nullptr;

int CreateArray(const uint32_t* shape, uint32_t ndim, int dev_type, int /*dev_id*/, int delay_alloc,
                int /*dtype*/, void** out) {
  EXPECT_EQ(ndim, 1U);
  EXPECT_EQ(dev_type, 1);
  EXPECT_EQ(delay_alloc, 0);
  current->arrays.push_back(std::make_unique<FakeMxnet::Array>());
  current->arrays.back()->values.resize(shape[0]);
  *out = current->arrays.back().get();
  return 0;
}
int GetData(void* array, void** data) {
  *data = static_cast<FakeMxnet::Array*>(array)->values.data();
  return 0;
}
int FreeArray(void* array) {
  static_cast<FakeMxnet::Array*>(array)->freed = true;
  return 0;
}
int Record(const std::string& what, int key, void* array, int priority) {
  current->calls.push_back({what, key, priority, static_cast<FakeMxnet::Array*>(array)->values});
  return current->fails ? -1 : 0;
}
int Push(void* /*store*/, uint32_t num, const int* keys, void** values, int priority) {
  EXPECT_EQ(num, 1U);
  return Record("push", keys[0], values[0], priority);
}
int Pull(void* /*store*/, uint32_t num, const int* keys, void** values, int priority) {
  EXPECT_EQ(num, 1U);
  return Record("pull", keys[0], values[0], priority);
}
int PushPull(void* /*store*/, uint32_t num, const int* keys, uint32_t num_outs, const int* out_keys,
             void** values, void** outs, int priority) {
  EXPECT_EQ(num, 1U);
  EXPECT_EQ(num_outs, 1U);
  EXPECT_EQ(keys[0], out_keys[0]);
  EXPECT_EQ(values[0], outs[0]);
  return Record("push_pull", keys[0], values[0], priority);
}
int PushAsyncNd(void (*run)(void*, void*, void*), void* param, void (*deleter)(void*),
                const void* /*context*/, void** /*reads*/, int num_reads, void** /*writes*/,
                int num_writes, const void* property, int /*priority*/, const char* /*name*/,
                bool wait) {
  EXPECT_EQ(num_reads + num_writes, 1);
  EXPECT_EQ(*static_cast<const int*>(property), bs::mxnet::kCpuPrioritized);
  EXPECT_FALSE(wait);
  current->operations.push_back({run, param, deleter, num_writes == 1});
  return 0;
}
const char* LastError() { return "out of luck"; }

class MxnetStoreTest : public testing::Test {
 protected:
  MxnetStoreTest() {
    current = &mxnet_;
    bs_mxnet_functions functions{};
    functions.push_async_nd = reinterpret_cast<void*>(&PushAsyncNd);
    functions.create_array = reinterpret_cast<void*>(&CreateArray);
    functions.free_array = reinterpret_cast<void*>(&FreeArray);
    functions.get_data = reinterpret_cast<void*>(&GetData);
    functions.store_push = reinterpret_cast<void*>(&Push);
    functions.store_pull = reinterpret_cast<void*>(&Pull);
    functions.store_push_pull = reinterpret_cast<void*>(&PushPull);
    functions.last_error = reinterpret_cast<void*>(&LastError);
    bs_error error{};
    EXPECT_EQ(bs_mxnet_store_open(&mxnet_, &functions, &store_, &error), 0);
  }
  ~MxnetStoreTest() override {
    if (store_ != nullptr) bs_mxnet_store_close(store_);
    current = nullptr;
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
  // MXNet runs operation `index`, or skips it because its array carries an error.
  void Run(size_t index) {
    const FakeMxnet::Operation operation = mxnet_.operations[index];
    struct Ending {
      int ended = 0;
    } ending;
    bs::mxnet::OnComplete complete{[](void* /*engine*/, void* param, const dmlc::Error* error) {
                                     EXPECT_EQ(error, nullptr);
                                     ++static_cast<Ending*>(param)->ended;
                                   },
                                   nullptr, &ending};
    operation.run(nullptr, &complete, operation.param);
    EXPECT_EQ(ending.ended, 1);
    operation.deleter(operation.param);
  }
  void Skip(size_t index) { mxnet_.operations[index].deleter(mxnet_.operations[index].param); }
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
  EXPECT_EQ(mxnet_.calls[0].what, "push_pull");
  EXPECT_EQ(mxnet_.calls[0].key, 70000);
  EXPECT_EQ(mxnet_.calls[0].priority, -3);
  EXPECT_EQ(mxnet_.calls[0].values, in);
  ASSERT_EQ(mxnet_.operations.size(), 1U);
  EXPECT_FALSE(mxnet_.operations[0].writes);
  EXPECT_TRUE(worker_.ends.empty());
  mxnet_.arrays[0]->values = {5, 6};
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
  EXPECT_EQ(mxnet_.calls[1].what, "pull");
  EXPECT_NE(end(2).value, nullptr);
  EXPECT_EQ(mxnet_.arrays.size(), 1U) << "a key has one array";
}

TEST_F(MxnetStoreTest, AnOperationThatMxnetRefusesEndsWithItsMessage) {
  mxnet_.fails = true;
  const std::vector<float> in = {1, 2};
  Begin(2, 1, in.data());
  EXPECT_EQ(end(1).code, 10);
  EXPECT_EQ(end(1).message, "MXNet's store: out of luck");
  EXPECT_TRUE(mxnet_.operations.empty());
}

TEST_F(MxnetStoreTest, AnArrayThatCarriesAnErrorEndsWithOne) {
  Begin(1, 1, nullptr);
  Skip(0);
  EXPECT_EQ(end(1).code, 10);
  EXPECT_EQ(end(1).value, nullptr);
}

TEST_F(MxnetStoreTest, ArraysStayUntilTheLastOperationHasEnded) {
  Begin(1, 1, nullptr);
  bs_mxnet_store_close(store_);
  store_ = nullptr;
  EXPECT_FALSE(mxnet_.arrays[0]->freed);
  Run(0);
  EXPECT_EQ(end(1).code, 0);
  EXPECT_TRUE(mxnet_.arrays[0]->freed);
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
