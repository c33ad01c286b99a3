// MXNet's functions over one FakeMxnet.
#include "frontend/mxnet/fake_mxnet.h"

#include <gtest/gtest.h>

#include <exception>

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
  EXPECT_EQ(*static_cast<const int*>(property), 3) << "kCPUPrioritized: not behind computation";
  EXPECT_FALSE(wait);
  if (current->pushes_left == 0) {
    deleter(param);
    return -1;
  }
  --current->pushes_left;
  FakeMxnet::Operation& operation = current->operations.emplace_back();
  operation.run = [=](void* on_complete) { run(nullptr, on_complete, param); };
  operation.deleter = [=] { deleter(param); };
  operation.name = name;
  operation.priority = priority;
  operation.writes = num_mutable == 1;
  operation.writes_what_it_reads =
      num_const == 1 && num_mutable == 1 && const_nds[0] == mutable_nds[0];
  operation.array = num_const == 1 ? const_nds[0] : mutable_nds[0];
  if (current->naive_wait) {
    current->Run(current->operations.size() - 1);
    while (operation.times_ended == 0) current->naive_wait();
  }
  return 0;
}

int ShareArray(void* array, void** out) {
  auto* const fake = static_cast<FakeMxnet::Array*>(array);
  if (fake->fails) return -1;
  ++fake->num_shared;
  auto* const shared = new FakeMxnet::Array;
  shared->of = fake;
  *out = shared;
  return 0;
}

int FreeArray(void* array) {
  auto* const fake = static_cast<FakeMxnet::Array*>(array);
  --fake->of->num_shared;
  delete fake;
  return 0;
}

void MakePlain(const void* array) {
  EXPECT_TRUE(current->operations.empty()) << "before what reads it";
  static_cast<const FakeMxnet::Array*>(array)->of->is_plain = true;
}

int GetData(void* array, void** data) {
  auto* fake = static_cast<FakeMxnet::Array*>(array);
  if (fake->of != nullptr) fake = fake->of;
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
