// Puts a worker node together from a member of the scheduler node's job and a PsBackend.
#include "node/worker/ps_worker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/host/host_backend.h"
#include "backend/ps/ps_backend.h"
#include "host/rdma.h"
#include "node/node_metrics.h"
#include "node/worker/libraries.h"
#include "node/worker/link_copies.h"
#include "node/worker/ps_membership.h"
#include "protocol/server_shares.h"

namespace bs::node {
namespace {

// Up to here a message costs more than its payload.
constexpr uint64_t kTogetherBytes = uint64_t{16} << 10U;

WorkerOptions OptionsOverServers(const Config& config) {
  WorkerOptions options;
  options.partition_bytes = config.partition_bytes;
  options.credit_bytes = config.credit_bytes;
  options.priority_order = config.scheduling;
  options.urgency = config.priority == "measured" ? Urgency::kMeasured : Urgency::kCaller;
  return options;
}

// The workers of a host add up, if none of the job is a stock worker.
bool MayAddUp(const Config& config, const ps::MembershipOptions& options) {
  return config.local_sums == "1" && WhyCopyAWorker(config, {.beside = options.attach}).empty();
}

backend::PsBackendOptions MakeBackendOptions(const Config& config, const job::SharedView& view,
                                             bool adds_up) {
  backend::PsBackendOptions options;
  options.view = view;
  options.server_weights =
      protocol::ServerWeights(protocol::HostsOf(*view, adds_up), view->num_servers());
  options.measures_bandwidth = !config.partition_or_credit_given;
  options.adds_up = adds_up;
  options.together_bytes = kTogetherBytes;
  options.requests.incarnation = view->own.incarnation;
  options.requests.job = view->job;
  options.requests.timeout = config.timeout;
  options.requests.straggler_timeout = config.straggler_timeout;
  // Several tries before the deadline, however short it is.
  options.requests.retry_interval = std::min(options.requests.retry_interval, config.timeout / 4);
  return options;
}

std::unique_ptr<backend::PsBackend> MakeBackend(const Config& config, Network* network,
                                                const job::SharedView& view, bool adds_up,
                                                const Logger& log) {
  backend::PsBackendOptions options = MakeBackendOptions(config, view, adds_up);
  if (!options.server_weights.empty()) {
    std::string shares = "of all bytes go " + protocol::DescribeShares(options.server_weights);
    view->own.rank == 0 ? log.Info(shares) : log.Debug([&] { return shares; });
  }
  ps::Transport* const transport = network->transport();
  // With sums of the host most of these bytes go to its workers.
  if (!adds_up) options.shared_bytes = [network] { return network->sent().shared_bytes.load(); };
  options.lend = [network](std::span<std::byte> memory, ps::Lending use) {
    return network->Lend(memory, use);
  };
  options.carriers = [transport](int32_t peer) { return transport->CarriersOf(peer); };
  options.measure_network = [network](Metrics* metrics) {
    AddSent(network->sent(), metrics);
    AddRdma(network->rdma(), metrics);
  };
  return std::make_unique<backend::PsBackend>(
      options, network->io(),
      [transport](ps::Message message) { transport->Send(std::move(message)); }, log);
}

backend::HostBackendOptions MakeHostOptions(const Config& config, const job::SharedView& view,
                                            Duration reason_patience) {
  const backend::PsBackendOptions behind = MakeBackendOptions(config, view, /*adds_up=*/true);
  backend::HostBackendOptions options;
  options.view = view;
  options.least_bytes = behind.together_bytes;
  options.credit_bytes = config.credit_bytes;
  options.deterministic = config.deterministic;
  options.hold_bytes = config.hold_bytes;
  options.reason_patience = reason_patience;
  options.requests = behind.requests;
  return options;
}

// A receiver that gives `backend` its messages.
template <typename T>
PsMembership::Receiver ReceiverOf(T* backend) {
  return {.on_message = [backend](ps::Message message) { backend->OnMessage(std::move(message)); },
          .place =
              [backend](int32_t peer, const ps::Meta& meta, uint64_t size_bytes) {
                return backend->LandingFor(peer, meta, size_bytes);
              }};
}

// The back end for a worker of this view, to which `membership` then delivers.
std::unique_ptr<backend::Backend> MakeBackendOf(const Config& config, PsMembership* membership,
                                                const job::SharedView& view,
                                                const ps::MembershipOptions& joined,
                                                const Logger& log) {
  const std::string why =
      WhyCopyAWorker(config, {.beside = joined.attach, .in_job = !membership->all_native()});
  const bool could_add_up = config.local_sums == "1" && protocol::AddsUpOnHosts(*view);
  const bool adds_up = could_add_up && why.empty();
  Network* const network = membership->network();
  auto link = MakeBackend(config, network, view, adds_up, log);
  if (could_add_up && view->own.rank == 0) log.Info(DescribeCopies(*view, why));
  if (!adds_up || !backend::HostPlan(*view).in_use()) {
    membership->DeliverTo(ReceiverOf(link.get()));
    return link;
  }
  backend::HostBackendOptions options = MakeHostOptions(config, view, joined.reason_patience);
  options.carriers = [transport = network->transport()](int32_t peer) {
    return transport->CarriersOf(peer);
  };
  auto host = std::make_unique<backend::HostBackend>(
      options, std::move(link), network->io(),
      [transport = network->transport()](ps::Message message) {
        transport->Send(std::move(message));
      },
      log);
  PsMembership::Receiver receiver = ReceiverOf(host.get());
  receiver.on_worker_left = [host = host.get()](int32_t rank, const Status& why) {
    host->OnWorkerLeft(rank, why);
  };
  membership->DeliverTo(std::move(receiver));
  return host;
}

void WarnOfSettings(const Config& config, const ps::MembershipOptions& options, const Logger& log) {
  WarnOfUnknownRoot(config, log);
  WarnOfLoopback(config, log);
  if (options.attach && config.link_rate > 0) {
    log.Warning(
        "BYTESCHEDULER_LINK_RATE has no effect in a worker with a store of MXNet's own; a server "
        "of the same host can state the rate");
  }
  WarnOfByteps(config, log);
}

}  // namespace

Result<std::unique_ptr<WorkerNode>> StartPsWorker(const Config& config, int32_t wanted_rank) {
  Result<ps::MembershipOptions> options = MakeMembershipOptions(config, ps::Role::kWorker);
  if (!options.ok()) return options.status();
  if (Status wrong = trace::CheckTimeline(config); !wrong.ok()) return wrong;
  options.value().attach = wanted_rank >= 0;
  if (wanted_rank >= 0) options.value().wanted_rank = wanted_rank;
  options.value().yields = config.backend == "auto";
  if (Status few = CheckDescriptorsOf(config, 0); !few.ok()) return few;
  // The stock worker beside us has that port.
  if (wanted_rank >= 0) options.value().node_port = 0;
  Result<ps::RdmaOptions> rdma = host::MakeRdmaOptions(config, MakeLogger(config));
  if (!rdma.ok()) return rdma.status();
  Result<MakeLibraryFn> make_library = FindLibrary(config);
  if (!make_library.ok()) return make_library.status();
  return StartPsWorker(config, options.value(), std::move(rdma.value()), make_library.value());
}

std::unique_ptr<WorkerNode> StartPsWorker(const Config& config,
                                          const ps::MembershipOptions& options,
                                          ps::RdmaOptions rdma, const MakeLibraryFn& make_library) {
  const Logger node_log = MakeLogger(config);
  const Logger network_log = MakeNetworkLogger(config, node_log);
  WarnOfSettings(config, options, network_log);
  ps::MembershipOptions joining = options;
  // A library adds up itself.
  joining.joins_host = !make_library && MayAddUp(config, options);
  auto membership = std::make_unique<PsMembership>(config, joining, std::move(rdma), network_log);
  const bool lends = membership->network()->MayLend();
  WorkerNode::Parts parts{
      .membership = nullptr,
      .make_backend = [config, make_library, joining, membership = membership.get()](
                          const job::SharedView& view, const WorkerNode::ResizeFn&,
                          const Logger& log) -> std::unique_ptr<backend::Backend> {
        if (!make_library) {
          return MakeBackendOf(config, membership, view, joining, log);
        }
        const LibraryUse use = UseOf(config);
        const bool adds_up = use.within_hosts && protocol::AddsUpOnHosts(*view);
        auto backend = MakeBackend(config, membership->network(), view, adds_up, log);
        if (adds_up && view->own.rank == 0) log.Info(DescribeCopies(*view, ""));
        membership->DeliverTo(ReceiverOf(backend.get()));
        return WithLibrary(make_library, std::move(backend), view, membership->executor(), use);
      },
      .worker = OptionsOverServers(config),
      .kept_memory = membership->kept_memory(),
      .least_kept_bytes = lends ? backend::PsBackend::kLeastLentBytes : UINT64_MAX};
  // The leader of a library's operations orders whole tensors.
  if (make_library) parts.worker.early_bytes = 0;
  parts.membership = std::move(membership);
  auto node = std::make_unique<WorkerNode>(config, std::move(parts), node_log);
  node->Join();
  return node;
}

}  // namespace bs::node
