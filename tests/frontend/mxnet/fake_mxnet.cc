// MXNet's functions over one FakeMxnet.
#include "frontend/mxnet/fake_mxnet.h"

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "base/check.h"

namespace {

FakeMxnet* current = nullptr;

using Callback = void (*)(void* engine, void* param, const std::exception* error);

// MXNet's on_complete: three pointers.
struct OnComplete {
  Callback callback;
  void* engine;
  void* param;
};

// MXNet frees an operation, and with it the parameter, while it ends.
void End(void* /*engine*/, void* param, const std::exception* error) {
  auto* const operation = static_cast<FakeMxnet::Operation*>(param);
  if (++operation->times_ended > 1) return;
  if (error != nullptr) operation->error = error->what();
  operation->deleter();
}

int PushAsyncNd(void (*run)(void*, void*, void*), void* param, void (*deleter)(void*),
                const void* context, void** const_nds, int num_const, void** mutable_nds,
                int num_mutable, const void* property, int priority, const char* name, bool wait) {
  EXPECT_EQ(*static_cast<const int*>(context), 1) << "the CPU";
  const int how = *static_cast<const int*>(property);
  EXPECT_TRUE(how == 3 || how == 4) << "kCPUPrioritized: not behind computation; or kAsync";
  EXPECT_FALSE(wait);
  if (current->pushes_left == 0) {
    deleter(param);
    return -1;
  }
  --current->pushes_left;
  FakeMxnet::Operation& operation = current->operations.emplace_back();
  operation.run = [=](void* on_complete) { run(nullptr, on_complete, param); };
  operation.deleter = [=] { deleter(param); };
  operation.async = how == 4;
  operation.name = name;
  operation.priority = priority;
  operation.reads = num_const == 1;
  operation.writes = num_mutable == 1;
  operation.writes_what_it_reads =
      num_const == 1 && num_mutable == 1 && const_nds[0] == mutable_nds[0];
  operation.array = num_const == 1 ? const_nds[0] : mutable_nds[0];
  if (current->all_ready && operation.async) current->Run(current->operations.size() - 1);
  if (current->naive_wait) {
    current->Run(current->operations.size() - 1);
    while (operation.times_ended == 0) current->naive_wait();
  }
  return 0;
}

int ShareArray(void* array, void** out) {
  auto* fake = static_cast<FakeMxnet::Array*>(array);
  if (fake->fails) return -1;
  if (fake->of != nullptr) fake = fake->of;
  ++fake->num_shared;
  auto* const shared = new FakeMxnet::Array;
  shared->of = fake;
  shared->memory = fake->memory;
  *out = shared;
  return 0;
}

int FreeArray(void* array) {
  auto* const fake = static_cast<FakeMxnet::Array*>(array);
  if (fake->is_listed) std::erase(current->created, fake);
  if (fake->of != nullptr) --fake->of->num_shared;
  if (fake->is_plain_copy) {  // was made in memory that the plug-in has taken
    fake->~Array();
    ::operator delete(array);
    return 0;
  }
  delete fake;
  return 0;
}

int CreateArray(const uint32_t* shape, uint32_t ndim, int dev_type, int /*dev_id*/, int delay_alloc,
                int dtype, void** out) {
  EXPECT_EQ(dev_type, 1) << "the CPU";
  EXPECT_EQ(delay_alloc, 0);
  const size_t count = std::accumulate(shape, shape + ndim, size_t{1}, std::multiplies<size_t>());
  auto* const array = new FakeMxnet::Array(std::vector<float>(count));
  array->form = {.shape = {shape, shape + ndim}, .dtype = dtype, .dev_type = dev_type};
  *out = array;
  return 0;
}
// The same, for arrays that a test looks at.
int CreateListedArray(const uint32_t* shape, uint32_t ndim, int dev_type, int dev_id,
                      int delay_alloc, int dtype, void** out) {
  const int code = CreateArray(shape, ndim, dev_type, dev_id, delay_alloc, dtype, out);
  auto* const array = static_cast<FakeMxnet::Array*>(*out);
  array->is_listed = true;
  current->created.push_back(array);
  return code;
}

int GetShape(void* handle, int* ndim, const int64_t** shape) {
  const FakeMxnet::Form& form = static_cast<FakeMxnet::Array*>(handle)->form;
  if (!form.is_shown) return -1;
  current->last_shape = form.shape;
  *ndim = static_cast<int>(form.shape.size());
  *shape = current->last_shape.data();
  return 0;
}
int GetDtype(void* array, int* dtype) {
  return *dtype = static_cast<FakeMxnet::Array*>(array)->form.dtype, 0;
}
int GetKind(void* array, int* kind) {
  return *kind = static_cast<FakeMxnet::Array*>(array)->form.kind, 0;
}
int GetContext(void* array, int* dev_type, int* dev_id) {
  *dev_id = 0;
  return *dev_type = static_cast<FakeMxnet::Array*>(array)->form.dev_type, 0;
}

// Returns the code of the call.
int Record(FakeMxnet::Call call) {
  const bool is_refused = current->refused.contains(call.name);
  if (call.array != nullptr) call.values = static_cast<const FakeMxnet::Array*>(call.array)->values;
  current->calls.push_back(std::move(call));
  return is_refused ? -1 : 0;
}
int StoreCreate(const char* type, void** store) {
  ++current->num_stores;
  *store = current;
  return Record({std::string("create ") + type});
}
int StoreFree(void* /*store*/) { return --current->num_stores, 0; }
int StoreInit(void* /*store*/, uint32_t num, const int* keys, void** values) {
  EXPECT_EQ(num, 1U);
  return Record({"init", keys[0], 0, values[0]});
}
int StorePush(void* /*store*/, uint32_t num, const int* keys, void** values, int priority) {
  EXPECT_EQ(num, 1U);
  return Record({"push", keys[0], priority, values[0]});
}
int StorePull(void* /*store*/, uint32_t num, const int* keys, void** values, int priority) {
  EXPECT_EQ(num, 1U);
  return Record({"pull", keys[0], priority, values[0]});
}
int StorePushPull(void* /*store*/, uint32_t num, const int* keys, uint32_t num_outs,
                  const int* out_keys, void** values, void** outs, int priority) {
  EXPECT_EQ(num, 1U);
  EXPECT_EQ(num_outs, 1U);
  EXPECT_EQ(keys[0], out_keys[0]);
  EXPECT_EQ(values[0], outs[0]);
  return Record({"push_pull", keys[0], priority, values[0]});
}
void CopyArray(const void* from, const void* to, int priority, bool for_operator) {
  EXPECT_NE(from, to);
  EXPECT_FALSE(for_operator);
  if (Record({"copy", 0, priority, from}) != 0) throw std::runtime_error("no such luck");
}

// Returns as MXNet's own does an object with a destructor.
struct PlainCopyArray : FakeMxnet::Array {
  explicit PlainCopyArray(FakeMxnet::Array* original) : Array(original->values) {
    of = original;
    is_plain_copy = true;
    ++original->num_shared;
  }
};
PlainCopyArray PlainCopy(const void* array) {
  return PlainCopyArray(static_cast<const FakeMxnet::Array*>(array)->of);
}

bool IsBlocked(const void* memory) {
  return !static_cast<const FakeMxnet::Memory*>(memory)->array->is_plain;
}

void MakeDefault(void* memory) { static_cast<FakeMxnet::Memory*>(memory)->array->is_plain = true; }

void MakePlain(const void* array) {
  const auto* const fake = static_cast<const FakeMxnet::Array*>(array);
  for (const FakeMxnet::Operation& operation : current->operations) {
    if (operation.times_ended > 0) continue;
    EXPECT_NE(static_cast<FakeMxnet::Array*>(operation.array)->memory, fake->memory)
        << "before what reads it";
  }
  fake->of->is_plain = true;
}

int GetData(void* array, void** data) {
  auto* fake = static_cast<FakeMxnet::Array*>(array);
  if (fake->of != nullptr && !fake->is_plain_copy) fake = fake->of;
  EXPECT_TRUE(fake->is_plain) << "MXNet would wait for an operation, inside of one that has it";
  *data = fake->values.data();
  return fake->fails ? -1 : 0;
}

const char* LastError() { return "out of luck"; }

}  // namespace

FakeMxnet::FakeMxnet() { current = this; }
FakeMxnet::~FakeMxnet() { current = nullptr; }

bs_mxnet_functions FakeMxnet::functions() const {
  bs_mxnet_functions functions{};
  functions.push_async_nd = reinterpret_cast<void*>(&PushAsyncNd);
  functions.share_array = reinterpret_cast<void*>(&ShareArray);
  functions.free_array = reinterpret_cast<void*>(&FreeArray);
  functions.make_plain = reinterpret_cast<void*>(&MakePlain);
  functions.get_data = reinterpret_cast<void*>(&GetData);
  functions.last_error = reinterpret_cast<void*>(&LastError);
  return functions;
}

bs_mxnet_functions FakeMxnet::functions_for_copies() const {
  bs_mxnet_functions result = functions();
  result.create_array = reinterpret_cast<void*>(&CreateArray);
  result.plain_copy = reinterpret_cast<void*>(&PlainCopy);
  result.is_blocked = reinterpret_cast<void*>(&IsBlocked);
  result.make_default = reinterpret_cast<void*>(&MakeDefault);
  return result;
}

bs_mxnet_functions FakeMxnet::functions_for_stores() const {
  bs_mxnet_functions result = functions();
  result.create_array = reinterpret_cast<void*>(&CreateListedArray);
  result.get_shape = reinterpret_cast<void*>(&GetShape);
  result.get_dtype = reinterpret_cast<void*>(&GetDtype);
  result.get_storage_type = reinterpret_cast<void*>(&GetKind);
  result.get_context = reinterpret_cast<void*>(&GetContext);
  result.store_create = reinterpret_cast<void*>(&StoreCreate);
  result.store_init = reinterpret_cast<void*>(&StoreInit);
  result.store_push = reinterpret_cast<void*>(&StorePush);
  result.store_pull = reinterpret_cast<void*>(&StorePull);
  result.store_push_pull = reinterpret_cast<void*>(&StorePushPull);
  result.store_free = reinterpret_cast<void*>(&StoreFree);
  return result;
}

bs_mxnet_functions FakeMxnet::functions_that_copy() const {
  bs_mxnet_functions result = functions_for_stores();
  result.copy_array = reinterpret_cast<void*>(&CopyArray);
  return result;
}

void FakeMxnet::Run(size_t index) {
  OnComplete on_complete{&End, nullptr, &operations[index]};
  operations[index].run(&on_complete);
  on_complete = {};  // like MXNet's, it is good only inside the function
}

void FakeMxnet::Skip(size_t index) {
  operations[index].times_ended = 1;
  operations[index].error = "the error of an input";
  operations[index].deleter();
}
