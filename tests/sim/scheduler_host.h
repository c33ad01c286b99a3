// The scheduler node of a simulated cluster, with its executor and transport.
//
// Runs in the simulator's one thread.  Destroy() comes before its end, and the clock runs on after.
#pragma once

#include <memory>
#include <optional>

#include "base/log.h"
#include "ps/membership.h"
#include "sim/cluster_node.h"
#include "sim/sim_executor.h"

namespace bs::sim {

class SchedulerHost {
 public:
  // `job` outlives it; `log` is the scheduler node's.
  SchedulerHost(Job* job, const Logger& log);
  SchedulerHost(const SchedulerHost&) = delete;
  SchedulerHost& operator=(const SchedulerHost&) = delete;
  ~SchedulerHost() = default;

  void Start(Duration delay);
  // Takes the network away, with every frame in it.
  void Kill();
  void Destroy();

  // How the job ended, once it has.
  const std::optional<Status>& finished() const { return finished_; }
  bool killed() const { return killed_; }
  bool over() const { return finished_ || killed_; }

 private:
  Job* const job_;
  SimExecutor executor_;
  std::unique_ptr<ps::Transport> transport_;
  std::unique_ptr<ps::Coordinator> coordinator_;
  std::optional<Status> finished_;
  bool killed_ = false;
};

}  // namespace bs::sim
