// NcclSums: sums on a GPU by an NCCL library, a communicator and a stream.
//
// The GPU is that of the first tensor, and all ranks then connect: until then a script may still
// choose it.  Each rank first shows its card to all.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/collective/collective.h"
#include "backend/collective/nccl/cuda_driver.h"
#include "backend/collective/nccl/nccl_library.h"
#include "base/status.h"
#include "base/types.h"

namespace bs::backend::collective {

// Confined to a thread.  Nothing blocks, but for Abort and End.
//
// Errors of kUnavailable may have another rank's loss as their reason.
class NcclSums {
 public:
  // Both stay valid.
  NcclSums(const NcclLibrary* library, const CudaDriver* driver, int32_t rank, int32_t size)
      : library_(library), driver_(driver), rank_(rank), size_(size) {}
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;
  ~NcclSums() = default;

  bool has_gpu() const { return gpu_.has_value(); }
  // Takes the GPU that has `memory`, and returns what the other ranks have to know of this one.
  Result<std::string> TakeGpu(const void* memory);
  // Begins to connect the ranks, whose cards are in the order of their numbers.
  // kFailedPrecondition: two have one GPU, or other versions; all ranks get the same text.
  Status Connect(std::span<const std::string> cards);
  // Adds a sum, behind those before.  kInvalidArgument: its memory is not on this rank's GPU.
  Status Add(std::vector<Piece> pieces, DType dtype, uint64_t sequence);
  // Puts on the stream what can go there, and returns the sums that have ended.
  Result<std::vector<uint64_t>> Poll();
  // True if Poll has nothing to do: all sums have ended, and the ranks are connected.
  bool is_idle() const;
  // Ends all sums; those that have begun may still use their memory until IsQuiet.
  void Abort();
  bool IsQuiet();
  // Gives all back.  REQUIRES: no sum is under way.
  void End();

 private:
  struct Waiting {
    std::vector<NcclLibrary::Array> arrays;
    DType dtype;
    uint64_t sequence;
  };
  struct UnderWay {
    CudaDriver::Event end;
    uint64_t sequence;
  };

  Status CheckGpu(const void* memory) const;
  // Puts waiting sums on the stream, until NCCL has to work on one.
  Status Launch();
  Result<std::vector<uint64_t>> TakeEnded();

  const NcclLibrary* const library_;
  const CudaDriver* const driver_;
  const int32_t rank_;
  const int32_t size_;
  std::optional<int> gpu_;
  CudaDriver::Stream stream_ = nullptr;
  NcclLibrary::Communicator communicator_ = nullptr;
  bool is_connecting_ = false;
  std::deque<Waiting> waiting_;
  std::optional<uint64_t> launching_;  // NCCL has not yet put this sum on the stream
  std::deque<UnderWay> under_way_;
};

}  // namespace bs::backend::collective
