// Copies by a private `local` store of MXNet, whose one key stands for whatever is copied.
#include "plugin/mxnet_copy.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "plugin/mxnet_abi.h"

namespace {

using bs::mxnet::kCpu;
using bs::mxnet::LastError;

constexpr int kInternalCode = 10, kExhaustedCode = 9;  // values of bs::StatusCode
constexpr int kDense = 0, kFloat32 = 0, kKey = 0;

using CreateArray = int (*)(const uint32_t* shape, uint32_t ndim, int dev_type, int dev_id,
                            int delay_alloc, int dtype, void** out);
using Free = int (*)(void* handle);
using GetShape = int (*)(void* array, int* ndim, const int64_t** shape);
using GetInt = int (*)(void* array, int* value);
using GetContext = int (*)(void* array, int* dev_type, int* dev_id);
using StoreCreate = int (*)(const char* type, void** store);
using StoreInit = int (*)(void* store, uint32_t num, const int* keys, void** values);
using StoreCopy = int (*)(void* store, uint32_t num, const int* keys, void** arrays, int priority);

template <typename F>
F As(void* address) {
  return reinterpret_cast<F>(address);
}

int Return(int code, const std::string& message, bs_error* error) {
  if (error != nullptr) {
    const size_t size = message.copy(error->message, sizeof(error->message) - 1);
    error->message[size] = '\0';
    error->code = code;
  }
  return code;
}

}  // namespace

struct bs_mxnet_copier {
  explicit bs_mxnet_copier(const bs_mxnet_copy_functions& functions) : f(functions) {}
  bs_mxnet_copier(const bs_mxnet_copier&) = delete;
  bs_mxnet_copier& operator=(const bs_mxnet_copier&) = delete;
  ~bs_mxnet_copier() {
    if (store != nullptr) As<Free>(f.store_free)(store);
    if (nothing != nullptr) As<Free>(f.free_array)(nothing);
  }

  // 0, or as MXNet's functions.
  int Open();
  bool IsPlain(void* array) const;
  bool Alike(void* array, void* other) const;
  int Copy(void* from, void* to, int priority) const;

  const bs_mxnet_copy_functions f;
  void* store = nullptr;
  void* nothing = nullptr;  // the key's first value
};

int bs_mxnet_copier::Open() {
  const uint32_t one = 1;
  const int key = kKey;
  int code =
      As<CreateArray>(f.create_array)(&one, 1, kCpu.dev_type, kCpu.dev_id, 0, kFloat32, &nothing);
  if (code == 0) code = As<StoreCreate>(f.store_create)("local", &store);
  if (code == 0) code = As<StoreInit>(f.store_init)(store, 1, &key, &nothing);
  return code;
}

bool bs_mxnet_copier::IsPlain(void* array) const {
  int kind = 0, dev_type = 0, dev_id = 0;
  return As<GetInt>(f.get_storage_type)(array, &kind) == 0 && kind == kDense &&
         As<GetContext>(f.get_context)(array, &dev_type, &dev_id) == 0 && dev_type == kCpu.dev_type;
}

bool bs_mxnet_copier::Alike(void* array, void* other) const {
  int mine = 0, its = 0, my_dims = 0, its_dims = 0;
  const int64_t *my_shape = nullptr, *its_shape = nullptr;
  const auto dtype_of = As<GetInt>(f.get_dtype);
  if (dtype_of(array, &mine) != 0 || dtype_of(other, &its) != 0 || mine != its) return false;
  // MXNet may keep the shape that it returns in one place for each thread: take it before the next.
  const auto shape_of = As<GetShape>(f.get_shape);
  constexpr int kMostDims = 32;
  int64_t copy[kMostDims];
  if (shape_of(array, &my_dims, &my_shape) != 0 || my_dims < 0 || my_dims > kMostDims) return false;
  std::copy_n(my_shape, my_dims, copy);
  if (shape_of(other, &its_dims, &its_shape) != 0 || its_dims != my_dims) return false;
  // An array without elements has no memory that could be aliased.
  return std::equal(copy, copy + my_dims, its_shape) &&
         std::find(copy, copy + my_dims, 0) == copy + my_dims;
}

int bs_mxnet_copier::Copy(void* from, void* to, int priority) const {
  const int key = kKey;
  const int code = As<StoreCopy>(f.store_push)(store, 1, &key, &from, priority);
  return code != 0 ? code : As<StoreCopy>(f.store_pull)(store, 1, &key, &to, priority);
}

int bs_mxnet_copier_open(const bs_mxnet_copy_functions* functions, bs_mxnet_copier** copier,
                         bs_error* error) try {
  auto made = std::make_unique<bs_mxnet_copier>(*functions);
  if (made->Open() != 0) {
    return Return(kInternalCode,
                  std::string("MXNet's local store: ") + As<LastError>(functions->last_error)(),
                  error);
  }
  *copier = made.release();
  return Return(0, "", error);
} catch (const std::exception& e) {
  return Return(kExhaustedCode, e.what(), error);
}

int bs_mxnet_copier_fits(const bs_mxnet_copier* copier, void* array, void* other) {
  return copier->IsPlain(array) && copier->IsPlain(other) && copier->Alike(array, other) ? 1 : 0;
}

int bs_mxnet_copier_copy(bs_mxnet_copier* copier, void* from, void* to, int priority,
                         bs_error* error) {
  if (copier->Copy(from, to, priority) == 0) return 0;
  return Return(kInternalCode,
                std::string("MXNet's copy: ") + As<LastError>(copier->f.last_error)(), error);
}

void bs_mxnet_copier_close(bs_mxnet_copier* copier) { delete copier; }
