// KeptMemory: memory of a framework that a network device has registered, from one operation on a
// key to the next.
//
// To register memory takes time that grows with its length, so the registration stays for the key's
// next operation.  With it stays an owner of the memory, so that the framework cannot give it away.
// Both end when the key comes with other memory, when other memory needs the room (the least
// recently used first), and at DropAll.
//
// Thread-safe.  The thread that calls Use registers, which may block for as long as the system
// locks pages: no network thread calls it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "base/types.h"
#include "ps/transport.h"

namespace bs::node {

class KeptMemory {
 public:
  // Transport::Register; thread-safe.
  using RegisterFn = std::function<Result<std::shared_ptr<ps::Registration>>(
      std::span<std::byte> memory, ps::Lending use)>;
  // Returns an owner of the memory; null: there is none.
  using OwnFn = std::function<std::shared_ptr<void>()>;

  struct Memory {
    Key key = 0;
    ps::Lending use{};
    std::span<std::byte> bytes{};
    // The whole that the bytes are a part of: other numbers are other memory, even at the address.
    std::array<uint64_t, 2> storage{};

    bool IsThatOf(const Memory& other) const {
      return bytes.data() == other.bytes.data() && bytes.size() == other.bytes.size() &&
             storage == other.storage;
    }
  };

  explicit KeptMemory(RegisterFn register_memory) : register_(std::move(register_memory)) {}
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() = default;

  // Lends the memory, registered, as long as the handle is held, for an operation during which the
  // caller keeps the memory anyway.  `own` is called where it is registered anew.  Null: no device
  // uses it, or there is no room; then the operation copies.
  std::shared_ptr<void> Use(const Memory& memory, const OwnFn& own);
  // Memory in use ends with its use.  Nothing is kept from here on.
  void DropAll();

 private:
  // Is not used any more when the last handle is gone; then the owner is the last to go.
  struct Kept {
    std::shared_ptr<void> owner;
    std::shared_ptr<ps::Registration> registration;
  };
  struct Entry {
    Memory memory;
    std::shared_ptr<Kept> kept;
    uint64_t last_use = 0;
  };

  // The memory if it is kept; else drops the memory that is kept for its key.
  std::shared_ptr<Kept> Find(const Memory& memory);
  std::shared_ptr<ps::Registration> Register(const Memory& memory);
  // Returns how many bytes that were; 0: everything is in use.
  uint64_t DropLeastRecentlyUsed();
  void Add(const Memory& memory, std::shared_ptr<Kept> kept);

  const RegisterFn register_;
  Mutex mutex_;
  std::map<std::pair<Key, ps::Lending>, Entry> entries_ BS_GUARDED_BY(mutex_);
  uint64_t uses_ BS_GUARDED_BY(mutex_) = 0;
  bool closed_ BS_GUARDED_BY(mutex_) = false;
};

}  // namespace bs::node
