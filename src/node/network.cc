// Builds loggers, rendezvous options and the transport from the settings.
#include "node/network.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/descriptors.h"
#include "base/memory.h"
#include "base/notification.h"
#include "base/numa.h"
#include "base/processors.h"
#include "config/rdma_rules.h"
#include "host/host.h"
#include "membership/role_limits.h"
#include "node/debug_log.h"
#include "ps/text.h"
#include "transport/rdma/rdma_options.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/zmq/zmq_transport.h"

namespace bs::node {
namespace {

// Longer than an interpreter takes from its goodbye to the end of its process, also on a machine
// with other work.
constexpr Duration kReasonPatience = std::chrono::seconds(15);

LogLevel LevelOf(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames.at(i) == name) return static_cast<LogLevel>(i);
  }
  return LogLevel::kOff;
}

// Half of the memory that is left at the start; a node with less than this is of no use.
uint64_t HalfOf(uint64_t available_bytes) {
  constexpr uint64_t kLeastBytes = uint64_t{64} << 20U;
  return std::max(available_bytes / 2, kLeastBytes);
}

// A card reports a pulled cable at once and breaks the link, where TCP alone would wait.  The
// system repeats an attempt to connect after 1 s and 3 s.
constexpr Duration kRdmaReconnectGrace = std::chrono::seconds(4);

ps::ZmqOptions MakeZmqOptions(const Config& config) {
  ps::ZmqOptions options;
  options.ipc = config.local_ipc;
  options.ipv6 = !config.local_ipc && host::RootIsIpv6(config);
  options.unsent_bytes = static_cast<int>(config.unsent_bytes);
  options.most_waiting_bytes = MostWaitingBytes(config, AvailableBytes());
  const bool scheduler = config.role == "scheduler";
  options.max_frame_bytes =
      ps::MostFrameBytes(scheduler ? ps::Role::kScheduler : ps::Role::kServer);
  if (!config.secret.empty()) options.curve = ps::DeriveCurveKeys(config.secret).value();
  if (config.water_mark > 0) options.committed_messages = config.water_mark;
  return options;
}

std::unique_ptr<ps::Transport> MakeTransport(LoopThread* io, const Config& config,
                                             std::shared_ptr<ps::SentCounts> sent,
                                             ps::RdmaOptions rdma, const Logger& log) {
  if (!config::IsPlainTcp(config)) {
    ps::ZmqOptions options = MakeZmqOptions(config);
    options.sent = std::move(sent);
    return ps::MakeZmqTransport(io, options, log);
  }
  ps::TcpOptions options;
  options.sent = std::move(sent);
  options.fusion_bytes = std::min(config.fusion_bytes, config.partition_bytes);
  options.unsent_bytes = static_cast<int>(config.unsent_bytes);
  options.most_waiting_bytes = MostWaitingBytes(config, AvailableBytes());
  options.ahead_messages = config.water_mark;
  options.link_ahead = config.link_ahead;
  // No long frames go to or from the scheduler node.
  options.shared_bytes = config.role == "scheduler" ? 0 : config.shared_bytes;
  options.rdma = std::move(rdma);
  // Natives that are silent are lost by then; MXNet's own need not say a word for hours.
  options.host_timeout = config.heartbeat_timeout + config.heartbeat_interval;
  return ps::MakeTcpTransport(io, options, log);
}

// Keeps the thread that runs it on the cores near the RDMA device.
Task StayNear(const ps::RdmaOptions& rdma, const Logger& log) {
  if (rdma.cores.empty()) return {};
  return [device = rdma.device, cores = rdma.cores, log] {
    if (PinThisThread(cores)) return;
    log.Warning("the system does not let bs-io be kept on the cores near " + device +
                ", so it runs on any core");
  };
}

// Each peer connects to us and we to it; libzmq has pairs of sockets to watch both.
uint64_t DescriptorsOfPeers(const Config& config) {
  const auto workers = static_cast<uint64_t>(config.num_workers);
  const auto servers = static_cast<uint64_t>(config.num_servers);
  uint64_t peers = workers + servers;
  if (config.role == "worker") peers = servers + 1;
  if (config.role == "server") peers = workers + 1;
  return peers * (config::IsPlainTcp(config) ? 2 : 5);
}

}  // namespace

Logger MakeLogger(const Config& config) {
  const LogLevel level = LevelOf(config.log_level);
  std::shared_ptr<DebugLog> debug = DebugLog::Open(config);
  if (!debug) return {config.role, level};
  // It has the same threshold for the network and the rest.
  return LoggerInto(std::move(debug), config.role, config.verbose > 0 ? LogLevel::kDebug : level);
}

Logger MakeNetworkLogger(const Config& config, const Logger& log) {
  if (config.debug) return log;
  return {config.role, config.verbose > 0 ? LogLevel::kDebug : LevelOf(config.log_level)};
}

// Only libzmq has the encryption and the ipc files; plain TCP is faster without it.
uint64_t MostWaitingBytes(const Config& config, uint64_t available_bytes) {
  if (config.waiting_given) return config.waiting_bytes;
  return std::min(config.waiting_bytes, HalfOf(available_bytes));
}

// Correct native workers have their credit under way, which is little; MXNet's own have all that
// they push before they wait.
uint64_t MostBacklogBytes(uint64_t available_bytes) {
  constexpr uint64_t kMostBytes = uint64_t{4} << 30U;
  return std::min(kMostBytes, HalfOf(available_bytes));
}

Result<ps::MembershipOptions> MakeMembershipOptions(const Config& config, ps::Role role) {
  ps::MembershipOptions options;
  options.role = role;
  options.num_workers = config.num_workers;
  options.num_servers = config.num_servers;
  options.root = {config.root_uri, config.root_port};
  options.settings = config.JobSettings();
  options.rendezvous_timeout = config.rendezvous_timeout;
  options.timeout = config.timeout;
  options.straggler_timeout = config.straggler_timeout;
  // A waiting node gets the reason before its deadline, however short that is.
  options.report_interval =
      std::min({options.report_interval, config.rendezvous_timeout / 4, config.timeout / 4});
  options.retry_interval = std::min(options.retry_interval, config.timeout / 4);
  options.heartbeat_interval = config.heartbeat_interval;
  options.heartbeat_timeout = config.heartbeat_timeout;
  options.rejoin_timeout = config.rejoin_timeout;
  // Nodes that a launcher's worker hosts have the ranks of both, and no launcher of ours.
  const bool hosted = config.worker_id >= 0 && config.server_id >= 0;
  options.servers_in_workers = config.servers_in_workers || hosted;
  if (!hosted) options.reason_patience = kReasonPatience;
  if (config.RequiresRdma() || config.rdma == "auto") {
    options.reconnect_grace = kRdmaReconnectGrace;
  }
  if (role == ps::Role::kScheduler) {
    // A pod cannot bind the address of the service in front of it.
    if (config.use_kubernetes) options.bind_host = host::EveryAddress(config);
    if (!config.use_kubernetes && !config.local_ipc) {
      Status own = host::CheckOwnHost("DMLC_PS_ROOT_URI", config.root_uri);
      if (!own.ok()) return own;
    }
    return options;
  }
  if (!config.local_ipc) options.root_found = host::RootHost(config);
  Result<std::string> host = host::OwnHost(config);
  if (!host.ok()) return host.status();
  if (!config.node_host.empty() && !config.local_ipc) {
    Status own = host::CheckOwnHost("DMLC_NODE_HOST", config.node_host);
    if (!own.ok()) return own;
  }
  options.node_host = host.value();
  options.link_rate = config.link_rate;
  options.node_port = config.node_port;
  options.wanted_rank = role == ps::Role::kWorker ? config.worker_id : config.server_id;
  return options;
}

Status CheckDescriptorsOf(const Config& config, uint64_t num_threads) {
  // The listening socket, libzmq's context, the debug log, and files that are open for a moment.
  constexpr uint64_t kOthers = 16;
  // The network's thread, the thread that looks up names, and the timeline's, which also has a
  // file.
  const uint64_t threads = 2 + (config.timeline.empty() ? 0 : 2) + num_threads;
  return CheckDescriptors(
      kOthers + threads * LoopThread::kDescriptors + DescriptorsOfPeers(config),
      (config.role == "scheduler" ? "the scheduler node" : "a " + config.role) + " of this job");
}

void WarnOfUnknownRoot(const Config& config, const Logger& log) {
  if (config.local_ipc) return;
  const std::string why = host::WhyUnresolved(config.root_uri);
  if (why.empty()) return;
  log.Warning("DMLC_PS_ROOT_URI=" + config.root_uri +
              ": the name of the scheduler node's host cannot be resolved (" + why +
              "); trying again until BYTESCHEDULER_RENDEZVOUS_TIMEOUT is over");
}

// Where the group's time is bounded, a spinning thread takes it from threads that work.
Duration SpinOf(const Config& config, double processor_quota) {
  constexpr double kEnough = 2;  // one for other threads
  return config.spin_given || processor_quota >= kEnough ? config.spin : Duration::zero();
}

Status AwaitNames(const Config& config, Duration waited) {
  Status unknown = host::CheckNames(config);
  if (unknown.ok()) return unknown;
  if (waited >= config.rendezvous_timeout) {
    return Status::InvalidArgument(unknown.message() + "; looked up again and again for " +
                                   ps::TextOf(config.rendezvous_timeout) +
                                   " (BYTESCHEDULER_RENDEZVOUS_TIMEOUT)");
  }
  if (waited == Duration::zero()) {
    MakeLogger(config).Warning(unknown.message() +
                               "; trying again until BYTESCHEDULER_RENDEZVOUS_TIMEOUT is over");
  }
  return unknown;
}

void WarnOfLoopback(const Config& config, const Logger& log) {
  for (const std::string& sentence : host::LoopbackWarnings(config)) log.Warning(sentence);
}

void WarnOfByteps(const Config& config, const Logger& log) {
  const std::string line = config::LineOnByteps(config.byteps_rdma_names);
  if (!line.empty()) log.Warning(line);
}

Network::Network(const Config& config, const Logger& log)
    : Network(config, log, ps::RdmaOptions{}) {}

Network::Network(const Config& config, const Logger& log, ps::RdmaOptions rdma)
    : rdma_(std::make_shared<ps::RdmaCounts>()),
      fork_is_harmless_(rdma.verbs && rdma.verbs->fork() == ps::RdmaFork::kHarmless),
      io_("bs-io",
          LoopOptions{.at_start = StayNear(rdma, log), .spin = SpinOf(config, ProcessorQuota())}) {
  rdma.counts = rdma_;
  transport_ = MakeTransport(&io_, config, sent_, std::move(rdma), log);
}

std::shared_ptr<void> Network::Lend(std::span<std::byte> memory, ps::Lending use) {
  if (!fork_is_harmless_ || rdma_->links == 0) return nullptr;
  return transport_->Lend(memory, use);
}

Result<std::shared_ptr<ps::Registration>> Network::Register(std::span<std::byte> memory,
                                                            ps::Lending use) {
  if (!fork_is_harmless_ || rdma_->links == 0) return std::shared_ptr<ps::Registration>();
  return transport_->Register(memory, use);
}

}  // namespace bs::node
