// Memory that two processes of a host share: long frames lie there, and the socket carries only
// their offsets (PROTOCOL.md, "Shared memory").
//
// The memory has no name and is freed when both processes have ended, however they end.  The
// receiver must be allowed to see the descriptors of the sender: the same user, or root.
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

#include "base/status.h"
#include "ps/message.h"
#include "transport/descriptor.h"

namespace ps {

// A mapping: a secret, a flag for each slot, the slots.  Owned by one end, whose class says which
// calls are thread-safe.
class SharedMapping {
 public:
  static constexpr uint64_t kSlotBytes = 32U << 10U;
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20U;

  SharedMapping() = default;
  // Maps all of `fd`, which the caller may close afterwards; empty if that failed.
  SharedMapping(int fd, uint64_t slots_bytes);
  SharedMapping(SharedMapping&& other) noexcept : all_(std::exchange(other.all_, {})) {}
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;
  ~SharedMapping();

  explicit operator bool() const { return !all_.empty(); }
  // Take memory for a slot, or for the head before the slots, now: a later write without memory
  // would end the process.  Kernels before 5.14 need `fd`.
  bs::Status PopulateHead(int fd) const;
  bs::Status PopulateSlot(int fd, size_t slot) const;
  // True if this kernel needs no `fd` for that.
  static bool PopulatesMappings();
  static uint64_t FileBytes(uint64_t slots_bytes);
  std::span<std::byte> secret() const;
  std::span<std::byte> slots() const;
  // The state of the frame that begins in a slot.  The sender sets it before it sends the offset
  // through a socket, which orders the two.  The sender's acquire reads the receiver's release.
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kPut = 1;
  static constexpr uint32_t kRead = 2;  // the receiver has the frame and still needs it
  std::atomic<uint32_t>& taken(size_t slot) const;

 private:
  bs::Status Populate(int fd, std::span<std::byte> part) const;

  std::span<std::byte> all_;
};

// The sender's end; belongs to one thread.
class SharedOutbox {
 public:
  // Shorter frames are cheaper to send.
  static constexpr uint64_t kLeastFrameBytes = 16U << 10U;
  // The bound of bytes that are put and not yet read; a single frame may be longer.  No urgent
  // message can overtake them.
  static constexpr uint64_t kMostUnreadBytes = uint64_t{1} << 20U;

  // Makes an outbox of about `size_bytes`, at most SharedMapping::kMostBytes.  Memory is taken slot
  // by slot when it is used first.
  static bs::Result<std::unique_ptr<SharedOutbox>> Create(uint64_t size_bytes);
  SharedOutbox(const SharedOutbox&) = delete;
  SharedOutbox& operator=(const SharedOutbox&) = delete;
  ~SharedOutbox() = default;

  // The text by which the receiver opens it.
  const std::string& offer() const { return offer_; }
  // The receiver has opened it.  From now on no other process can, if the kernel needs no `fd`.
  void Taken();
  // Copies `bytes` into slots, where they stay until the receiver releases them, and returns their
  // offset.  Nothing if there is no room now, or more than kMostUnreadBytes would be unread.
  std::optional<uint64_t> Put(std::span<const std::byte> bytes);
  // Not ok once the system had no memory for a slot; slots that have memory stay in use.
  const bs::Status& memory() const { return memory_; }

 private:
  struct Kept {
    size_t first_slot;
    size_t num_slots;
    uint64_t size_bytes;
  };
  SharedOutbox() = default;
  // Takes back the slots that the receiver has released; returns the bytes that it has not read.
  uint64_t TakeBack();
  std::optional<size_t> FindRoom(size_t num_slots) const;
  // Gives memory to all slots before `end_slot`.  False if the system has no memory for a slot:
  // this slot and the slots behind it are given up.
  bool Populate(size_t end_slot);

  Descriptor file_;
  SharedMapping mapping_;
  std::string offer_;
  bs::Status memory_;
  // By slot: true while in use.  The first num_populated_ slots have memory.
  std::vector<bool> used_;
  size_t num_populated_ = 0;
  std::list<Kept> kept_;
};

// The receiver's end.  Thread-safe; shared with the frames.
class SharedInbox : public std::enable_shared_from_this<SharedInbox> {
 public:
  // Opens the memory that `offer` names, which may be hostile.  kInvalidArgument if it is no memory
  // of a SharedOutbox of this user; kUnavailable if it cannot be mapped.
  static bs::Result<std::shared_ptr<SharedInbox>> Open(std::string_view offer);
  explicit SharedInbox(SharedMapping mapping) : mapping_(std::move(mapping)) {}
  SharedInbox(const SharedInbox&) = delete;
  SharedInbox& operator=(const SharedInbox&) = delete;
  ~SharedInbox() = default;

  // Returns the bytes there without a copy.  The sender gets the room back when the frame is
  // destroyed.  A hostile sender may change the bytes meanwhile.  kInvalidArgument if the range is
  // not inside the slots.
  bs::Result<Frame> Take(uint64_t offset_bytes, uint64_t size_bytes);

 private:
  const SharedMapping mapping_;
};

}  // namespace ps
