// FakeWorld: plays a library that sums over ranks, all of which live in this process.  It has
// pieces with a root too.
//
// It checks that all ranks call one sequence with equal sizes.  A violation ends all operations
// with kInternal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backend/collective/collective.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"

namespace bs::backend::collective {

struct FakeOptions {
  int32_t num_ranks = 1;
  // How long an operation takes, from the call of the last rank on; one after another.
  std::function<Duration(uint64_t size_bytes)> duration{};
  // Most bytes of rank 0 in operations, unless it has a single operation.
  uint64_t most_bytes = UINT64_MAX;
  bool adds = true;  // false: it touches no memory
  std::function<void(const std::string& violation)> on_violation{};
  std::string hint{};  // Collective::hint
};

// Thread-safe.
class FakeWorld {
 public:
  struct Counts {
    uint64_t copied_bytes = 0;   // between devices and the host
    uint64_t lasting_bytes = 0;  // of the host's memory that a library may page-lock
    uint64_t operations = 0;     // that all ranks have called
    uint64_t pieces = 0;
    uint64_t largest_bytes = 0;
  };

  explicit FakeWorld(FakeOptions options);
  FakeWorld(const FakeWorld&) = delete;
  FakeWorld& operator=(const FakeWorld&) = delete;
  ~FakeWorld();

  // The library as `rank` has it; this outlives it.
  std::unique_ptr<Collective> Join(int32_t rank, Executor* executor);
  // The process of the rank vanishes.
  void Kill(int32_t rank);
  // The library keeps the thread and the calls of this rank from now on.
  void Stall(int32_t rank);
  // The next call of this rank ends with an error on it alone.
  void FailNext(int32_t rank, const Status& status);
  Counts counts() const;

 private:
  class Member;
  struct Call {
    std::vector<Piece> pieces{};
    DType dtype = DType::kFloat32;
    Collective::Done done{};
  };
  struct Operation {
    std::vector<std::optional<Call>> calls{};
    size_t num_calls = 0;
    bool complete = false;  // all ranks have called it
  };
  struct Rank {
    Executor* executor = nullptr;
    uint64_t next = 0;
    uint64_t bytes = 0;  // in operations
    bool dead = false;
    bool stalled = false;
    std::vector<Call> dropped{};  // once dead or stalled
    Status failure{};             // its later calls end with it
    Status next_fails{};
  };

  void Begin(int32_t rank, Call call, uint64_t sequence);
  void Abort(int32_t rank, const Status& status);
  void Copy(int32_t rank, const Piece& piece, const HostMemory& host, Collective::Done done);
  void TellBegun(int32_t rank, UniqueFunction<void(uint64_t)> told);
  // Describes how the call breaks the rules; empty: it does not.
  std::string Check(int32_t rank, const Call& call, uint64_t sequence) const BS_REQUIRES(mutex_);
  void Violate(const std::string& what) BS_REQUIRES(mutex_);
  void Complete(uint64_t sequence) BS_REQUIRES(mutex_);
  void Sum(Operation* operation) const BS_REQUIRES(mutex_);
  void EndCalls(int32_t rank, const Status& status) BS_REQUIRES(mutex_);
  // Runs the callback of a rank.
  void End(int32_t rank, uint64_t sequence);

  const FakeOptions options_;
  mutable Mutex mutex_;
  std::vector<Rank> ranks_ BS_GUARDED_BY(mutex_);
  std::map<uint64_t, Operation> operations_ BS_GUARDED_BY(mutex_);  // by sequence
  TimePoint free_at_ BS_GUARDED_BY(mutex_){};
  Counts counts_ BS_GUARDED_BY(mutex_);
  std::set<const std::byte*> lasting_ BS_GUARDED_BY(mutex_);
};

}  // namespace bs::backend::collective
