// The copier's promises: what it takes, what it asks MXNet for, and what is left when that fails.
#include "frontend/mxnet/mxnet_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using testing::ElementsAre;

struct Array {
  std::vector<int64_t> shape{2, 3};
  int dtype = 0, kind = 0, dev_type = 1;
  int unknown = 0;  // how often MXNet does not tell its shape
};

// MXNet's side.  One at a time: C functions have no argument that could tell several apart.
struct FakeMxnet {
  std::vector<int64_t> last_shape;  // where MXNet keeps what it tells
  std::vector<std::string> calls;
  const void* stored = nullptr;
  int arrays = 0, stores = 0;  // that are alive
  bool takes_init = true, takes_pull = true, takes_copy = true;
};
FakeMxnet* current = nullptr;

int CreateArray(const uint32_t* shape, uint32_t ndim, int dev_type, int /*dev_id*/, int /*delayed*/,
                int dtype, void** out) {
  ++current->arrays;
  *out = new Array{{shape, shape + ndim}, dtype, 0, dev_type, 0};
  return 0;
}
int FreeArray(void* array) {
  --current->arrays;
  delete static_cast<Array*>(array);
  return 0;
}
int GetShape(void* handle, int* ndim, const int64_t** shape) {
  auto* const array = static_cast<Array*>(handle);
  if (array->unknown > 0) return -1;
  current->last_shape = array->shape;
  *ndim = static_cast<int>(array->shape.size());
  *shape = current->last_shape.data();
  return 0;
}
int GetDtype(void* array, int* dtype) { return *dtype = static_cast<Array*>(array)->dtype, 0; }
int GetKind(void* array, int* kind) { return *kind = static_cast<Array*>(array)->kind, 0; }
int GetContext(void* array, int* dev_type, int* dev_id) {
  *dev_id = 0;
  return *dev_type = static_cast<Array*>(array)->dev_type, 0;
}
int StoreCreate(const char* type, void** store) {
  ++current->stores;
  current->calls.push_back(std::string("create ") + type);
  *store = current;
  return 0;
}
int StoreInit(void* /*store*/, uint32_t num, const int* /*keys*/, void** values) {
  EXPECT_EQ(num, 1U);
  current->stored = values[0];
  return current->takes_init ? 0 : -1;
}
int StorePush(void* /*store*/, uint32_t num, const int* /*keys*/, void** arrays, int priority) {
  EXPECT_EQ(num, 1U);
  current->stored = arrays[0];
  current->calls.push_back("push " + std::to_string(priority));
  return 0;
}
int StorePull(void* /*store*/, uint32_t num, const int* /*keys*/, void** arrays, int priority) {
  EXPECT_EQ(num, 1U);
  EXPECT_NE(arrays[0], current->stored);
  current->calls.push_back("pull " + std::to_string(priority));
  return current->takes_pull ? 0 : -1;
}
int StoreFree(void* /*store*/) { return --current->stores, 0; }
void CopyArray(const void* from, const void* to, int priority, bool for_operator) {
  EXPECT_NE(from, to);
  EXPECT_FALSE(for_operator);
  if (!current->takes_copy) throw std::runtime_error("no such luck");
  current->stored = from;
  current->calls.push_back("copy " + std::to_string(priority));
}
const char* LastError() { return "out of luck"; }

bs_mxnet_functions Functions() {
  const auto address = [](auto* function) { return reinterpret_cast<void*>(function); };
  bs_mxnet_functions functions{};
  functions.create_array = address(CreateArray);
  functions.free_array = address(FreeArray);
  functions.get_shape = address(GetShape);
  functions.get_dtype = address(GetDtype);
  functions.get_storage_type = address(GetKind);
  functions.get_context = address(GetContext);
  functions.store_create = address(StoreCreate);
  functions.store_init = address(StoreInit);
  functions.store_push = address(StorePush);
  functions.store_pull = address(StorePull);
  functions.store_free = address(StoreFree);
  functions.last_error = address(LastError);
  return functions;
}

class MxnetCopyTest : public testing::Test {
 protected:
  explicit MxnetCopyTest(const bs_mxnet_functions& functions = Functions()) {
    current = &mxnet_;
    EXPECT_EQ(bs_mxnet_copier_open(&functions, &copier_, &error_), 0);
  }
  ~MxnetCopyTest() override {
    bs_mxnet_copier_close(copier_);
    EXPECT_EQ(mxnet_.arrays, 0);
    EXPECT_EQ(mxnet_.stores, 0);
    current = nullptr;
  }
  bool Fits(Array array, Array other) {
    const int fits = bs_mxnet_copier_fits(copier_, &array, &other);
    EXPECT_EQ(bs_mxnet_copier_fits(copier_, &other, &array), fits);
    return fits == 1;
  }

  FakeMxnet mxnet_;
  bs_mxnet_copier* copier_ = nullptr;
  bs_error error_{};
};

// An MXNet that shows its function that copies.
class MxnetShownCopyTest : public MxnetCopyTest {
 protected:
  MxnetShownCopyTest() : MxnetCopyTest(ThatCopies()) {}
  static bs_mxnet_functions ThatCopies() {
    bs_mxnet_functions functions = Functions();
    functions.copy_array = reinterpret_cast<void*>(CopyArray);
    return functions;
  }
};

TEST_F(MxnetCopyTest, TakesPlainArraysOfOneShapeAndType) {
  EXPECT_TRUE(Fits({}, {}));
  EXPECT_TRUE(Fits({.shape = {}}, {.shape = {}}));
  EXPECT_FALSE(Fits({}, {.shape = {3, 2}})) << "as large, but of another shape";
  EXPECT_FALSE(Fits({}, {.shape = {2, 3, 1}}));
  EXPECT_FALSE(Fits({}, {.dtype = 1}));
  EXPECT_FALSE(Fits({}, {.kind = 1})) << "row_sparse";
  EXPECT_FALSE(Fits({}, {.dev_type = 2})) << "on a GPU";
  EXPECT_FALSE(Fits({}, {.unknown = 1}));
  EXPECT_FALSE(Fits({.shape = {2, 0}}, {.shape = {2, 0}})) << "nothing to copy";
  EXPECT_FALSE(
      Fits({.shape = std::vector<int64_t>(33, 1)}, {.shape = std::vector<int64_t>(33, 1)}));
}

TEST_F(MxnetCopyTest, ACopyIsAnAliasAndAPull) {
  Array from, to;
  ASSERT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, -7, &error_), 0);
  EXPECT_THAT(mxnet_.calls, ElementsAre("create local", "push -7", "pull -7"));
  EXPECT_EQ(mxnet_.stored, &from);
}

TEST_F(MxnetCopyTest, FailsWithTheMessageOfMxnet) {
  mxnet_.takes_pull = false;
  Array from, to;
  EXPECT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, 0, &error_), 10);
  EXPECT_STREQ(error_.message, "MXNet's copy: out of luck");
}

TEST_F(MxnetShownCopyTest, ACopyIsOneCallWithoutAStore) {
  Array from, to;
  ASSERT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, -7, &error_), 0);
  EXPECT_THAT(mxnet_.calls, ElementsAre("copy -7"));
  EXPECT_EQ(mxnet_.stored, &from);
  EXPECT_EQ(mxnet_.stores, 0);
  EXPECT_TRUE(Fits({}, {}));
  EXPECT_FALSE(Fits({}, {.dtype = 1}));
}

TEST_F(MxnetShownCopyTest, FailsWithTheMessageThatMxnetThrew) {
  mxnet_.takes_copy = false;
  Array from, to;
  EXPECT_EQ(bs_mxnet_copier_copy(copier_, &from, &to, 0, &error_), 10);
  EXPECT_STREQ(error_.message, "MXNet's copy: no such luck");
}

TEST_F(MxnetCopyTest, ACopierThatDoesNotOpenLeavesNothing) {
  mxnet_.takes_init = false;
  bs_mxnet_copier* other = nullptr;
  const bs_mxnet_functions functions = Functions();
  EXPECT_EQ(bs_mxnet_copier_open(&functions, &other, &error_), 10);
  EXPECT_STREQ(error_.message, "MXNet's local store: out of luck");
  EXPECT_EQ(mxnet_.arrays, 1);  // those of the fixture's copier
  EXPECT_EQ(mxnet_.stores, 1);
}

}  // namespace
