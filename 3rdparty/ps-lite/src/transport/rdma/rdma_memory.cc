// Registers memory, and lends blocks of its own.
#include "transport/rdma/rdma_memory.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.h"
#include "base/guarded.h"

namespace ps {
namespace {

// Bound of the free bytes that are kept in blocks with an arena of their own.
constexpr size_t kMostKeptBytes = size_t{64} << 20U;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// By the system's pages, which may be longer than ours.
bool IsWholePages(std::span<const std::byte> bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return reinterpret_cast<uintptr_t>(bytes.data()) % page == 0 && bytes.size() % page == 0;
}

bool Allows(VerbsDevice::Access given, VerbsDevice::Access wanted) {
  return given == wanted || given == VerbsDevice::Access::kBoth;
}

}  // namespace

RdmaMemory::RdmaMemory(std::shared_ptr<VerbsDevice> device, uint64_t bounce_bytes,
                       std::shared_ptr<RdmaCounts> counts, RdmaLoanRules rules, int numa_node)
    : device_(std::move(device)),
      bounce_bytes_(RoundUp(bounce_bytes, kPageBytes)),
      counts_(std::move(counts)),
      rules_(rules),
      numa_node_(numa_node) {}

bs::Result<std::shared_ptr<RdmaRegion>> RdmaMemory::Register(std::span<std::byte> bytes,
                                                             VerbsDevice::Access access) const {
  auto region = device_->Register(bytes, access);
  if (!region.ok()) return region.status();
  if (!counts_) return std::shared_ptr<RdmaRegion>(std::move(region.value()));
  counts_->pinned_bytes += bytes.size();
  return std::shared_ptr<RdmaRegion>(region.value().release(),
                                     [counts = counts_, size = bytes.size()](RdmaRegion* ended) {
                                       std::default_delete<RdmaRegion>()(ended);
                                       counts->pinned_bytes -= size;
                                     });
}

bs::Result<std::shared_ptr<RdmaMemory::Kept>> RdmaMemory::RegisterLent(std::span<std::byte> bytes,
                                                                       VerbsDevice::Access access) {
  if (rules_.whole_pages && !IsWholePages(bytes)) {
    return bs::Status::FailedPrecondition("a child process needs what else lies on these pages");
  }
  if (bytes.size() > rules_.most_bytes) {
    return bs::Status::FailedPrecondition("this memory alone is more than the limit allows");
  }
  {
    const bs::MutexLock lock(&mutex_);
    if (bytes.size() > rules_.most_bytes - lent_bytes_) {
      return bs::Status::ResourceExhausted("more memory is lent than the limit allows");
    }
    lent_bytes_ += bytes.size();
  }
  auto region = Register(bytes, access);  // may block
  if (region.ok()) {
    return std::make_shared<Kept>(shared_from_this(), bytes, access, std::move(region.value()));
  }
  const bs::MutexLock lock(&mutex_);
  lent_bytes_ -= bytes.size();
  return region.status();
}

// The region ends before other memory gets its room, unless a message under way still holds it.
RdmaMemory::Kept::~Kept() {
  region_.reset();
  const bs::MutexLock lock(&memory_->mutex_);
  memory_->lent_bytes_ -= bytes_.size();
}

bs::Result<std::shared_ptr<Registration>> RdmaMemory::Keep(std::span<std::byte> bytes,
                                                           VerbsDevice::Access access) {
  auto kept = RegisterLent(bytes, access);
  if (!kept.ok()) return kept.status();
  return std::shared_ptr<Registration>(std::move(kept.value()));
}

bs::Result<std::unique_ptr<RdmaMemory::Loan>> RdmaMemory::Lend(std::span<std::byte> bytes,
                                                               VerbsDevice::Access access) {
  if (Find(bytes, access)) return bs::Status::AlreadyExists("this memory is lent already");
  auto kept = RegisterLent(bytes, access);
  if (!kept.ok()) return kept.status();
  return Show(std::move(kept.value()));
}

std::multimap<const std::byte*, RdmaMemory::Entry>::iterator RdmaMemory::EntryOf(
    const std::byte* begin, const RdmaRegion* region) {
  const auto [first, last] = table_.equal_range(begin);
  const auto it = std::find_if(
      first, last, [&](const auto& entry) { return entry.second.region.get() == region; });
  return it != last ? it : table_.end();
}

std::unique_ptr<RdmaMemory::Loan> RdmaMemory::Show(std::shared_ptr<const Kept> kept) {
  const std::span<std::byte> bytes = kept->bytes_;
  const bs::MutexLock lock(&mutex_);
  auto it = EntryOf(bytes.data(), kept->region_.get());
  if (it == table_.end()) {
    it = table_.emplace(bytes.data(), Entry{.end = bytes.data() + bytes.size(),
                                            .access = kept->access_,
                                            .region = kept->region_});
  }
  ++it->second.loans;
  return std::make_unique<Loan>(std::move(kept));
}

void RdmaMemory::End(const Kept& kept) {
  const bs::MutexLock lock(&mutex_);
  const auto it = EntryOf(kept.bytes_.data(), kept.region_.get());
  BS_CHECK(it != table_.end() && it->second.loans > 0);
  if (--it->second.loans == 0) table_.erase(it);  // `kept` has the region still
}

std::shared_ptr<const RdmaRegion> RdmaMemory::Find(std::span<const std::byte> bytes,
                                                   VerbsDevice::Access access) const {
  if (bytes.empty()) return nullptr;
  const bs::MutexLock lock(&mutex_);
  const auto behind = table_.upper_bound(bytes.data());
  if (behind == table_.begin()) return nullptr;
  const std::byte* const begin = std::prev(behind)->first;
  for (auto it = table_.lower_bound(begin); it != behind; ++it) {
    const bool whole = bytes.data() + bytes.size() <= it->second.end;
    if (whole && Allows(it->second.access, access)) return it->second.region;
  }
  return nullptr;
}

bs::Result<RdmaMemory::Arena> RdmaMemory::NewArena(size_t size_bytes) {
  Arena arena;
  bs::Status made = bs::Guarded([&] {
    arena.memory =
        bs::NodeBuffer(std::max(size_bytes, bs::NodeBuffer::kWholePagesFrom), numa_node_);
    auto region = Register({arena.begin(), arena.end()}, VerbsDevice::Access::kBoth);
    if (region.ok()) arena.region = std::move(region.value());
    return region.status();
  });
  if (!made.ok()) return made;
  return arena;
}

size_t RdmaMemory::BlockBytes(size_t size_bytes) {
  if (size_bytes > kArenaBytes) return RoundUp(size_bytes, kArenaBytes / 2);
  return std::bit_ceil(std::max(size_bytes, kPageBytes));
}

std::byte* RdmaMemory::TakeFree(size_t block_bytes) {
  auto from = free_.lower_bound(block_bytes);
  while (from != free_.end() && from->second.empty()) ++from;
  const bool large = block_bytes > kArenaBytes;
  const size_t most_bytes = large ? block_bytes : kArenaBytes;
  if (from == free_.end() || from->first > most_bytes) return nullptr;
  std::byte* const begin = from->second.back();  // the warmest
  from->second.pop_back();
  for (size_t half = from->first / 2; half >= block_bytes; half /= 2) {
    free_[half].push_back(begin + half);
  }
  return begin;
}

void RdmaMemory::JoinFree(size_t block_bytes) {
  std::vector<std::byte*>& free = free_[block_bytes];
  std::vector<std::byte*>& joined = free_[2 * block_bytes];
  std::ranges::sort(free);
  const auto is_first_half = [&](std::byte* begin) BS_REQUIRES(mutex_) {
    const std::byte* const arena = std::prev(arenas_.upper_bound(begin))->first;
    return static_cast<size_t>(begin - arena) % (2 * block_bytes) == 0;
  };
  std::vector<std::byte*> alone;
  for (std::byte* const begin : free) {
    const bool has_first = !alone.empty() && alone.back() + block_bytes == begin;
    if (has_first && is_first_half(alone.back())) {
      joined.push_back(alone.back());
      alone.pop_back();
    } else {
      alone.push_back(begin);
    }
  }
  free = std::move(alone);
}

RdmaMemory::Block RdmaMemory::Take(size_t size_bytes, bs::Status* why) {
  const size_t block_bytes = BlockBytes(size_bytes);
  const bs::MutexLock lock(&mutex_);
  std::byte* begin = TakeFree(block_bytes);
  if (begin == nullptr && block_bytes <= kArenaBytes) {
    for (size_t bytes = kPageBytes; bytes < block_bytes; bytes *= 2) JoinFree(bytes);
    begin = TakeFree(block_bytes);
  }
  if (begin == nullptr) {
    const size_t arena_bytes = std::max(block_bytes, kArenaBytes);
    bs::Result<Arena> arena = NewArena(arena_bytes);
    if (!arena.ok() && why != nullptr) *why = arena.status();
    if (!arena.ok()) return {};
    std::byte* const added = arena.value().begin();
    free_[arena_bytes].push_back(added);
    if (block_bytes > kArenaBytes) free_large_bytes_ += block_bytes;
    table_.emplace(added, Entry{.end = added + arena_bytes,
                                .access = VerbsDevice::Access::kBoth,
                                .region = arena.value().region});
    arenas_.emplace(added, std::move(arena.value()));
    begin = TakeFree(block_bytes);
  }
  Block block;
  if (block_bytes > kArenaBytes) free_large_bytes_ -= block_bytes;
  block.bytes_ = {begin, size_bytes};
  block.region_ = std::prev(arenas_.upper_bound(begin))->second.region;
  block.memory_ = shared_from_this();
  return block;
}

Frame RdmaMemory::New(size_t size_bytes, std::span<std::byte>* memory, uint32_t* local_key) {
  Block block = Take(size_bytes);
  if (!block) return {};
  *memory = block.bytes();
  *local_key = block.local_key();
  return Frame::Own(*memory, [kept = std::move(block)] {});
}

bool RdmaMemory::MakeBounce() {
  if (bounce_.region || no_bounce_) return !no_bounce_;
  no_bounce_ = bounce_bytes_ == 0;
  if (no_bounce_) return false;
  bs::Result<Arena> arena = NewArena(bounce_bytes_);
  no_bounce_ = !arena.ok();
  if (no_bounce_) return false;
  bounce_ = std::move(arena.value());
  bounce_used_.assign(bounce_bytes_ / kPageBytes, false);
  return true;
}

RdmaMemory::Block RdmaMemory::TakeBounce(size_t size_bytes) {
  const size_t pages = RoundUp(size_bytes, kPageBytes) / kPageBytes;
  const bs::MutexLock lock(&mutex_);
  if (!MakeBounce()) return {};
  const auto found = std::search_n(bounce_used_.begin(), bounce_used_.end(), pages, false);
  if (found == bounce_used_.end()) return {};
  std::fill_n(found, pages, true);
  Block block;
  const auto page = static_cast<size_t>(found - bounce_used_.begin());
  block.bytes_ = {bounce_.begin() + page * kPageBytes, size_bytes};
  block.region_ = bounce_.region;
  block.memory_ = shared_from_this();
  return block;
}

bool RdmaMemory::BouncesEver(size_t size_bytes) {
  const bs::MutexLock lock(&mutex_);
  return size_bytes <= bounce_bytes_ && MakeBounce();
}

void RdmaMemory::GiveBack(std::span<std::byte> bytes) {
  Arena ended;  // after the lock is gone: this may block
  std::shared_ptr<RdmaRegion> region;
  const bs::MutexLock lock(&mutex_);
  std::byte* const begin = bytes.data();
  if (bounce_.region && begin >= bounce_.begin() && begin < bounce_.end()) {
    const auto page = (begin - bounce_.begin()) / static_cast<ptrdiff_t>(kPageBytes);
    std::fill_n(bounce_used_.begin() + page, RoundUp(bytes.size(), kPageBytes) / kPageBytes, false);
    return;
  }
  const size_t block_bytes = BlockBytes(bytes.size());
  const bool large = block_bytes > kArenaBytes;
  if (large && free_large_bytes_ + block_bytes > kMostKeptBytes) {
    ended = std::move(arenas_.extract(begin).mapped());
    const auto it = EntryOf(begin, ended.region.get());
    BS_CHECK(it != table_.end());
    region = std::move(it->second.region);
    table_.erase(it);
    return;
  }
  if (large) free_large_bytes_ += block_bytes;
  free_[block_bytes].push_back(begin);
}

RdmaMemory::Block& RdmaMemory::Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  memory_ = std::move(other.memory_);
  region_ = std::move(other.region_);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

void RdmaMemory::Block::GiveBack() {
  region_.reset();
  if (memory_) memory_->GiveBack(bytes_);
  memory_.reset();
  bytes_ = {};
}

uint64_t RdmaBytesOfPeers(uint32_t peers, uint32_t slots, uint32_t slot_bytes) {
  const uint64_t ring_slots = std::min(slots, kRdmaRingSends);
  const uint64_t return_ring_slots = std::min(kRdmaReturnSlots, kRdmaRingSends);
  uint64_t shared_bytes = 0;  // of blocks that share arenas
  uint64_t large_bytes = 0;
  for (const uint64_t size_bytes :
       {uint64_t{slots} * slot_bytes, ring_slots * slot_bytes,
        uint64_t{kRdmaReturnSlots} * kRdmaReturnSlotBytes,
        return_ring_slots * std::min(kRdmaReturnSlotBytes, slot_bytes)}) {
    const uint64_t block_bytes = RdmaMemory::BlockBytes(size_bytes);
    (block_bytes > RdmaMemory::kArenaBytes ? large_bytes : shared_bytes) += block_bytes;
  }
  // Powers of two leave no gap in an arena while all are in use.
  return peers * large_bytes + RoundUp(peers * shared_bytes, RdmaMemory::kArenaBytes);
}

}  // namespace ps
