// PushPullTask: one tensor's way through the back end in one round.
//
// The round 0 of a broadcast only pushes.  The Core decides when a partition starts; the back end
// says when its credit returns.
//
// For the Core a tensor of a coded round is as large as its codes: credit counts the bytes that
// travel.  Gradients that the workers of a host add up first are not coded on their way there.
//
// Confined to the worker's executor.  The memory of the call is the caller's: `in` and the residual
// until `pushed`, `out` until `pulled`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "base/unique_function.h"
#include "core/comm_task.h"
#include "worker/operation_context.h"

namespace bs::worker {

class PushPullTask final : public CommTask {
 public:
  struct Call {
    Round round = 0;
    Priority priority = 0;
    bool keeps_priority = false;  // no partition goes early
    PushRates rates{};
    Duration waited{};        // since the framework's user asked, for spans
    double factor = 1;        // see PushPullOptions
    bool is_gradient = true;  // false: no part of a training step, for spans
    std::span<const std::byte> in;
    std::span<std::byte> out;   // not used if `pulled` is empty
    backend::Coder coder{};     // its residual is the whole tensor's
    std::string next_layout{};  // see Exchange; travels with partition 0
    UniqueFunction<void(Status)> pushed;
    UniqueFunction<void(Status)> pulled;  // may be empty: nothing is pulled then
  };

  // `context` and `tensor` must outlive the task.  `ended` runs after `pushed` and `pulled`, when
  // no exchange is left and the Core has let go of the task; it may destroy the task. REQUIRES: the
  // sizes of the call's memory are the tensor's.
  PushPullTask(const OperationContext* context, const protocol::Tensor* tensor, Call call,
               UniqueFunction<void()> ended);

  // The key's layout from the next round on, as it came with partition 0 of the sum.
  const std::string& next_layout() const { return next_layout_; }

  // Registers with the Core and is ready.  REQUIRES: called once; the worker has not failed.
  void Begin();

  std::vector<bs::Partition> Partition(uint64_t partition_bytes) override;
  uint64_t value_bytes() const override { return tensor_->size_bytes; }
  uint64_t CreditBytes(const bs::Partition& sent) const override;
  void Start(const bs::Partition& partition) override;
  void OnFinished(Status status) override;

 private:
  // The exchanges in a single direction.
  struct Direction {
    UniqueFunction<void(Status)> done;  // empty once called
    // A network device's registration of the call's memory in this direction.  It ends before
    // `done`: from there on the caller may give the memory away.  A device that still knows the
    // address would use the old pages for new data at that address.
    std::shared_ptr<void> lent{};
    uint32_t pending = 0;   // started and not over
    uint32_t complete = 0;  // over, with ok
  };

  // The bytes that travel for `size_bytes` of a partition, or from the tensor's beginning, in
  // `coding`.
  uint64_t SentBytes(const Coding& coding, uint64_t size_bytes) const {
    return adds_up_ ? size_bytes : context_->codecs->SentBytes(coding, size_bytes);
  }
  // The name of the codec whose codes travel, for spans; empty: bytes travel as they lie in memory.
  std::string_view NameOf(const codec::Codec* codec) const {
    return adds_up_ || codec == nullptr ? std::string_view() : codec->name;
  }
  // Unknown unless they are recorded.
  Carriers CarriersOf(uint32_t index) const;
  // `started`: when the partition was.
  void OnReleased(uint32_t index, TimePoint started, const Status& status);
  void OnSum(uint32_t index, TimePoint started, const Status& status, const std::string& next);
  void GiveCredit(uint32_t index, const Status& status);
  void Count(Direction* direction, const Status& status);
  void Lend();
  // Calls the callbacks that are due; the task may be gone when it returns.
  void Settle();
  void Settle(Direction* direction);

  const OperationContext* const context_;
  const protocol::Tensor* const tensor_;
  const PushRates rates_;
  const Duration waited_;
  const double factor_;
  const bool is_gradient_;
  const std::span<const std::byte> in_;
  const std::span<std::byte> out_;
  const backend::Coder coder_;
  const bool adds_up_;  // Backend::AddsUp
  const bool pulls_;
  std::string next_layout_;  // sent with the push, then received with the sum
  TimePoint ready_{};        // for spans
  Direction push_;
  Direction pull_;
  bool released_ = false;  // by the Core: it starts nothing any more
  Status failure_;         // the worker's
  UniqueFunction<void()> ended_;
};

}  // namespace bs::worker
