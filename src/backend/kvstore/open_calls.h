// OpenCalls: calls that have not ended, with the same deadline for each.
//
// Confined to one executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"

namespace bs::backend {

// A call for people: "pull key=7 round=12 partition=2 to server 1", "lookup key=7".
struct CallName {
  struct Place {
    Round round = 0;
    uint32_t partition = 0;
    uint32_t server = 0;
  };
  const char* verb = "";
  Key key = 0;
  std::optional<Place> place{};
};
std::string Describe(const CallName& name);

class OpenCalls {
 public:
  using Id = uint64_t;  // never 0
  // Runs once, on the executor, never inside a call of this class.
  using Done = UniqueFunction<void(const Status&)>;

  // `executor` must outlive this.  A call that is open for `deadline` ends with kDeadlineExceeded,
  // which says that it waits for `waits_for`.  A debug line says so of the oldest call before that.
  OpenCalls(Executor* executor, Duration deadline, std::string waits_for, const Logger& log);
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;
  // REQUIRES: every `done` has run.
  ~OpenCalls();

  // After FailAll the call is over at once.
  Id Add(const CallName& name, Done done);
  bool IsOpen(Id id) const { return calls_.contains(id); }
  // Without effect if the call is over.
  void End(Id id, const Status& status);
  // Ends every call with `status`, and later calls too.  REQUIRES: !status.ok().
  void FailAll(const Status& status);
  // Ok before FailAll.
  const Status& failure() const { return failure_; }
  // How many `done` have not run.
  size_t pending() const { return pending_; }

 private:
  struct Call {
    CallName name;
    TimePoint began;
    Done done;
  };

  void Finish(Done done, const Status& status);
  void Arm();
  void CheckOldest();
  void NoteOldest() const;
  Duration WaitOf(const Call& call) const { return executor_->Now() - call.began; }
  std::string StillWaiting(const Call& call, Duration waited) const;

  Executor* const executor_;
  const Duration deadline_;
  const Duration look_interval_;
  const std::string waits_for_;
  const Logger log_;
  std::map<Id, Call> calls_;  // the oldest is the first
  Id next_id_ = 1;
  size_t pending_ = 0;
  TimerId timer_ = 0;
  Status failure_;
};

}  // namespace bs::backend
