// Core: drives CommTasks through the rules of the scheduler.
//
// It knows no framework, no network and no clock.  Not thread-safe: the owner confines the Core and
// its tasks to one executor.  It never blocks and never fails; a broken REQUIRES aborts.
//
// Source: Peng et al., SOSP 2019, section 4 and algorithm 1.
// docs/design/decisions/0003-credit-at-the-push-acknowledgement.md explains the differences.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "core/comm_task.h"

namespace bs {

struct CoreOptions {
  uint32_t num_servers = 1;
  // Among servers whose next partitions may start at the same time, this server is the first.
  uint32_t first_server = 0;
  // Partitions of equal urgency start in proportion to the weights, but for servers
  // beside: docs/design/placement.md.
  Shares shares{};
  uint64_t partition_bytes = kFirstPartitionBytes;
  // Limit of the bytes in flight to one server: started and not finished.  A larger partition may
  // still start when nothing else is in flight to that server.  Small partitions (up to a sixteenth
  // of the limit) have a reserve of an eighth of it.
  uint64_t credit_bytes = kFirstCreditBytes;
  // The first half of each tensor's partitions has at least kEarlyPriority.  These halves go in the
  // order in which the tensors became ready, and only the other halves by priority.  Otherwise each
  // newly ready tensor cuts off the tensors before it, at another partition on each worker.  Then
  // sums of partitions that only some workers have sent wait until the end of backward, and the
  // links to the workers are idle meanwhile.  Of an odd number of partitions, odd keys have the
  // larger half in front, so that half of the tensors of one partition go early.  See
  // docs/design/scale.md.  The option bounds the early bytes of a tensor, because urgent tensors
  // wait for them.  0: nothing goes early.
  uint64_t early_bytes = kEarlyBytes;
  // Tensors of at most these bytes have at least kSmallTensorPriority, so that a small urgent
  // tensor does not wait for the early partitions of all ready tensors.  Codes count with the bytes
  // of their gradient, which are the same on all workers.
  uint64_t small_tensor_bytes = kSmallTensorBytes;
  // False: partitions start in the order in which they became ready, whatever their priority.  The
  // benchmarks compare with it.
  bool priority_order = true;
  // False: small partitions have no reserve.
  bool small_reserve = true;
};

class Core {
 public:
  // Runs a function soon on the Core's executor, never inside the call.  The Core starts partitions
  // only from there.
  using Defer = std::function<void(std::function<void()>)>;

  Core(const CoreOptions& options, Defer defer);
  // REQUIRES: no task is registered.
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Registers `task`, which it does not own, and partitions it.
  // REQUIRES: not registered anywhere; every partition's server < num_servers.
  void Add(CommTask* task);

  // Fails every registered task with `status`: no further partition starts.  A task without
  // outstanding partitions gets OnFinished(status) inside this call.  The other tasks get it when
  // their last outstanding partition finishes.  Tasks added later fail in the same way, deferred.
  // REQUIRES: !status.ok().
  void FailAll(const Status& status);

  // Fails one task with `status`, as above.  Nothing happens if it is not registered.
  // REQUIRES: !status.ok().
  void Drop(CommTask* task, const Status& status);

  // Gives a task another priority, and its queued partitions with it.  They go behind those that
  // have that priority already; with the same priority, or without priority_order, they keep their
  // places.  Nothing happens if the task is not registered.
  void Reprioritise(CommTask* task, Priority priority);

  // Replaces CoreOptions::credit_bytes from now on, also for queued partitions.
  // REQUIRES: credit_bytes > 0.
  void SetCredit(uint64_t credit_bytes);

  // For tests and metrics.
  uint64_t in_flight_bytes(uint32_t server) const;
  size_t queued(uint32_t server) const;
  uint64_t queued_bytes(uint32_t server) const;
  uint64_t credit_bytes() const;
  size_t num_tasks() const;

 private:
  friend class CommTask;
  class Impl;
  void TaskReady(CommTask* task);
  void PartitionFinished(CommTask* task, uint32_t index, const Status& status);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace bs
