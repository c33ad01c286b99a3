// Ranks: collective back ends of several ranks and the server that leads them, on simulated time.
// Where ranks have hosts, each host has a library of its own, and played servers sum over hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/collective/collective_backend.h"
#include "backend/collective/fake_collective.h"
#include "backend/collective/summing_servers.h"
#include "base/status.h"
#include "protocol/tensor.h"
#include "ps/kv_worker.h"
#include "server/server.h"
#include "sim/sim_executor.h"

namespace bs::backend::collective {

struct RanksOptions {
  int32_t num_ranks = 2;
  std::vector<int32_t> hosts{};  // of the ranks, from 0; empty: a library has all ranks
  Duration one_way{};            // from a rank to the leader; rank 0 is beside it
  GrantOptions grants{};
  FakeOptions library{};  // its number of ranks is filled in
};

class Ranks {
 public:
  using Summed = UniqueFunction<void(const Status& status)>;

  explicit Ranks(RanksOptions options);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  // Fails what is under way.
  ~Ranks();

  sim::SimClock* clock() { return &clock_; }
  sim::SimExecutor* executor(int32_t rank) { return nodes_[static_cast<size_t>(rank)]->executor(); }
  FakeWorld* library(int32_t host = 0) { return libraries_[static_cast<size_t>(host)].get(); }
  SummingServers* sums() { return &sums_; }
  Backend* backend(int32_t rank) { return nodes_[static_cast<size_t>(rank)]->backend(); }
  Server* server() { return server_.get(); }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }

  // Starts all partitions of a tensor, which are of at most `partition_bytes`.  `summed` runs once
  // for each, with the first error or ok.
  struct Sum {
    Key key = 0;
    Round round = 1;
    DType dtype = DType::kFloat32;
    Priority priority = 0;
    uint64_t partition_bytes = uint64_t{1} << 20U;
    std::span<const std::byte> in{};
    std::span<std::byte> out{};
  };
  void Start(int32_t rank, const Sum& sum, const std::function<void(const Status&)>& summed);
  // Runs until nothing is left but what is far away.
  void Run(Duration longest = std::chrono::seconds(2)) { clock_.RunUntil(clock_.Now() + longest); }

 private:
  // One rank's side.
  class Node {
   public:
    Node(Ranks* ranks, int32_t rank);
    sim::SimExecutor* executor() { return &executor_; }
    Backend* backend() { return backend_.get(); }
    ps::KvWorker* requests() { return requests_.get(); }

   private:
    sim::SimExecutor executor_;
    std::unique_ptr<ps::KvWorker> requests_;
    std::unique_ptr<CollectiveBackend> backend_;
  };

  // The ranks of the library that has `rank`.
  std::vector<int32_t> RanksBeside(int32_t rank) const;
  Duration OneWay(int32_t rank) const { return rank == 0 ? Duration() : options_.one_way; }

  const RanksOptions options_;
  sim::SimClock clock_{1};
  std::vector<std::unique_ptr<FakeWorld>> libraries_;  // by host
  SummingServers sums_;
  sim::SimExecutor leader_{&clock_};
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace bs::backend::collective
