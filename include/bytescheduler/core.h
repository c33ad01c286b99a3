// Core: drives CommTasks through the rules of the scheduler.
//
// Knows no framework, no network and no clock.  Not thread-safe: the owner confines it, and the
// tasks, to one executor.  Never blocks, never fails; a broken REQUIRES aborts.
//
// Source: Peng et al., SOSP 2019, section 4 and algorithm 1; what is different is said in
// docs/design/decisions/0003-credit-at-the-push-acknowledgement.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bytescheduler/comm_task.h"
#include "bytescheduler/status.h"
#include "bytescheduler/types.h"

namespace bs {

struct CoreOptions {
  uint32_t num_servers = 1;
  uint64_t partition_bytes = uint64_t{128} << 10U;
  // Bytes in flight to one server: started and not finished.  A partition larger than this
  // may still go when nothing else is in flight to that server, and small ones (up to a
  // sixteenth of it) have an eighth of it besides.
  uint64_t credit_bytes = uint64_t{512} << 10U;
  // False sends partitions in the order in which they became ready, whatever their priority
  // (the "FIFO but partitioned" arm of the benchmarks).
  bool priority_order = true;
};

class Core {
 public:
  // `defer` runs a function soon on the Core's executor, never inside the call.  The Core starts
  // partitions only from there.
  using Defer = std::function<void(std::function<void()>)>;

  Core(const CoreOptions& options, Defer defer);
  // REQUIRES: no task is registered.
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Registers `task` (not owned) and cuts it.  REQUIRES: not registered anywhere; every
  // partition's server < num_servers.
  void Add(CommTask* task);

  // Fails every registered task with `status`: what has not been started never will be; tasks
  // without outstanding partitions get OnFinished(status) inside this call, the others when their
  // last outstanding partition is finished.  Tasks added later fail in the same way, deferred.
  // REQUIRES: !status.ok().
  void FailAll(const Status& status);

  // Instead of CoreOptions::credit_bytes from now on; what is queued goes by it too.
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
