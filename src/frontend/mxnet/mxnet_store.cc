// Sends partitions through a stock MXNet store: copy in, push-pull, and an operation behind both
// that reports the end.
#include "frontend/mxnet/mxnet_store.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>

#include "frontend/mxnet/answer.h"
#include "frontend/mxnet/mxnet_abi.h"

namespace bs::mxnet {
namespace {

enum What { kPush = 0, kPull = 1 };

struct Array {
  void* handle = nullptr;
  void* data = nullptr;
  uint64_t size_bytes = 0;
};

uint64_t SizeOfElement(int dtype) {
  constexpr int kFloat64 = 1, kFloat16 = 2;
  if (dtype == kFloat64) return sizeof(double);
  return dtype == kFloat16 ? sizeof(uint16_t) : sizeof(float);
}

}  // namespace

// Owners: the handle, and every operation that has not ended.
struct Store {
  Store(void* store, const bs_mxnet_functions& functions) : handle(store), mxnet(functions) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store() {
    for (const auto& [key, array] : arrays) mxnet.free_array(array.handle);
  }

  // 0, or as MXNet's functions.
  int Find(const bs_store_request& request, Array** found);
  int Begin(const bs_store_request& request, Array* array) const;

  void* const handle;
  const Functions mxnet;
  std::unordered_map<int, Array> arrays;  // on the calling thread
};

int Store::Find(const bs_store_request& request, Array** found) {
  Array& array = arrays[request.store_key];
  *found = &array;
  if (array.size_bytes == request.size_bytes) return 0;
  const auto elements = static_cast<uint32_t>(request.size_bytes / SizeOfElement(request.dtype));
  int code =
      mxnet.create_array(&elements, 1, kCpu.dev_type, kCpu.dev_id, 0, request.dtype, &array.handle);
  if (code == 0) code = mxnet.get_data(array.handle, &array.data);
  if (code == 0) array.size_bytes = request.size_bytes;
  return code;
}

int Store::Begin(const bs_store_request& request, Array* array) const {
  const int key = request.store_key;
  // The array has no other user: the operations on this key before have ended.
  if (request.what != kPull) std::memcpy(array->data, request.in, request.size_bytes);
  if (request.what == kPush)
    return mxnet.store_push(handle, 1, &key, &array->handle, request.priority);
  if (request.what == kPull)
    return mxnet.store_pull(handle, 1, &key, &array->handle, request.priority);
  return mxnet.store_push_pull(handle, 1, &key, 1, &key, &array->handle, &array->handle,
                               request.priority);
}

namespace {

// The operation in MXNet's engine that waits for all that the store has queued for the array.
struct End {
  std::shared_ptr<Store> store;
  bs_worker* const worker;
  const uint64_t token;
  const void* const value;
  bool ran = false;
};

void RunEnd(void* /*run_context*/, void* on_complete, void* param) {
  OnComplete complete{};
  std::memcpy(&complete, on_complete, sizeof(complete));
  static_cast<End*>(param)->ran = true;
  complete.callback(complete.engine, complete.param, nullptr);
}

// MXNet calls it once, whether the operation ran or was skipped.
void DeleteEnd(void* param) {
  const std::unique_ptr<End> end(static_cast<End*>(param));
  if (end->ran) return bs_store_done(end->worker, end->token, 0, "", end->value);
  bs_store_done(end->worker, end->token, kInternal,
                "MXNet's store failed to send a partition; waiting for any array tells why",
                nullptr);
}

void Begin(const std::shared_ptr<Store>& store, bs_worker* worker,
           const bs_store_request& request) {
  Array* array = nullptr;
  int code = store->Find(request, &array);
  if (code == 0) code = store->Begin(request, array);
  if (code != 0) {
    const std::string why = std::string("MXNet's store: ") + store->mxnet.last_error();
    return bs_store_done(worker, request.token, kInternal, why.c_str(), nullptr);
  }
  const void* const value = request.what == kPush ? nullptr : array->data;
  auto* const end = new End{store, worker, request.token, value};
  // A push reads the array and a pull writes it; an operation that reads it comes behind both.
  // Behind the reading of a push comes only an operation that writes.
  const int writes = request.what == kPush ? 1 : 0;
  // From the call on MXNet owns `end`, and calls its deleter whatever happens.
  store->mxnet.push_async_nd(RunEnd, end, DeleteEnd, &kCpu, &array->handle, 1 - writes,
                             &array->handle, writes, &kCpuPrioritized, request.priority,
                             "bytescheduler carried", false);
}

}  // namespace
}  // namespace bs::mxnet

struct bs_mxnet_store {
  std::shared_ptr<bs::mxnet::Store> store;
};

int bs_mxnet_store_open(void* handle, const bs_mxnet_functions* functions, bs_mxnet_store** store,
                        bs_error* error) try {
  *store = new bs_mxnet_store{std::make_shared<bs::mxnet::Store>(handle, *functions)};
  return bs::mxnet::Answer(0, "", error);
} catch (const std::exception& e) {
  return bs::mxnet::Answer(bs::mxnet::kResourceExhausted, e.what(), error);
}

void bs_mxnet_store_begin(void* store, bs_worker* worker, const bs_store_request* request) try {
  bs::mxnet::Begin(static_cast<bs_mxnet_store*>(store)->store, worker, *request);
} catch (const std::exception& e) {
  bs_store_done(worker, request->token, bs::mxnet::kResourceExhausted, e.what(), nullptr);
}

void bs_mxnet_store_close(bs_mxnet_store* store) { delete store; }

int bs_mxnet_store_exit_at_once(void) {
  return on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        _exit(status);
      },
      nullptr);
}
