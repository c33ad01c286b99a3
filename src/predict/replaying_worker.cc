// Forward waits for the sum of each layer; backward makes gradients, the last layer's first.
#include "predict/replaying_worker.h"

#include <utility>

#include "base/log.h"

namespace bs::predict {

ReplayingWorker::ReplayingWorker(Replay* replay, const WorkerOptions& options,
                                 const backend::PsBackendOptions& backend_options,
                                 sim::SimClock* clock, sim::SimNetwork* network, const Place& place)
    : replay_(replay),
      rank_(options.view->own.rank),
      network_(network),
      executor_(clock),
      transport_(network->MakeTransport(&executor_)),
      backend_(
          backend_options, &executor_,
          [transport = transport_.get()](ps::Message m) { transport->Send(std::move(m)); },
          Logger("", LogLevel::kOff)),
      here_(replay->layers.size(), true) {
  network->PutOnHost(transport_.get(), place.host, place.beside);
  worker_ = std::make_unique<Worker>(
      options, &executor_, &backend_, [this](const Status& why) { failure_ = why; },
      Logger("", LogLevel::kOff));
  transport_->Start(
      {.on_message = [this](ps::Message message) { backend_.OnMessage(std::move(message)); },
       .on_garbage = {},
       .on_connected = {},
       .on_disconnected = {}});
}

void ReplayingWorker::Listen(const ps::Address& address) {
  transport_->Bind(address, [](const Result<int32_t>&) {});
}

void ReplayingWorker::Start(const std::vector<ps::Address>& servers) {
  for (size_t i = 0; i < servers.size(); ++i) {
    transport_->Connect(ps::ServerId(static_cast<int32_t>(i)), servers[i], ps::WorkerId(rank_));
  }
  executor_.Post([this] { Broadcast(); });
}

void ReplayingWorker::Close() {
  worker_->Close([] {});
  executor_.Post([this] { transport_->Close(Duration(0)); });
}

Worker::Done ReplayingWorker::Checked(std::function<void()> then) {
  return [this, then = std::move(then)](const Status& status) {
    if (!status.ok()) failure_ = status;
    if (status.ok() && then) then();
  };
}

// One after another: initial values are no matter of time.
void ReplayingWorker::Broadcast() {
  if (made_ == replay_->layers.size()) {
    begun_ = executor_.Now();
    return BeginStep();
  }
  const size_t size = replay_->layers[made_].size_bytes;
  worker_->Broadcast(made_, DType::kUint8, std::span(replay_->sum).first(size),
                     Checked([this] { Broadcast(); }));
  ++made_;
}

void ReplayingWorker::BeginStep() {
  step_begun_ = executor_.Now();
  Forward(0);
}

void ReplayingWorker::Forward(size_t layer) {
  if (layer == replay_->layers.size()) return Backward(layer);
  if (!here_[layer]) {
    waits_ = true;
    waits_for_ = layer;
    return;
  }
  executor_.PostAt(executor_.Now() + replay_->layers[layer].forward,
                   [this, layer] { Forward(layer + 1); });
}

// The gradients of `layer` and all behind it are there.
void ReplayingWorker::Backward(size_t layer) {
  if (layer == 0) return EndStep();
  const size_t next = layer - 1;
  executor_.PostAt(executor_.Now() + replay_->layers[next].backward, [this, next] {
    PushPull(next);
    Backward(next);
  });
}

void ReplayingWorker::PushPull(size_t layer) {
  const size_t size = replay_->layers[layer].size_bytes;
  here_[layer] = false;
  worker_->PushPull(layer, {.priority = -static_cast<Priority>(layer)},
                    std::span(replay_->gradient).first(size), std::span(replay_->sum).first(size),
                    Checked({}), Checked([this, layer] { OnSum(layer); }));
}

void ReplayingWorker::OnSum(size_t layer) {
  here_[layer] = true;
  if (!waits_ || waits_for_ != layer) return;
  waits_ = false;
  Forward(layer);
}

void ReplayingWorker::EndStep() {
  lengths_.push_back(executor_.Now() - step_begun_);
  if (!done()) BeginStep();
}

}  // namespace bs::predict
