// Makes the job, carries its messages, and judges what its workers get.
#include "sim/exchange/exchange_job.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <utility>

namespace bs::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

const protocol::Rules kAllRules{};
constexpr uint64_t kPartitionBytes = 64;

int32_t ElementOf(size_t plan, int32_t rank, size_t index) {
  return static_cast<int32_t>((plan * 31 + static_cast<size_t>(rank) * 17 + index * 7) % 101) - 50;
}

int32_t Reduced(Reduction reduction, int32_t a, int32_t b) {
  switch (reduction) {
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

std::vector<int32_t> ResultOf(const ExchangePlan& plan, size_t number) {
  std::vector<int32_t> result(plan.count);
  for (size_t i = 0; i < plan.count; ++i) {
    result[i] = ElementOf(number, plan.givers.front(), i);
    for (size_t giver = 1; giver < plan.givers.size(); ++giver) {
      result[i] = Reduced(plan.reduction, result[i], ElementOf(number, plan.givers[giver], i));
    }
  }
  return result;
}

bool Contains(const std::vector<int32_t>& ranks, int32_t rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

// The memory is the caller's again, which may write it.
void Spoil(std::vector<int32_t>* values) { std::ranges::fill(*values, 0x5a5a5a5a); }

ps::Message Clone(const ps::Message& message) {
  ps::Message copy;
  copy.peer = message.peer;
  copy.meta = message.meta;
  for (const ps::Frame& frame : message.data) copy.data.push_back(ps::Frame::Copy(frame.bytes()));
  return copy;
}

std::vector<int32_t> DrawRanks(std::mt19937_64* random, int32_t num_workers) {
  std::vector<int32_t> ranks(static_cast<size_t>(num_workers));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::shuffle(ranks, *random);
  ranks.resize(1 + (*random)() % ranks.size());
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

ExchangeJobOptions DrawExchanges(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[random() % all.size()];
  };
  ExchangeJobOptions options;
  options.num_workers = static_cast<int32_t>(2 + random() % 3);
  options.num_servers = static_cast<int32_t>(1 + random() % 3);
  options.delay_max = microseconds(one_of(10, 500, 20000, 200000));
  options.loss = one_of(0.0, 0.0, 0.02, 0.2);
  options.repeat = one_of(0.0, 0.05, 0.3);
  options.credit_bytes = one_of(64U, 256U, 4096U);
  options.together_bytes = one_of(0U, 16U, 64U);
  options.deterministic = random() % 2 == 0;
  options.plans.resize(1 + random() % 8);
  for (ExchangePlan& plan : options.plans) {
    plan.givers = DrawRanks(&random, options.num_workers);
    plan.takers = DrawRanks(&random, options.num_workers);
    plan.reduction = static_cast<Reduction>(random() % 4);
    plan.count = one_of(0U, 1U, 16U, 17U, 100U);
    plan.home = static_cast<int32_t>(random() % 4) - 1;
  }
  return options;
}

ExchangeJob::ExchangeJob(ExchangeJobOptions options, uint64_t seed)
    : options_(std::move(options)),
      rules_(options_.rules != nullptr ? *options_.rules : kAllRules),
      clock_(seed),
      random_(seed) {
  for (int32_t rank = 0; rank < options_.num_servers; ++rank) MakeServer(rank);
  for (int32_t rank = 0; rank < options_.num_workers; ++rank) MakeWorker(rank);
}

ExchangeJob::~ExchangeJob() {
  for (ServerSide& side : servers_) side.server.reset();
}

void ExchangeJob::MakeServer(int32_t rank) {
  ServerSide& side = servers_.emplace_back();
  side.io = std::make_unique<SimExecutor>(&clock_);
  side.shard = std::make_unique<SimExecutor>(&clock_);
  ServerOptions options;
  options.view = job::ShareView({.role = job::Role::kServer, .rank = rank}, options_.num_workers,
                                options_.num_servers);
  options.deterministic = options_.deterministic;
  options.hold_bytes = 100;
  options.adopted_bytes = 32;
  Server::Handler handler;
  handler.send = [this, rank](ps::Message message) {
    const int32_t worker = ps::RankOf(message.peer);
    message.peer = ps::ServerId(rank);
    Send(worker, /*to_server=*/false, std::move(message));
  };
  handler.on_violation = [this](int32_t, const std::string& what) { Report("violation: " + what); };
  side.server = std::make_unique<Server>(options, side.io.get(),
                                         std::vector<ServerShard>{{side.shard.get(), 0}},
                                         std::move(handler), Logger("", LogLevel::kOff), rules_);
}

void ExchangeJob::MakeWorker(int32_t rank) {
  WorkerSide& side = workers_.emplace_back();
  side.executor = std::make_unique<SimExecutor>(&clock_);
  const job::SharedView view =
      job::ShareView({.rank = rank}, options_.num_workers, options_.num_servers);
  backend::PsBackendOptions link;
  link.view = view;
  link.together_bytes = options_.together_bytes;
  link.requests.retry_interval = milliseconds(100);
  side.backend = std::make_unique<backend::PsBackend>(
      link, side.executor.get(),
      [this, rank](ps::Message message) { Send(rank, /*to_server=*/true, std::move(message)); },
      Logger("", LogLevel::kOff));
  WorkerOptions options;
  options.view = view;
  options.credit_bytes = options_.credit_bytes;
  options.exchange_partition_bytes = kPartitionBytes;
  side.worker = std::make_unique<Worker>(
      options, side.executor.get(), side.backend.get(),
      [this](const Status& why) {
        if (!died_) Report("a worker failed: " + why.ToString());
      },
      Logger("", LogLevel::kOff), rules_);
}

bool ExchangeJob::Chance(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

Duration ExchangeJob::DrawDelay() {
  return Duration(
      static_cast<int64_t>(random_() % static_cast<uint64_t>(options_.delay_max.count() + 1)));
}

void ExchangeJob::Send(int32_t worker, bool to_server, ps::Message message) {
  if (++num_messages_ == options_.death_at) Die();
  if (workers_[static_cast<size_t>(worker)].dead) return;
  const int copies = Chance(options_.repeat) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    if (Chance(options_.loss)) continue;
    Deliver(worker, to_server, std::make_shared<ps::Message>(Clone(message)));
  }
}

void ExchangeJob::Deliver(int32_t worker, bool to_server,
                          const std::shared_ptr<ps::Message>& message) {
  const auto server = static_cast<size_t>(ps::RankOf(message->peer));
  SimExecutor* const executor =
      to_server ? servers_[server].io.get() : workers_[static_cast<size_t>(worker)].executor.get();
  executor->PostAt(executor->Now() + DrawDelay(), [this, worker, server, to_server, message] {
    WorkerSide& side = workers_[static_cast<size_t>(worker)];
    if (side.dead) return;
    if (!to_server) return side.backend->OnMessage(std::move(*message));
    message->peer = ps::WorkerId(worker);
    servers_[server].server->OnMessage(std::move(*message));
  });
}

void ExchangeJob::Die() {
  died_ = true;
  workers_[static_cast<size_t>(options_.victim)].dead = true;
  const Status lost = Status::Unavailable("lost worker " + std::to_string(options_.victim));
  for (ServerSide& side : servers_) {
    side.io->PostAt(side.io->Now() + milliseconds(50) + DrawDelay(),
                    [this, &side, lost] { side.server->OnWorkerGone(options_.victim, lost); });
  }
  for (WorkerSide& side : workers_) {
    side.executor->PostAt(side.executor->Now() + milliseconds(50) + DrawDelay(),
                          [&side, lost] { side.worker->Fail(lost); });
  }
}

void ExchangeJob::Mistake(const ExchangePlan& plan, Worker::ExchangeCall* call) {
  switch (plan.mistake) {
    case ExchangePlan::Mistake::kReduction:
      call->reduction = Reduction::kProduct;
      return;
    case ExchangePlan::Mistake::kTakers:
      call->takers = {plan.mistaken_rank};
      return;
  }
}

void ExchangeJob::Start(int32_t rank, size_t number) {
  const ExchangePlan& plan = options_.plans[number];
  const auto part = std::make_shared<Part>();
  part->in.resize(Contains(plan.givers, rank) ? plan.count : 0);
  part->out.resize(Contains(plan.takers, rank) ? plan.count : 0);
  for (size_t i = 0; i < part->in.size(); ++i) part->in[i] = ElementOf(number, rank, i);
  // Both directions in one memory, half of the time.
  const bool in_place = !part->in.empty() && !part->out.empty() && Chance(0.5);
  if (in_place) part->out = part->in;
  Worker::ExchangeCall call{.key = number,
                            .givers = plan.givers,
                            .takers = plan.takers,
                            .dtype = DType::kInt32,
                            .reduction = plan.reduction,
                            .size_bytes = plan.count * sizeof(int32_t),
                            .home = plan.home,
                            .label = "call " + std::to_string(number),
                            .priority = static_cast<Priority>(random_() % 3),
                            .in = std::as_bytes(std::span(in_place ? part->out : part->in)),
                            .out = std::as_writable_bytes(std::span(part->out))};
  if (rank == plan.mistaken_rank) Mistake(plan, &call);
  call.given = [this, part](const Status&) {
    if (++part->given > 1 || part->done > 0) Report("`given` ran twice, or behind `done`");
    Spoil(&part->in);
  };
  call.done = [this, rank, number, part](const Status& status) {
    OnDone(rank, number, part, status);
  };
  Worker* const worker = workers_[static_cast<size_t>(rank)].worker.get();
  worker->Exchange(std::move(call));
  // Of this one or an earlier one, which may be over.
  if (Chance(0.3)) {
    worker->ReprioritiseExchange(random_() % (number + 1), static_cast<Priority>(random_() % 5));
  }
}

void ExchangeJob::OnDone(int32_t rank, size_t number, const std::shared_ptr<Part>& part,
                         const Status& status) {
  if (workers_[static_cast<size_t>(rank)].dead) return;
  const std::string where =
      "worker " + std::to_string(rank) + ", call " + std::to_string(number) + ": ";
  if (++part->done > 1 || part->given != 1) Report(where + "`done` ran twice, or before `given`");
  if (options_.death_at == 0 || rank != options_.victim) --open_;
  const ExchangePlan& plan = options_.plans[number];
  const bool right = !Contains(plan.takers, rank) || part->out == ResultOf(plan, number);
  Spoil(&part->out);
  if (status.ok()) {
    if (!right) Report(where + "a wrong result");
    return;
  }
  const bool differs = plan.mistaken_rank >= 0 && status.code() == StatusCode::kInvalidArgument &&
                       status.message().find("workers call different exchanges") == 0;
  if (differs) ++num_refused_;
  const bool lost =
      died_ && status.message().find("lost worker " + std::to_string(options_.victim)) == 0;
  if (!differs && !lost) Report(where + status.ToString());
}

void ExchangeJob::Report(const std::string& what) {
  if (problem_.empty()) problem_ = what;
}

std::string ExchangeJob::Run() {
  for (size_t number = 0; number < options_.plans.size(); ++number) {
    for (int32_t rank = 0; rank < options_.num_workers; ++rank) {
      const ExchangePlan& plan = options_.plans[number];
      if (!Contains(plan.givers, rank) && !Contains(plan.takers, rank)) continue;
      SimExecutor* const executor = workers_[static_cast<size_t>(rank)].executor.get();
      if (rank != options_.victim || options_.death_at == 0) ++open_;
      executor->PostAt(executor->Now() + milliseconds(random_() % 50),
                       [this, rank, number] { Start(rank, number); });
    }
  }
  const TimePoint end = clock_.Now() + seconds(300);
  while (open_ > 0 && clock_.Now() < end) clock_.RunUntil(clock_.Now() + milliseconds(100));
  if (open_ > 0 && !(options_.death_at > 0 && !died_)) {
    Report(std::to_string(open_) + " calls never ended");
  }
  // The last notices about results may be lost, and come again.
  clock_.RunUntil(clock_.Now() + seconds(60));
  if (!died_ && problem_.empty()) CheckMemory();
  CloseAll();
  return problem_;
}

void ExchangeJob::CheckMemory() {
  for (ServerSide& side : servers_) {
    side.server->Measure([this](const Metrics& metrics) {
      for (const char* const name :
           {"value_bytes", "held_bytes", "exchanges", "exchange_partitions"}) {
        const double left = metrics.numbers().at({name, Metrics::kWhole});
        if (left != 0) Report(std::string(name) + " is " + std::to_string(left) + " in the end");
      }
    });
  }
  clock_.RunUntil(clock_.Now() + seconds(1));
}

void ExchangeJob::CloseAll() {
  for (WorkerSide& side : workers_) side.worker->Close([&side] { side.closed = true; });
  clock_.RunUntil(clock_.Now() + seconds(1));
  for (const WorkerSide& side : workers_) {
    if (!side.closed) Report("a worker does not close");
  }
}

}  // namespace bs::sim
