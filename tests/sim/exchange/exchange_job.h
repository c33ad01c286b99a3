// ExchangeJob: workers and servers that exchange values over a network which delays, loses and
// repeats messages, and where a worker may die at any message.
//
// Server, Worker, PsBackend, Core and KvWorker are the real ones.  Deterministic: the same options
// and seed give the same steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/ps/ps_backend.h"
#include "protocol/rules.h"
#include "server/server.h"
#include "sim/sim_executor.h"
#include "worker/worker.h"

namespace bs::sim {

// An exchange that its workers call.
struct ExchangePlan {
  std::vector<int32_t> givers;
  std::vector<int32_t> takers;
  Reduction reduction = Reduction::kSum;
  uint64_t count = 0;  // elements of int32
  int32_t home = -1;
  // This worker states otherwise; below 0: none does.
  int32_t mistaken_rank = -1;
  // Takers: only itself, as if it took another rank for the root.
  enum class Mistake : uint8_t { kReduction, kTakers };
  Mistake mistake = Mistake::kReduction;
};

struct ExchangeJobOptions {
  int32_t num_workers = 2;
  int32_t num_servers = 1;
  std::vector<ExchangePlan> plans{};
  Duration delay_max{};
  double loss = 0;
  double repeat = 0;
  uint64_t credit_bytes = 64;
  uint64_t together_bytes = 0;
  bool deterministic = false;
  // The message of all workers and servers at which a worker dies; 0: none does.
  uint64_t death_at = 0;
  int32_t victim = 0;
  protocol::Rules const* rules = nullptr;  // not owned; null: all of them hold
};

// Random options, the same for the same seed.
ExchangeJobOptions DrawExchanges(uint64_t seed);

class ExchangeJob {
 public:
  ExchangeJob(ExchangeJobOptions options, uint64_t seed);
  ExchangeJob(const ExchangeJob&) = delete;
  ExchangeJob& operator=(const ExchangeJob&) = delete;
  ~ExchangeJob();

  // Runs it to its end.  Returns the first broken promise; empty: all were kept.
  std::string Run();
  uint64_t num_messages() const { return num_messages_; }
  uint64_t num_refused() const { return num_refused_; }

 private:
  struct WorkerSide {
    std::unique_ptr<SimExecutor> executor;
    std::unique_ptr<backend::PsBackend> backend;
    std::unique_ptr<Worker> worker;
    bool dead = false;
    bool closed = false;
  };
  struct ServerSide {
    std::unique_ptr<SimExecutor> io;
    std::unique_ptr<SimExecutor> shard;
    std::unique_ptr<Server> server;
  };
  // One worker's part of an exchange.  The memory goes with the callbacks.
  struct Part {
    std::vector<int32_t> in{};
    std::vector<int32_t> out{};
    int given = 0;
    int done = 0;
  };

  void MakeServer(int32_t rank);
  void MakeWorker(int32_t rank);
  void Send(int32_t worker, bool to_server, ps::Message message);
  void Deliver(int32_t worker, bool to_server, const std::shared_ptr<ps::Message>& message);
  void Die();
  static void Mistake(const ExchangePlan& plan, Worker::ExchangeCall* call);
  void Start(int32_t rank, size_t plan);
  void OnDone(int32_t rank, size_t plan, const std::shared_ptr<Part>& part, const Status& status);
  void Report(const std::string& what);
  bool Chance(double probability);
  Duration DrawDelay();
  void CloseAll();
  void CheckMemory();

  const ExchangeJobOptions options_;
  const protocol::Rules& rules_;
  SimClock clock_;
  std::mt19937_64 random_;
  std::vector<ServerSide> servers_;
  std::vector<WorkerSide> workers_;
  uint64_t num_messages_ = 0;
  uint64_t num_refused_ = 0;  // exchanges, as their workers differ
  size_t open_ = 0;           // parts of workers that live
  bool died_ = false;
  std::string problem_;
};

}  // namespace bs::sim
