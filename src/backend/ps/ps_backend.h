// PsBackend: carries partitions to parameter servers of this project, and sums back.
//
// A request pushes a partition, and another request right behind it pulls the sum; the
// acknowledgement of the push gives the credit back.  A partition of a small tensor is one request
// for both directions, whose response is the sum.  That may wait for other workers, so its credit
// returns when the network has taken the request.
//
// No response is trusted: a response that does not fit its request is kInternal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/ps/bandwidth_estimator.h"
#include "base/executor.h"
#include "base/log.h"
#include "job/view.h"
#include "protocol/exchange_terms.h"
#include "protocol/placement.h"
#include "ps/kv_worker.h"
#include "ps/message.h"
#include "ps/transport.h"

namespace bs::backend {

struct PullOf;

struct PsBackendOptions {
  job::SharedView view = job::ShareView({}, 1, 1);
  // The servers' shares of all bytes (protocol/server_shares.h); empty: equal shares.
  std::vector<uint32_t> server_weights{};
  // Measures the network's rate for TakeFitting.
  bool measures_bandwidth = false;
  bool adds_up = false;  // the workers of a host send one copy
  // Returns how many bytes have gone to servers through shared memory; for the measurement, called
  // once.  Empty: none have.
  std::function<uint64_t()> shared_bytes{};
  // Lets a network device use memory of an operation: Transport::Lend.  Empty: none can.
  std::function<std::shared_ptr<void>(std::span<std::byte> memory, ps::Lending use)> lend{};
  // Transport::CarriersOf; empty: they are not known.
  std::function<Carriers(int32_t peer)> carriers{};
  // Adds the metrics of the network for Measure; empty: nothing is added.
  std::function<void(Metrics*)> measure_network{};
  // Partitions of a tensor of up to this size are pushed and pulled by one request.  Then their
  // credit returns when the network has them, so it does not bound the bytes that wait at a busy
  // server.
  uint64_t together_bytes = 0;
  ps::KvWorkerOptions requests{};  // the back end sets the rules of bodies
};

class PsBackend final : public Backend {
 public:
  // To register less takes longer than to copy it.
  static constexpr uint64_t kLeastLentBytes = uint64_t{64} << 10U;

  using SendFn = std::function<void(ps::Message)>;

  // `executor` is the worker's; it and the objects that `send` uses outlive this.
  PsBackend(const PsBackendOptions& options, Executor* executor, SendFn send, const Logger& log);

  // Takes a message from a server.  Thread-safe.
  void OnMessage(ps::Message message);
  // Sends a request that is no part of an exchange: KvWorker::Send.
  void Ask(ps::KvRequest request, ps::KvWorker::Done done) {
    requests_.Send(std::move(request), std::move(done));
  }
  // Returns the memory for the payload of an incoming message: Transport::Handler::place.
  std::shared_ptr<ps::Landing> LandingFor(int32_t peer, const ps::Meta& meta, uint64_t size_bytes);

  uint32_t num_destinations() const override { return num_servers(); }
  Shares shares() const override {
    return {.weights = options_.server_weights, .beside = options_.view->ServersBeside()};
  }
  Carriers CarriersOf(const protocol::Tensor& tensor, const Coding& coding,
                      const Partition& partition) const override;
  void Place(std::span<Partition> partitions, std::span<const Partition> replaced) override;
  uint32_t DestinationOf(Key key) const override {
    return protocol::HomeServer(key, num_servers());
  }
  void Declare(const protocol::Tensor& tensor, Done done) override;
  void Lookup(const protocol::Tensor& asked,
              UniqueFunction<void(Result<protocol::Tensor>)> done) override;
  std::shared_ptr<void> LendSent(std::span<const std::byte> memory) override;
  std::shared_ptr<void> LendFilled(std::span<std::byte> memory) override;
  void Start(const protocol::Tensor& tensor, Exchange exchange) override;
  void StartPartition(ExchangePartition part) override;
  void Quit(Key key, const std::string& terms, uint32_t destination, const Status& why,
            Done done) override;
  void Release(const protocol::Tensor& retired, bool given_back, Done done) override;
  void GiveBack(const protocol::Tensor& tensor, uint64_t turn,
                UniqueFunction<void(Result<bool>)> done) override;
  void SetOptimizer(OptimizerText optimizer, uint64_t number, Done done) override;
  std::optional<PartitionAndCredit> TakeFitting() override;
  void Fail(const Status& status) override {
    failed_ = true;
    requests_.FailAll(status);
  }
  void Measure(Metrics* metrics) const override;

 private:
  using Summed = UniqueFunction<void(const Status&, const std::string& next_layout)>;

  uint32_t num_servers() const { return static_cast<uint32_t>(options_.view->num_servers()); }
  bool GoesTogether(const protocol::Tensor& tensor, const Exchange& exchange) const;
  void PushPull(const protocol::Tensor& tensor, Exchange exchange);
  void Push(const protocol::Tensor& tensor, Exchange* exchange);
  void Pull(const protocol::Tensor& tensor, const Exchange& exchange, Summed summed);
  // TakeSum; the time that coded sums take counts.
  Result<std::string> Receive(const PullOf& pull, const ps::Message& response);
  void Give(ExchangePartition* part);
  void Take(ExchangePartition part);
  // Notifies the server, soon, that this worker has that partition of an exchange.
  void NoteTaken(uint32_t server, const protocol::TakenPartition& partition);
  void NotifyTakenAfter(Duration delay, uint32_t server);
  void NotifyTaken(uint32_t server);
  // The server knows of the first `count`, or why not.
  void OnNotified(uint32_t server, size_t count, const Status& status, bool refused);
  // Sends a request to each server; `done` gets the first refusal.
  void SendToEach(std::vector<ps::KvRequest> requests, Done done);

  const PsBackendOptions options_;
  Executor* const executor_;
  const Logger log_;
  ps::KvWorker requests_;
  BandwidthEstimator estimator_;
  protocol::Loads loads_;
  // By server: partitions of exchanges that this worker has, and a server does not know.
  struct Taken {
    std::vector<protocol::TakenPartition> unreported;
    bool under_way = false;  // a notice, or the time until it
  };
  std::vector<Taken> taken_;
  Duration coding_time_{};  // of gradients and sums
  bool failed_ = false;
  // Callbacks that nothing of the worker waits for look whether this is still there.
  const std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);
};

}  // namespace bs::backend
