// Deaths of workers and servers at any moment of a job, one job for each seed.
//
// Nodes die before they register, before all nodes are there, around the time when the list goes
// out, in the middle, and while the workers leave.  Others take their places, or not.
//
// Live nodes must end in bounded time, in good order or with a sentence that names a dead node.  If
// the job never began, the sentence says which nodes are missing.  The job must begin and end well
// unless a death that cannot be repaired is to blame.  PROTOCOL.md says which deaths can be, and
// how long that takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/count_of.h"
#include "ps-lite/membership/membership_harness.h"

namespace ps::test {
namespace {

using bs::Duration;
using bs::TimePoint;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kDeathSeeds = BS_DEATH_SEEDS;

enum class Moment { kStart, kGathering, kList, kMiddle, kLeaving };
constexpr size_t kMoments = 5;

// A process: a native node, or a stock worker with the native one beside it.
struct Process {
  Role role = Role::kWorker;
  NativeNode* native = nullptr;
  StockNode* stock = nullptr;
  int32_t number = 0;  // its number within the role; holders of one place share it
  Address address;     // by which the others know it
  std::string names;   // in what is said of it: one or two addresses
  bool started = false;
  bool goes = false;
  TimePoint start{};
  std::optional<TimePoint> registered{};  // the scheduler node has said so
  std::optional<TimePoint> died{};
  std::optional<size_t> next{};    // the next holder of its place
  std::optional<size_t> before{};  // the holder before
  TimePoint next_barrier{};
  size_t barriers = 0;
  std::optional<TimePoint> leave{};
  TimePoint refused_at{};
  int stock_stage = 0;  // barriers at its end that it has asked for
};

struct Death {
  Moment moment = Moment::kStart;
  Role role = Role::kWorker;
  bool next_comes = false;
  bool next_at_address = false;
  Duration until_next{};
  std::optional<TimePoint> due{};
  std::optional<size_t> victim{};
  bool over = false;
};

std::string TextOf(const Address& address) {
  return address.host + ":" + std::to_string(address.port);
}

bs::sim::SimNetworkOptions NetworkOf(uint64_t seed) {
  constexpr std::array<Duration, 3> kDelays = {milliseconds(1), milliseconds(10),
                                               milliseconds(400)};
  bs::sim::SimNetworkOptions network;
  network.delay_max = kDelays.at(seed % 3);
  network.loss = seed % 2 == 0 ? 0 : 0.2;
  // Repeats come up to 21 delays late.  Much later than its connection has broken nothing comes of
  // a dead node.
  network.repeat = seed % 3 == 2 || seed % 5 == 0 ? 0 : 0.2;
  return network;
}

class DeathsOfAJob {
 public:
  explicit DeathsOfAJob(uint64_t seed);
  void Run();

  bool trace = false;                // prints what happens
  std::array<int, kMoments> died{};  // by moment
  int made_good = 0;                 // deaths in a job that ended well
  int bad_ends = 0;                  // of a job that had begun
  int never_began = 0;

 private:
  void DrawDeaths();
  void Add(Role role, int32_t number, const Address& address, Duration delay);
  void OnComplete();
  void Trace(const std::string& what) const;
  void ReadLog();
  void LetDie();
  std::optional<size_t> DrawVictim(const Death& death);
  void Kill(Death* death);
  // Its owner's part.
  void Act(Process* process);
  void ActStock(Process* process);
  template <typename Condition>
  void Wait(Duration limit, Condition condition);
  bool AllReady() const;

  static bool IsOver(const Process& process) {
    return process.died ||
           (process.stock == nullptr ? process.native->closed : process.stock_stage == 3);
  }
  // A live node has its place.
  bool MadeGood(const Process& process) const;
  // Its death may be what ended the job.
  bool ToBlame(const Process& process) const;
  // Its death need not end the job, and need not be noticed: all nodes were leaving.
  bool Excused(const Process& process) const;
  bool ComesAfterOneWhoWent(const Process& process) const;
  bool NamesOneToBlame(const bs::Status& why) const;
  void Judge();
  void JudgeGoodEnd();
  void JudgeBadEnd();
  void JudgeNoBegin();
  // It came when the job had all its nodes, a dead one among them, or was over.
  bool ComesInVain(const Process& process) const;

  Job job_;
  bs::sim::SimExecutor starter_;
  const bs::sim::SimNetworkOptions network_;
  bool stock_ = false;
  size_t num_barriers_ = 0;
  std::vector<Process> processes_;
  std::vector<Death> deaths_;
  TimePoint last_start_{};
  size_t lines_ = 0;
  std::optional<TimePoint> complete_{};  // all nodes are there
  std::optional<TimePoint> begun_{};     // past the start barrier
  std::optional<TimePoint> leaving_{};
  std::optional<TimePoint> done_{};  // the scheduler node has reported that
};

DeathsOfAJob::DeathsOfAJob(uint64_t seed)
    : job_(seed, NetworkOf(seed)), starter_(&job_.clock), network_(NetworkOf(seed)) {
  bs::sim::SimClock& clock = job_.clock;
  stock_ = clock.Chance(0.3);
  job_.options.num_workers = static_cast<int32_t>(clock.Uniform(1, 3));
  job_.options.num_servers = static_cast<int32_t>(clock.Uniform(1, 3));
  job_.options.settings = "num_workers=" + std::to_string(job_.options.num_workers) + "\n";
  if (!stock_ && clock.Chance(0.4)) job_.options.rejoin_timeout = seconds(60);
  num_barriers_ = clock.Uniform(0, 3);
  const auto some = [&clock] { return milliseconds(clock.Uniform(0, 8000)); };
  job_.StartCoordinator(some());
  for (const Role role : {Role::kServer, Role::kWorker}) {
    const int32_t most =
        role == Role::kServer ? job_.options.num_servers : job_.options.num_workers;
    for (int32_t i = 0; i < most; ++i) Add(role, i, {"10.0.0.1", job_.NextPort()}, some());
  }
  DrawDeaths();
}

void DeathsOfAJob::Add(Role role, int32_t number, const Address& address, Duration delay) {
  Process process;
  process.role = role;
  process.number = number;
  process.address = address;
  process.start = job_.clock.Now() + delay;
  MembershipOptions own = job_.options;
  own.role = role;
  own.node_host = address.host;
  own.node_port = address.port;
  if (stock_ && role == Role::kWorker) {
    process.stock = job_.AddStock(role, address.host, address.port);
    own.node_port = job_.NextPort();
    own.attach = true;
    own.wanted_rank = number;
  }
  process.names = TextOf(address) + " " + TextOf({own.node_host, own.node_port});
  process.native = job_.AddNative(own);
  // So that time stops there.
  starter_.PostAt(process.start, [] {});
  last_start_ = std::max(last_start_, process.start);
  processes_.push_back(process);
}

void DeathsOfAJob::DrawDeaths() {
  bs::sim::SimClock& clock = job_.clock;
  deaths_.resize(clock.Uniform(1, 3));
  for (Death& death : deaths_) {
    death.moment = static_cast<Moment>(clock.Uniform(0, kMoments - 1));
    death.role = clock.Chance(0.5) ? Role::kWorker : Role::kServer;
    death.next_comes = clock.Chance(0.75);
    death.next_at_address = clock.Chance(0.3);
    // No node can know of a death before the notice of it has come.
    constexpr std::array<uint64_t, 3> kLatest = {300, 1000, 9000};  // ms
    death.until_next =
        2 * network_.delay_max + milliseconds(clock.Uniform(0, kLatest.at(clock.Uniform(0, 2))));
    if (death.moment == Moment::kStart) {
      death.victim = clock.Uniform(0, processes_.size() - 1);
      const uint64_t latest = clock.Chance(0.5) ? 600 : 2500;
      death.due = processes_[*death.victim].start + milliseconds(clock.Uniform(0, latest)) -
                  milliseconds(200);
    }
    if (death.moment == Moment::kGathering)
      death.due = TimePoint(milliseconds(clock.Uniform(0, 9000)));
    if (death.moment == Moment::kList && clock.Chance(0.5)) {
      death.due = last_start_ + milliseconds(clock.Uniform(0, 2000)) - milliseconds(1500);
    }
  }
}

template <typename Condition>
void DeathsOfAJob::Wait(Duration limit, Condition condition) {
  const TimePoint deadline = job_.clock.Now() + limit;
  while (!condition() && job_.clock.Now() < deadline && job_.clock.Step()) {
    ReadLog();
    LetDie();
    for (Process& process : processes_) Act(&process);
  }
}

void DeathsOfAJob::ReadLog() {
  for (; lines_ < job_.log.size(); ++lines_) {
    const std::string& line = job_.log[lines_];
    if (trace) Trace(line);
    if (line.find("all nodes are there") != std::string::npos) OnComplete();
    if (line.find("all nodes are done") != std::string::npos) done_ = job_.clock.Now();
    for (Process& process : processes_) {
      const std::string said = TextOf(process.address) + " registered;";
      const bool his = process.started && line.find(said) != std::string::npos;
      if (his) process.registered = job_.clock.Now();
    }
  }
}

void DeathsOfAJob::Trace(const std::string& what) const {
  std::cout << static_cast<double>(job_.clock.Now().time_since_epoch().count()) / 1e9 << " " << what
            << "\n";
}

void DeathsOfAJob::OnComplete() {
  complete_ = job_.clock.Now();
  const auto soon = 4 * static_cast<uint64_t>(network_.delay_max.count());
  for (Death& death : deaths_) {
    if (death.moment == Moment::kList && !death.due) {
      death.due = *complete_ + Duration(static_cast<int64_t>(job_.clock.Uniform(0, soon)));
    }
    if (death.moment == Moment::kMiddle) {
      death.due = *complete_ + milliseconds(job_.clock.Uniform(0, 10000));
    }
  }
}

void DeathsOfAJob::LetDie() {
  for (Death& death : deaths_) {
    if (death.over || !death.due || job_.clock.Now() < *death.due) continue;
    death.over = true;
    if (job_.finished) continue;
    if (!death.victim) death.victim = DrawVictim(death);
    if (death.victim && !processes_[*death.victim].died) Kill(&death);
  }
}

std::optional<size_t> DeathsOfAJob::DrawVictim(const Death& death) {
  std::vector<size_t> alive;
  for (size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    if (process.role == death.role && !IsOver(process)) alive.push_back(i);
  }
  if (alive.empty()) return std::nullopt;
  return alive[job_.clock.Uniform(0, alive.size() - 1)];
}

void DeathsOfAJob::Kill(Death* death) {
  Process& victim = processes_[*death->victim];
  victim.died = job_.clock.Now();
  if (trace) Trace("DEATH of " + victim.names);
  victim.native->Kill();
  if (victim.stock != nullptr) victim.stock->Kill();
  ++died[static_cast<size_t>(death->moment)];
  if (!death->next_comes) return;
  victim.next = processes_.size();
  Address address = victim.address;
  // Where a stock process had only its end left to say, another at its address hides its death, and
  // the others wait for it until straggler_timeout.
  const bool hidden = victim.stock != nullptr && victim.goes;
  if (hidden || !death->next_at_address) address.port = job_.NextPort();
  Add(victim.role, victim.number, address, death->until_next);
  processes_.back().before = death->victim;
}

void DeathsOfAJob::Act(Process* process) {
  const TimePoint now = job_.clock.Now();
  NativeNode* const node = process->native;
  if (process->died || now < process->start) return;
  if (!process->started) {
    process->started = true;
    if (trace) Trace("START of " + process->names);
    node->Start();
    if (process->stock != nullptr) process->stock->Start();
  }
  if (process->stock != nullptr) ActStock(process);
  if (process->goes) return;
  process->goes = node->refused || !node->failures.empty();
  if (node->refused) process->refused_at = now;
  if (node->refused) return node->Close();
  if (!node->failures.empty()) return node->Leave();
  if (process->role != Role::kWorker || !node->ready()) return;
  if (!begun_) begun_ = now;
  if (process->barriers < num_barriers_ && now >= process->next_barrier) {
    ++process->barriers;
    process->next_barrier = now + milliseconds(job_.clock.Uniform(0, 1500));
    node->Barrier(kWorkerGroup);
  }
  if (!leaving_ || node->barriers.size() < num_barriers_) return;
  if (!process->leave) process->leave = now + milliseconds(job_.clock.Uniform(0, 3000));
  if (now < *process->leave) return;
  process->goes = true;
  node->Leave();
}

// After the native worker beside it has left: the last two barriers, the server's part between.
void DeathsOfAJob::ActStock(Process* process) {
  StockNode* const stock = process->stock;
  if (process->stock_stage == 0 && process->native->left) {
    ++process->stock_stage;
    stock->Barrier(kWorkerGroup);
  } else if (process->stock_stage == 1 && stock->barrier_answers >= 2) {
    ++process->stock_stage;
    for (const Process& other : processes_) {
      if (other.role == Role::kServer && !IsOver(other)) other.native->JoinFinalBarrier();
    }
    stock->Barrier(kEveryone);
  } else if (process->stock_stage == 2 && stock->barrier_answers >= 3) {
    ++process->stock_stage;
    stock->Close();
  }
}

bool DeathsOfAJob::AllReady() const {
  return std::all_of(processes_.begin(), processes_.end(), [](const Process& process) {
    return process.died ? process.next.has_value() : process.native->ready();
  });
}

void DeathsOfAJob::Run() {
  const auto finished = [this] { return job_.finished.has_value(); };
  Wait(seconds(80), [&] { return complete_ || finished(); });
  Wait(seconds(12), finished);
  Wait(seconds(110), [&] { return finished() || AllReady(); });
  ASSERT_TRUE(finished() || AllReady()) << "the job hangs";
  leaving_ = job_.clock.Now();
  for (Death& death : deaths_) {
    if (death.moment != Moment::kLeaving) continue;
    death.due = *leaving_ + milliseconds(job_.clock.Uniform(0, 4000));
  }
  Wait(seconds(150), finished);
  ASSERT_TRUE(finished()) << "the end hangs";
  // A node that comes after the end is told of no other node.
  Wait(job_.options.timeout + seconds(15), [] { return false; });
  Judge();
}

bool DeathsOfAJob::MadeGood(const Process& process) const {
  if (!process.next) return false;
  const Process& next = processes_[*process.next];
  return !next.died || Excused(next) || MadeGood(next);
}

bool DeathsOfAJob::ToBlame(const Process& process) const {
  if (!process.died || !complete_ || process.died > job_.finished_at) return false;
  const MembershipOptions& options = job_.options;
  // A registration may come so long after its sender's death.
  const Duration late = (network_.repeat > 0 ? 21 : 1) * network_.delay_max;
  const Duration reach = options.retry_interval / 2 + 2 * network_.delay_max;
  const bool reached = process.registered && *process.registered + reach < *process.died;
  Duration until_free = options.reconnect_grace + 2 * network_.delay_max;
  // Nodes that could not be reached any more, such as the attached worker of a stock one.
  if (!reached || process.stock != nullptr) until_free = late + reach + options.report_interval;
  if (!reached && process.stock != nullptr) until_free = late + options.heartbeat_timeout;
  return *process.died + until_free >= *complete_;
}

bool DeathsOfAJob::Excused(const Process& process) const {
  if (!leaving_ || *process.died < *leaving_) return false;
  const auto goes = [&](const Process& other) {
    return other.role != Role::kWorker || (other.leave && *other.leave <= *process.died);
  };
  if (stock_ || (process.role == Role::kWorker && goes(process))) return true;
  if (done_ && *process.died >= *done_) return true;
  return std::all_of(processes_.begin(), processes_.end(), [&](const Process& other) {
    return other.died || other.start > *process.died || goes(other);
  });
}

bool DeathsOfAJob::ComesAfterOneWhoWent(const Process& process) const {
  if (!process.before) return false;
  const Process& before = processes_[*process.before];
  return Excused(before) || ComesAfterOneWhoWent(before);
}

bool EndedByALoss(const NativeNode& node) {
  const auto is_loss = [](const bs::Status& why) { return why.message().starts_with("lost "); };
  return node.refused ? is_loss(*node.refused)
                      : !node.failures.empty() && is_loss(node.failures.front());
}

bool DeathsOfAJob::NamesOneToBlame(const bs::Status& why) const {
  // A server's own deadline of the start may come first: it names the worker that it waits for.
  const bool waits =
      why.message().starts_with("barrier of all nodes: not complete in 60 s, waiting");
  if (waits) {
    return std::any_of(processes_.begin(), processes_.end(),
                       [this](const Process& process) { return ToBlame(process); });
  }
  if (why.message().find("lost ") == std::string::npos) return false;
  return std::any_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    // A node that knows of a loss may have ended before its report, or the scheduler node's,
    // arrived.
    const bool ended_first = network_.loss > 0 && process.goes && EndedByALoss(*process.native);
    if (!ToBlame(process) && !ended_first) return false;
    const size_t space = process.names.find(' ');
    return why.message().find("(" + process.names.substr(0, space) + ")") != std::string::npos ||
           why.message().find("(" + process.names.substr(space + 1) + ")") != std::string::npos;
  });
}

bool DeathsOfAJob::ComesInVain(const Process& process) const {
  const NativeNode& node = *process.native;
  const bool attached = process.stock != nullptr;
  if (node.ready() || !node.refused || (process.registered && !attached)) return false;
  const bool may = std::any_of(processes_.begin(), processes_.end(), [&](const Process& other) {
    return other.role == process.role && ToBlame(other);
  });
  const auto says = [&](const char* text) {
    return node.refused->message().find(text) != std::string::npos;
  };
  // Beside a stock worker that is there, and its predecessor's rank is not free any more.
  const bool attaches_late = says("is attached there") && process.refused_at >= *complete_;
  // A worker that waits for a place is notified of the end once.
  return may && (says("came too late") || attaches_late || NamesOneToBlame(*node.refused) ||
                 (says("no response") &&
                  (network_.loss > 0 || process.start + seconds(5) >= job_.finished_at)));
}

void DeathsOfAJob::Judge() {
  EXPECT_EQ(job_.calls_of_finished, 1);
  for (const Process& process : processes_) {
    if (process.died) continue;
    EXPECT_EQ(process.native->calls_of_ready, 1) << process.names;
    EXPECT_LE(process.native->failures.size(), 1U) << process.names;
    EXPECT_TRUE(process.native->closed) << process.names;
  }
  if (job_.finished->ok()) {
    JudgeGoodEnd();
  } else if (complete_) {
    JudgeBadEnd();
  } else {
    JudgeNoBegin();
  }
}

void DeathsOfAJob::JudgeGoodEnd() {
  ASSERT_TRUE(complete_ && done_);
  TimePoint last = *done_;
  for (const Process& process : processes_) last = std::max(last, process.died.value_or(last));
  EXPECT_LE(job_.finished_at, last + seconds(5) + 2 * network_.delay_max);
  for (const Process& process : processes_) {
    const NativeNode& node = *process.native;
    const bool replaced = MadeGood(process);
    if (process.died) {
      EXPECT_TRUE(replaced || Excused(process)) << process.names << " was lost, and nobody knows";
      if (replaced) ++made_good;
      continue;
    }
    // It may attach before the end of the stock worker there is noticed; its barriers fail then.
    const bool in_vain = node.refused.has_value() || process.stock != nullptr;
    if (in_vain && ComesAfterOneWhoWent(process)) continue;
    EXPECT_TRUE(node.ready()) << process.names << ": " << node.refused->ToString();
    EXPECT_TRUE(node.failures.empty()) << process.names << ": " << node.failures[0].ToString();
    EXPECT_TRUE(node.left && node.left->ok()) << process.names;
    const bool server = process.role == Role::kServer;
    EXPECT_EQ(node.shutdowns, server ? 1 : 0) << process.names;
    EXPECT_EQ(node.barriers.size(), server ? 0 : num_barriers_) << process.names;
    for (const bs::Status& status : node.barriers) EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(process.stock == nullptr || process.stock->barrier_answers == 3) << process.names;
  }
}

void DeathsOfAJob::JudgeBadEnd() {
  ++bad_ends;
  const bs::Status& verdict = *job_.finished;
  EXPECT_TRUE(NamesOneToBlame(verdict)) << verdict.ToString();
  const bool rejoins = job_.options.rejoin_timeout > Duration(0);
  for (const Process& process : processes_) {
    const NativeNode& node = *process.native;
    if (process.died) {
      const bool fatal = !rejoins || process.role == Role::kServer;
      // The scheduler node was connected to it.
      const bool in_job = process.registered && *process.registered <= *complete_ &&
                          *process.died > *complete_ + 2 * network_.delay_max;
      if (!fatal || !in_job || Excused(process)) continue;
      // A process that is started again at its address gets its connections back.  A stock one is
      // noticed then only because it comes to no barrier.
      const bool back = process.next && processes_[*process.next].address == process.address;
      if (back && process.stock != nullptr) continue;
      const Duration noticed = seconds(back ? 10 : 4);
      EXPECT_LE(job_.finished_at, *process.died + noticed + 2 * network_.delay_max);
      continue;
    }
    if (ComesInVain(process)) continue;
    // A node that had said goodbye gets no more messages, perhaps not even a response.
    if (process.leave && node.left && node.failures.empty()) continue;
    ASSERT_TRUE(node.refused || !node.failures.empty()) << process.names;
    const bs::Status& why = node.refused ? *node.refused : node.failures[0];
    EXPECT_TRUE(NamesOneToBlame(why)) << process.names << ": " << why.ToString();
  }
  if (!rejoins) return;
  const bool just = std::any_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    return ToBlame(process) && (process.role == Role::kServer || !begun_ ||
                                *process.died <= *begun_ || !MadeGood(process));
  });
  EXPECT_TRUE(just) << "every lost worker had a successor: " << verdict.ToString();
}

void DeathsOfAJob::JudgeNoBegin() {
  ++never_began;
  std::map<Role, int> missing;
  for (const Process& process : processes_) {
    if (process.died && !process.next) ++missing[process.role];
  }
  const auto lacking = [&](Role role, int32_t wanted, const std::string& what) {
    if (missing[role] == 0) return std::string();
    return std::to_string(missing[role]) + " of " + bs::CountOf(wanted, what);
  };
  const std::string workers = lacking(Role::kWorker, job_.options.num_workers, "worker");
  const std::string servers = lacking(Role::kServer, job_.options.num_servers, "server");
  const std::string want = "rendezvous: after 60 s still missing " + workers +
                           (workers.empty() || servers.empty() ? "" : ", ") + servers + ";";
  EXPECT_NE(job_.finished->message().find(want), std::string::npos)
      << job_.finished->ToString() << " instead of " << want;
  for (const Process& process : processes_) {
    if (process.died) continue;
    ASSERT_TRUE(process.native->refused.has_value()) << process.names;
    EXPECT_EQ(process.native->refused->message(), job_.finished->message()) << process.names;
    EXPECT_TRUE(process.stock == nullptr || !process.stock->words.empty()) << process.names;
  }
}

TEST(MembershipDeaths, AtAnyMomentAreMadeGoodOrNamedToAll) {
  std::array<int, kMoments> died{};
  int made_good = 0;
  int bad_ends = 0;
  int never_began = 0;
  for (int seed = 0; seed < kDeathSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DeathsOfAJob job(static_cast<uint64_t>(seed));
    job.Run();
    for (size_t i = 0; i < kMoments; ++i) died.at(i) += job.died.at(i);
    made_good += job.made_good;
    bad_ends += job.bad_ends;
    never_began += job.never_began;
  }
  if (kDeathSeeds < 3000) return;  // few jobs need not have every kind of death
  for (const int deaths : died) EXPECT_GT(deaths, 300);
  EXPECT_GT(made_good, 600);
  EXPECT_GT(bad_ends, 900);
  EXPECT_GT(never_began, 300);
}

int Replay(uint64_t seed) {
  DeathsOfAJob job(seed);
  job.trace = true;
  job.Run();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace ps::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  static constexpr std::string_view kSeed = "--seed=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kSeed)) continue;
    return ps::test::Replay(std::strtoull(argv[i] + kSeed.size(), nullptr, 10));
  }
  return RUN_ALL_TESTS();
}
