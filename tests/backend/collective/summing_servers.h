// SummingServers: plays servers that sum what each host contributes, for workers of this process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "base/executor.h"
#include "base/status.h"
#include "base/types.h"

namespace bs::backend::collective {

// Confined to a thread, on simulated time.
class SummingServers {
 public:
  explicit SummingServers(uint32_t num_workers) : num_workers_(num_workers) {}
  SummingServers(const SummingServers&) = delete;
  SummingServers& operator=(const SummingServers&) = delete;
  ~SummingServers() = default;

  // The servers as a worker has them; this outlives it.
  std::unique_ptr<Backend> Join(Executor* executor);
  // What comes from now on stays without an answer, and keeps its credit.
  void Hold() { holds_ = true; }
  // Refuses what comes from now on.
  void Refuse(const Status& why) { why_ = why; }

  uint64_t num_contributions() const { return num_contributions_; }
  uint64_t contributed_bytes() const { return contributed_bytes_; }

 private:
  class Worker;
  struct Contribution {
    Executor* executor = nullptr;
    Exchange exchange{};
  };
  struct Sum {
    uint32_t stood_for = 0;
    std::vector<Contribution> contributions{};
  };

  void Take(Executor* executor, Key key, Exchange exchange);
  static void Answer(Sum sum);
  void Fail(Executor* executor, const Status& status);

  const uint32_t num_workers_;
  bool holds_ = false;
  Status why_{};
  uint64_t num_contributions_ = 0;
  uint64_t contributed_bytes_ = 0;
  std::map<std::tuple<Key, uint32_t, Round>, Sum> sums_;  // that are not complete
};

}  // namespace bs::backend::collective
