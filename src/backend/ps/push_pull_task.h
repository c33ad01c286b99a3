// PushPullTask: one tensor's way to its servers, and its sum's way back, in one round.
//
// The round 0 of a broadcast is one that only pushes.  Starting a partition sends the push and,
// right behind it, the pull; the acknowledgement of the push gives the credit back (design
// decision 3).  A small partition goes as one request, whose answer is the sum; as that may wait
// for workers whose credit waits for us, its credit is back when the network has taken it.
//
// A coded round is for the Core as large as its codes: credit counts what travels.
//
// Confined to the worker's executor.  The memory of the call is the caller's: `in` and the residual
// until `pushed`, `out` until `pulled`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/ps/requests.h"
#include "bytescheduler/comm_task.h"

namespace bs::worker {

class PushPullTask final : public CommTask {
 public:
  struct Call {
    Round round = 0;
    Priority priority = 0;
    PushRates rates{};
    Duration waited{};  // since the framework's user asked, for spans
    std::span<const std::byte> in;
    std::span<std::byte> out;  // not used if `pulled` is empty
    Coder coder{};             // its residual is the whole tensor's
    std::string next{};        // see Piece; travels with partition 0
    UniqueFunction<void(Status)> pushed;
    UniqueFunction<void(Status)> pulled;  // may be empty: nothing is pulled then
  };

  // `link` and `tensor` must outlive the task.  `ended` runs after `pushed` and `pulled`, when no
  // request is left and the Core has let go of the task; it may destroy the task.
  // REQUIRES: the sizes of the call's memory are the tensor's.
  PushPullTask(const Link* link, const Tensor* tensor, Call call, UniqueFunction<void()> ended);

  // How the key is cut from the next round on, as it came with partition 0 of the sum.
  const std::string& next() const { return next_; }

  // Registers with the Core and is ready.  REQUIRES: called once; the worker has not failed.
  void Begin();

  std::vector<bs::Partition> Partition(uint64_t partition_bytes) override;
  void Start(const bs::Partition& partition) override;
  void OnFinished(Status status) override;

 private:
  // Requests of one direction.
  struct Direction {
    UniqueFunction<void(Status)> done;  // empty once called
    uint32_t pending = 0;               // sent and not answered
    uint32_t answered = 0;              // with ok
  };

  // The bytes that travel for `size_bytes` of a partition, or from the tensor's beginning.
  static uint64_t SentBytes(const Link& link, const Coding& coding, uint64_t size_bytes) {
    return link.codecs->SentBytes(coding, size_bytes);
  }
  bool GoesTogether(uint64_t size_bytes) const;
  void PushPull(const Piece& piece, TimePoint started);
  void Push(const Piece& piece, TimePoint started);
  void OnLeft(uint32_t index, TimePoint started);
  void OnSum(uint32_t index, TimePoint started, const Status& status);
  // The answer of one direction, as far as it counts.
  void Count(Direction* direction, const Status& status);
  void GiveCredit(uint32_t index, const Status& status);
  // `started`: when the partition was.
  void OnAnswer(Direction* direction, uint32_t index, TimePoint started, const Status& status);
  // Calls what can be called; the task may be gone when it returns.
  void Settle();
  void Settle(Direction* direction);

  const Link* const link_;
  const Tensor* const tensor_;
  const PushRates rates_;
  const Duration waited_;
  const std::span<const std::byte> in_;
  const std::span<std::byte> out_;
  const Coder coder_;
  const bool pulls_;
  std::string next_;   // what goes with the push, then what came with the sum
  TimePoint ready_{};  // for spans
  Direction push_;
  Direction pull_;
  bool released_ = false;  // by the Core: it starts nothing any more
  Status failure_;         // the worker's
  UniqueFunction<void()> ended_;
};

}  // namespace bs::worker
