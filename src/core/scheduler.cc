// Scheduler: the priority queue as a trie of bitmaps, and the credit rule on top of it.
#include "core/scheduler.h"

#include <array>
#include <bit>
#include <vector>

#include "base/check.h"

namespace bs::core {
namespace {

// A priority is looked up six bits at a time, most significant first: 2 + 5 * 6 = 32 bits.
constexpr int kBitsPerLevel = 6;
constexpr size_t kLevels = 6;
constexpr uint32_t kNone = UINT32_MAX;

// Order-preserving: a larger priority is a larger number.
uint32_t Ordinal(Priority priority) { return static_cast<uint32_t>(priority) ^ 0x80000000U; }

uint32_t SlotAt(uint32_t ordinal, size_t level) {
  const auto shift = static_cast<uint32_t>(kBitsPerLevel * (kLevels - 1 - level));
  return (ordinal >> shift) & 63U;
}

constexpr uint64_t Bit(uint32_t slot) { return uint64_t{1} << slot; }

// Bytes that may be in flight once an item of that size is.
uint64_t LimitFor(uint64_t size_bytes, uint64_t credit_bytes) {
  const uint64_t reserve_bytes = credit_bytes / Scheduler::kReserveShare;
  const bool is_small = size_bytes <= credit_bytes / Scheduler::kSmallShare;
  return is_small && credit_bytes <= UINT64_MAX - reserve_bytes ? credit_bytes + reserve_bytes
                                                                : credit_bytes;
}

}  // namespace

// Any operation takes at most kLevels steps, whatever the depth and the priorities.  Invariants:
//  1. A trie node other than the root has a bit set, else it is on the free list.
//  2. child[slot] means something only if the bit of `slot` is set: on the last level it is the
//  tail
//     of a circular FIFO list of entries, above it is the node of the next level.
//  3. Memory grows to the largest depth there ever was and is then reused.
class Scheduler::Queue {
 public:
  Queue() { NewNode(); }

  size_t size() const { return size_; }

  void Push(const Item& item) {
    const uint32_t ordinal = Ordinal(item.priority);
    uint32_t node = kRoot;
    for (size_t level = 0; level + 1 < kLevels; ++level) {
      const uint32_t slot = SlotAt(ordinal, level);
      if ((nodes_[node].present & Bit(slot)) == 0) {
        const uint32_t child = NewNode();  // may move nodes_
        nodes_[node].child[slot] = child;
        nodes_[node].present |= Bit(slot);
      }
      node = nodes_[node].child[slot];
    }
    Append(&nodes_[node], SlotAt(ordinal, kLevels - 1), NewEntry(item));
    ++size_;
  }

  // The item to go first.  REQUIRES: size() > 0.
  const Item& Head() const {
    uint32_t index = kRoot;
    for (size_t level = 0; level < kLevels; ++level) {
      index = nodes_[index].child[Highest(nodes_[index])];
    }
    return entries_[entries_[index].next].item;
  }

  // Takes Head() out.
  Item Pop() {
    std::array<uint32_t, kLevels> path{};
    for (size_t level = 0; level + 1 < kLevels; ++level) {
      path[level + 1] = nodes_[path[level]].child[Highest(nodes_[path[level]])];
    }
    Node& leaf = nodes_[path[kLevels - 1]];
    const uint32_t slot = Highest(leaf);
    const uint32_t tail = leaf.child[slot];
    const uint32_t head = entries_[tail].next;
    const Item item = entries_[head].item;
    --size_;
    if (head == tail) {
      leaf.present &= ~Bit(slot);
      FreeEmptyNodes(path);
    } else {
      entries_[tail].next = entries_[head].next;
    }
    entries_[head].next = free_entry_;
    free_entry_ = head;
    return item;
  }

 private:
  struct Entry {
    Item item;
    uint32_t next = kNone;  // in its list, or in the free list
  };
  struct Node {
    uint64_t present = 0;
    std::array<uint32_t, 64> child{};  // [0] links the free list
  };
  static constexpr uint32_t kRoot = 0;

  static uint32_t Highest(const Node& node) {
    return 63U - static_cast<uint32_t>(std::countl_zero(node.present));
  }

  void Append(Node* leaf, uint32_t slot, uint32_t entry) {
    if ((leaf->present & Bit(slot)) == 0) {
      entries_[entry].next = entry;
      leaf->present |= Bit(slot);
    } else {
      const uint32_t tail = leaf->child[slot];
      entries_[entry].next = entries_[tail].next;
      entries_[tail].next = entry;
    }
    leaf->child[slot] = entry;
  }

  // Upwards from the leaf, as far as nodes have become empty.
  void FreeEmptyNodes(const std::array<uint32_t, kLevels>& path) {
    for (size_t level = kLevels - 1; level > 0 && nodes_[path[level]].present == 0; --level) {
      nodes_[path[level]].child[0] = free_node_;
      free_node_ = path[level];
      Node& parent = nodes_[path[level - 1]];
      parent.present &= ~Bit(Highest(parent));  // we came down its highest
    }
  }

  uint32_t NewNode() {
    if (free_node_ == kNone) {
      nodes_.emplace_back();
      return static_cast<uint32_t>(nodes_.size() - 1);
    }
    const uint32_t node = free_node_;
    free_node_ = nodes_[node].child[0];
    return node;
  }

  uint32_t NewEntry(const Item& item) {
    if (free_entry_ == kNone) {
      BS_CHECK(entries_.size() < kNone);
      entries_.push_back({.item = item, .next = kNone});
      return static_cast<uint32_t>(entries_.size() - 1);
    }
    const uint32_t entry = free_entry_;
    free_entry_ = entries_[entry].next;
    entries_[entry].item = item;
    return entry;
  }

  std::vector<Node> nodes_;
  std::vector<Entry> entries_;
  uint32_t free_node_ = kNone;
  uint32_t free_entry_ = kNone;
  size_t size_ = 0;
};

Scheduler::Scheduler(uint64_t credit_bytes, bool small_reserve)
    : small_reserve_(small_reserve), queue_(std::make_unique<Queue>()) {
  SetCredit(credit_bytes);
}

Scheduler::~Scheduler() = default;

void Scheduler::SetCredit(uint64_t credit_bytes) {
  BS_CHECK(credit_bytes > 0);
  credit_bytes_ = credit_bytes;
}

void Scheduler::Submit(const Item& item) {
  queue_->Push(item);
  queued_bytes_ += item.size_bytes;
}

const Item& Scheduler::head() const { return queue_->Head(); }

// Never skip the head for a smaller partition behind it: that would invert the priorities exactly
// when the link is busiest.
bool Scheduler::may_start() const {
  if (queue_->size() == 0) return false;
  if (in_flight_items_ == 0) return true;
  const uint64_t size_bytes = head().size_bytes;
  const uint64_t limit_bytes = small_reserve_ ? LimitFor(size_bytes, credit_bytes_) : credit_bytes_;
  return in_flight_bytes_ <= limit_bytes && size_bytes <= limit_bytes - in_flight_bytes_;
}

std::optional<Item> Scheduler::Next() {
  if (!may_start()) return std::nullopt;
  const uint64_t size_bytes = head().size_bytes;
  queued_bytes_ -= size_bytes;
  in_flight_bytes_ += size_bytes;
  ++in_flight_items_;
  return queue_->Pop();
}

void Scheduler::Return(uint64_t size_bytes) {
  BS_CHECK(in_flight_items_ > 0 && size_bytes <= in_flight_bytes_);
  in_flight_bytes_ -= size_bytes;
  --in_flight_items_;
}

size_t Scheduler::Remove(const void* token) {
  // Out and in again keeps the order: pops come by priority, then first in, first out.
  std::vector<Item> kept;
  const size_t before = queue_->size();
  while (queue_->size() > 0) {
    const Item item = queue_->Pop();
    if (item.token != token) {
      kept.push_back(item);
    } else {
      queued_bytes_ -= item.size_bytes;
    }
  }
  for (const Item& item : kept) queue_->Push(item);
  return before - kept.size();
}

size_t Scheduler::Clear() {
  const size_t before = queue_->size();
  while (queue_->size() > 0) queue_->Pop();
  queued_bytes_ = 0;
  return before;
}

size_t Scheduler::queued() const { return queue_->size(); }

}  // namespace bs::core
