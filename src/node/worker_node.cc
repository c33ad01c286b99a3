// WorkerNode connects a member and a worker to a network, and ends them.
//
// It ends in this order, so that no call reaches a destroyed object and no memory of the caller is
// freed while the network may read it:
//  1. pending operations get their time, then the worker closes; once bs-io has seen that, nothing
//     new is sent;
//  2. the member says goodbye, if the job is well, and closes: nothing more is received;
//  3. one task later it is destroyed on bs-io, behind everything it has posted there;
//  4. registrations of the framework's memory end, but for what the network still uses;
//  5. the transport comes to rest: every frame of the caller's memory is released, so the worker's
//     last callbacks run;
//  6. the worker is destroyed on bs-io, and the thread ends;
//  7. the timeline writes its end.
//
// The worker lives on bs-io, beside the sockets, so that messages do not wait for another thread to
// wake up.
#include <utility>

#include "backend/ps/ps_backend.h"
#include "base/guarded.h"
#include "base/run_on.h"
#include "host/rdma.h"
#include "membership/goodbye.h"
#include "node/node.h"
#include "protocol/server_shares.h"

namespace bs::api {
namespace {

// A scheduler node that does not answer a goodbye is not worth more.
constexpr Duration kLeaveWait = std::chrono::seconds(5);
// Up to here a message costs more than what is in it.
constexpr uint64_t kTogetherBytes = uint64_t{16} << 10U;

WorkerOptions MakeWorkerOptions(const Config& config, const ps::View& view) {
  WorkerOptions options;
  options.rank = view.rank;
  options.num_workers = view.num_workers;
  options.partition_bytes = config.partition_bytes;
  options.credit_bytes = config.credit_bytes;
  options.priority_order = config.scheduling;
  options.urgency = config.priority == "measured" ? Urgency::kMeasured : Urgency::kCaller;
  options.rejoined = view.incarnation > 0;
  return options;
}

worker::PsBackendOptions MakeBackendOptions(const Config& config, const ps::View& view) {
  worker::PsBackendOptions options;
  options.num_servers = view.num_servers;
  options.server_weights = worker::ServerWeights(worker::HostsOf(view.nodes), view.num_servers);
  options.measures_bandwidth = view.rank == 0 && !config.partition_or_credit_given;
  options.together_bytes = kTogetherBytes;
  options.requests.incarnation = view.incarnation;
  options.requests.job = view.job;
  options.requests.timeout = config.timeout;
  options.requests.straggler_timeout = config.straggler_timeout;
  // Several tries before the deadline, however short it is.
  options.requests.retry_interval = std::min(options.requests.retry_interval, config.timeout / 4);
  return options;
}

}  // namespace

Result<std::unique_ptr<WorkerNode>> WorkerNode::Start(const Config& config, int32_t wanted_rank) {
  Result<ps::MembershipOptions> options = MakeMembershipOptions(config, ps::Role::kWorker);
  if (!options.ok()) return options.status();
  if (Status wrong = CheckTimeline(config); !wrong.ok()) return wrong;
  options.value().attach = wanted_rank >= 0;
  if (wanted_rank >= 0) options.value().wanted_rank = wanted_rank;
  options.value().yields = config.backend == "auto";
  if (Status few = CheckDescriptorsOf(config, 0); !few.ok()) return few;
  // The stock worker beside us has that port.
  if (wanted_rank >= 0) options.value().node_port = 0;
  Result<ps::RdmaOptions> rdma = MakeRdmaOptions(config, MakeLogger(config));
  if (!rdma.ok()) return rdma.status();
  return std::make_unique<WorkerNode>(config, options.value(), std::move(rdma.value()));
}

WorkerNode::WorkerNode(const Config& config, const ps::MembershipOptions& options,
                       ps::RdmaOptions rdma)
    : log_(MakeLogger(config)), kept_memory_([this](std::span<std::byte> memory, ps::Lending use) {
        return network_->Register(memory, use);
      }) {
  const Logger network_log = MakeNetworkLogger(config, log_);
  WarnOfUnknownRoot(config, network_log);
  WarnOfLoopback(config, network_log);
  if (options.attach && config.link_rate > 0) {
    network_log.Warning(
        "BYTESCHEDULER_LINK_RATE has no effect in a worker with a store of MXNet's own; a server "
        "of the same host can state the rate");
  }
  WarnOfByteps(config, network_log);
  network_ = std::make_unique<Network>(config, network_log, std::move(rdma));
  LoopThread* const io = network_->io();
  member_ = std::make_unique<ps::Member>(options, network_->transport(), io, network_log);
  ps::Member::Handler handler;
  handler.on_ready = [this, config](Result<ps::View> view) { OnReady(std::move(view), config); };
  handler.on_message = [this](ps::Message message) {
    if (backend_) backend_->OnMessage(std::move(message));
  };
  handler.place = [this](int32_t peer, const ps::Meta& meta, uint64_t size_bytes) {
    return backend_ ? backend_->LandingFor(peer, meta, size_bytes) : nullptr;
  };
  handler.on_worker_left = [](int32_t) {};  // a matter of the servers
  handler.on_failure = [this](const Status& why) { OnJobFailure(why); };
  handler.on_shutdown = [this] {
    OnJobFailure(Status::Unavailable("the scheduler node has ended the job"));
  };
  RunOn(io, [&] { member_->Start(std::move(handler)); });
}

WorkerNode::~WorkerNode() { Close(Duration::zero()); }

void WorkerNode::OnReady(Result<ps::View> view, const Config& config) {
  if (!view.ok()) return OnJobFailure(view.status());
  view_ = std::move(view.value());
  const Status begun = Guarded([&] {
    Begin(config);
    return Status::Ok();
  });
  if (begun.ok()) return;
  TellEveryone(begun);
  OnJobFailure(begun);
}

void WorkerNode::Begin(const Config& config) {
  ps::Transport* const transport = network_->transport();
  const Logger log = log_.Named("worker " + std::to_string(view_.rank));
  timeline_ = Timeline::OfWorker(config, view_.rank, log, view_.job);
  worker::PsBackendOptions backend_options = MakeBackendOptions(config, view_);
  if (!backend_options.server_weights.empty()) {
    std::string shares =
        "of all bytes go " + worker::DescribeShares(backend_options.server_weights);
    view_.rank == 0 ? log.Info(shares) : log.Debug([&] { return shares; });
  }
  backend_options.shared_bytes = [network = network_.get()] {
    return network->sent().shared_bytes.load();
  };
  backend_options.lend = [network = network_.get()](std::span<std::byte> memory, ps::Lending use) {
    return network->Lend(memory, use);
  };
  backend_options.carriers = [transport](int32_t peer) { return transport->CarriersOf(peer); };
  backend_ = std::make_unique<worker::PsBackend>(
      backend_options, network_->io(),
      [transport](ps::Message message) { transport->Send(std::move(message)); }, log);
  WorkerOptions options = MakeWorkerOptions(config, view_);
  options.trace = timeline_ ? timeline_->trace() : nullptr;
  worker_ = std::make_unique<Worker>(
      options, network_->io(), backend_.get(),
      [this](const Status& why) {
        if (!closing_ && failure_.Set(why)) TellEveryone(why);
      },
      log);
  joined_.Set(Status::Ok());
}

std::string WorkerNode::place() const { return ps::PlaceOf(view_); }

std::vector<int32_t> WorkerNode::hosts() const {
  return worker::HostsOfWorkers(view_.nodes, view_.num_workers);
}

void WorkerNode::OnJobFailure(const Status& why) {
  failure_.Set(why);
  joined_.Set(why);
  if (worker_) worker_->Fail(why);
}

void WorkerNode::TellEveryone(const Status& why) {
  network_->io()->Post([this, why] {
    if (member_) member_->ReportFailure(why);
  });
}

void WorkerNode::EndCallback() {
  if (--pending_ == 0 && draining_) drained_.Notify();
}

std::shared_ptr<void> WorkerNode::UseMemory(const KeptMemory::Memory& memory,
                                            const KeptMemory::OwnFn& own) {
  return memory.bytes.size() < LeastKeptBytes() ? nullptr : kept_memory_.Use(memory, own);
}

uint64_t WorkerNode::LeastKeptBytes() const {
  return network_->MayLend() ? worker::PsBackend::kLeastLentBytes : UINT64_MAX;
}

void WorkerNode::Barrier(Done done) {
  network_->io()->Post([this, done = std::move(done)]() mutable {
    if (const std::optional<Status> failure = failure_.Get()) return done(*failure);
    member_->Barrier(ps::kWorkerGroup, std::move(done));
  });
}

Result<Metrics> WorkerNode::Measure(Duration timeout) const {
  return MetricsOfWorker(network_->io(), worker_, failure_, network_.get(), timeout);
}

void WorkerNode::NameKey(Key key, const std::string& name) {
  if (timeline_) timeline_->Name(key, name);
}

Result<std::vector<StepTime>> WorkerNode::Steps(Duration timeout) const {
  return StepsOfWorker(network_->io(), worker_, timeout);
}

void WorkerNode::Fail(const std::string& why) {
  const Status status =
      Status::Unavailable("worker " + std::to_string(view_.rank) + " gave up: " + why);
  if (!failure_.Set(status)) return;
  worker_->Fail(status);
  TellEveryone(status);
}

void WorkerNode::Drain(Duration timeout) {
  RunOn(network_->io(), [this] {
    draining_ = true;
    if (pending_ == 0) drained_.Notify();
  });
  drained_.WaitFor(timeout);
}

void WorkerNode::Leave() {
  RunOn(network_->io(), [this] { member_->Leave([this](const Status&) { left_.Notify(); }); });
  left_.WaitFor(kLeaveWait);
}

void WorkerNode::Close(Duration drain) {
  if (std::exchange(closed_, true)) return;
  LoopThread* const io = network_->io();
  // A member that is closed while it joins never gets ready: from here on worker_ stays as it is.
  RunOn(io, [this] {
    if (!worker_) member_->Close(kLingerUnjoined);
  });
  Notification released;
  if (worker_) {
    const bool well = !failure_.Get();
    if (well) Drain(drain);
    closing_ = true;
    worker_->Close([&released] { released.Notify(); });
    RunOn(io, [] {});
    if (well) Leave();
    RunOn(io, [this] { member_->Close(kLinger); });
  }
  RunOn(io, [this] { member_.reset(); });
  kept_memory_.DropAll();
  network_->EndTransport();
  if (worker_) {
    released.Wait();
    RunOn(io, [this] {
      worker_.reset();
      backend_.reset();
    });
  }
  network_.reset();
  timeline_.reset();
}

}  // namespace bs::api
