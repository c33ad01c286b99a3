// SimulatedFabric: RDMA cards and the network between them, in this process only.
//
// The cards check what real ones check: keys, bounds, access, states, room in queues, receives that
// are missing, READs under way.  Delays are random by a seed: completions of different queue pairs
// come in any order, and a SEND may overtake the data of a READ before it.  What real cards punish
// by wrong data is recorded as a violation of the interface:
// - Memory of a SEND changed before its completion.
// - A region ended while posted work needed it.
// - More READs were under way than agreed, or more completions waited than the queue holds.
// - Two threads used a device.
// Memory of receives and READs is poisoned when it is posted, and of READs again when they fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/types.h"
#include "transport/rdma/verbs.h"

namespace ps::test {

class FabricModel;

struct FabricOptions {
  uint64_t seed = 1;
  // A thread moves the packets, by the clock.  Otherwise Step does, in simulated time.
  bool threaded = true;
  bs::Duration most_delay = std::chrono::microseconds(20);    // of each step of a packet
  bs::Duration retry_time = std::chrono::milliseconds(300);   // until kRetriesExceeded
  bs::Duration receiver_time = std::chrono::milliseconds(4);  // until kReceiverNotReady
  // Poisons memory and looks for SENDs whose memory changes.
  bool watch_memory = true;
};

struct NicOptions {
  std::string address = "127.0.0.1";  // the GID at index 1, of RoCE v2; index 0 is link-local
  RdmaFork fork = RdmaFork::kHarmless;
  uint64_t most_pinned_bytes = uint64_t{1} << 40U;
  uint32_t most_reads = 16;
  uint32_t most_inline_bytes = 220;
  uint32_t most_completions = (1U << 15U) - 1;  // as soft-RoCE has
  uint32_t most_queue_entries = 4096;
  int numa_node = -1;
};

struct FabricCounts {
  uint64_t devices = 0;  // open now
  uint64_t queue_pairs = 0;
  uint64_t regions = 0;
  uint64_t registrations = 0;  // ever
  uint64_t pinned_bytes = 0;
  uint64_t sends = 0;  // SENDs that arrived, ever
  uint64_t reads = 0;  // READs that are complete, ever
  // Of those, bytes out of memory that is watched, and into such memory.
  uint64_t read_from_bytes = 0;
  uint64_t read_into_bytes = 0;
  uint64_t most_reads_under_way = 0;
  uint64_t receiver_not_ready = 0;  // times that a SEND found no receive
};

// A host with one card of one port.  Thread-safe.
class SimulatedNic : public Verbs {
 public:
  // The port goes down or comes up; open devices have an event.
  virtual void SetPort(bool up) = 0;
  // The host sends and answers nothing, as if its power was gone; no device has an event.
  virtual void SetSilent(bool silent) = 0;
  virtual void LoseDevice() = 0;
  // The next SEND or READ that arrives from here completes so.
  virtual void FailNext(Completion::Result result) = 0;
  virtual void LimitPinned(uint64_t most_bytes) = 0;
  virtual void RefuseQueuePairs(bool refuse) = 0;
};

// Thread-safe.  Cards and what they make may outlive it, but then nothing moves.
class SimulatedFabric {
 public:
  explicit SimulatedFabric(FabricOptions options = {});
  SimulatedFabric(const SimulatedFabric&) = delete;
  SimulatedFabric& operator=(const SimulatedFabric&) = delete;
  ~SimulatedFabric();

  // The device and its host are called `name`.
  std::shared_ptr<SimulatedNic> Add(const std::string& name, const NicOptions& options = {});
  // Moves time to the next packet and the packet; false if none is under way.  REQUIRES: not
  // threaded.
  bool Step();
  // From now on counts the bytes that READs take out of `from` and put into `into`; only addresses
  // are looked at.
  void WatchReads(std::span<const std::byte> from, std::span<const std::byte> into);
  FabricCounts Counts() const;
  // Uses of the interface that it forbids, in words; empty in a test that is right.
  std::vector<std::string> Violations() const;

  // The model and its lock, which cards share.
  struct Shared;

 private:
  void Run();

  const bool threaded_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace ps::test
