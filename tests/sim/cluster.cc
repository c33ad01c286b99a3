// Draws random clusters, runs them, and judges them.
#include "sim/cluster.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "backend/collective/fake_collective.h"
#include "base/count_of.h"
#include "codec/two_bit.h"
#include "codec/whole_codec.h"
#include "protocol/placement.h"
#include "sim/cluster_node.h"
#include "sim/scheduler_host.h"

namespace bs::sim {
namespace {

const codec::Table& Codecs() {
  static const codec::Table table({codec::TwoBitCodec(), codec::testing::WholeCodec()});
  return table;
}

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Longer than anything that correct code waits for.
constexpr Duration kStuckAfter = seconds(90);

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  template <typename T>
  T Uniform(T low, T high) {
    return std::uniform_int_distribution<T>(low, high)(random_);
  }
  bool Chance(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return *(values.begin() + Uniform<size_t>(0, values.size() - 1));
  }

 private:
  std::mt19937_64 random_;
};

std::vector<KeyPlan> DrawKeys(Draw* draw, uint64_t partition_bytes) {
  std::vector<KeyPlan> keys(draw->Uniform<size_t>(1, 6));
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t most = draw->OneOf<uint64_t>({1, 2, 12}) * partition_bytes / 4;
    keys[i].key = i * draw->OneOf<uint64_t>({1, 1, 1000003}) + i;
    keys[i].dtype = draw->OneOf({DType::kFloat32, DType::kInt32});
    keys[i].count =
        draw->Chance(0.2) ? draw->Uniform<uint64_t>(0, 1) : draw->Uniform<uint64_t>(0, most);
    keys[i].rounds = draw->Uniform<Round>(0, 5);
  }
  return keys;
}

SimNetworkOptions DrawNetwork(Draw* draw) {
  SimNetworkOptions network;
  network.delay_min = microseconds(draw->Uniform<int64_t>(0, 100));
  network.delay_max =
      network.delay_min + microseconds(draw->OneOf<int64_t>({10, 500, 20000, 200000}));
  network.bytes_per_second = draw->OneOf<uint64_t>({0, 0, 100000, 20000000});
  network.loss = draw->OneOf({0.0, 0.0, 0.02, 0.2});
  network.repeat = draw->OneOf({0.0, 0.05, 0.3});
  return network;
}

Event DrawEvent(Draw* draw, const ClusterOptions& options, ps::Role role) {
  const uint64_t callbacks =
      Script::CallbacksOf(options.keys) * static_cast<uint64_t>(options.num_workers);
  return {.role = role,
          .rank = draw->Uniform(0, options.num_workers - 1),
          .after_callbacks = draw->Uniform<uint64_t>(0, callbacks - 1)};
}

// The whole job, from the making of its nodes to their end.
class Cluster {
 public:
  Cluster(const ClusterOptions& options, uint64_t seed, const Journal::Trace& trace);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster();

  Report Run();

 private:
  void AddLibraries();
  std::unique_ptr<backend::collective::FakeWorld> MakeLibrary(int32_t first_rank, size_t num_ranks);
  void AddServers();
  void AddWorkers();
  std::unique_ptr<ServerNode> MakeServer(int32_t index);
  void Start();
  bool Over() const;
  void CheckCredit();
  bool AllReady() const;
  bool Due(const std::optional<Event>& event) const;
  bool Due(uint64_t callbacks) const;
  void MaybeDecide();
  void MaybeBefall();
  void MaybeLose();
  WorkerNode* FindToLose(int32_t rank);
  std::unique_ptr<WorkerNode> MakeWorker(int32_t index, uint64_t rank);
  // True while some workers push a key in a layout that others do not use yet.
  bool ChangesOver() const;
  void Kill(const Event& death);
  void GiveUp(WorkerNode* quitter, const std::string& reason);
  void MaybeDieEarly();
  void CheckEndAfterEarlyDeath();
  MemberNode* Find(const Event& event);
  void CheckEnd();
  // Checks that the last pull of every asynchronous key has every push in it, once.
  void CheckWeights();
  // Returns true if `weight` is `final`: every push of the workers that stayed, and the first
  // pushes of each lost one.
  bool IsExplained(size_t key, uint64_t element, float final, float weight) const;
  std::string WhatIsMissing() const;

  const ClusterOptions options_;
  SimClock clock_;
  Journal journal_;
  SimNetwork network_;
  Job job_;
  // By the rank of their first worker.
  std::map<int32_t, std::unique_ptr<backend::collective::FakeWorld>> libraries_;
  std::unique_ptr<SchedulerHost> scheduler_;
  std::vector<std::unique_ptr<ServerNode>> servers_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::vector<int32_t> lives_;  // by rank: how many workers have had it
  bool died_while_changing_ = false;
  bool was_cut_off_ = false;
  bool died_when_done_ = false;        // early, and yet every script was over
  std::optional<TimePoint> complete_;  // all nodes are there
  const MemberNode* next_ = nullptr;   // who came after an early death
  bool made_good_ = false;
  bool was_ready_ = false;
  const WorkerNode* quitter_ = nullptr;  // left early, with a reason
  size_t num_lost_ = 0;
  std::set<const WorkerNode*> lost_;
  size_t num_decided_ = 0;
};

Cluster::Cluster(const ClusterOptions& options, uint64_t seed, const Journal::Trace& trace)
    : options_(options),
      clock_(seed),
      journal_(&clock_, trace),
      network_(&clock_, options.network),
      job_{.clock = &clock_, .network = &network_, .journal = &journal_, .membership = {}} {
  job_.peers = options.test_peers;
  job_.members = options.test_members;
  job_.neighbours = options.test_neighbours;
  job_.hosts = options.hosts;
  job_.server_hosts = options.server_hosts;
  job_.least_added_bytes = options.least_added_bytes;
  job_.membership.num_workers = options.num_workers;
  job_.membership.num_servers = options.num_servers;
  job_.membership.root = {"10.0.0.1", 9091};
  job_.membership.job = seed + 1;
  if (!options.losses.empty()) job_.membership.rejoin_timeout = seconds(60);
  lives_.resize(static_cast<size_t>(options.num_workers), 1);
  const Logger log("", LogLevel::kDebug, [this](LogLevel, std::string_view line) {
    journal_.Note("scheduler node", [&] { return std::string(line); });
    if (line.find("all nodes are there") != std::string_view::npos) complete_ = clock_.Now();
  });
  scheduler_ = std::make_unique<SchedulerHost>(&job_, log);
  AddLibraries();
  AddServers();
  AddWorkers();
}

void Cluster::AddLibraries() {
  if (!options_.grants) return;
  job_.library_of = [this](int32_t first_rank, size_t num_ranks) {
    auto& library = libraries_[first_rank];
    if (!library) library = MakeLibrary(first_rank, num_ranks);
    return library.get();
  };
}

std::unique_ptr<backend::collective::FakeWorld> Cluster::MakeLibrary(int32_t first_rank,
                                                                     size_t num_ranks) {
  backend::collective::FakeOptions options;
  options.num_ranks = static_cast<int32_t>(num_ranks);
  // The credit returns when an operation has ended on rank 0.
  if (first_rank == 0) {
    options.most_bytes = std::max(options_.grants->credit_bytes, options_.grants->partition_bytes);
  }
  options.duration = [this](uint64_t size_bytes) {
    return microseconds(clock_.Uniform(1, 2000)) + Duration(static_cast<int64_t>(size_bytes));
  };
  options.on_violation = [this](const std::string& what) {
    journal_.Report(Broken::kStatus, "library", what);
  };
  return std::make_unique<backend::collective::FakeWorld>(std::move(options));
}

void Cluster::AddServers() {
  for (int32_t i = 0; i < options_.num_servers; ++i) servers_.push_back(MakeServer(i));
}

std::unique_ptr<ServerNode> Cluster::MakeServer(int32_t index) {
  ServerOptions server;
  server.codecs = &Codecs();
  server.deterministic = options_.deterministic;
  server.hold_bytes = options_.hold_bytes;
  server.max_backlog_bytes = options_.max_backlog_bytes;
  server.max_staleness = options_.max_staleness;
  server.dispatcher_bytes = options_.dispatcher_bytes;
  server.grants = options_.grants.value_or(GrantOptions());
  server.adopted_bytes = options_.adopted_bytes;
  return std::make_unique<ServerNode>(&job_, index, server, options_.num_shards, *options_.rules);
}

void Cluster::AddWorkers() {
  for (int32_t i = 0; i < options_.num_workers; ++i) {
    workers_.push_back(MakeWorker(i, static_cast<uint64_t>(i)));
  }
}

std::unique_ptr<WorkerNode> Cluster::MakeWorker(int32_t index, uint64_t rank) {
  worker::PsWorkerOptions options;
  options.codecs = &Codecs();
  options.credit_bytes = options_.credit_bytes;
  options.together_bytes = options_.together_bytes;
  options.priority_order = options_.priority_order;
  options.early_bytes = options_.early_bytes;
  options.small_tensor_bytes = options_.small_tensor_bytes;
  options.urgency = options_.urgency;
  options.requests.retry_interval = options_.retry_interval;
  options.requests.timeout = seconds(600);
  const ScriptOptions script{.keys = options_.keys,
                             .rank = 0,
                             .num_workers = options_.num_workers,
                             .most_waiting = options_.most_waiting,
                             .longest_pause = options_.longest_pause,
                             .max_staleness = options_.max_staleness,
                             .lives = &lives_,
                             .trains = options_.trains,
                             .silent_rank = options_.silent_rank};
  const auto others = static_cast<uint64_t>(options_.num_workers - 1);
  const uint64_t step = options_.mixed_partitions ? protocol::kAlignBytes : 0;
  uint64_t largest = options_.partition_bytes + others * step;
  for (const KeyPlan& plan : options_.keys) {
    if (plan.hosted) largest = std::max(largest, plan.count * sizeof(float));  // in one piece
  }
  for (const Change& change : options_.changes) {
    largest = std::max({largest, change.partition_bytes, change.credit_bytes});
  }
  // The first value of a key that is declared for its coding.
  const auto is_coded = [](const KeyPlan& plan) { return plan.coding.codec != 0; };
  const auto coded = std::ranges::find_if(options_.keys, is_coded);
  if (coded != options_.keys.end()) {
    largest = std::max(largest, Codecs().PartitionBytes(coded->coding, largest));
  }
  options.partition_bytes = options_.partition_bytes + rank * step;
  if (!options_.traces.empty()) options.trace = options_.traces.at(rank);
  return std::make_unique<WorkerNode>(&job_, index, options, script, largest, *options_.rules);
}

Cluster::~Cluster() {
  // Whatever state the job is in: everyone closes, and what still comes finds its nodes.
  for (const auto& worker : workers_) worker->Close();
  clock_.RunUntil(clock_.Now() + seconds(5));
  scheduler_->Destroy();
  for (const auto& worker : workers_) worker->DestroyMember();
  for (const auto& server : servers_) server->DestroyMember();
  clock_.RunUntil(clock_.Now() + seconds(1));
}

void Cluster::Start() {
  const auto within = std::chrono::duration_cast<milliseconds>(options_.starts_within).count();
  const auto some = [&] { return milliseconds(clock_.Uniform(0, static_cast<uint64_t>(within))); };
  scheduler_->Start(some());
  for (const auto& server : servers_) server->Start(some());
  for (const auto& worker : workers_) worker->Start(some());
}

bool Cluster::Over() const {
  const auto over = [](const auto& node) { return node->over(); };
  return scheduler_->over() && std::all_of(workers_.begin(), workers_.end(), over) &&
         std::all_of(servers_.begin(), servers_.end(), over);
}

void Cluster::CheckCredit() {
  for (const auto& worker : workers_) worker->CheckCredit();
}

bool Cluster::AllReady() const {
  const auto ready = [](const auto& node) { return node->ready(); };
  return std::all_of(workers_.begin(), workers_.end(), ready) &&
         std::all_of(servers_.begin(), servers_.end(), ready);
}

bool Cluster::Due(const std::optional<Event>& event) const {
  if (!event || !Due(event->after_callbacks)) return false;
  if (job_.ready_messages < event->after_ready_messages) return false;
  const auto done = [](const auto& worker) { return worker->script()->done(); };
  const bool any_works = !std::all_of(workers_.begin(), workers_.end(), done);
  return event->after_beside == 0 || (job_.beside >= event->after_beside && any_works);
}

bool Cluster::Due(uint64_t callbacks) const {
  if (!AllReady()) return false;
  uint64_t so_far = 0;
  for (const auto& worker : workers_) so_far += worker->script()->callbacks();
  return so_far >= callbacks;
}

void Cluster::MaybeDecide() {
  if (num_decided_ == options_.changes.size()) return;
  const Change& change = options_.changes[num_decided_];
  if (!Due(change.after_callbacks)) return;
  ++num_decided_;
  const auto decides = [](const auto& worker) { return worker->rank() == 0; };
  (*std::find_if(workers_.begin(), workers_.end(), decides))
      ->Retune(change.partition_bytes, change.credit_bytes);
}

void Cluster::MaybeBefall() {
  if (!job_.victim && Due(options_.death)) Kill(*options_.death);
  if (was_cut_off_ || !Due(options_.outage)) return;
  was_cut_off_ = true;
  Find(*options_.outage)->CutOff(job_.membership.reconnect_grace / 2);
}

WorkerNode* Cluster::FindToLose(int32_t rank) {
  for (const auto& worker : workers_) {
    const bool there = worker->rank() == rank && !lost_.contains(worker.get());
    if (there && !worker->script()->done()) return worker.get();
  }
  return nullptr;
}

void Cluster::MaybeLose() {
  if (num_lost_ == options_.losses.size()) return;
  was_ready_ = was_ready_ || AllReady();
  uint64_t so_far = 0;
  for (const auto& worker : workers_) {
    if (worker->script() != nullptr) so_far += worker->script()->callbacks();
  }
  const Loss& loss = options_.losses[num_lost_];
  if (!was_ready_ || so_far < loss.after_callbacks) return;
  ++num_lost_;
  WorkerNode* const lost = FindToLose(loss.rank);
  if (lost == nullptr) return;
  lost_.insert(lost);
  ++lives_[static_cast<size_t>(loss.rank)];
  if (loss.lives) {
    lost->AllowFailure("lost");
    lost->script()->AllowFailure("lost");
    lost->CutOff(3 * job_.membership.reconnect_grace);
  } else {
    lost->script()->Kill();
    lost->Kill();
  }
  workers_.push_back(
      MakeWorker(static_cast<int32_t>(workers_.size()), static_cast<uint64_t>(loss.rank)));
  workers_.back()->Start(loss.until_next);
}

bool Cluster::ChangesOver() const {
  std::map<Key, uint32_t> known;
  for (const auto& worker : workers_) {
    for (const auto& [key, cut] : worker->cuts()) {
      if (known.try_emplace(key, cut).first->second != cut) return true;
    }
  }
  return false;
}

void Cluster::Kill(const Event& death) {
  died_while_changing_ = ChangesOver();
  MemberNode* const victim = death.role == ps::Role::kScheduler ? nullptr : Find(death);
  for (const auto& worker : workers_) {
    if (worker.get() == victim && !death.reason.empty()) return GiveUp(worker.get(), death.reason);
  }
  job_.victim = "lost " + (victim == nullptr ? "the scheduler node" : victim->name());
  for (const auto& worker : workers_) {
    worker->script()->AllowFailure(*job_.victim);
    if (worker.get() != victim) continue;
    worker->script()->Kill();
    worker->LeaveLibrary();
  }
  if (victim != nullptr) {
    victim->Kill();
  } else {
    scheduler_->Kill();
  }
}

void Cluster::GiveUp(WorkerNode* quitter, const std::string& reason) {
  quitter_ = quitter;
  job_.victim = quitter->name() + " gave up: " + reason;
  for (const auto& worker : workers_) worker->script()->AllowFailure(*job_.victim);
  quitter->GiveUp(reason);
}

void Cluster::MaybeDieEarly() {
  const std::optional<EarlyDeath>& death = options_.early_death;
  if (!death || job_.victim || clock_.Now() < TimePoint(death->at)) return;
  const bool server = death->role == ps::Role::kServer;
  const auto index = static_cast<size_t>(death->index);
  MemberNode* const victim =
      server ? static_cast<MemberNode*>(servers_.at(index).get()) : workers_.at(index).get();
  if (victim->over()) return;
  job_.victim = victim->address();
  died_when_done_ = std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
    return worker->script() != nullptr && worker->script()->done();
  });
  for (const auto& worker : workers_) {
    if (worker->script() == nullptr) continue;
    worker->script()->AllowFailure(*job_.victim);
    if (worker.get() == victim) worker->script()->Kill();
  }
  victim->Kill();
  MemberNode* next = nullptr;
  if (death->until_next && server) {
    servers_.push_back(MakeServer(static_cast<int32_t>(servers_.size())));
    next = servers_.back().get();
  } else if (death->until_next) {
    workers_.push_back(MakeWorker(static_cast<int32_t>(workers_.size()), index));
    next = workers_.back().get();
  }
  if (next != nullptr) {
    // Who is the last to come, if the job had everyone when the other died or before that was
    // noticed, or is over.
    for (const auto& worker : workers_) worker->AllowFailure("came too late");
    for (const auto& other : servers_) other->AllowFailure("came too late");
    next->AllowFailure("no response from the scheduler node");
    if (died_when_done_) next->AllowFailure("the job is over");
    next_ = next;
    next->Start(*death->until_next);
    return;
  }
  const std::string missing =
      "still missing 1 of " +
      (server ? CountOf(options_.num_servers, "server") : CountOf(options_.num_workers, "worker"));
  for (const auto& worker : workers_) worker->AllowFailure(missing);
  for (const auto& other : servers_) other->AllowFailure(missing);
}

void Cluster::CheckEndAfterEarlyDeath() {
  const std::string verdict =
      scheduler_->finished() ? scheduler_->finished()->ToString() : "nothing";
  made_good_ = scheduler_->finished() && scheduler_->finished()->ok();
  const bool comes = options_.early_death->until_next.has_value();
  const bool named = verdict.find(*job_.victim) != std::string::npos ||
                     (!comes && verdict.find("still missing 1 of") != std::string::npos);
  // After a registration that came late was taken, and nobody answered there.
  const Duration until_free = 24 * options_.network.delay_max + job_.membership.report_interval +
                              job_.membership.retry_interval;
  const bool was_free = complete_ && *complete_ > TimePoint(options_.early_death->at) + until_free;
  if (!made_good_ && comes && was_free) {
    journal_.Report(Broken::kStatus, "scheduler node",
                    "the place of the dead was not free when all nodes were there: " + verdict);
  }
  if (made_good_ ? !comes && !died_when_done_ : !named) {
    journal_.Report(Broken::kStatus, "scheduler node", "it ended with " + verdict);
  }
  for (const auto& worker : workers_) {
    if (worker->killed() || (died_when_done_ && worker.get() == next_)) continue;
    const Script* const script = worker->script();
    const bool complete = script != nullptr && script->done() && !script->failed();
    if (made_good_ ? complete && !worker->failure() : complete || worker->failure()) continue;
    journal_.Report(Broken::kStatus, worker->name(), "it ended otherwise than the job");
  }
  for (const auto& server : servers_) {
    if (server->killed() || (died_when_done_ && server.get() == next_)) continue;
    if (made_good_ ? server->left_well() : server->left_well() || server->failure()) continue;
    journal_.Report(Broken::kStatus, server->name(), "it ended otherwise than the job");
  }
}

MemberNode* Cluster::Find(const Event& event) {
  if (event.role == ps::Role::kWorker) {
    for (const auto& worker : workers_) {
      if (worker->rank() == event.rank && !worker->script()->done()) return worker.get();
    }
  }
  const auto of_rank = [&](const auto& server) {
    return server->rank() == event.rank % options_.num_servers;
  };
  return std::find_if(servers_.begin(), servers_.end(), of_rank)->get();
}

void Cluster::CheckEnd() {
  if (options_.early_death && job_.victim) return CheckEndAfterEarlyDeath();
  bool needed = quitter_ == nullptr && job_.victim;  // the node that is gone
  for (const auto& worker : workers_) {
    if (worker->killed() || worker.get() == quitter_) continue;
    needed = needed || (quitter_ != nullptr && worker->failure().has_value());
    const bool complete = worker->script() != nullptr && worker->script()->done();
    if (!complete) journal_.Report(Broken::kStuck, worker->name(), "its script has not ended");
    // Whoever still had to do with the dead must know.
    const bool knew = worker->failure().has_value() || (complete && !worker->script()->failed());
    if (!knew) journal_.Report(Broken::kStatus, worker->name(), "it never heard of the death");
  }
  for (const auto& server : servers_) {
    if (!server->killed() && !server->failure() && !server->left_well()) {
      journal_.Report(Broken::kStatus, server->name(), "it never heard of the death");
    }
  }
  const std::string verdict =
      scheduler_->finished() ? scheduler_->finished()->ToString() : "nothing";
  if (scheduler_->killed()) return;
  const bool right = !needed ? scheduler_->finished() && scheduler_->finished()->ok()
                             : verdict.find(*job_.victim) != std::string::npos;
  if (!right) journal_.Report(Broken::kStatus, "scheduler node", "it ended with " + verdict);
}

bool Cluster::IsExplained(size_t key, uint64_t element, float final, float weight) const {
  const KeyPlan& plan = options_.keys[key];
  std::set<float> sums = {final};
  for (const auto& worker : workers_) {
    if (!lost_.contains(worker.get())) continue;
    // Acknowledged pushes are there; others may be.
    std::set<float> with;
    for (const float sum : sums) {
      float more = sum;
      for (Round round = 0; round <= worker->script()->called(key); ++round) {
        if (round > 0) more += static_cast<float>(GainOf(plan, round, worker->rank(), element));
        if (round >= worker->script()->pushed(key)) with.insert(more);
      }
    }
    sums = std::move(with);
  }
  return sums.contains(weight);
}

void Cluster::CheckWeights() {
  for (size_t k = 0; k < options_.keys.size(); ++k) {
    const KeyPlan& plan = options_.keys[k];
    if (plan.mode != Mode::kAsynchronous) continue;
    // Weights only grow, and each partition's last push was followed by its worker's pull.
    std::vector<float> weights(plan.count, -1);
    for (const auto& worker : workers_) {
      if (lost_.contains(worker.get())) continue;
      const std::vector<std::byte>& bytes = worker->script()->last_pulled(k);
      for (size_t i = 0; i < weights.size(); ++i) {
        float weight = 0;
        std::memcpy(&weight, &bytes[i * sizeof(weight)], sizeof(weight));
        weights[i] = std::max(weights[i], weight);
      }
    }
    const std::vector<float> final = FinalWeights(plan, options_.num_workers);
    bool right = true;
    for (size_t i = 0; right && i < weights.size(); ++i) {
      right = IsExplained(k, i, final[i], weights[i]);
    }
    if (right) continue;
    journal_.Report(Broken::kSum, "everyone",
                    "the weights of key=" + std::to_string(plan.key) +
                        " are not the sum of all pushes in the end");
  }
}

std::string Cluster::WhatIsMissing() const {
  std::string text = scheduler_->finished() ? "" : "the scheduler node has not finished";
  for (const auto& server : servers_) {
    if (!server->over()) text += "; " + server->name() + " is not over";
  }
  for (const auto& worker : workers_) {
    if (worker->over()) continue;
    const Script* const script = worker->script();
    text += "; " + worker->name() + ": " + (script ? script->Missing() : "never began");
  }
  return text;
}

Report Cluster::Run() {
  Report report;
  Start();
  bool stuck = false;
  while (!Over() && !stuck) {
    stuck = clock_.Now() > journal_.last_progress() + kStuckAfter || !clock_.Step();
    ++report.steps;
    CheckCredit();
    MaybeBefall();
    MaybeDieEarly();
    MaybeLose();
    MaybeDecide();
  }
  if (stuck) journal_.Report(Broken::kStuck, "everyone", WhatIsMissing());
  if (!stuck) CheckEnd();
  if (!stuck && !job_.victim && journal_.problems().empty()) CheckWeights();
  report.trace_hash = clock_.trace_hash();
  report.problems = journal_.problems();
  report.died_while_changing = died_while_changing_;
  report.died = job_.victim.has_value();
  report.made_good = made_good_;
  std::map<Key, uint32_t> cuts;
  for (const auto& [where, cut] : job_.cuts) cuts[where.first] = std::max(cuts[where.first], cut);
  for (const auto& [key, cut] : cuts) report.cuts += cut;
  report.forgotten = job_.forgotten.size();
  for (const auto& server : servers_) report.put_off += server->put_off();
  report.ready_messages = job_.ready_messages;
  for (const auto& [first_rank, library] : libraries_) {
    report.library_sums += library->counts().operations;
    report.library_pieces += library->counts().pieces;
    report.library_copied_bytes += library->counts().copied_bytes;
  }
  report.copies = job_.copies.size();
  report.beside = job_.beside;
  for (const int32_t lives : lives_) report.replaced += static_cast<uint64_t>(lives - 1);
  report.priorities.resize(workers_.size());
  for (const auto& worker : workers_) {
    if (worker->ready())
      report.priorities[static_cast<size_t>(worker->rank())] = worker->priorities();
  }
  return report;
}

// The same job, in which a node dies and nothing is cut off.
ClusterOptions WithDeath(ClusterOptions options, uint64_t seed) {
  Draw draw(~seed);
  options.outage.reset();
  options.death = DrawEvent(
      &draw, options, draw.OneOf({ps::Role::kWorker, ps::Role::kServer, ps::Role::kScheduler}));
  return options;
}

// The same job, in which most keys of float32 are coded.
ClusterOptions WithCodes(ClusterOptions options, uint64_t seed) {
  Draw draw(seed ^ 0xc0de);
  for (KeyPlan& plan : options.keys) {
    const bool sums = plan.dtype == DType::kFloat32 && plan.mode == Mode::kSynchronous;
    if (!sums || draw.Chance(0.2)) continue;
    // A key that is given back loses the servers' residual.
    if (plan.threshold != 0 && !plan.rests && draw.Chance(0.5)) {
      plan.codes_sums = true;
      continue;
    }
    plan.threshold = 0;
    plan.coding = codec::testing::WholeCoding(draw.OneOf({SumsTravel::kSame, SumsTravel::kPlain}));
    plan.declared_coded = draw.Chance(0.5);
  }
  return options;
}

}  // namespace

ClusterOptions DrawCluster(uint64_t seed) {
  Draw draw(seed);
  ClusterOptions options;
  options.num_workers = draw.Uniform(1, 4);
  options.num_servers = draw.Uniform(1, 3);
  options.num_shards = draw.Uniform(1, 3);
  options.partition_bytes = draw.OneOf<uint64_t>({64, 100, 256, 1000, 4096});
  options.mixed_partitions = draw.Chance(0.2);
  options.credit_bytes = draw.OneOf<uint64_t>(
      {1, options.partition_bytes, 2 * options.partition_bytes + 1, 10 * options.partition_bytes});
  options.priority_order = draw.Chance(0.8);
  options.early_bytes = seed % 4 == 0 ? 0 : kEarlyBytes;
  options.small_tensor_bytes = 3 * options.partition_bytes;  // some of the keys
  options.deterministic = draw.Chance(0.3);
  options.hold_bytes = draw.OneOf<uint64_t>({0, options.partition_bytes, 1 << 20});
  options.most_waiting = draw.Uniform<uint64_t>(1, 4);
  options.longest_pause = microseconds(draw.OneOf<int64_t>({0, 100, 5000}));
  options.network = DrawNetwork(&draw);
  // On a slow link many repeats come before their answers have left.
  options.retry_interval = milliseconds(draw.OneOf<int64_t>({20, 300}));
  options.keys = DrawKeys(&draw, options.partition_bytes);
  if (draw.Chance(0.2)) {
    options.outage = DrawEvent(&draw, options, draw.OneOf({ps::Role::kWorker, ps::Role::kServer}));
  }
  options.together_bytes = draw.OneOf<uint64_t>({0, 100, 1 << 20});
  for (KeyPlan& plan : options.keys) {
    if (plan.dtype != DType::kFloat32 || draw.Chance(0.6)) continue;
    plan.threshold = draw.OneOf({1, 300, 700, 5000});
  }
  options.max_backlog_bytes = draw.OneOf<uint64_t>({1024, 4096, 1 << 30});
  return options;
}

ClusterOptions DrawCoded(uint64_t seed) {
  return WithCodes(seed % 3 == 0   ? DrawTuningDeath(seed)
                   : seed % 3 == 1 ? DrawTuning(seed)
                                   : DrawCluster(seed),
                   seed);
}

ClusterOptions DrawCodedGivingBack(uint64_t seed) {
  return WithCodes(seed % 3 == 0 ? DrawGivingBackDeath(seed) : DrawGivingBack(seed), seed);
}

ClusterOptions DrawDeath(uint64_t seed) { return WithDeath(DrawCluster(seed), seed); }

ClusterOptions DrawGoodbye(uint64_t seed) {
  ClusterOptions options = DrawDeath(seed);
  options.death->role = ps::Role::kWorker;
  options.death->rank %= options.num_workers;
  options.death->reason = "KeyError: 'no luck'";
  // A worker that misses it reports that and ends; where its report is lost, it is lost itself.
  options.network.loss = 0;
  return options;
}

ClusterOptions DrawEarlyDeath(uint64_t seed) {
  ClusterOptions options = DrawCluster(seed);
  Draw draw(seed ^ 0xea417);
  options.outage.reset();
  EarlyDeath& death = options.early_death.emplace();
  death.role = draw.OneOf({ps::Role::kWorker, ps::Role::kServer});
  const bool server = death.role == ps::Role::kServer;
  death.index = draw.Uniform(0, (server ? options.num_servers : options.num_workers) - 1);
  options.starts_within = milliseconds(draw.OneOf<int64_t>({50, 4000, 15000}));
  const Duration soon = options.starts_within + 4 * options.network.delay_max;
  death.at = Duration(draw.Uniform<int64_t>(0, soon.count()));
  if (draw.Chance(0.7)) {
    // Nobody can know of it before the news of it have come.
    death.until_next = 2 * options.network.delay_max +
                       milliseconds(draw.OneOf<int64_t>({1, 200, 1100, 4000, 8000}));
  }
  return options;
}

ClusterOptions DrawAsync(uint64_t seed) {
  ClusterOptions options = DrawCluster(seed);
  Draw draw(seed ^ 0xa57);
  options.max_staleness = draw.OneOf<int64_t>({-1, -1, 0, 1, 3});
  for (KeyPlan& plan : options.keys) {
    if (&plan != &options.keys.front() && draw.Chance(0.3)) continue;
    plan.mode = Mode::kAsynchronous;
    plan.dtype = DType::kFloat32;
    plan.threshold = 0;
    plan.hosted = draw.Chance(0.4);
  }
  options.dispatcher_bytes = draw.OneOf<uint64_t>({0, 100, 1 << 20});
  return options;
}

ClusterOptions DrawAsyncDeath(uint64_t seed) { return WithDeath(DrawAsync(seed), seed); }

ClusterOptions DrawRejoin(uint64_t seed) {
  ClusterOptions options = DrawAsync(seed);
  Draw draw(seed ^ 0x4e101);
  options.outage.reset();
  for (KeyPlan& plan : options.keys) {
    if (plan.mode == Mode::kAsynchronous) continue;
    plan.mode = Mode::kAsynchronous;
    plan.dtype = DType::kFloat32;
    plan.threshold = 0;
  }
  const uint64_t callbacks =
      Script::CallbacksOf(options.keys) * static_cast<uint64_t>(options.num_workers);
  options.losses.resize(draw.Uniform<size_t>(1, 4));
  for (Loss& loss : options.losses) {
    loss.rank = draw.Uniform(0, options.num_workers - 1);
    loss.after_callbacks = draw.Uniform<uint64_t>(0, callbacks - 1);
    loss.until_next = milliseconds(draw.OneOf<int64_t>({0, 200, 1100, 4000}));
    loss.lives = draw.Chance(0.3);
  }
  std::sort(options.losses.begin(), options.losses.end(),
            [](const Loss& a, const Loss& b) { return a.after_callbacks < b.after_callbacks; });
  return options;
}

ClusterOptions DrawTraining(uint64_t seed) {
  ClusterOptions options = DrawCluster(seed);
  Draw draw(seed ^ 0x07de7);
  options.priority_order = true;
  options.early_bytes = 0;  // each partition has its key's number
  options.urgency = Urgency::kMeasured;
  options.trains = true;
  options.keys.resize(draw.Uniform<size_t>(5, 12));
  for (size_t i = 0; i < options.keys.size(); ++i) {
    // Odd keys before even ones.
    const size_t place = i / 2 + (i % 2 == 0 ? options.keys.size() / 2 : 0);
    options.keys[i] = {.key = i,
                       .count = draw.Uniform<uint64_t>(0, 40),
                       .rounds = 25,
                       .priority = -static_cast<Priority>(place)};
  }
  return options;
}

ClusterOptions DrawTrainingDeath(uint64_t seed) { return WithDeath(DrawTraining(seed), seed); }

ClusterOptions DrawTuning(uint64_t seed) {
  ClusterOptions options = DrawCluster(seed);
  Draw draw(seed ^ 0x70e);
  options.dispatcher_bytes = draw.OneOf<uint64_t>({0, 100, 1 << 20});
  for (KeyPlan& plan : options.keys) {
    plan.rounds = draw.Uniform<Round>(0, 12);
    plan.count = draw.Uniform<uint64_t>(0, 12) * draw.Uniform<uint64_t>(1, 64);
  }
  const uint64_t callbacks =
      Script::CallbacksOf(options.keys) * static_cast<uint64_t>(options.num_workers);
  options.changes.resize(draw.Uniform<size_t>(1, 6));
  for (Change& change : options.changes) {
    change.after_callbacks = draw.Uniform<uint64_t>(0, callbacks - 1);
    change.partition_bytes = draw.OneOf<uint64_t>({64, 100, 128, 256, 1000, 4096});
    change.credit_bytes = draw.OneOf<uint64_t>({1, 64, 300, 5000});
  }
  std::sort(options.changes.begin(), options.changes.end(),
            [](const Change& a, const Change& b) { return a.after_callbacks < b.after_callbacks; });
  return options;
}

ClusterOptions DrawTuningDeath(uint64_t seed) { return WithDeath(DrawTuning(seed), seed); }

ClusterOptions DrawGivingBack(uint64_t seed) {
  ClusterOptions options = DrawTuning(seed);
  for (KeyPlan& plan : options.keys) plan.rests = true;
  return options;
}

ClusterOptions DrawGivingBackDeath(uint64_t seed) { return WithDeath(DrawGivingBack(seed), seed); }

namespace {

// The same, where a library sums.
ClusterOptions WithGrants(ClusterOptions options, uint64_t seed) {
  Draw draw(seed ^ 0x92a57);
  options.early_bytes = 0;
  uint64_t largest = 0;
  for (KeyPlan& plan : options.keys) {
    largest = std::max(largest, plan.count * sizeof(float));
    if (draw.Chance(0.3)) continue;
    plan.dtype = DType::kFloat32;
    plan.threshold = 0;
  }
  GrantOptions& grants = options.grants.emplace();
  // Each operation may take a round trip of half a second.
  grants.partition_bytes = std::max(draw.OneOf<uint64_t>({64, 100, 256, 1000, 4096}), largest / 16);
  grants.credit_bytes = draw.OneOf<uint64_t>(
      {1, grants.partition_bytes, 2 * grants.partition_bytes + 1, 10 * grants.partition_bytes});
  grants.priority_order = draw.Chance(0.8);
  return options;
}

}  // namespace

ClusterOptions DrawGrants(uint64_t seed) {
  return WithGrants(seed % 3 == 0   ? DrawCluster(seed)
                    : seed % 3 == 1 ? DrawTuning(seed)
                                    : DrawGivingBack(seed),
                    seed);
}

ClusterOptions DrawGrantsDeath(uint64_t seed) { return WithDeath(DrawGrants(seed), seed); }

ClusterOptions DrawHosts(uint64_t seed) {
  ClusterOptions options = DrawGivingBack(seed);
  Draw draw(seed ^ 0x4057);
  options.num_workers = 6;
  options.hosts = {0, 0, 0, 1, 2, 2};
  for (size_t last = options.hosts.size() - 1; last > 0; --last) {
    std::swap(options.hosts[last], options.hosts[draw.Uniform<size_t>(0, last)]);
  }
  if (draw.Chance(0.5)) {  // direct: some hosts have servers
    for (int32_t i = 0; i < options.num_servers; ++i) {
      options.server_hosts.push_back(draw.Uniform(0, 2));
    }
  }
  options.least_added_bytes = draw.OneOf<uint64_t>({0, 0, 100});
  options.together_bytes = draw.OneOf<uint64_t>({0, 100, 1 << 20});
  options.keys.resize(std::min<size_t>(options.keys.size(), 3));
  for (KeyPlan& plan : options.keys) {
    plan.rounds = draw.Uniform<Round>(1, 5);
    plan.count = draw.Uniform<uint64_t>(0, 12) * draw.Uniform<uint64_t>(1, 20);
    plan.rests = plan.rests && draw.Chance(0.5);
  }
  return options;
}

ClusterOptions DrawHostGrants(uint64_t seed) { return WithGrants(DrawHosts(seed), seed); }

ClusterOptions DrawHostGrantsDeath(uint64_t seed) { return WithGrants(DrawHostsDeath(seed), seed); }

ClusterOptions DrawHostsDeath(uint64_t seed) {
  ClusterOptions options = WithDeath(DrawHosts(seed), seed);
  // Where the notice of the end is lost twice, a server names a worker that ended because of it.
  options.network.loss = std::min(options.network.loss, 0.02);
  return options;
}

ClusterOptions DrawHostsGoodbye(uint64_t seed) {
  ClusterOptions options = DrawHostsDeath(seed);
  options.death->role = ps::Role::kWorker;
  options.death->rank %= options.num_workers;
  options.death->reason = "KeyError: 'no luck'";
  options.network.loss = 0;  // as in DrawGoodbye
  return options;
}

ClusterOptions DrawCodedHosts(uint64_t seed) {
  return WithCodes(seed % 4 == 1   ? DrawHostsDeath(seed)
                   : seed % 4 == 3 ? DrawHostsGoodbye(seed)
                                   : DrawHosts(seed),
                   seed);
}

ClusterOptions DrawSmallHosts(uint64_t seed) {
  Draw draw(seed ^ 0x5a11);
  ClusterOptions options;
  options.num_workers = 6;
  options.num_servers = 2;
  options.hosts = {0, 0, 0, 1, 2, 2};
  if (seed % 2 == 1) options.server_hosts = {0, 2};
  options.network = DrawNetwork(&draw);
  options.keys = {{.key = 1, .count = 40, .rounds = 2}, {.key = 2, .count = 20, .rounds = 2}};
  return options;
}

std::string Describe(const ClusterOptions& options) {
  std::ostringstream text;
  text << options.num_workers << " workers, " << options.num_servers << " servers of "
       << options.num_shards << " shards and a dispatcher of up to " << options.dispatcher_bytes
       << " bytes, partitions of " << options.partition_bytes
       << (options.mixed_partitions ? " (mixed)" : "") << " bytes, credit " << options.credit_bytes
       << " bytes, together up to " << options.together_bytes << " bytes, loss "
       << options.network.loss << ", repeat " << options.network.repeat << ", delay up to "
       << options.network.delay_max.count() / 1000 << " us, retry after "
       << options.retry_interval.count() / 1000 << " us, staleness " << options.max_staleness
       << "; keys";
  for (const KeyPlan& plan : options.keys) {
    text << " " << plan.key << ":" << NameOf(plan.dtype) << "[" << plan.count << "]x"
         << plan.rounds;
    if (plan.rests) text << " (given back)";
    if (plan.threshold != 0) text << " in two bits of " << plan.threshold;
    if (plan.codes_sums) text << " both ways";
    if (plan.coding.codec != 0) text << " " << Codecs().Describe(plan.coding);
    if (plan.mode == Mode::kAsynchronous) text << (plan.hosted ? "(hosted)" : "(async)");
  }
  if (options.grants) {
    text << "; granted by " << options.grants->partition_bytes << " of "
         << options.grants->credit_bytes;
  }
  if (!options.hosts.empty()) text << "; hosts";
  for (const int32_t host : options.hosts) text << " " << host;
  if (!options.server_hosts.empty()) text << ", of servers";
  for (const int32_t host : options.server_hosts) text << " " << host;
  const auto tell = [&](const std::optional<Event>& event, const char* what) {
    if (!event) return;
    text << "; " << ps::NameOf(event->role) << " " << event->rank << " " << what << " after "
         << event->after_callbacks << " callbacks";
    if (event->after_beside > 0) text << " and " << event->after_beside << " messages";
  };
  tell(options.death, "dies");
  tell(options.outage, "is cut off");
  if (const auto& death = options.early_death) {
    text << "; " << ps::NameOf(death->role) << " of place " << death->index << " dies after "
         << death->at.count() / 1000 << " us";
    if (death->until_next)
      text << ", the next comes " << death->until_next->count() / 1000000 << " ms later";
  }
  for (const Loss& loss : options.losses) {
    text << "; worker " << loss.rank << (loss.lives ? " is cut off" : " vanishes") << " after "
         << loss.after_callbacks << " callbacks, the next comes after "
         << loss.until_next.count() / 1000000 << " ms";
  }
  for (const Change& change : options.changes) {
    text << "; partitions of " << change.partition_bytes << " and a credit of "
         << change.credit_bytes << " after " << change.after_callbacks << " callbacks";
  }
  return text.str();
}

bool Report::Has(Broken kind) const {
  return std::any_of(problems.begin(), problems.end(),
                     [kind](const Journal::Problem& problem) { return problem.kind == kind; });
}

std::string Report::ToString() const {
  std::string text;
  for (const Journal::Problem& problem : problems) text += problem.text + "\n";
  return text;
}

Report RunCluster(const ClusterOptions& options, uint64_t seed, const Journal::Trace& trace) {
  return Cluster(options, seed, trace).Run();
}

}  // namespace bs::sim
