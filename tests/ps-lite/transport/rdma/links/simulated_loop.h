// SimulatedLoop: nodes with simulated NICs, all in one thread and simulated time.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "sim/sim_executor.h"
#include "transport/rdma/rdma_nic.h"

namespace ps::test {

class SimulatedLoop {
 public:
  explicit SimulatedLoop(uint64_t seed)
      : clock_(seed), executor_(&clock_), fabric_({.seed = seed, .threaded = false}) {}
  SimulatedLoop(const SimulatedLoop&) = delete;
  SimulatedLoop& operator=(const SimulatedLoop&) = delete;
  ~SimulatedLoop() = default;

  // The NIC of a node; device, verbs and counts of `own` are filled in.
  std::shared_ptr<RdmaNic> AddNode(const std::string& name, RdmaOptions own,
                                   const NicOptions& options,
                                   std::shared_ptr<SimulatedNic>* verbs = nullptr) {
    const std::shared_ptr<SimulatedNic> added = fabric_.Add(name, options);
    if (verbs != nullptr) *verbs = added;
    own.verbs = added;
    own.device = name;
    own.path.gid_index = 1;
    own.counts = std::make_shared<RdmaCounts>();
    const RdmaNic::Loop loop{.executor = &executor_,
                             .watch = [this](int fd, const std::function<void()>& on_readable) {
                               watched_.erase(fd);
                               if (on_readable) watched_.emplace(fd, on_readable);
                             }};
    auto nic = RdmaNic::Open(loop, own, bs::Logger("", bs::LogLevel::kOff));
    EXPECT_TRUE(nic.ok()) << nic.status().ToString();
    return std::move(nic.value());
  }

  // Does one thing; false if there is nothing to do.
  bool Step() {
    bool moved = fabric_.Step();
    std::vector<pollfd> fds;
    for (const auto& [fd, on_readable] : watched_) fds.push_back({fd, POLLIN, 0});
    if (::poll(fds.data(), fds.size(), 0) > 0) {
      for (const pollfd& one : fds) {
        const auto watch = watched_.find(one.fd);
        if (one.revents == 0 || watch == watched_.end()) continue;
        const auto on_readable = watch->second;
        on_readable();
        moved = true;
      }
    }
    return clock_.RunUntil(clock_.Now() + std::chrono::microseconds(1)) > 0 || moved;
  }

  SimulatedFabric& fabric() { return fabric_; }
  bs::sim::SimClock& clock() { return clock_; }

 private:
  bs::sim::SimClock clock_;
  bs::sim::SimExecutor executor_;
  SimulatedFabric fabric_;
  std::map<int, std::function<void()>> watched_;
};

}  // namespace ps::test
