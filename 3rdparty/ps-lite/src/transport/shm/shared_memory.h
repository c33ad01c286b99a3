// Memory that two processes of one host share: long frames lie there, and only where they lie is
// sent (PROTOCOL.md, "Shared memory").
//
// It has no name and is gone with the processes, however they end.  Whoever opens it must be
// allowed to see the descriptors of who made it: the same user, or root.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bytescheduler/status.h"
#include "ps/message.h"
#include "transport/descriptor.h"

namespace ps {

// A mapping: a secret, a flag for each slot, the slots.  Owned by one end; see there for threads.
class SharedMapping {
 public:
  static constexpr uint64_t kSlotBytes = 32U << 10U;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20U;

  SharedMapping() = default;
  // Maps all of `fd`, which may be closed then; empty if that failed.
  SharedMapping(int fd, uint64_t slots_bytes);
  SharedMapping(SharedMapping&& other) noexcept : all_(std::exchange(other.all_, {})) {}
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping();

  explicit operator bool() const { return !all_.empty(); }
  // Takes memory for that part of the slots, or of what is before them, now: where there is none,
  // to write to it would end the process.  `fd` is needed on kernels before 5.14 only.
  bs::Status PopulateHead(int fd) const;
  bs::Status PopulateSlot(int fd, size_t slot) const;
  // Whether it does without `fd`.
  static bool PopulatesMappings();
  static uint64_t FileBytes(uint64_t slots_bytes);
  std::span<std::byte> secret() const;
  std::span<std::byte> slots() const;
  // Of what begins in that slot.  The sender sets it before it tells of the slot, through a socket
  // that orders the two; the receiver's release is read by an acquire.
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kPut = 1;
  static constexpr uint32_t kRead = 2;  // the receiver has it, and still needs it
  std::atomic<uint32_t>& taken(size_t slot) const;

 private:
  bs::Status Populate(int fd, std::span<std::byte> part) const;

  std::span<std::byte> all_;
};

// The sender's end; belongs to one thread.
class SharedOutbox {
 public:
  // Shorter frames are better sent.
  static constexpr uint64_t kLeastFrameBytes = 16U << 10U;
  // What was put and has not begun to be read, but for a single frame: no urgent message can
  // overtake it.
  static constexpr uint64_t kMostUnreadBytes = uint64_t{1} << 20U;

  // Of about so many bytes, SharedMapping::kMostBytes at most; takes memory as it is used.
  static bs::Result<std::unique_ptr<SharedOutbox>> Create(uint64_t size_bytes);
  SharedOutbox(const SharedOutbox&) = delete;
  SharedOutbox& operator=(const SharedOutbox&) = delete;
  ~SharedOutbox() = default;

  // What the receiver opens it by.
  const std::string& offer() const { return offer_; }
  // The receiver has opened it; nobody else can any more, where the kernel needs no descriptor.
  void Taken();
  // Copies them to where they are until the receiver has no use for them any more, and says where;
  // nothing if there is no room now, or too much that it has not begun to read.
  std::optional<uint64_t> Put(std::span<const std::byte> bytes);
  // Not ok once there was no memory for a slot; those that have memory are used on.
  const bs::Status& memory() const { return memory_; }

 private:
  struct Kept {
    size_t first_slot;
    size_t num_slots;
    uint64_t size_bytes;
  };
  SharedOutbox() = default;
  // What is left and unread.
  uint64_t TakeBack();
  std::optional<size_t> FindRoom(size_t num_slots) const;
  // Those before it have memory then; if there is none for one of them, it and what is behind it
  // are given up.
  bool Populate(size_t end_slot);

  Descriptor file_;
  SharedMapping mapping_;
  std::string offer_;
  bs::Status memory_;
  // By slot; those that were used before come first, and have memory.
  std::vector<bool> used_;
  size_t num_populated_ = 0;
  std::list<Kept> kept_;
};

// The receiver's end; thread-safe, shared with the frames.
class SharedInbox : public std::enable_shared_from_this<SharedInbox> {
 public:
  // By the offer of somebody who need not mean well.
  static bs::Result<std::shared_ptr<SharedInbox>> Open(std::string_view offer);
  explicit SharedInbox(SharedMapping mapping) : mapping_(std::move(mapping)) {}
  SharedInbox(const SharedInbox&) = delete;
  SharedInbox& operator=(const SharedInbox&) = delete;
  ~SharedInbox() = default;

  // What lies there, without a copy; the sender has the room again when the frame is destroyed.  A
  // sender that does not mean well may change the bytes meanwhile.  kInvalidArgument if that is not
  // inside.
  bs::Result<Frame> Take(uint64_t offset_bytes, uint64_t size_bytes);

 private:
  const SharedMapping mapping_;
};

}  // namespace ps
