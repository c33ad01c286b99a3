// SchedulerNode and ServerNode connect a coordinator, or a member and a server, to a network.
//
// Both end in this order, so that no call reaches a destroyed object:
//  1. the membership says why (unless the job is over) and closes: nothing more is received;
//  2. one task later it is destroyed on bs-io, behind everything it has posted there;
//  3. the updater ends: a call of it may take its time;
//  4. the shards end: the transport to which they send is still there;
//  5. the transport comes to rest (waiting messages get its linger) and bs-io ends;
//  6. the server goes, when no thread is left that could touch it, and the timeline writes its end;
//  7. the executors of updater and shards go: the outcome of a late call makes bs-io post to the
//     shards, or a shard to the updater.
#include "node/node.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/guarded.h"
#include "base/memory.h"
#include "base/numa.h"
#include "base/processors.h"
#include "base/run_on.h"
#include "host/rdma.h"
#include "node/ps_view.h"
#include "node/shard_places.h"
#include "protocol/call.h"

namespace bs::node {
namespace {

// The scheduler node tells all nodes within two seconds; see Coordinator::Handler::on_finished.
constexpr Duration kAbortWait = std::chrono::seconds(3);
// Natives have been told by then.  Stock nodes of a job that never came together need a connection
// that is made only now.  Messages that wait longer are for dead nodes.
constexpr Duration kSchedulerLinger = std::chrono::seconds(2);

// Sums of whole pages begin in the memory of the first push, if any memory will do: bs-io, which
// receives it, is on no certain NUMA node.  Fewer bytes are copied sooner than a page is kept.
uint64_t AdoptedBytes(const std::vector<ServerShard>& shards) {
  const bool one_node = std::ranges::all_of(shards, [&](const ServerShard& shard) {
    return shard.numa_node == shards.front().numa_node;
  });
  return one_node ? NodeBuffer::kWholePagesFrom : UINT64_MAX;
}

std::vector<ShardPlace> ShardPlacesOf(const std::vector<NumaNode>& nodes, const Config& config,
                                      int32_t rank) {
  return PlaceShards(nodes, config.server_threads, rank, ProcessorQuota());
}

}  // namespace

Result<std::unique_ptr<SchedulerNode>> SchedulerNode::Start(const Config& config) {
  Result<ps::MembershipOptions> options = MakeMembershipOptions(config, ps::Role::kScheduler);
  if (!options.ok()) return options.status();
  if (Status few = CheckDescriptorsOf(config, 0); !few.ok()) return few;
  std::random_device chance;
  // Never 0, which stands for data without a number.
  options.value().job = (uint64_t{chance()} << 32U) | chance() | 1U;
  auto node = std::make_unique<SchedulerNode>(config, options.value());
  node->listening_or_over_.WaitFor(config.timeout);
  const std::optional<Status> outcome = node->outcome().Get();
  if (outcome && outcome->code() == StatusCode::kAlreadyExists) {
    return Status::AlreadyExists(outcome->message() +
                                 ": end what listens there (a job that still runs?), or give all "
                                 "nodes of this job another DMLC_PS_ROOT_PORT");
  }
  if (outcome && !outcome->ok()) return *outcome;
  return node;
}

SchedulerNode::SchedulerNode(const Config& config, const ps::MembershipOptions& options)
    : log_(MakeLogger(config)) {
  const Logger network_log = MakeNetworkLogger(config, log_);
  WarnOfLoopback(config, network_log);
  network_ = std::make_unique<Network>(config, network_log);
  LoopThread* const io = network_->io();
  coordinator_ = std::make_unique<ps::Coordinator>(options, network_->transport(), io, network_log);
  ps::Coordinator::Handler handler;
  handler.on_listening = [this](int32_t port) {
    port_ = port;
    listening_or_over_.Notify();
  };
  handler.on_finished = [this](Status status) {
    outcome_.Set(std::move(status));
    listening_or_over_.Notify();
  };
  RunOn(io, [&] { coordinator_->Start(std::move(handler)); });
}

SchedulerNode::~SchedulerNode() { Close("it was closed"); }

Result<Metrics> SchedulerNode::Measure(Duration timeout) const {
  return Await<Metrics>(timeout, [this](GiveMetrics give) {
    network_->io()->Post([this, give = std::move(give)] {
      if (!coordinator_) return;
      Metrics metrics;
      coordinator_->Measure(&metrics);
      give(metrics);
    });
  });
}

void SchedulerNode::Close(const std::string& why) {
  if (std::exchange(closed_, true)) return;
  LoopThread* const io = network_->io();
  if (!outcome_.Get()) {
    const Status status = Status::Unavailable("the scheduler node was ended: " + why);
    RunOn(io, [&] { coordinator_->Abort(status); });
    outcome_.WaitFor(kAbortWait);
  }
  RunOn(io, [&] { coordinator_->Close(kSchedulerLinger); });
  RunOn(io, [&] { coordinator_.reset(); });
  network_.reset();
}

Result<std::unique_ptr<ServerNode>> ServerNode::Start(const Config& config, ServerUpdater updater) {
  const Result<ps::MembershipOptions> options = MakeMembershipOptions(config, ps::Role::kServer);
  if (!options.ok()) return options.status();
  if (Status wrong = trace::CheckTimeline(config); !wrong.ok()) return wrong;
  const size_t num_shards = ShardPlacesOf(DiscoverNumaNodes(), config, 0).size();
  if (Status few = CheckDescriptorsOf(config, num_shards + 1); !few.ok()) return few;
  Result<ps::RdmaOptions> rdma = host::MakeRdmaOptions(config, MakeLogger(config));
  if (!rdma.ok()) return rdma.status();
  return std::make_unique<ServerNode>(config, options.value(), std::move(rdma.value()),
                                      std::move(updater));
}

ServerNode::ServerNode(const Config& config, const ps::MembershipOptions& options,
                       ps::RdmaOptions rdma, ServerUpdater updater)
    : config_(config), log_(MakeLogger(config)), updater_(std::move(updater)) {
  if (updater_.update) updater_.executor = threads_.StartUpdater();
  const Logger network_log = MakeNetworkLogger(config, log_);
  WarnOfUnknownRoot(config, network_log);
  WarnOfLoopback(config, network_log);
  WarnOfByteps(config, network_log);
  network_ = std::make_unique<Network>(config, network_log, std::move(rdma));
  LoopThread* const io = network_->io();
  member_ = std::make_unique<ps::Member>(options, network_->transport(), io, network_log);
  ps::Member::Handler handler;
  handler.on_ready = [this](Result<ps::View> view) { OnReady(std::move(view)); };
  handler.on_message = [this](ps::Message message) {
    if (server_) server_->OnMessage(std::move(message));
  };
  handler.announced_bytes = [](const ps::Extension& request) {
    return protocol::AnnouncedBytes(request, codec::Builtin());
  };
  handler.on_worker_left = [this](int32_t rank, const Status& why) {
    if (server_) server_->OnWorkerGone(rank, why);
  };
  handler.on_worker_vacant = [this](int32_t id, bool native) {
    const Status status = server_ ? server_->OnWorkerVacant(id, native) : Status::Ok();
    if (status.ok()) return;
    member_->ReportFailure(status);
    OnFailure(status);
  };
  handler.on_failure = [this](const Status& why) { OnFailure(why); };
  handler.on_shutdown = [this] { OnShutdown(); };
  RunOn(io, [&] { member_->Start(std::move(handler)); });
}

ServerNode::~ServerNode() { Close("it was closed"); }

void ServerNode::OnReady(Result<ps::View> view) {
  if (!view.ok()) return OnFailure(view.status());
  const Status begun = Guarded([&] {
    Begin(view.value());
    return Status::Ok();
  });
  if (begun.ok()) return;
  member_->ReportFailure(begun);
  OnFailure(begun);
}

void ServerNode::Begin(const ps::View& view) {
  const int32_t rank = view.rank;
  rank_ = rank;
  for (const ps::Node& node : view.nodes) {
    if (node.id == view.own_id) port_ = node.port;
  }
  ServerOptions options;
  options.view = std::make_shared<const job::View>(ViewOf(view, job::Role::kServer));
  options.deterministic = config_.deterministic;
  options.hold_bytes = config_.hold_bytes;
  options.max_staleness = config_.max_staleness;
  options.straggler_timeout = config_.straggler_timeout;
  options.updater = updater_;
  options.grants.straggler_timeout = config_.straggler_timeout;
  options.timed = !config_.metrics.empty();
  options.max_backlog_bytes = MostBacklogBytes(AvailableBytes());
  ps::Transport* const transport = network_->transport();
  Server::Handler handler;
  handler.send = [transport](ps::Message message) { transport->Send(std::move(message)); };
  handler.on_stop = [this] {
    if (member_) member_->JoinFinalBarrier();
  };
  handler.on_failure = [this](const Status& why) {
    if (member_) member_->ReportFailure(why);
    OnFailure(why);
  };
  handler.on_violation = [this](int32_t peer, const std::string& what) {
    if (member_) member_->ReportViolation(peer, what);
  };
  options.lend = [transport](std::span<std::byte> pages) {
    return transport->Lend(pages, ps::Lending::kSent);
  };
  std::vector<ServerShard> shards = threads_.StartShards(ShardPlacesOf(nodes_, config_, rank));
  options.dispatcher_bytes = DispatcherBytes(shards.size(), config_.server_threads);
  options.adopted_bytes = AdoptedBytes(shards);
  const Logger log = log_.Named("server " + std::to_string(rank));
  OpenTimeline(shards.size(), &options, log);
  server_ =
      std::make_unique<Server>(options, network_->io(), std::move(shards), std::move(handler), log);
}

Result<Metrics> ServerNode::Measure(Duration timeout) const {
  return Await<Metrics>(timeout, [this](GiveMetrics give) {
    network_->io()->Post(
        [this, give = std::move(give)]() mutable { CollectMetrics(std::move(give)); });
  });
}

void ServerNode::CollectMetrics(GiveMetrics give) const {
  Metrics own;
  own.Add("ready", server_ ? 1 : 0);
  own.Add("rank", rank_);
  AddSent(network_->sent(), &own);
  AddRdma(network_->rdma(), &own);
  own.Add("failed", outcome_.Get().value_or(Status::Ok()).ok() ? 0 : 1);
  if (!server_) return give(own);
  server_->Measure([own = std::move(own), give = std::move(give)](const Metrics& metrics) {
    Metrics all = own;
    all.Add(metrics);
    give(all);
  });
}

void ServerNode::OpenTimeline(size_t num_shards, ServerOptions* options, const Logger& log) {
  using trace::TraceEvent;
  timeline_ =
      trace::Timeline::OfServer(config_, options->view, static_cast<int32_t>(num_shards), log);
  if (!timeline_) return;
  options->on_round = [timeline = timeline_.get()](size_t shard, const RoundTimes& times) {
    trace::Trace* const trace = timeline->trace(shard);
    TraceEvent event{.kind = TraceEvent::Kind::kPeers,
                     .partition = times.partition,
                     .server = static_cast<uint32_t>(shard),
                     .last_rank = times.last_rank,
                     .key = times.key,
                     .round = times.round,
                     .bytes = times.size_bytes,
                     .coding = times.coding,
                     .begin = times.first_push,
                     .end = times.last_push};
    trace->Record(event);
    event.kind = TraceEvent::Kind::kSum;
    event.begin = times.last_push;
    event.end = times.summed;
    trace->Record(event);
  };
}

void ServerNode::OnFailure(const Status& why) {
  if (server_) server_->Fail(why);
  outcome_.Set(why);
}

void ServerNode::OnShutdown() {
  // The job is over with or without the response.
  member_->Leave("", [this](const Status&) { outcome_.Set(Status::Ok()); });
}

void ServerNode::Close(const std::string& why) {
  if (std::exchange(closed_, true)) return;
  LoopThread* const io = network_->io();
  RunOn(io, [&] {
    if (outcome_.Get()) return;
    const std::string name = rank_ < 0 ? "a server" : "server " + std::to_string(rank_);
    const Status status = Status::Unavailable(name + " was ended: " + why);
    member_->ReportFailure(status);
    OnFailure(status);
  });
  threads_.AwaitShards();  // refusals are on their way
  RunOn(io, [&] { member_->Close(server_ ? kLinger : kLingerUnjoined); });
  RunOn(io, [&] { member_.reset(); });
  RunOn(io, [&] {
    if (server_) server_->Fail(Status::Cancelled("the server was closed"));
  });
  threads_.AwaitShards();
  threads_.End();
  RunOn(io, [] {});  // the outcomes of the last updates, which the dispatcher answers
  network_.reset();
  server_.reset();
  timeline_.reset();
}

}  // namespace bs::node
