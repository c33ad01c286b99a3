// Puts workers and servers on simulated hosts, lets them replay, and looks at the clock.
#include "predict/predict.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "base/log.h"
#include "predict/replaying_worker.h"
#include "protocol/next_layout.h"
#include "protocol/server_shares.h"
#include "server/server.h"

namespace bs::predict {
namespace {

constexpr uint32_t kWarmUps = 2;
constexpr uint64_t kLeastPartition = 64;
constexpr uint64_t kMostScale = 256;
// The value of WorkerNode.
constexpr uint64_t kTogetherBytes = uint64_t{16} << 10U;
constexpr uint64_t kSliceBytes = 160'000;          // MXNet's 40,000 floats
constexpr uint64_t kDistributedBytes = 4'000'000;  // MXNet's million floats
constexpr int32_t kMostParts = 64;   // of a tensor: more, over as many servers, change no more
constexpr uint64_t kWaterMark = 10;  // as `launch.py --p3` sets it
// TCP fills the queues of a link for this long, however slow the link is.
constexpr double kQueueSeconds = 0.010;
constexpr double kLeastQueue = 256 << 10U;
// ps::LinkBudget, of our own transport.
constexpr double kAheadSeconds = 0.004;
constexpr uint64_t kLeastAhead = uint64_t{32} << 10U;
constexpr size_t kAheadShares = 4;
// Time of a push-pull of 1 KB in a burst, and of plain TCP (docs/user/performance.md).
constexpr Duration kOurMessage = std::chrono::microseconds(3);
constexpr Duration kStockMessage = std::chrono::microseconds(25);
constexpr double kByteNs = 0.3;
constexpr Duration kForEver = std::chrono::hours(10'000);

// How a policy's numbers come to lie in the simulator.
struct Plan {
  uint64_t scale = 1;  // bytes of the job for each simulated byte
  uint64_t partition_bytes = 0;
  uint64_t credit_bytes = 0;
  uint64_t together_bytes = 0;
  double ahead_messages = 0;  // for each peer, besides the queue of the link
  bool bounds_link = true;    // with ps::LinkBudget
  Duration message_cost{};
};

// At least a partition.
uint64_t LargestOf(const std::vector<Layer>& layers) {
  uint64_t largest = kLeastPartition;
  for (const Layer& layer : layers) largest = std::max(largest, layer.size_bytes);
  return largest;
}

// Turns each part of a layer that is spread over all servers into a layer of its own.  The last
// part in the order of forward has the times of the whole layer.
std::vector<Layer> Spread(const std::vector<Layer>& layers, int32_t num_servers) {
  std::vector<Layer> spread;
  for (const Layer& layer : layers) {
    const int32_t most = layer.size_bytes < kDistributedBytes ? 1 : kMostParts;
    const auto parts = static_cast<uint64_t>(std::min(most, num_servers));
    for (uint64_t part = 0; part < parts; ++part) {
      const bool last = part + 1 == parts;
      const uint64_t rest = last ? layer.size_bytes % parts : 0;
      spread.push_back({.size_bytes = layer.size_bytes / parts + rest,
                        .forward = last ? layer.forward : Duration(0),
                        .backward = last ? layer.backward : Duration(0)});
    }
  }
  return spread;
}

// The largest scale at which the partition keeps its size within a hundredth, or else the best.
uint64_t ScaleOf(uint64_t partition_bytes) {
  const uint64_t most = std::clamp<uint64_t>(partition_bytes / kLeastPartition, 1, kMostScale);
  uint64_t best = most;
  double least = 1;
  for (uint64_t scale = most; scale > most / 2; --scale) {
    const uint64_t unit = kLeastPartition * scale;
    const double error =
        static_cast<double>(partition_bytes % unit) / static_cast<double>(partition_bytes);
    if (error < least) best = scale;
    least = std::min(least, error);
  }
  return best;
}

Plan PlanOf(const Options& options) {
  const bool p3 = options.policy == Policy::kP3;
  const bool stock = p3 || options.policy == Policy::kDistSync;
  const uint64_t own = p3 ? kSliceBytes : LargestOf(options.layers);
  const uint64_t partition = stock ? own : options.partition_bytes;
  Plan plan;
  plan.scale = ScaleOf(partition);
  plan.partition_bytes = std::max(kLeastPartition, partition / plan.scale);
  plan.credit_bytes = std::max<uint64_t>(1, options.credit_bytes / plan.scale);
  plan.together_bytes = kTogetherBytes / plan.scale;
  plan.message_cost = kOurMessage;
  if (stock) {
    plan.credit_bytes = uint64_t{1} << 60U;
    plan.together_bytes = UINT64_MAX;
    plan.message_cost = kStockMessage;
    plan.bounds_link = false;
  }
  if (p3) plan.ahead_messages = kWaterMark;
  return plan;
}

uint64_t Scaled(uint64_t size_bytes, const Plan& plan) {
  return std::max<uint64_t>(1, (size_bytes + plan.scale / 2) / plan.scale);
}

Status Check(const Options& options) {
  if (options.layers.empty()) return Status::InvalidArgument("a model without layers");
  if (options.num_workers < 1 || options.num_servers < 1 || options.most_workers < 1) {
    return Status::InvalidArgument("want at least one worker and one server");
  }
  if (!(options.bytes_per_second >= 1)) return Status::InvalidArgument("want a rate of the links");
  const size_t placed = options.worker_hosts.size() + options.server_hosts.size();
  if (placed > 0 && (std::cmp_not_equal(options.worker_hosts.size(), options.num_workers) ||
                     std::cmp_not_equal(options.server_hosts.size(), options.num_servers))) {
    return Status::InvalidArgument("want a host for each worker and each server, or none");
  }
  for (const auto& [host, rate] : options.host_rates) {
    if (!(rate >= 1)) return Status::InvalidArgument("want a rate of each host's link");
    if (placed == 0) return Status::InvalidArgument("rates of hosts without nodes");
  }
  if (options.steps < 1) return Status::InvalidArgument("want at least one step");
  if (options.latency < Duration(0)) return Status::InvalidArgument("a latency below 0");
  if (options.partition_bytes < kLeastPartition || options.credit_bytes < 1) {
    return Status::InvalidArgument("want partitions of at least 64 bytes and some credit");
  }
  const Plan plan = PlanOf(options);
  uint64_t partitions = 0;
  for (const Layer& layer : options.layers) {
    if (layer.forward < Duration(0) || layer.backward < Duration(0)) {
      return Status::InvalidArgument("a layer that takes less than no time");
    }
    partitions += 1 + layer.size_bytes / (plan.partition_bytes * plan.scale);
    if (partitions > protocol::kMostPartitions) {
      return Status::InvalidArgument("a model of more than 1048576 partitions of " +
                                     CountOf(options.partition_bytes, "byte"));
    }
  }
  return Status::Ok();
}

// A server with its host.
class ServerHost {
 public:
  ServerHost(const ServerOptions& options, sim::SimClock* clock, sim::SimNetwork* network,
             const sim::SimHostOptions& host, ps::Transport* beside)
      : executor_(clock), network_(network), transport_(network->MakeTransport(&executor_)) {
    network->PutOnHost(transport_.get(), host, beside);
    server_ = std::make_unique<Server>(
        options, &executor_, std::vector<ServerShard>{{.executor = &executor_, .numa_node = 0}},
        Server::Handler{
            .send = [this](ps::Message message) { transport_->Send(std::move(message)); }},
        Logger("", LogLevel::kOff));
    transport_->Start(
        {.on_message = [this](ps::Message message) { server_->OnMessage(std::move(message)); },
         .on_garbage = {},
         .on_connected = {},
         .on_disconnected = {}});
  }

  void Start(int32_t rank, const ps::Address& address, const std::vector<ps::Address>& workers) {
    transport_->Bind(address, [](const Result<int32_t>&) {});
    for (size_t i = 0; i < workers.size(); ++i) {
      transport_->Connect(ps::WorkerId(static_cast<int32_t>(i)), workers[i], ps::ServerId(rank));
    }
  }
  void Close() { transport_->Close(Duration(0)); }
  ps::Transport* transport() const { return transport_.get(); }
  sim::SimHostCounters counters() const { return network_->CountersOf(transport_.get()); }

 private:
  sim::SimExecutor executor_;
  sim::SimNetwork* const network_;
  std::unique_ptr<ps::Transport> transport_;
  std::unique_ptr<Server> server_;
};

class Cluster {
 public:
  explicit Cluster(const Options& options);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster();

  Result<Prediction> Run();

 private:
  sim::SimHostOptions HostOf(double rate, double share, size_t peers) const;
  double RateOf(const std::vector<int32_t>& hosts, int32_t rank) const;
  // Returns the first node of the host that a node is on; null if that is the node itself.
  ps::Transport* Beside(const std::vector<int32_t>& hosts, int32_t rank) const;
  // The view of one of the simulated nodes.
  job::SharedView ViewOf(job::Role role, int32_t rank) const {
    job::View view = view_;
    view.own = {.role = role, .rank = rank};
    return std::make_shared<const job::View>(std::move(view));
  }
  void MakeWorkers();
  void MakeServers();
  Prediction Look() const;

  const Options options_;
  const Plan plan_;
  const job::View view_;  // of the nodes that are simulated
  Replay replay_;
  sim::SimClock clock_{1};
  sim::SimNetwork network_;
  std::vector<std::unique_ptr<ServerHost>> servers_;
  std::vector<std::unique_ptr<ReplayingWorker>> workers_;
};

sim::SimNetworkOptions NetworkOptions(const Options& options, const Plan& plan) {
  sim::SimNetworkOptions network;
  network.delay_min = network.delay_max = options.latency;
  network.payload_scale = plan.scale;
  return network;
}

// The shares that a job of ours has on these hosts.
std::vector<uint32_t> WeightsOf(const Options& options) {
  std::map<int32_t, protocol::LinkHost> hosts;
  for (const int32_t host : options.worker_hosts) ++hosts[host].workers;
  for (size_t rank = 0; rank < options.server_hosts.size(); ++rank) {
    hosts[options.server_hosts[rank]].servers.push_back(static_cast<int32_t>(rank));
  }
  std::vector<protocol::LinkHost> list;
  for (auto& [number, host] : hosts) {
    const auto own = options.host_rates.find(number);
    if (own != options.host_rates.end()) host.rate = own->second / options.bytes_per_second;
    list.push_back(std::move(host));
  }
  return protocol::ServerWeights(list, options.num_servers);
}

std::vector<ps::Address> Addresses(const std::string& host, int32_t count) {
  std::vector<ps::Address> addresses(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) addresses[static_cast<size_t>(i)] = {host, i + 1};
  return addresses;
}

int32_t SimulatedWorkers(const Options& options) {
  return options.worker_hosts.empty() ? std::min(options.num_workers, options.most_workers)
                                      : options.num_workers;
}

// Returns the view of the simulated nodes.  Workers of other schedulers do not look at hosts.
job::View ViewOfNodes(const Options& options) {
  job::View view = job::MakeView({}, SimulatedWorkers(options), options.num_servers);
  const bool looks = options.policy != Policy::kP3 && options.policy != Policy::kDistSync;
  if (options.worker_hosts.empty() || !looks) return view;
  std::map<int32_t, int32_t> places;  // by the caller's number of a host
  const auto place_of = [&places](int32_t host) {
    return places.try_emplace(host, static_cast<int32_t>(places.size())).first->second;
  };
  for (size_t i = 0; i < view.workers.size(); ++i) {
    view.workers[i].host = place_of(options.worker_hosts[i]);
  }
  for (size_t i = 0; i < view.servers.size(); ++i) {
    view.servers[i].host = place_of(options.server_hosts[i]);
  }
  view.hosts.resize(places.size());
  return view;
}

Cluster::Cluster(const Options& options)
    : options_(options),
      plan_(PlanOf(options)),
      view_(ViewOfNodes(options)),
      network_(&clock_, NetworkOptions(options, plan_)) {
  replay_.layers = options.layers;
  replay_.steps = kWarmUps + options.steps;
  uint64_t largest = 0;
  for (Layer& layer : replay_.layers) {
    layer.size_bytes = Scaled(layer.size_bytes, plan_);
    largest = std::max(largest, layer.size_bytes);
  }
  replay_.gradient.resize(largest);
  replay_.sum.resize(largest);
  MakeServers();
  MakeWorkers();
  const std::vector<ps::Address> servers = Addresses("server", options.num_servers);
  const std::vector<ps::Address> workers = Addresses("worker", view_.num_workers());
  for (size_t i = 0; i < servers.size(); ++i) {
    servers_[i]->Start(static_cast<int32_t>(i), servers[i], workers);
  }
  for (size_t i = 0; i < workers.size(); ++i) workers_[i]->Listen(workers[i]);
  clock_.RunUntil(clock_.Now());
  for (const auto& worker : workers_) worker->Start(servers);
}

Cluster::~Cluster() {
  for (const auto& worker : workers_) worker->Close();
  for (const auto& server : servers_) server->Close();
  clock_.RunUntil(clock_.Now());
  workers_.clear();
  servers_.clear();
}

// The host of a node that stands for `share` of a host.
sim::SimHostOptions Cluster::HostOf(double rate, double share, size_t peers) const {
  sim::SimHostOptions host;
  host.bytes_per_second = rate * share;
  const double slices = plan_.ahead_messages * static_cast<double>(peers) *
                        static_cast<double>(plan_.partition_bytes * plan_.scale);
  host.queued_bytes =
      static_cast<uint64_t>(std::max(kLeastQueue, kQueueSeconds * host.bytes_per_second) + slices);
  if (plan_.bounds_link) {
    // Whole messages are committed here, parts of them in reality.
    host.ahead_bytes =
        std::max(kLeastAhead, static_cast<uint64_t>(kAheadSeconds * host.bytes_per_second)) +
        kAheadShares * plan_.partition_bytes * plan_.scale;
    host.ahead_each_bytes = host.ahead_bytes / std::min<size_t>(peers, kAheadShares);
  }
  host.message_cost =
      Duration(static_cast<int64_t>(static_cast<double>(plan_.message_cost.count()) / share));
  host.byte_cost_ns = kByteNs / share;
  return host;
}

double Cluster::RateOf(const std::vector<int32_t>& hosts, int32_t rank) const {
  if (hosts.empty()) return options_.bytes_per_second;
  const auto own = options_.host_rates.find(hosts[static_cast<size_t>(rank)]);
  return own == options_.host_rates.end() ? options_.bytes_per_second : own->second;
}

ps::Transport* Cluster::Beside(const std::vector<int32_t>& hosts, int32_t rank) const {
  if (hosts.empty()) return nullptr;
  const int32_t host = hosts[static_cast<size_t>(rank)];
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (options_.server_hosts[i] == host) return servers_[i]->transport();
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (options_.worker_hosts[i] == host) return workers_[i]->transport();
  }
  return nullptr;
}

void Cluster::MakeServers() {
  const double share = static_cast<double>(view_.num_workers()) / options_.num_workers;
  const CodingCosts& coding = options_.coding;
  for (int32_t rank = 0; rank < options_.num_servers; ++rank) {
    ServerOptions options;
    options.view = ViewOf(job::Role::kServer, rank);
    sim::SimHostOptions host = HostOf(RateOf(options_.server_hosts, rank), share,
                                      static_cast<size_t>(view_.num_workers()));
    host.received_payload_cost_ns = coding.add_ns / share;
    // Each of the simulated workers gets the sum.
    host.sent_payload_cost_ns = coding.encode_sum_ns / view_.num_workers();
    servers_.push_back(std::make_unique<ServerHost>(options, &clock_, &network_, host,
                                                    Beside(options_.server_hosts, rank)));
  }
}

void Cluster::MakeWorkers() {
  WorkerOptions options;
  options.partition_bytes = plan_.partition_bytes;
  options.credit_bytes = plan_.credit_bytes;
  options.priority_order = options_.policy == Policy::kOurs || options_.policy == Policy::kP3;
  options.early_bytes = options_.policy == Policy::kOurs ? kEarlyBytes / plan_.scale : 0;
  options.small_tensor_bytes = kSmallTensorBytes / plan_.scale;
  backend::PsBackendOptions backend_options;
  const bool stock = options_.policy == Policy::kP3 || options_.policy == Policy::kDistSync;
  if (!stock) backend_options.server_weights = WeightsOf(options_);
  backend_options.together_bytes = plan_.together_bytes;
  // Nothing is lost here, so nothing is sent again.
  backend_options.requests.retry_interval = backend_options.requests.timeout = kForEver;
  backend_options.requests.straggler_timeout = kForEver;
  for (int32_t rank = 0; rank < view_.num_workers(); ++rank) {
    options.view = backend_options.view = ViewOf(job::Role::kWorker, rank);
    sim::SimHostOptions host =
        HostOf(RateOf(options_.worker_hosts, rank), 1, static_cast<size_t>(options_.num_servers));
    host.sent_payload_cost_ns = options_.coding.encode_ns;
    host.received_payload_cost_ns = options_.coding.decode_ns;
    workers_.push_back(std::make_unique<ReplayingWorker>(
        &replay_, options, backend_options, &clock_, &network_,
        ReplayingWorker::Place{.host = host, .beside = Beside(options_.worker_hosts, rank)}));
  }
}

Result<Prediction> Cluster::Run() {
  const auto done = [](const auto& worker) { return worker->done() || !worker->failure().ok(); };
  while (!std::all_of(workers_.begin(), workers_.end(), done)) {
    if (!clock_.Step()) return Status::Internal("the simulated job stands still");
  }
  for (const auto& worker : workers_) {
    if (!worker->failure().ok()) return worker->failure();
  }
  return Look();
}

Prediction Cluster::Look() const {
  Prediction found;
  found.simulated_workers = view_.num_workers();
  for (const auto& worker : workers_) {
    const std::vector<Duration>& lengths = worker->lengths();
    found.steps.insert(found.steps.end(), lengths.begin() + kWarmUps, lengths.end());
  }
  std::vector<Duration> sorted = found.steps;
  std::sort(sorted.begin(), sorted.end());
  found.step = sorted[sorted.size() / 2];
  for (const Layer& layer : replay_.layers) {
    const uint64_t partition_bytes =
        plan_.partition_bytes - plan_.partition_bytes % kLeastPartition;
    found.partitions += (layer.size_bytes + partition_bytes - 1) / partition_bytes;
  }
  const double seconds = std::chrono::duration<double>(clock_.Now().time_since_epoch()).count();
  const sim::SimHostCounters worker = workers_.front()->counters();
  const sim::SimHostCounters server = servers_.front()->counters();
  found.messages = worker.messages;
  found.most_waiting = worker.most_waiting;
  found.server_waiting = server.most_waiting;
  found.worker_busy = std::chrono::duration<double>(worker.busy).count() / seconds;
  found.server_busy = std::chrono::duration<double>(server.busy).count() / seconds;
  return found;
}

}  // namespace

Result<Prediction> Predict(const Options& options) {
  if (Status wrong = Check(options); !wrong.ok()) return wrong;
  if (options.policy != Policy::kDistSync) return Cluster(options).Run();
  Options spread = options;
  spread.layers = Spread(options.layers, options.num_servers);
  if (Status wrong = Check(spread); !wrong.ok()) return wrong;
  return Cluster(spread).Run();
}

}  // namespace bs::predict
