// Carries messages between the ranks and the leader, with a delay.
#include "backend/collective/ranks.h"

#include <algorithm>
#include <utility>

#include "backend/backend_before.h"
#include "protocol/data_body.h"
#include "protocol/placement.h"

namespace bs::backend::collective {
namespace {

// Servers that answer nothing.
class NoServers final : public Backend {
 public:
  explicit NoServers(Executor* executor) : executor_(executor) {}

  uint32_t num_destinations() const override { return 1; }
  void Place(std::span<Partition>, std::span<const Partition>) override {}
  uint32_t DestinationOf(Key) const override { return 0; }
  Carriers CarriersOf(const protocol::Tensor&, const Coding&, const Partition&) const override {
    return {.to = Carrier::kTcp, .from = Carrier::kTcp};
  }
  void Declare(const protocol::Tensor&, Done done) override { done(Status::Ok()); }
  void Lookup(const protocol::Tensor& asked,
              UniqueFunction<void(Result<protocol::Tensor>)> done) override {
    done(asked);
  }
  void Start(const protocol::Tensor&, Exchange exchange) override {
    ++num_started_;
    exchanges_.push_back(std::move(exchange));
  }
  void Release(const protocol::Tensor&, bool, Done done) override { done(Status::Ok()); }
  void SetOptimizer(OptimizerText, uint64_t, Done done) override { done(Status::Ok()); }
  std::optional<PartitionAndCredit> TakeFitting() override { return std::nullopt; }
  void Fail(const Status& status) override {
    for (Exchange& exchange : std::exchange(exchanges_, {})) {
      RefuseLater(executor_, std::move(exchange), status);
    }
  }
  void Measure(Metrics* metrics) const override {
    metrics->Add("started", static_cast<double>(num_started_));
  }

 private:
  Executor* const executor_;
  uint64_t num_started_ = 0;
  std::vector<Exchange> exchanges_;
};

CollectiveOptions OptionsOf(const std::vector<int32_t>& hosts, int32_t rank) {
  CollectiveOptions options{.rank = rank};
  if (hosts.empty()) return options;
  job::View view = job::MakeView({.rank = rank}, static_cast<int32_t>(hosts.size()), 1);
  for (size_t worker = 0; worker < hosts.size(); ++worker)
    view.workers[worker].host = hosts[worker];
  const HostPlan plan(view, /*also_on_one_host=*/true);
  options.host = HostOptions{.plan = plan,
                             .crosses = plan.num_workers() < hosts.size(),
                             .credit_bytes = uint64_t{1} << 20U};
  return options;
}

}  // namespace

Ranks::Node::Node(Ranks* ranks, int32_t rank) : executor_(&ranks->clock_) {
  const Logger off("", LogLevel::kOff);
  ps::KvWorkerOptions options;
  options.bodies = protocol::DataBodyRules();
  requests_ = std::make_unique<ps::KvWorker>(
      options, &executor_,
      [ranks, rank](ps::Message message) {
        message.peer = ps::WorkerId(rank);
        ranks->leader_.PostAt(ranks->clock_.Now() + ranks->OneWay(rank),
                              [ranks, message = std::move(message)]() mutable {
                                ranks->server_->OnMessage(std::move(message));
                              });
      },
      off);
  const bool has_hosts = !ranks->options_.hosts.empty();
  const std::vector<int32_t> beside = ranks->RanksBeside(rank);
  std::unique_ptr<Backend> servers = std::make_unique<NoServers>(&executor_);
  if (has_hosts) servers = ranks->sums_.Join(&executor_);
  const auto place = static_cast<int32_t>(std::ranges::find(beside, rank) - beside.begin());
  const int32_t host = has_hosts ? ranks->options_.hosts[static_cast<size_t>(rank)] : 0;
  backend_ = std::make_unique<CollectiveBackend>(
      OptionsOf(ranks->options_.hosts, rank), &executor_, std::move(servers),
      ranks->library(host)->Join(place, &executor_),
      [this](ps::KvRequest request, ps::KvWorker::Done done) {
        requests_->Send(std::move(request), std::move(done));
      });
}

Ranks::Ranks(RanksOptions options)
    : options_(std::move(options)), sums_(static_cast<uint32_t>(options_.num_ranks)) {
  for (int32_t rank = 0; rank < options_.num_ranks; ++rank) {
    const std::vector<int32_t> beside = RanksBeside(rank);
    if (beside.front() != rank) continue;
    FakeOptions library = options_.library;
    library.num_ranks = static_cast<int32_t>(beside.size());
    libraries_.push_back(std::make_unique<FakeWorld>(library));
  }
  ServerOptions server;
  server.view = job::ShareView({.role = job::Role::kServer}, options_.num_ranks, 1);
  server.grants = options_.grants;
  Server::Handler handler;
  handler.send = [this](ps::Message message) {
    const int32_t rank = ps::RankOf(message.peer);
    Node* const node = nodes_[static_cast<size_t>(rank)].get();
    message.peer = ps::ServerId(0);
    node->executor()->PostAt(clock_.Now() + OneWay(rank),
                             [node, message = std::move(message)]() mutable {
                               node->requests()->OnMessage(std::move(message));
                             });
  };
  server_ =
      std::make_unique<Server>(server, &leader_, std::vector<ServerShard>{{.executor = &leader_}},
                               std::move(handler), Logger("", LogLevel::kOff));
  for (int32_t rank = 0; rank < options_.num_ranks; ++rank) {
    nodes_.push_back(std::make_unique<Node>(this, rank));
  }
}

std::vector<int32_t> Ranks::RanksBeside(int32_t rank) const {
  std::vector<int32_t> beside;
  const std::vector<int32_t>& hosts = options_.hosts;
  for (int32_t other = 0; other < options_.num_ranks; ++other) {
    const bool same =
        hosts.empty() || hosts[static_cast<size_t>(other)] == hosts[static_cast<size_t>(rank)];
    if (same) beside.push_back(other);
  }
  return beside;
}

Ranks::~Ranks() {
  const Status ended = Status::Cancelled("the test has ended");
  for (const auto& node : nodes_) {
    node->backend()->Fail(ended);
    node->requests()->FailAll(ended);
  }
  Run();
}

void Ranks::Start(int32_t rank, const Sum& sum, const std::function<void(const Status&)>& summed) {
  protocol::Tensor tensor;
  tensor.key = sum.key;
  tensor.dtype = sum.dtype;
  tensor.size_bytes = sum.in.size();
  tensor.partition_bytes = sum.partition_bytes;
  tensor.partitions =
      protocol::SplitIntoPartitions(sum.in.size(), sum.partition_bytes, protocol::kAlignBytes);
  for (const Partition& partition : tensor.partitions) {
    Exchange exchange{.round = sum.round, .partition = partition, .priority = sum.priority};
    exchange.in = sum.in.subspan(partition.offset_bytes, partition.size_bytes);
    exchange.out = sum.out.subspan(partition.offset_bytes, partition.size_bytes);
    exchange.released = [](const Status&) {};
    exchange.sent = [](const Status&) {};
    exchange.summed = [summed](const Status& status, const std::string&) { summed(status); };
    backend(rank)->Start(tensor, std::move(exchange));
  }
}

}  // namespace bs::backend::collective
