// MXNet 1.9.1 behind its C API, mirrored: the structs that its engine hands to an operation, and
// its functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "frontend/mxnet/mxnet_functions.h"

namespace dmlc {
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace dmlc

namespace bs::mxnet {

struct Context {
  int32_t dev_type, dev_id;
};
struct RunContext {
  Context context;
  void *stream, *aux_stream;
  bool is_bulk;
};
// Its address is good only inside the operation's function; a copy may be called later, from any
// thread, once.
struct OnComplete {
  void (*callback)(void* engine, void* param, const dmlc::Error* error);
  void *engine, *param;
};
static_assert(sizeof(Context) == 8 && sizeof(RunContext) == 32 && sizeof(OnComplete) == 24);

// Room for an array that a function of MXNet's returns: it is made where the caller says, as any
// object with a destructor.  MXNet frees it as one of its own handles.
struct PlainArray {
  PlainArray(const PlainArray&) = delete;
  PlainArray& operator=(const PlainArray&) = delete;
  ~PlainArray() {}  // NOLINT(modernize-use-equals-default): a trivial one would change the call

  std::array<std::max_align_t, 32> room;  // MXNet 1.9.1 needs 232 bytes
};

// The memory of an array: its first member, which handles of the same memory share.
inline void* ChunkOf(const void* array) {
  void* chunk = nullptr;
  std::memcpy(static_cast<void*>(&chunk), array, sizeof(chunk));
  return chunk;
}

// Where that memory is.  While we have a handle of an array, MXNet gives it other memory only where
// it needs more.  Another layout may be longer.  Then `data` or `size_bytes` changes.
struct Storage {
  void* data;
  uint64_t size_bytes;
};
inline Storage StorageOf(const void* array) {
  Storage storage{};
  std::memcpy(&storage, ChunkOf(array), sizeof(storage));
  return storage;
}

// bs_mxnet_functions as they are called.  Each but the last two returns 0, or else the last says
// why.
struct Functions {
  using PushAsyncNd = int (*)(void (*run)(void* run_context, void* on_complete, void* param),
                              void* param, void (*deleter)(void* param), const void* context,
                              void** const_nds, int num_const, void** mutable_nds, int num_mutable,
                              const void* property, int priority, const char* name, bool wait);
  using CreateArray = int (*)(const uint32_t* shape, uint32_t ndim, int dev_type, int dev_id,
                              int delay_alloc, int dtype, void** out);
  using Free = int (*)(void* handle);
  using Owned = std::unique_ptr<void, Free>;  // a handle
  using ShareArray = int (*)(void* array, void** out);
  using MakePlain = void (*)(const void* array);        // a member function: `array` is its `this`
  using PlainCopy = PlainArray (*)(const void* array);  // likewise
  using IsBlocked = bool (*)(const void* chunk);        // likewise
  using MakeDefault = void (*)(void* chunk);            // likewise
  // Throws.  The arrays are references there; `for_operator` only names the operation otherwise.
  using CopyArray = void (*)(const void* from, const void* to, int priority, bool for_operator);
  using GetData = int (*)(void* array, void** data);
  using GetShape = int (*)(void* array, int* ndim, const int64_t** shape);
  using GetInt = int (*)(void* array, int* value);
  using GetContext = int (*)(void* array, int* dev_type, int* dev_id);
  using StoreCreate = int (*)(const char* type, void** store);
  using StoreInit = int (*)(void* store, uint32_t num, const int* keys, void** values);
  using StoreCopy = int (*)(void* store, uint32_t num, const int* keys, void** arrays,
                            int priority);
  using StorePushPull = int (*)(void* store, uint32_t num_values, const int* value_keys,
                                uint32_t num_outs, const int* out_keys, void** values, void** outs,
                                int priority);
  using LastError = const char* (*)();

  explicit Functions(const bs_mxnet_functions& f)
      : push_async_nd(reinterpret_cast<PushAsyncNd>(f.push_async_nd)),
        create_array(reinterpret_cast<CreateArray>(f.create_array)),
        free_array(reinterpret_cast<Free>(f.free_array)),
        share_array(reinterpret_cast<ShareArray>(f.share_array)),
        get_data(reinterpret_cast<GetData>(f.get_data)),
        get_shape(reinterpret_cast<GetShape>(f.get_shape)),
        get_dtype(reinterpret_cast<GetInt>(f.get_dtype)),
        get_storage_type(reinterpret_cast<GetInt>(f.get_storage_type)),
        get_context(reinterpret_cast<GetContext>(f.get_context)),
        store_create(reinterpret_cast<StoreCreate>(f.store_create)),
        store_init(reinterpret_cast<StoreInit>(f.store_init)),
        store_push(reinterpret_cast<StoreCopy>(f.store_push)),
        store_pull(reinterpret_cast<StoreCopy>(f.store_pull)),
        store_push_pull(reinterpret_cast<StorePushPull>(f.store_push_pull)),
        store_free(reinterpret_cast<Free>(f.store_free)),
        make_plain(reinterpret_cast<MakePlain>(f.make_plain)),
        plain_copy(reinterpret_cast<PlainCopy>(f.plain_copy)),
        is_blocked(reinterpret_cast<IsBlocked>(f.is_blocked)),
        make_default(reinterpret_cast<MakeDefault>(f.make_default)),
        copy_array(reinterpret_cast<CopyArray>(f.copy_array)),
        last_error(reinterpret_cast<LastError>(f.last_error)) {}

  const PushAsyncNd push_async_nd;
  const CreateArray create_array;
  const Free free_array;
  const ShareArray share_array;
  const GetData get_data;
  const GetShape get_shape;
  const GetInt get_dtype, get_storage_type;
  const GetContext get_context;
  const StoreCreate store_create;
  const StoreInit store_init;
  const StoreCopy store_push, store_pull;
  const StorePushPull store_push_pull;
  const Free store_free;
  const MakePlain make_plain;
  const PlainCopy plain_copy;
  const IsBlocked is_blocked;
  const MakeDefault make_default;
  const CopyArray copy_array;
  const LastError last_error;
};

constexpr Context kCpu{1, 0};
// A pool of its own with a priority queue; kNormal would wait behind queued computation.
constexpr int kCpuPrioritized = 3;
// In the call that pushes it, if nothing is pending that it waits for; else as kNormal.
constexpr int kAsync = 4;

}  // namespace bs::mxnet
