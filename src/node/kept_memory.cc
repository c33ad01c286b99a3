// Looks memory up by its key, and makes room for new memory.
//
// Memory that is dropped ends after the lock is gone: the device and the framework take their time.
#include "node/kept_memory.h"

#include <algorithm>

namespace bs::node {

std::shared_ptr<void> KeptMemory::Use(const Memory& memory, const OwnFn& own) {
  struct InUse {
    std::shared_ptr<Kept> kept;
    std::shared_ptr<void> loan;  // ends before it
  };
  std::shared_ptr<Kept> kept = Find(memory);
  if (!kept) {
    std::shared_ptr<ps::Registration> registration = Register(memory);
    if (!registration) return nullptr;
    std::shared_ptr<void> owner = own();
    if (!owner) return nullptr;
    kept = std::make_shared<Kept>(
        Kept{.owner = std::move(owner), .registration = std::move(registration)});
    Add(memory, kept);
  }
  std::shared_ptr<void> loan = kept->registration->Use();
  if (!loan) return nullptr;
  return std::make_shared<InUse>(InUse{.kept = std::move(kept), .loan = std::move(loan)});
}

std::shared_ptr<KeptMemory::Kept> KeptMemory::Find(const Memory& memory) {
  std::shared_ptr<Kept> dropped;
  const MutexLock lock(&mutex_);
  const auto it = entries_.find({memory.key, memory.use});
  if (it == entries_.end()) return nullptr;
  if (it->second.memory.IsThatOf(memory)) {
    it->second.last_use = ++uses_;
    return it->second.kept;
  }
  dropped = std::move(it->second.kept);
  entries_.erase(it);
  return nullptr;
}

std::shared_ptr<ps::Registration> KeptMemory::Register(const Memory& memory) {
  // No more is dropped than would help, or memory that never fits would drop all, each time.
  uint64_t dropped_bytes = 0;
  while (true) {
    auto registered = register_(memory.bytes, memory.use);
    if (registered.ok()) return std::move(registered.value());
    if (registered.status().code() != StatusCode::kResourceExhausted) return nullptr;
    if (dropped_bytes >= memory.bytes.size()) return nullptr;
    const uint64_t bytes = DropLeastRecentlyUsed();
    if (bytes == 0) return nullptr;
    dropped_bytes += bytes;
  }
}

uint64_t KeptMemory::DropLeastRecentlyUsed() {
  std::shared_ptr<Kept> dropped;
  const MutexLock lock(&mutex_);
  auto least = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.kept.use_count() > 1) continue;  // in use: it would give no room
    if (least == entries_.end() || it->second.last_use < least->second.last_use) least = it;
  }
  if (least == entries_.end()) return 0;
  const uint64_t bytes = least->second.memory.bytes.size();
  dropped = std::move(least->second.kept);
  entries_.erase(least);
  return bytes;
}

void KeptMemory::Add(const Memory& memory, std::shared_ptr<Kept> kept) {
  const MutexLock lock(&mutex_);
  if (closed_) return;
  // `kept` takes the memory that another thread has added meanwhile out of the lock.
  Entry& entry = entries_[{memory.key, memory.use}];
  entry.memory = memory;
  entry.last_use = ++uses_;
  entry.kept.swap(kept);
}

void KeptMemory::DropAll() {
  decltype(entries_) dropped;
  const MutexLock lock(&mutex_);
  closed_ = true;
  dropped.swap(entries_);
}

}  // namespace bs::node
