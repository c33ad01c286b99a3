// MpiCollective: a Collective over an MPI library, with a thread of its own that makes all calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "backend/collective/collective.h"
#include "backend/collective/library_thread.h"
#include "backend/collective/mpi/mpi_launcher.h"
#include "backend/collective/mpi/mpi_library.h"
#include "base/executor.h"
#include "base/loop_thread.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"

namespace bs::backend::collective {

struct MpiOptions {
  // The longest time that the thread looks for ended sums without a pause (base/spin.h); 0: never.
  Duration spin{};
  // MPI notices a lost rank too, and cannot name it.  For so long Abort may bring a better status.
  Duration blame = std::chrono::seconds(5);
  // All ranks initialise MPI within this time.
  Duration start_limit = std::chrono::seconds(60);
  // A call of MPI that takes longer is left behind, with its thread and the memory of its sums.
  Duration patience = std::chrono::seconds(1);
};

// The thread is called bs-mpi.
class MpiCollective final : public Collective {
 public:
  // `executor` is the worker's and outlives this object.  Throws as LoopThread does.
  MpiCollective(Executor* executor, std::unique_ptr<MpiLibrary> library,
                const MpiLauncher& launcher, const MpiOptions& options);
  MpiCollective(const MpiCollective&) = delete;
  MpiCollective& operator=(const MpiCollective&) = delete;
  // Callbacks that have not run are dropped.  Blocks for a bounded time.  After a good end the
  // thread goes on to call MPI now and then, until MPI ends: peers may wait for bytes of this rank.
  // A thread that MPI keeps is left behind too, and the process can only exit.
  ~MpiCollective() override;

  // Initialises MPI and compares the ranks' libraries (MpiSums::Start).  kDeadlineExceeded: a rank
  // has not come.
  void Prepare(Done done) override;
  void Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence, Done done) override;
  void TellBegun(UniqueFunction<void(uint64_t num_begun)> told) override;
  // MPI cannot end a sum, which keeps memory of ours (MpiSums).
  void Abort(const Status& status) override;

 private:
  class Caller;

  Executor* const executor_;
  const Duration start_limit_;
  const Duration patience_;
  const std::shared_ptr<SumCallbacks> callbacks_;  // on the executor
  const std::shared_ptr<Caller> caller_;           // on the thread
  std::unique_ptr<LoopThread> thread_;
};

}  // namespace bs::backend::collective
