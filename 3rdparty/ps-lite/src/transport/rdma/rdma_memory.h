// RdmaMemory: memory that the NIC of a node may use.
//
// The owner of memory registers it, for a single loan (Lend) or for many (Keep).  There is no cache
// of addresses: an address that is freed and mapped again would still mean the old pages to the
// NIC.  So memory is found only while its owner says that it is there, by a loan.  Blocks come from
// memory of our own, which is registered once.
//
// Thread-safe; held by shared_ptr, also by the blocks and loans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/numa.h"
#include "base/status.h"
#include "ps/message.h"
#include "ps/transport.h"
#include "transport/rdma/rdma_options.h"
#include "transport/rdma/verbs.h"

namespace ps {

// The loans that callers get.
struct RdmaLoanRules {
  uint64_t most_bytes = UINT64_MAX;  // of all together
  // Only whole pages: a child process could not use the rest of a page.
  bool whole_pages = false;
};

class RdmaMemory : public std::enable_shared_from_this<RdmaMemory> {
 public:
  // Whole pages, so that no other data lies beside a block.
  static constexpr size_t kPageBytes = 4096;
  // Shorter blocks share regions of this size, whatever size they have.
  static constexpr size_t kArenaBytes = size_t{2} << 20U;

  // REQUIRES: owned by a shared_ptr.  `counts` may be null.  `numa_node`: of the blocks; -1: any.
  RdmaMemory(std::shared_ptr<VerbsDevice> device, uint64_t bounce_bytes,
             std::shared_ptr<RdmaCounts> counts, RdmaLoanRules rules = {}, int numa_node = -1);
  RdmaMemory(const RdmaMemory&) = delete;
  RdmaMemory& operator=(const RdmaMemory&) = delete;
  ~RdmaMemory() = default;

  // Memory of the caller's that is registered.  Destroying it blocks a little.
  class Kept final : public Registration, public std::enable_shared_from_this<Kept> {
   public:
    Kept(std::shared_ptr<RdmaMemory> memory, std::span<std::byte> bytes, VerbsDevice::Access access,
         std::shared_ptr<RdmaRegion> region)
        : memory_(std::move(memory)), bytes_(bytes), access_(access), region_(std::move(region)) {}
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept() override;
    std::shared_ptr<void> Use() override { return memory_->Show(shared_from_this()); }

   private:
    friend class RdmaMemory;
    const std::shared_ptr<RdmaMemory> memory_;
    const std::span<std::byte> bytes_;
    const VerbsDevice::Access access_;
    std::shared_ptr<RdmaRegion> region_;
  };
  // Registers `bytes` for loans, of which there is none yet; kFailedPrecondition or
  // kResourceExhausted by the rules.
  bs::Result<std::shared_ptr<Registration>> Keep(std::span<std::byte> bytes,
                                                 VerbsDevice::Access access);

  // While it exists, its memory is found.  Messages under way hold the region until they have
  // ended, so the memory must stay until frames and landings in it are given back.
  class Loan {
   public:
    explicit Loan(std::shared_ptr<const Kept> kept) : kept_(std::move(kept)) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { kept_->memory_->End(*kept_); }

   private:
    const std::shared_ptr<const Kept> kept_;
  };
  // Registers for a single loan.  kAlreadyExists if another loan shows all of it for this use; else
  // as Keep.
  bs::Result<std::unique_ptr<Loan>> Lend(std::span<std::byte> bytes, VerbsDevice::Access access);
  // The region around `bytes`, all of them; null: they are not lent for that.  It is registered as
  // long as the pointer is held.
  std::shared_ptr<const RdmaRegion> Find(std::span<const std::byte> bytes,
                                         VerbsDevice::Access access) const;

  // Registered memory for a single holder, given back on destruction.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept
        : memory_(std::move(other.memory_)),
          region_(std::move(other.region_)),
          bytes_(std::exchange(other.bytes_, {})) {}
    Block& operator=(Block&& other) noexcept;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { GiveBack(); }

    explicit operator bool() const { return region_ != nullptr; }
    std::span<std::byte> bytes() const { return bytes_; }
    uint32_t local_key() const { return region_->local_key(); }
    uint32_t remote_key() const { return region_->remote_key(); }

   private:
    friend class RdmaMemory;
    void GiveBack();
    std::shared_ptr<RdmaMemory> memory_;
    std::shared_ptr<RdmaRegion> region_;
    std::span<std::byte> bytes_;
  };
  // The size of the block for `size_bytes`: there are few sizes, so that a block serves again.
  static size_t BlockBytes(size_t size_bytes);
  // Empty if there is no memory, or none that may be locked; `why`, unless it is null, says which.
  // The block begins with a page.
  Block Take(size_t size_bytes, bs::Status* why = nullptr);
  // A frame of `size_bytes` in such a block, not filled, and its local key; empty as above.
  Frame New(size_t size_bytes, std::span<std::byte>* memory, uint32_t* local_key);

  // Blocks for data that lies where it is not registered, out of `bounce_bytes`.  Empty: there is
  // no room now, or none at all.
  Block TakeBounce(size_t size_bytes);
  // False: not even when no other has any of it.
  bool BouncesEver(size_t size_bytes);

  const std::shared_ptr<RdmaCounts>& counts() const { return counts_; }

 private:
  struct Entry {
    const std::byte* end = nullptr;
    VerbsDevice::Access access{};
    std::shared_ptr<RdmaRegion> region{};
    int loans = 0;  // of callers; 0: memory of ours
  };
  // Memory of ours with its region, which ends first.
  struct Arena {
    bs::NodeBuffer memory;
    std::shared_ptr<RdmaRegion> region;

    std::byte* begin() const { return memory.data(); }
    std::byte* end() const { return memory.data() + memory.size_bytes(); }
  };

  bs::Result<std::shared_ptr<Kept>> RegisterLent(std::span<std::byte> bytes,
                                                 VerbsDevice::Access access);
  std::unique_ptr<Loan> Show(std::shared_ptr<const Kept> kept);
  void End(const Kept& kept);
  // The entry of a region that begins there; table_.end(): there is none.
  std::multimap<const std::byte*, Entry>::iterator EntryOf(const std::byte* begin,
                                                           const RdmaRegion* region)
      BS_REQUIRES(mutex_);
  void GiveBack(std::span<std::byte> bytes);
  bs::Result<Arena> NewArena(size_t size_bytes);
  // Registers, and counts the pinned bytes.
  bs::Result<std::shared_ptr<RdmaRegion>> Register(std::span<std::byte> bytes,
                                                   VerbsDevice::Access access) const;
  bool MakeBounce() BS_REQUIRES(mutex_);
  // A free block of a power of two, perhaps cut off a larger block; null if there is none.
  std::byte* TakeFree(size_t block_bytes) BS_REQUIRES(mutex_);
  // Joins free blocks of this size into the blocks that they were cut from.
  void JoinFree(size_t block_bytes) BS_REQUIRES(mutex_);

  const std::shared_ptr<VerbsDevice> device_;
  const size_t bounce_bytes_;
  const std::shared_ptr<RdmaCounts> counts_;
  const RdmaLoanRules rules_;
  const int numa_node_;

  mutable bs::Mutex mutex_;
  std::map<const std::byte*, Arena> arenas_ BS_GUARDED_BY(mutex_);
  std::map<size_t, std::vector<std::byte*>> free_ BS_GUARDED_BY(mutex_);  // by size
  size_t free_large_bytes_ BS_GUARDED_BY(mutex_) = 0;  // of blocks with an arena of their own
  uint64_t lent_bytes_ BS_GUARDED_BY(mutex_) = 0;      // that callers have registered
  // The bounce arena: which of its pages are taken.  Empty before it is used first.
  Arena bounce_ BS_GUARDED_BY(mutex_);
  bool no_bounce_ BS_GUARDED_BY(mutex_) = false;  // it cannot be had
  std::vector<bool> bounce_used_ BS_GUARDED_BY(mutex_);
  // By the first byte.  Several loans may begin there: two keys may send the same array.  Behind
  // the arenas, because it holds regions, which end before their memory.
  std::multimap<const std::byte*, Entry> table_ BS_GUARDED_BY(mutex_);
};

// Memory that a node pins for its links to and from `peers`, before any data moves: slots and rings
// each way, in whole arenas.  All nodes have `slots` of `slot_bytes` for each peer.
uint64_t RdmaBytesOfPeers(uint32_t peers, uint32_t slots, uint32_t slot_bytes);

}  // namespace ps
