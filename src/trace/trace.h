// Trace: events of tensors and partitions, on their way from the thread that records them to the
// thread that writes them.
//
// A bounded ring between exactly two threads.  Record() is a few stores: no lock, no memory, no
// clock (times are given).  When the reader falls behind, events are lost and counted; the
// recording thread never waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/types.h"

namespace bs::trace {

struct TraceEvent {
  // Spans from `begin` to `end`; a moment has only `end`.
  enum class Kind : uint8_t {
    // Whole tensors; partition and server mean nothing.
    kTensor,    // ready to pulled
    kProxy,     // called for to ready: its proxy in the framework's engine waits for the gradient
    kCritical,  // all gradients of a step ready, to the sum of this tensor, the most urgent
    // Partitions.
    kQueued,  // ready to started
    kPush,    // started to acknowledged, or to out of our hands if the sum is the answer
    kPull,    // requested to answered: the way out, waiting for other workers, the way back
    kCredit,  // at `end`: `bytes` are in flight to `server`, and `queued` partitions wait for it
    // At `end` rank 0 has decided, as `round`: `partition_bytes`, and a credit of `bytes`.
    kDecision,
    // Spans of a server; `server` holds the shard.
    kPeers,  // first push of a round to its last, which is of `last_rank`
    kSum,    // last push to the sum
  };
  Kind kind = Kind::kTensor;
  Carrier carrier = Carrier::kUnknown;  // of kPush and kPull
  uint32_t partition = 0;               // its index, of spans of partitions
  uint32_t server = 0;
  Priority priority = 0;  // of spans of a worker
  int32_t last_rank = 0;  // of kPeers
  uint32_t queued = 0;    // of kCredit
  Key key = 0;
  Round round = 0;
  uint64_t bytes = 0;            // of the tensor or partition; see kCredit and kDecision
  uint64_t partition_bytes = 0;  // of kDecision
  // Name of the codec: of spans of a worker if `bytes` are its codes, of a server if it has added
  // codes.  The text outlives the trace.
  std::string_view coding{};
  TimePoint begin{};
  TimePoint end{};
};

class Trace {
 public:
  // Room for `capacity` events, a power of two, at least 4, taken now.  `wake`, which may be empty,
  // is called on the recording thread after each quarter of that, so that the reader comes.
  explicit Trace(size_t capacity, std::function<void()> wake = {});
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  // On the recording thread.
  void Record(const TraceEvent& event);

  // On the reading thread: takes the oldest event; false if there is none.
  bool Take(TraceEvent* event);
  // On any thread: events that found no room.
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  const size_t capacity_;
  const std::function<void()> wake_;
  const std::unique_ptr<TraceEvent[]> events_;
  // Each index is written by one thread; release and acquire hand the event over, or its place
  // back.
  alignas(64) std::atomic<uint64_t> recorded_ = 0;
  std::atomic<uint64_t> lost_ = 0;
  uint64_t known_taken_ = 0;  // of the recording thread: a lower bound of taken_
  alignas(64) std::atomic<uint64_t> taken_ = 0;
};

}  // namespace bs::trace
