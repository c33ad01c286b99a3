// CommTask: one tensor's communication in one round, as in the SOSP'19 paper.
//
// A framework plug-in or a worker derives from it and defines how a partition starts; the Core
// decides when.  The paper names the four verbs: Partition, NotifyReady, Start, NotifyFinish.
//
// Source: Peng et al., "A Generic Communication Scheduler for Distributed DNN Training
// Acceleration", SOSP 2019, section 4.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace bs {

class Core;

// Not thread-safe: confined to the Core's executor.  The creator owns the task.  The task outlives
// its registration, which ends when OnFinished() is called.
class CommTask {
 public:
  CommTask(Key key, Round round, Priority priority, uint64_t size_bytes);
  CommTask(const CommTask&) = delete;
  CommTask& operator=(const CommTask&) = delete;
  // REQUIRES: not registered with a Core.
  virtual ~CommTask();

  Key key() const { return key_; }
  Round round() const { return round_; }
  Priority priority() const { return priority_; }
  // The priority of a partition: see CoreOptions::early_bytes and small_tensor_bytes.
  // REQUIRES: registered once.
  Priority PriorityOf(uint32_t partition_index) const;
  uint64_t size_bytes() const { return size_bytes_; }
  // Empty until Core::Add has partitioned the task.
  std::span<const bs::Partition> partitions() const { return partitions_; }

  // Returns contiguous ranges of at most `partition_bytes`, in order, that cover every byte once,
  // each with the rank of its server.  An empty tensor has one empty partition.  Core::Add calls
  // it, once.
  virtual std::vector<bs::Partition> Partition(uint64_t partition_bytes) = 0;

  // All partitions go by the task's own priority, none early.  REQUIRES: not registered.
  void KeepPriority() { keeps_priority_ = true; }

  // The tensor's bytes may be read from now on.  No partition starts before this call.
  // REQUIRES: registered; called once.
  void NotifyReady();

  // Counts against the server's credit while a partition is outstanding.
  virtual uint64_t CreditBytes(const bs::Partition& partition) const {
    return partition.size_bytes;
  }

  // The size of the tensor where it is not coded.
  virtual uint64_t value_bytes() const { return size_bytes_; }

  // Begins to send `partition` and returns without blocking.  The Core calls it once for each
  // partition, never inside NotifyReady() or NotifyFinish().
  virtual void Start(const bs::Partition& partition) = 0;

  // The credit of a partition returns, and the next partition may start.  That is so when the
  // receiver has acknowledged the partition or, if the response is the sum, when the network has
  // taken it.  An error fails the whole task.
  // REQUIRES: the partition is started; called once for each started partition.
  void NotifyFinish(uint32_t partition_index, const Status& status);

  // Either all partitions are finished (status ok), or the task failed and no started partition is
  // outstanding.  The Core calls it once.  The task is unregistered before the call and may be
  // destroyed inside it.
  virtual void OnFinished(Status status) = 0;

 private:
  friend class Core;
  enum class State : uint8_t { kWaiting, kStarted, kFinished };

  const Key key_;
  const Round round_;
  Priority priority_;
  const uint64_t size_bytes_;

  Core* core_ = nullptr;  // not owned; null while not registered
  uint64_t number_ = 0;   // position in the order of Core::Add
  std::vector<bs::Partition> partitions_;
  std::vector<State> states_;  // of each partition
  bool keeps_priority_ = false;
  bool precedes_early_ = false;
  uint32_t num_early_ = 0;    // partitions that go in the order in which tensors became ready
  uint32_t unfinished_ = 0;   // partitions not finished yet
  uint32_t outstanding_ = 0;  // started and not finished
  bool ready_ = false;
  Status failure_;
};

}  // namespace bs
