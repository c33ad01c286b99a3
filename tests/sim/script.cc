// Script: random calls with known results.
#include "sim/script.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "codec/two_bit.h"

namespace bs::sim {
namespace {

constexpr size_t kElementBytes = 4;  // of both dtypes
constexpr int32_t kLargestValue = 1000;

// A number that tells key, round, worker and element from others.
int32_t ValueOf(Key key, Round round, int32_t rank, uint64_t element) {
  uint64_t x = (key * 1000003 + round) * 1000003 + static_cast<uint64_t>(rank);
  x = (x * 1000003 + element) * 0x9e3779b97f4a7c15ULL;
  x ^= x >> 29U;
  return static_cast<int32_t>((x * 0xbf58476d1ce4e5b9ULL >> 33U) % (2 * kLargestValue + 1)) -
         kLargestValue;
}

}  // namespace

// For an asynchronous key; not negative.
int32_t GainOf(const KeyPlan& plan, Round round, int32_t rank, uint64_t element) {
  return std::abs(ValueOf(plan.key, round, rank, element));
}

namespace {

void Write(DType dtype, int32_t value, std::byte* to) {
  if (dtype == DType::kInt32) {
    std::memcpy(to, &value, kElementBytes);
  } else {
    const auto real = static_cast<float>(value);
    std::memcpy(to, &real, kElementBytes);
  }
}

// Returns the value of the two-bit code of a residual.
int32_t TwoBitsOf(int32_t residual, int32_t threshold) {
  if (residual >= threshold) return threshold;
  return residual <= -threshold ? -threshold : 0;
}

// Returns what arrives of that number in a round: all of it, or its two-bit code.
int32_t SentOf(const KeyPlan& plan, Round round, int32_t rank, uint64_t element) {
  if (plan.threshold == 0 || round == 0) return ValueOf(plan.key, round, rank, element);
  int32_t residual = 0;
  int32_t sent = 0;
  for (Round r = 1; r <= round; ++r) {
    residual += ValueOf(plan.key, r, rank, element);
    sent = TwoBitsOf(residual, plan.threshold);
    residual -= sent;
  }
  return sent;
}

// Returns a worker's contribution to a round, as it arrives.
int32_t OwnValueOf(const KeyPlan& plan, Round round, int32_t rank, uint64_t element) {
  return plan.mode == Mode::kAsynchronous ? GainOf(plan, round, rank, element)
                                          : ValueOf(plan.key, round, rank, element);
}
int32_t ReceivedOf(const KeyPlan& plan, Round round, int32_t rank, uint64_t element) {
  return plan.mode == Mode::kAsynchronous ? GainOf(plan, round, rank, element)
                                          : SentOf(plan, round, rank, element);
}

// Returns the sum of all contributions to a round, as it arrives.
int32_t SumOf(const KeyPlan& plan, Round round, int32_t num_workers, uint64_t element) {
  int32_t residual = 0;  // of the server
  int32_t sent = 0;
  for (Round r = plan.codes_sums && round > 0 ? 1 : round; r <= round; ++r) {
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      residual += ReceivedOf(plan, r, rank, element);
    }
    sent = plan.codes_sums && r > 0 ? TwoBitsOf(residual, plan.threshold) : residual;
    residual -= sent;
  }
  return sent;
}

// Returns the contribution of the worker of `rank` to a round; for rank -1 the sum of all.
std::vector<std::byte> Contents(const KeyPlan& plan, Round round, int32_t rank,
                                int32_t num_workers) {
  std::vector<std::byte> bytes(plan.count * kElementBytes);
  for (uint64_t i = 0; i < plan.count; ++i) {
    const int32_t value =
        rank < 0 ? SumOf(plan, round, num_workers, i) : OwnValueOf(plan, round, rank, i);
    Write(plan.dtype, value, bytes.data() + i * kElementBytes);
  }
  return bytes;
}

// Which sums of numbers, one or none out of each of several sets, there are; up to a largest one.
class Sums {
 public:
  explicit Sums(size_t largest) : largest_(largest), words_(largest / kBits + 1) { words_[0] = 1; }
  void AddOneOf(const std::vector<size_t>& numbers) {
    const std::vector<uint64_t> before = words_;
    for (const size_t number : numbers) {
      const size_t up = number / kBits;
      const size_t left = number % kBits;
      for (size_t i = up; i < words_.size(); ++i) {
        words_[i] |= before[i - up] << left;
        if (left != 0 && i > up) words_[i] |= before[i - up - 1] >> (kBits - left);
      }
    }
  }
  bool HasLargest() const { return (words_[largest_ / kBits] >> (largest_ % kBits) & 1U) != 0; }

 private:
  static constexpr size_t kBits = 64;
  const size_t largest_;
  std::vector<uint64_t> words_;  // a bit for each sum
};

void Free(std::vector<std::byte>* bytes) { std::vector<std::byte>().swap(*bytes); }

}  // namespace

std::vector<float> FinalWeights(const KeyPlan& plan, int32_t num_workers) {
  std::vector<float> weights(plan.count);
  for (uint64_t i = 0; i < plan.count; ++i) {
    int32_t sum = GainOf(plan, 0, 0, i);
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      for (Round round = 1; round <= plan.rounds; ++round) sum += GainOf(plan, round, rank, i);
    }
    weights[i] = static_cast<float>(sum);
  }
  return weights;
}

Script::Script(const ScriptOptions& options, SimClock* clock, Journal* journal)
    : options_(options),
      name_("worker " + std::to_string(options.rank)),
      clock_(clock),
      journal_(journal),
      thread_(clock),
      progress_(options.keys.size()),
      last_pulled_(options.keys.size()) {
  for (size_t i = 0; i < options.keys.size(); ++i) next_to_call_.insert(i);
}

uint64_t Script::CallbacksOf(const std::vector<KeyPlan>& keys) {
  uint64_t callbacks = 0;
  for (const KeyPlan& plan : keys) callbacks += 1 + 2 * plan.rounds;
  return callbacks;
}

void Script::Begin(Worker* worker, Executor* executor, std::function<void()> done) {
  worker_ = worker;
  executor_ = executor;
  done_ = std::move(done);
  const bool updates = std::any_of(options_.keys.begin(), options_.keys.end(),
                                   [](const auto& key) { return key.mode == Mode::kAsynchronous; });
  if (!updates) return ScheduleStep();
  // Each push is added as it is.
  worker_->SetOptimizer("sgd learning_rate=-1", "pickle", [this](const Status& status) {
    journal_->Progress();
    const bool named = victim_ && status.message().find(*victim_) != std::string::npos;
    if (!status.ok() && !named) {
      journal_->Report(Broken::kStatus, name_, "optimizer: " + status.ToString());
    }
    ScheduleStep();
  });
}

void Script::ScheduleStep() {
  if (std::exchange(step_scheduled_, true)) return;
  const auto longest = static_cast<uint64_t>(options_.longest_pause.count());
  // Gradients of two layers are not there at the same moment.
  const Duration least = options_.trains ? std::chrono::microseconds(300) : Duration::zero();
  const auto pause = least + Duration(static_cast<int64_t>(clock_->Uniform(0, longest)));
  thread_.PostAt(clock_->Now() + pause, [this] {
    step_scheduled_ = false;
    if (!killed_) Step();
  });
}

void Script::TrainStep() {
  if (step_.empty()) {
    if (open_ > 0 || next_to_call_.empty()) return;
    ++num_steps_;
    step_.assign(next_to_call_.begin(), next_to_call_.end());
    for (size_t i = clock_->Uniform(0, 1); options_.rank > 0 && i + 1 < step_.size(); i += 2) {
      if (clock_->Uniform(0, 1) == 0) std::swap(step_[i], step_[i + 1]);
    }
  }
  const size_t index = step_.back();
  step_.pop_back();
  Call(index);
  ScheduleStep();
}

void Script::Step() {
  if (options_.trains) return TrainStep();
  std::vector<size_t> callable;
  for (const size_t index : next_to_call_) {
    if (progress_[index].open < options_.most_waiting) callable.push_back(index);
  }
  if (callable.empty()) return;  // the next callback goes on
  Call(callable[clock_->Uniform(0, callable.size() - 1)]);
  ScheduleStep();
}

void Script::Call(size_t index) {
  const KeyPlan& plan = options_.keys[index];
  Progress& progress = progress_[index];
  operations_.push_back(std::make_unique<Operation>());
  Operation* const operation = operations_.back().get();
  operation->plan = &plan;
  operation->round = progress.called++;
  if (progress.called > plan.rounds) next_to_call_.erase(index);
  ++progress.open;
  ++open_;
  if (plan.rests && operation->round > 0) MaybeGiveBack(plan, /*for_good=*/false);
  const bool has_value = operation->round > 0 || options_.rank == 0;
  operation->in = has_value ? Contents(plan, operation->round, options_.rank, options_.num_workers)
                            : std::vector<std::byte>(plan.count * kElementBytes, std::byte{0x5a});
  journal_->Note(name_, [&] { return "calls " + Describe(*operation); });
  calling_ = true;
  if (operation->round == 0) {
    operation->out = std::exchange(operation->in, {});
    operation->pushed = 1;
    auto done = [this, operation](const Status& status) { OnPulled(operation, status); };
    if (plan.hosted) {
      worker_->BroadcastWhole(plan.key, {plan.dtype, std::to_string(plan.key), true},
                              operation->out, std::move(done));
    } else {
      worker_->Broadcast(plan.key,
                         {.dtype = plan.dtype,
                          .mode = plan.mode,
                          .coding = plan.declared_coded ? plan.coding : Coding{}},
                         operation->out, std::move(done));
    }
  } else {
    operation->out.assign(plan.count * kElementBytes, std::byte{0x5a});
    Priority priority = plan.priority;
    uint64_t called = 0;
    if (!options_.trains) {
      priority = static_cast<Priority>(clock_->Uniform(0, 20)) - 15;
    } else if (options_.rank != options_.silent_rank) {
      called = num_steps_ * options_.keys.size() + static_cast<uint64_t>(-priority);
    }
    if (plan.mode == Mode::kAsynchronous) return CallUpdate(operation, priority);
    Coding coding = plan.coding;
    if (plan.threshold != 0) coding = codec::TwoBitCoding(static_cast<float>(plan.threshold));
    if (plan.codes_sums) coding.sums = SumsTravel::kSame;
    worker_->PushPull(
        plan.key, {.priority = priority, .coding = coding, .called = called}, operation->in,
        operation->out, [this, operation](const Status& status) { OnPushed(operation, status); },
        [this, operation](const Status& status) { OnPulled(operation, status); });
  }
  if (plan.rests && progress.called > plan.rounds) MaybeGiveBack(plan, /*for_good=*/true);
  calling_ = false;
}

void Script::MaybeGiveBack(const KeyPlan& plan, bool for_good) {
  if (clock_->Uniform(0, 2) == 0) return;
  journal_->Note(name_, [&] { return "gives back key=" + std::to_string(plan.key); });
  worker_->GiveBack(plan.key, for_good, {});
}

void Script::CallUpdate(Operation* operation, Priority priority) {
  Worker::UpdateCall push{.priority = priority, .in = operation->in};
  Worker::UpdateCall pull{.priority = priority, .out = operation->out};
  push.pushed = [this, operation](const Status& status) { OnPushed(operation, status); };
  pull.pulled = [this, operation](const Status& status) { OnPulled(operation, status); };
  const Key key = operation->plan->key;
  if (clock_->Uniform(0, 1) == 0) {
    push.out = pull.out;
    push.pulled = std::move(pull.pulled);
    worker_->Update(key, std::move(push));
  } else {
    worker_->Update(key, std::move(push));
    worker_->Update(key, std::move(pull));
  }
  calling_ = false;
}

void Script::OnPushed(Operation* operation, const Status& status) {
  if (killed_) return;
  if (Accept(*operation, "pushed", ++operation->pushed, status)) {
    ProgressOf(*operation).pushed = operation->round;
  }
  Free(&operation->in);  // whoever reads it now reads freed memory
  AfterCallback(operation);
}

void Script::OnPulled(Operation* operation, const Status& status) {
  if (killed_) return;
  if (Accept(*operation, "pulled", ++operation->pulled, status)) {
    const bool adds = operation->plan->mode == Mode::kAsynchronous;
    adds ? CheckWeights(*operation) : CheckSum(*operation);
  }
  if (ProgressOf(*operation).pulled++ != operation->round) {
    journal_->Report(Broken::kCallback, name_, Describe(*operation) + " pulled out of order");
  }
  Free(&operation->out);
  AfterCallback(operation);
}

bool Script::Accept(const Operation& operation, const char* what, int calls, const Status& status) {
  const std::string about = Describe(operation) + " " + what;
  journal_->Note(name_, [&] { return about + ": " + status.ToString(); });
  journal_->Progress();
  ++callbacks_;
  if (calls != 1) journal_->Report(Broken::kCallback, name_, about + " more than once");
  if (calling_) journal_->Report(Broken::kCallback, name_, about + " inside a call");
  if (!executor_->IsCurrent()) {
    journal_->Report(Broken::kCallback, name_, about + " on another executor");
  }
  if (status.ok()) return true;
  failed_ = true;
  if (!victim_ || status.message().find(*victim_) == std::string::npos) {
    journal_->Report(Broken::kStatus, name_, about + ": " + status.ToString());
  }
  return false;
}

void Script::CheckSum(const Operation& operation) {
  const int32_t whose = operation.round == 0 ? 0 : -1;
  const std::vector<std::byte> right =
      Contents(*operation.plan, operation.round, whose, options_.num_workers);
  for (uint64_t i = 0; i < right.size(); i += kElementBytes) {
    if (std::memcmp(&right[i], &operation.out[i], kElementBytes) == 0) continue;
    journal_->Report(Broken::kSum, name_,
                     Describe(operation) + ": element " + std::to_string(i / kElementBytes) +
                         " of " + std::to_string(operation.plan->count) + " is wrong");
    return;
  }
}

void Script::CheckWeights(const Operation& operation) {
  const KeyPlan& plan = *operation.plan;
  last_pulled_[static_cast<size_t>(&plan - options_.keys.data())] = operation.out;
  for (uint64_t i = 0; i < plan.count; ++i) {
    int32_t least = GainOf(plan, 0, 0, i);
    int32_t most = least;
    for (int32_t rank = 0; rank < options_.num_workers; ++rank) {
      const Round behind = static_cast<Round>(rank == options_.rank ? 0 : options_.max_staleness);
      const bool bounded =
          rank == options_.rank || (options_.max_staleness >= 0 && LivesOf(rank) == 1);
      for (Round round = 1; round <= plan.rounds; ++round) {
        const int32_t gain = GainOf(plan, round, rank, i);
        most += gain * LivesOf(rank);
        if (bounded && round + behind <= operation.round) least += gain;
      }
    }
    float weight = 0;
    std::memcpy(&weight, &operation.out[i * kElementBytes], kElementBytes);
    // Every partition has elements at such places; to look at all would take too long.
    constexpr uint64_t kLookAt = 16;
    const bool fits = static_cast<float>(least) <= weight && weight <= static_cast<float>(most);
    const bool look = fits && i % kLookAt == 0;
    const bool explained = !look || IsExplained(plan, operation.round, i, weight);
    if (fits && explained) continue;
    journal_->Report(Broken::kSum, name_,
                     Describe(operation) + ": element " + std::to_string(i) + " is " +
                         std::to_string(weight) + ", not " + std::to_string(least) + " to " +
                         std::to_string(most) + (explained ? "" : ", and no sum of pushes"));
    return;
  }
}

bool Script::IsExplained(const KeyPlan& plan, Round round, uint64_t element, float weight) const {
  int32_t own = GainOf(plan, 0, 0, element);
  for (Round r = 1; r <= round; ++r) own += GainOf(plan, r, options_.rank, element);
  if (weight < static_cast<float>(own) || weight != std::floor(weight)) return false;
  Sums sums(static_cast<size_t>(weight) - static_cast<size_t>(own));
  for (int32_t rank = 0; rank < options_.num_workers; ++rank) {
    std::vector<size_t> first(plan.rounds);  // so many of its pushes
    size_t gain = 0;
    for (Round r = 0; r < plan.rounds; ++r) {
      gain += static_cast<size_t>(GainOf(plan, r + 1, rank, element));
      first[r] = gain;
    }
    const int32_t lives = LivesOf(rank) - (rank == options_.rank ? 1 : 0);
    for (int32_t life = 0; life < lives; ++life) sums.AddOneOf(first);
  }
  return sums.HasLargest();
}

void Script::AfterCallback(Operation* operation) {
  if (operation->pushed != 1 || operation->pulled != 1) return;
  --ProgressOf(*operation).open;
  --open_;
  ScheduleStep();
  if (done()) done_();
}

Script::Progress& Script::ProgressOf(const Operation& operation) {
  return progress_[static_cast<size_t>(operation.plan - options_.keys.data())];
}

Round Script::called(size_t index) const {
  const Round called = progress_[index].called;  // the broadcast included
  return called > 0 ? called - 1 : 0;
}

Round Script::pushed(size_t index) const { return progress_[index].pushed; }

std::string Script::Describe(const Operation& operation) {
  const std::string key = " key=" + std::to_string(operation.plan->key);
  return operation.round == 0 ? "broadcast" + key
                              : "push_pull" + key + " round=" + std::to_string(operation.round);
}

std::string Script::Missing() const {
  std::string text;
  for (const auto& operation : operations_) {
    if (operation->pushed > 0 && operation->pulled > 0) continue;
    text += (text.empty() ? "" : "; ") + Describe(*operation) +
            (operation->pushed == 0 ? " not pushed" : "") +
            (operation->pulled == 0 ? " not pulled" : "");
  }
  return text.empty() ? "nothing is open, but it did not call everything" : text;
}

}  // namespace bs::sim
