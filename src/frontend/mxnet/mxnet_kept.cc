// Kept arrays: a network device uses them without a copy, and they stay registered for the key's
// next round.
#include <cstdint>
#include <cstring>

#include "frontend/mxnet/mxnet_round.h"

namespace bs::mxnet {
namespace {

// Returns a handle of our own of a proxy's array.
void* OwnArray(void* context) {
  const auto* const proxy = static_cast<const Proxy*>(context);
  const Functions& mxnet = proxy->round->plugin->mxnet;
  void* handle = nullptr;
  if (mxnet.share_array(proxy->array, &handle) != 0) return nullptr;
  return new Functions::Owned(Functions::Owned(handle, mxnet.free_array));
}

void DisownArray(void* owner) { delete static_cast<Functions::Owned*>(owner); }

// True if arrays begin with where their memory is.
bool SeesStorage(const Functions& mxnet) {
  constexpr uint32_t kLength = 3;
  constexpr int kFloat32 = 0;
  void* handle = nullptr;
  if (mxnet.create_array(&kLength, 1, kCpu.dev_type, kCpu.dev_id, 0, kFloat32, &handle) != 0) {
    return false;
  }
  const Functions::Owned array(handle, mxnet.free_array);
  void* data = nullptr;
  if (ChunkOf(handle) == nullptr || mxnet.get_data(handle, &data) != 0) return false;
  const Storage storage = StorageOf(handle);
  return storage.data == data && storage.size_bytes == kLength * sizeof(float);
}

uint64_t LeastKeptBytes(const bs_worker* worker, const Functions& mxnet) {
  const uint64_t least_bytes = bs_worker_least_kept_bytes(worker);
  return least_bytes != UINT64_MAX && SeesStorage(mxnet) ? least_bytes : UINT64_MAX;
}

}  // namespace

Plugin::Plugin(bs_worker* w, const bs_mxnet_functions& functions)
    : worker(w), mxnet(functions), least_kept_bytes(LeastKeptBytes(w, mxnet)) {}

bool Proxy::Locate() {
  if (round->plugin->mxnet.get_data(array, &data) != 0) return false;
  LetDeviceUse();
  return true;
}

void Proxy::LetDeviceUse() {
  if (round->copied) return;  // it may run inside the caller's call, which must not block
  const bool is_sent = this == &round->push;
  if (round->size_bytes < round->plugin->least_kept_bytes) return;
  if (is_sent && round->coding.codec != 0) return;  // codes lie elsewhere
  const Storage storage = StorageOf(array);
  const bs_kept_memory memory{.key = round->key,
                              .filled = is_sent ? 0 : 1,
                              .memory = data,
                              .size_bytes = round->size_bytes,
                              .storage = ChunkOf(array),
                              .storage_bytes = storage.size_bytes,
                              .own = OwnArray,
                              .disown = DisownArray,
                              .context = this};
  bs_memory_use* found = nullptr;
  bs_worker_use_memory(round->plugin->worker, &memory, &found, nullptr);  // else it is copied
  use.reset(found);
}

}  // namespace bs::mxnet
