// NcclSums: sums on a GPU by an NCCL library, a communicator and a stream; copies have a stream of
// their own.
//
// The GPU is that of the first tensor, so that a script can choose it until then.  All ranks then
// exchange their cards, and connect.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
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

// Confined to a thread.  Only Abort can block.  The loss of another rank can be the reason of
// kUnavailable.
//
// Without Abort the communicator stays until the process ends, with stream and context: a sum may
// have ended here while another rank still receives from this one.
class NcclSums {
 public:
  // Both stay valid.
  NcclSums(const NcclLibrary* library, const CudaDriver* driver, int32_t rank, int32_t size)
      : library_(library), driver_(driver), rank_(rank), size_(size) {}
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;
  // The GPU keeps memory of the host in copies that have not ended.
  ~NcclSums();

  bool has_gpu() const { return gpu_.has_value(); }
  // Takes the GPU that has `memory`, and returns this rank's card.
  Result<std::string> TakeGpu(const void* memory);
  // Begins to connect the ranks; `cards` are in the order of ranks.  kFailedPrecondition: two ranks
  // share a GPU, or have different versions; all ranks get the same text.
  // `workers`: their ranks in the job; empty: the same ranks.
  Status Connect(std::span<const std::string> cards, std::span<const int32_t> workers = {});
  // Adds a sum behind earlier sums.  kInvalidArgument: its memory is not on this rank's GPU.
  Status Add(const std::vector<Piece>& pieces, DType dtype, uint64_t sequence);
  // Begins a copy between the GPU and the host's memory, which is no operation: Poll returns
  // `ticket` too.  The host's memory stays as long as the GPU may use it; what lasts is
  // page-locked until Unlock, if the driver does that.  REQUIRES: has_gpu().
  Status Copy(const Piece& piece, const HostMemory& host, uint64_t ticket);
  // Puts sums on the stream, and returns the sums that have ended.
  Result<std::vector<uint64_t>> Poll();
  // Sums that NCCL has put on the stream.
  uint64_t num_begun() const { return num_begun_; }
  // True if Poll has no work: all sums have ended, and the ranks are connected.
  bool is_idle() const;
  // Ends all sums.  A sum that has begun may use its memory until IsQuiet.
  void Abort();
  // False too after an error, which tells nothing about the GPU's work.
  bool IsQuiet();
  // No copy follows.  Memory that the GPU may use stays page-locked.
  void Unlock();

 private:
  struct Waiting {
    std::vector<NcclLibrary::Array> arrays;
    DType dtype;
    uint64_t sequence;
  };
  struct UnderWay {
    CudaDriver::Event end;
    uint64_t sequence;
    std::shared_ptr<void> owner{};  // of memory of the host
  };

  Status CheckGpu(const void* memory) const;
  Result<CudaDriver::Stream> StreamOfCopies();
  // The driver copies page-locked memory without the thread, and faster.
  void Lock(const HostMemory& host);
  // Puts waiting sums on the stream, as long as NCCL takes them.
  Status Launch();
  // Takes from the front what has ended.
  Status TakeEnded(std::deque<UnderWay>* under_way, std::vector<uint64_t>* ended) const;

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
  uint64_t num_begun_ = 0;
  CudaDriver::Stream stream_of_copies_ = nullptr;
  std::deque<UnderWay> copies_;
  std::vector<std::shared_ptr<void>> lost_;  // owners of memory in copies whose end no event tells
  std::map<void*, std::shared_ptr<void>> locked_;  // owners of page-locked memory, by its begin
  bool can_lock_ = true;
  bool has_lost_sum_ = false;  // a sum may be on the stream, and no event tells its end
};

}  // namespace bs::backend::collective
