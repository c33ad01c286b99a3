// Compares the needs of shards with the memory that is left, as the kernel states it.
#include "server/memory/memory_room.h"

#include <algorithm>
#include <string>

#include "base/memory.h"

namespace bs::server {
namespace {

// To ask the kernel takes the time in which some 100 KiB are copied.
constexpr uint64_t kUnaskedBytes = uint64_t{1} << 20U;

}  // namespace

MemoryRoom::MemoryRoom(std::function<uint64_t()> available_bytes, std::string cure)
    : available_bytes_(available_bytes ? std::move(available_bytes)
                                       : [] { return AvailableBytes(); }),
      cure_(std::move(cure)) {}

Result<MemoryRoom::Promise> MemoryRoom::Ask(uint64_t size_bytes) {
  if (size_bytes == 0) return Promise();
  const uint64_t others = promised_.fetch_add(size_bytes);
  Promise promise(&promised_, size_bytes);
  if (unasked_.fetch_add(size_bytes) + size_bytes < kUnaskedBytes) return promise;
  const uint64_t available = available_bytes_();
  const uint64_t left = available - std::min(available, others);
  if (size_bytes <= left) {
    unasked_ = 0;
    return promise;
  }
  unasked_ = kUnaskedBytes;  // the next caller asks, too
  return Status::ResourceExhausted(std::to_string(size_bytes) +
                                   " bytes do not fit into memory, of which " +
                                   std::to_string(left) + " are left here: " + cure_);
}

}  // namespace bs::server
