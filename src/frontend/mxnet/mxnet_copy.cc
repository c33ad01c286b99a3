// Copies by MXNet's own function, or, where MXNet does not show it, by a private `local` store.
// Its only key stands for any array that is copied.
#include "frontend/mxnet/mxnet_copy.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "frontend/mxnet/answer.h"
#include "frontend/mxnet/mxnet_abi.h"

namespace {

using bs::mxnet::Answer;
using bs::mxnet::kCpu;
using bs::mxnet::kInternal;
using bs::mxnet::kResourceExhausted;

constexpr int kDense = 0, kFloat32 = 0, kKey = 0;

}  // namespace

struct bs_mxnet_copier {
  explicit bs_mxnet_copier(const bs_mxnet_functions& functions) : mxnet(functions) {}
  bs_mxnet_copier(const bs_mxnet_copier&) = delete;
  bs_mxnet_copier& operator=(const bs_mxnet_copier&) = delete;
  ~bs_mxnet_copier() {
    if (store != nullptr) mxnet.store_free(store);
    if (nothing != nullptr) mxnet.free_array(nothing);
  }

  // 0, or as MXNet's functions.
  int Open();
  bool IsPlain(void* array) const;
  bool Alike(void* array, void* other) const;
  int Copy(void* from, void* to, int priority) const;

  const bs::mxnet::Functions mxnet;
  void* store = nullptr;
  void* nothing = nullptr;  // the key's first value
};

int bs_mxnet_copier::Open() {
  if (mxnet.copy_array != nullptr) return 0;  // no store is needed
  const uint32_t one = 1;
  const int key = kKey;
  int code = mxnet.create_array(&one, 1, kCpu.dev_type, kCpu.dev_id, 0, kFloat32, &nothing);
  if (code == 0) code = mxnet.store_create("local", &store);
  if (code == 0) code = mxnet.store_init(store, 1, &key, &nothing);
  return code;
}

bool bs_mxnet_copier::IsPlain(void* array) const {
  int kind = 0, dev_type = 0, dev_id = 0;
  return mxnet.get_storage_type(array, &kind) == 0 && kind == kDense &&
         mxnet.get_context(array, &dev_type, &dev_id) == 0 && dev_type == kCpu.dev_type;
}

bool bs_mxnet_copier::Alike(void* array, void* other) const {
  int mine = 0, its = 0, my_dims = 0, its_dims = 0;
  const int64_t *my_shape = nullptr, *its_shape = nullptr;
  if (mxnet.get_dtype(array, &mine) != 0 || mxnet.get_dtype(other, &its) != 0 || mine != its) {
    return false;
  }
  // MXNet may keep the shape that it returns in one place for each thread: take it before the next.
  constexpr int kMostDims = 32;
  int64_t copy[kMostDims];
  if (mxnet.get_shape(array, &my_dims, &my_shape) != 0) return false;
  if (my_dims < 0 || my_dims > kMostDims) return false;
  std::copy_n(my_shape, my_dims, copy);
  if (mxnet.get_shape(other, &its_dims, &its_shape) != 0 || its_dims != my_dims) return false;
  // An array without elements has no memory that could be aliased.
  return std::equal(copy, copy + my_dims, its_shape) &&
         std::find(copy, copy + my_dims, 0) == copy + my_dims;
}

int bs_mxnet_copier::Copy(void* from, void* to, int priority) const {
  if (mxnet.copy_array != nullptr) {
    mxnet.copy_array(from, to, priority, false);
    return 0;
  }
  const int key = kKey;
  const int code = mxnet.store_push(store, 1, &key, &from, priority);
  return code != 0 ? code : mxnet.store_pull(store, 1, &key, &to, priority);
}

int bs_mxnet_copier_open(const bs_mxnet_functions* functions, bs_mxnet_copier** copier,
                         bs_error* error) try {
  auto made = std::make_unique<bs_mxnet_copier>(*functions);
  if (made->Open() != 0) {
    return Answer(kInternal, std::string("MXNet's local store: ") + made->mxnet.last_error(),
                  error);
  }
  *copier = made.release();
  return Answer(0, "", error);
} catch (const std::exception& e) {
  return Answer(kResourceExhausted, e.what(), error);
}

int bs_mxnet_copier_fits(const bs_mxnet_copier* copier, void* array, void* other) {
  return copier->IsPlain(array) && copier->IsPlain(other) && copier->Alike(array, other) ? 1 : 0;
}

int bs_mxnet_copier_copy(bs_mxnet_copier* copier, void* from, void* to, int priority,
                         bs_error* error) try {
  if (copier->Copy(from, to, priority) == 0) return 0;
  return Answer(kInternal, std::string("MXNet's copy: ") + copier->mxnet.last_error(), error);
} catch (const std::exception& e) {
  return Answer(kInternal, std::string("MXNet's copy: ") + e.what(), error);
} catch (...) {  // its own libstdc++'s
  return Answer(kInternal, "MXNet's copy: it failed and does not say why", error);
}

void bs_mxnet_copier_close(bs_mxnet_copier* copier) { delete copier; }
