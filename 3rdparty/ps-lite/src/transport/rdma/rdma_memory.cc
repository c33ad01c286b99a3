// Registers memory, and lends blocks of its own.
#include "transport/rdma/rdma_memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>

namespace ps {
namespace {

// The bound of what is kept of blocks with an arena of their own.
constexpr size_t kMostKeptBytes = size_t{64} << 20U;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Few sizes, so that a block serves again.
size_t BlockBytes(size_t size_bytes) {
  if (size_bytes > RdmaMemory::kArenaBytes) return RoundUp(size_bytes, RdmaMemory::kArenaBytes / 2);
  return std::bit_ceil(std::max(size_bytes, RdmaMemory::kPageBytes));
}

bool Allows(VerbsDevice::Access given, VerbsDevice::Access wanted) {
  return given == wanted || given == VerbsDevice::Access::kBoth;
}

}  // namespace

void RdmaMemory::Free::operator()(std::byte* bytes) const { std::free(bytes); }

RdmaMemory::RdmaMemory(std::shared_ptr<VerbsDevice> device, uint64_t bounce_bytes,
                       std::shared_ptr<RdmaCounts> counts)
    : device_(std::move(device)),
      bounce_bytes_(RoundUp(bounce_bytes, kPageBytes)),
      counts_(std::move(counts)) {}

// Regions end before their memory.
RdmaMemory::~RdmaMemory() {
  table_.clear();
  for (auto& [begin, arena] : arenas_) arena.region.reset();
  bounce_.region.reset();
}

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

bs::Result<std::unique_ptr<RdmaMemory::Loan>> RdmaMemory::Lend(std::span<std::byte> bytes,
                                                               VerbsDevice::Access access) {
  auto region = Register(bytes, access);
  if (!region.ok()) return region.status();
  const bs::MutexLock lock(&mutex_);
  const bool added = table_
                         .emplace(bytes.data(), Entry{.end = bytes.data() + bytes.size(),
                                                      .access = access,
                                                      .region = std::move(region.value()),
                                                      .loan = true})
                         .second;
  if (!added) return bs::Status::AlreadyExists("a loan begins at this address already");
  return std::make_unique<Loan>(shared_from_this(), bytes.data());
}

void RdmaMemory::End(const std::byte* begin) {
  std::shared_ptr<RdmaRegion> ended;  // after the lock is gone: this may block
  const bs::MutexLock lock(&mutex_);
  const auto it = table_.find(begin);
  BS_CHECK(it != table_.end() && it->second.loan);
  ended = std::move(it->second.region);
  table_.erase(it);
}

std::shared_ptr<const RdmaRegion> RdmaMemory::Find(std::span<const std::byte> bytes,
                                                   VerbsDevice::Access access) const {
  if (bytes.empty()) return nullptr;
  const bs::MutexLock lock(&mutex_);
  auto it = table_.upper_bound(bytes.data());
  if (it == table_.begin()) return nullptr;
  const Entry& entry = std::prev(it)->second;
  const bool whole = bytes.data() + bytes.size() <= entry.end;
  return whole && Allows(entry.access, access) ? entry.region : nullptr;
}

std::optional<RdmaMemory::Arena> RdmaMemory::NewArena(size_t size_bytes) {
  Arena arena;
  arena.size_bytes = size_bytes;
  arena.bytes.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, size_bytes)));
  if (!arena.bytes) return std::nullopt;
  auto region = Register({arena.bytes.get(), size_bytes}, VerbsDevice::Access::kBoth);
  if (!region.ok()) return std::nullopt;
  arena.region = std::move(region.value());
  return arena;
}

RdmaMemory::Block RdmaMemory::Take(size_t size_bytes) {
  const size_t block_bytes = BlockBytes(size_bytes);
  const bs::MutexLock lock(&mutex_);
  std::vector<std::byte*>& free = free_[block_bytes];
  if (free.empty()) {
    const size_t arena_bytes = std::max(block_bytes, kArenaBytes);
    std::optional<Arena> arena = NewArena(arena_bytes);
    if (!arena) return {};
    std::byte* const begin = arena->bytes.get();
    for (size_t at = 0; at < arena_bytes; at += block_bytes) free.push_back(begin + at);
    if (block_bytes > kArenaBytes) free_large_bytes_ += block_bytes;
    table_.emplace(begin, Entry{.end = begin + arena_bytes,
                                .access = VerbsDevice::Access::kBoth,
                                .region = arena->region});
    arenas_.emplace(begin, std::move(*arena));
  }
  Block block;
  std::byte* const begin = free.back();  // the warmest
  free.pop_back();
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
  std::optional<Arena> arena = bounce_bytes_ == 0 ? std::nullopt : NewArena(bounce_bytes_);
  no_bounce_ = !arena;
  if (no_bounce_) return false;
  bounce_ = std::move(*arena);
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
  block.bytes_ = {bounce_.bytes.get() + page * kPageBytes, size_bytes};
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
  if (bounce_.region && begin >= bounce_.bytes.get() &&
      begin < bounce_.bytes.get() + bounce_.size_bytes) {
    const auto page = (begin - bounce_.bytes.get()) / static_cast<ptrdiff_t>(kPageBytes);
    std::fill_n(bounce_used_.begin() + page, RoundUp(bytes.size(), kPageBytes) / kPageBytes, false);
    return;
  }
  const size_t block_bytes = BlockBytes(bytes.size());
  const bool large = block_bytes > kArenaBytes;
  if (large && free_large_bytes_ + block_bytes > kMostKeptBytes) {
    region = std::move(table_.at(begin).region);
    table_.erase(begin);
    ended = std::move(arenas_.extract(begin).mapped());
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

}  // namespace ps
