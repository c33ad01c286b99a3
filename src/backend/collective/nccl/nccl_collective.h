// NcclCollective: a Collective over NCCL, with a thread of its own that makes all calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/collective/collective.h"
#include "backend/collective/introduction.h"
#include "backend/collective/library_thread.h"
#include "backend/collective/nccl/cuda_driver.h"
#include "backend/collective/nccl/nccl_library.h"
#include "base/executor.h"
#include "base/loop_thread.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"

namespace bs::backend::collective {

struct NcclOptions {
  int32_t rank = 0;  // in the communicator
  int32_t size = 1;
  std::vector<int32_t> workers{};  // their ranks in the job; empty: the same ranks
  // Brings this rank's card to all, and theirs back, on the executor; see Introduce.
  std::function<void(const std::string& card, UniqueFunction<void(const Result<Cards>&)> done)>
      introduce{};
  // The longest time that the thread looks for ended sums without a pause (base/spin.h); 0: never.
  Duration spin{};
  // The longest time without an end of a sum, while there are some.  If NCCL keeps the thread, the
  // executor notices after twice this time and `patience`.
  Duration deadline = std::chrono::seconds(60);
  // NCCL notices a lost rank too, and cannot name it.  For so long Abort may bring a better status.
  Duration blame = std::chrono::seconds(5);
  // A call of NCCL that takes longer is left behind, with its thread and the memory of its sums:
  // the GPU may change that memory until the process ends, though callbacks have run with an error.
  Duration patience = std::chrono::seconds(5);
};

// Sums memory of GPUs alone.  The thread is called bs-nccl.
class NcclCollective final : public Collective {
 public:
  // `executor` is the worker's and outlives this object.  Throws as LoopThread does.
  NcclCollective(Executor* executor, std::unique_ptr<NcclLibrary> library,
                 std::unique_ptr<CudaDriver> driver, const NcclOptions& options);
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;
  // Ends the thread.  Callbacks that have not run are dropped.  Blocks for a bounded time: a thread
  // that NCCL keeps is left behind.
  ~NcclCollective() override;

  bool Sums(DType dtype) const override;
  // The first call connects all ranks.
  void Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence, Done done) override;
  bool has_roots() const override { return true; }
  // REQUIRES: Begin has been called.
  void Copy(const Piece& piece, const HostMemory& host, Done done) override;
  std::string hint() const override;
  void TellBegun(UniqueFunction<void(uint64_t num_begun)> told) override;
  // With kCancelled and no sum under way it makes no call of NCCL (NcclSums).
  void Abort(const Status& status) override;

 private:
  class Caller;

  // Looks after the thread as long as sums are under way.
  void Watch();

  Executor* const executor_;
  const Duration patience_;
  const Duration watch_;
  bool watches_ = false;
  uint64_t num_copies_ = 0;
  const std::shared_ptr<SumCallbacks> callbacks_;  // on the executor
  const std::shared_ptr<Caller> caller_;           // on the thread
  std::unique_ptr<LoopThread> thread_;
};

}  // namespace bs::backend::collective
