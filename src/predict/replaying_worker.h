// ReplayingWorker: a worker that spends a profile's compute and sums its gradients, on simulated
// time.
//
// Runs in the simulator's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/ps/ps_backend.h"
#include "predict/predict.h"
#include "sim/sim_executor.h"
#include "sim/sim_network.h"
#include "worker/worker.h"

namespace bs::predict {

// Values that all replaying workers share.
struct Replay {
  std::vector<Layer> layers;  // with sizes as they are moved
  uint32_t steps = 0;
  // Memory without meaning, as large as the largest layer.
  std::vector<std::byte> gradient{};
  std::vector<std::byte> sum{};
};

class ReplayingWorker {
 public:
  struct Place {
    sim::SimHostOptions host;
    ps::Transport* beside = nullptr;  // a node of the same host, if the host has a node already
  };
  // Everything must outlive it.
  ReplayingWorker(Replay* replay, const WorkerOptions& options,
                  const backend::PsBackendOptions& backend_options, sim::SimClock* clock,
                  sim::SimNetwork* network, const Place& place);
  // REQUIRES: Close() was called, and the clock has run on.
  ~ReplayingWorker() = default;
  ReplayingWorker(const ReplayingWorker&) = delete;
  ReplayingWorker& operator=(const ReplayingWorker&) = delete;

  // Connects to the servers at `servers`, makes the tensors, then takes all steps.
  void Start(const std::vector<ps::Address>& servers);
  void Listen(const ps::Address& address);
  // Ends the remaining operations; the transport closes.
  void Close();

  bool done() const { return lengths_.size() == replay_->steps; }
  const Status& failure() const { return failure_; }
  ps::Transport* transport() const { return transport_.get(); }
  // The lengths of the steps, in order.
  const std::vector<Duration>& lengths() const { return lengths_; }
  // When the first began.
  TimePoint begun() const { return begun_; }
  sim::SimHostCounters counters() const { return network_->CountersOf(transport_.get()); }

 private:
  void Broadcast();
  void BeginStep();
  void Forward(size_t layer);
  void Backward(size_t layer);
  void PushPull(size_t layer);
  void OnSum(size_t layer);
  void EndStep();
  Worker::Done Checked(std::function<void()> then);

  Replay* const replay_;
  const int32_t rank_;
  sim::SimNetwork* const network_;
  sim::SimExecutor executor_;
  std::unique_ptr<ps::Transport> transport_;
  backend::PsBackend backend_;
  std::unique_ptr<Worker> worker_;
  Status failure_;
  size_t made_ = 0;         // tensors
  std::vector<bool> here_;  // by layer: the latest sum
  size_t waits_for_ = 0;    // layer whose sum the forward waits for, if `waits_`
  bool waits_ = false;
  TimePoint begun_{};
  TimePoint step_begun_{};
  std::vector<Duration> lengths_;
};

}  // namespace bs::predict
