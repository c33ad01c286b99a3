// Script: what one simulated training process does, and whether it gets what it was promised.
//
// Every worker calls the same operations of each key - a broadcast, then rounds of push-pull - but
// mixes the keys in its own order, with its own priorities and pauses.  Values are small whole
// numbers, so every sum has one right answer.  The weights of asynchronous keys only
// grow: what is pulled lies between what must be in it and everything, and is the sum of each
// worker's first so many pushes, each once.  Memory is freed the moment
// its callback runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codec/coding.h"
#include "sim/journal.h"
#include "sim/sim_executor.h"
#include "worker/worker.h"

namespace bs::sim {

struct KeyPlan {
  Key key = 0;
  DType dtype = DType::kFloat32;  // or kInt32
  uint64_t count = 0;             // elements
  Round rounds = 0;
  int32_t threshold = 0;           // of two-bit compression; 0: none
  bool codes_sums = false;         // sums too travel in two bits of that threshold
  Coding coding{};                 // of whole numbers, if the threshold is 0
  bool declared_coded = false;     // else the first round travels plain
  Mode mode = Mode::kSynchronous;  // asynchronous keys are kFloat32
  bool hosted = false;             // asynchronous, and only the hosting process can update it
  Priority priority = 0;           // of a script that trains
  bool rests = false;              // workers give it back by chance, each at any time
};

// Returns what a worker's push of an asynchronous key adds to an element.
int32_t GainOf(const KeyPlan& plan, Round round, int32_t rank, uint64_t element);
// The weights of an asynchronous key when everything was pushed: each push is added once.
std::vector<float> FinalWeights(const KeyPlan& plan, int32_t num_workers);

struct ScriptOptions {
  std::vector<KeyPlan> keys;
  int32_t rank = 0;
  int32_t num_workers = 1;
  uint64_t most_waiting = 1;  // operations of one key called and not done
  Duration longest_pause{};
  int64_t max_staleness = -1;
  // By rank: how many workers have had it, this one too; not owned.  Null: one each.
  const std::vector<int32_t>* lives = nullptr;
  // In steps, as a framework: calls for every key at once, in the order of the plans' priorities;
  // the last plan is ready first; the next step needs every sum.  On ranks but 0, neighbours change
  // places by chance.
  bool trains = false;
  std::optional<int32_t> silent_rank;  // it does not say in which order it calls
};

class Script {
 public:
  // Everything must outlive the script.
  Script(const ScriptOptions& options, SimClock* clock, Journal* journal);
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  ~Script() = default;

  // `worker` lives on `executor`.  `done` runs there, in the last callback.  REQUIRES: called once.
  void Begin(Worker* worker, Executor* executor, std::function<void()> done);
  // The process vanishes: nothing more is called or expected.
  void Kill() { killed_ = true; }
  // From now on operations may fail, with texts that contain `name`.
  void AllowFailure(const std::string& name) { victim_ = name; }

  bool done() const { return next_to_call_.empty() && open_ == 0; }
  uint64_t callbacks() const { return callbacks_; }
  bool failed() const { return failed_; }  // an operation
  // Returns the latest pulled value of the key at `index`.  REQUIRES: done() and not failed().
  const std::vector<std::byte>& last_pulled(size_t index) const { return last_pulled_[index]; }
  // Rounds of the key at `index` that it called, and of how many it was told that they are there.
  Round called(size_t index) const;
  Round pushed(size_t index) const;
  // Describes what is missing, for people.
  std::string Missing() const;
  // Callbacks of a whole program.
  static uint64_t CallbacksOf(const std::vector<KeyPlan>& keys);

 private:
  struct Operation {
    const KeyPlan* plan = nullptr;
    Round round = 0;
    std::vector<std::byte> in;
    std::vector<std::byte> out;
    int pushed = 0;  // calls
    int pulled = 0;
  };
  struct Progress {
    Round called = 0;  // operations, the broadcast included
    Round pulled = 0;
    Round pushed = 0;  // in order
    uint64_t open = 0;
  };

  void ScheduleStep();
  void Step();
  void TrainStep();
  void Call(size_t index);
  void OnPushed(Operation* operation, const Status& status);
  void OnPulled(Operation* operation, const Status& status);
  // True if the callback is as promised and the operation did well.
  bool Accept(const Operation& operation, const char* what, int calls, const Status& status);
  int32_t LivesOf(int32_t rank) const {
    return options_.lives ? (*options_.lives)[static_cast<size_t>(rank)] : 1;
  }
  // Gives the key back, or not, before or behind an operation.
  void MaybeGiveBack(const KeyPlan& plan, bool for_good);
  void CallUpdate(Operation* operation, Priority priority);
  void CheckSum(const Operation& operation);
  void CheckWeights(const Operation& operation);
  // Returns true if `weight` is the first value, this worker's pushes up to `round`, and the first
  // pushes of every other worker.  REQUIRES: it lies between none and all of them.
  bool IsExplained(const KeyPlan& plan, Round round, uint64_t element, float weight) const;
  void AfterCallback(Operation* operation);
  Progress& ProgressOf(const Operation& operation);
  static std::string Describe(const Operation& operation);

  const ScriptOptions options_;
  const std::string name_;
  SimClock* const clock_;
  Journal* const journal_;
  SimExecutor thread_;  // the framework's
  Worker* worker_ = nullptr;
  Executor* executor_ = nullptr;
  std::function<void()> done_;
  std::optional<std::string> victim_;
  bool killed_ = false;
  bool calling_ = false;  // inside a call of the worker
  bool step_scheduled_ = false;
  std::set<size_t> next_to_call_;  // keys with operations still to call
  std::vector<size_t> step_;       // keys to come in this step, the next one last
  uint64_t num_steps_ = 0;
  std::vector<Progress> progress_;                   // by key
  std::vector<std::vector<std::byte>> last_pulled_;  // by key; of asynchronous ones
  std::vector<std::unique_ptr<Operation>> operations_;
  uint64_t open_ = 0;
  uint64_t callbacks_ = 0;
  bool failed_ = false;
};

}  // namespace bs::sim
