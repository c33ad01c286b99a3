// MpiSums: sums over all ranks by an MPI library, with the checks that MPI lacks.
//
// MPI sums arrays in the order of the calls and does not compare them.  Ranks that call in other
// orders, or with other sizes, get wrong sums, or crash.  So a small sum goes before each sum and
// brings every rank's sequence number, size and type to all ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/collective.h"
#include "backend/collective/mpi/mpi_launcher.h"
#include "backend/collective/mpi/mpi_library.h"
#include "base/status.h"
#include "base/types.h"

namespace bs::backend {

// Confined to the library's thread, but for Stop.  While in_use() it must not be destroyed.
class MpiSums {
 public:
  // Both stay valid.
  MpiSums(MpiLibrary* library, const MpiLauncher& launcher)
      : library_(library), launcher_(launcher) {}

  // Initialises MPI and begins to compare the ranks' libraries; Poll returns kStarted once they are
  // alike.  Blocks until all processes of the launcher have called it.  kFailedPrecondition: the
  // library counts other processes than the launcher.
  Status Start();
  // Begins Collective::AllReduce.  The memory of `pieces` stays valid until Poll returns
  // `sequence`.  REQUIRES: Poll has returned kStarted.
  Status Begin(std::vector<collective::Piece> pieces, DType dtype, uint64_t sequence);

  static constexpr uint64_t kStarted = UINT64_MAX;
  // Makes progress, and returns the sequence numbers of sums that have ended, and kStarted.  An
  // error is for all sums under way: no sum follows.  An error of MPI may leave it their memory.
  // Sums that differ are an error once the sums before them have ended, so that MPI has no memory
  // of a caller.
  Result<std::vector<uint64_t>> Poll();
  // Lets peers end sums that have ended here.  False: it can do so no more.  REQUIRES: not
  // in_use().
  bool Progress() { return !stopped_ && library_->Progress(); }
  // No call of the library begins from now on.  Any thread.
  void Stop() { stopped_ = true; }
  bool is_stopped() const { return stopped_; }
  // Gives back what Start took, but for Progress, if no sum is under way.
  Status End();

  bool is_idle() const { return sums_.empty() && !versions_; }
  // MPI has memory of this object, and perhaps of a caller.
  bool in_use() const { return in_use_ > 0; }

 private:
  // One part of an array for each rank; all ranks get all parts.
  struct Gathered {
    std::vector<double> parts;
    bool over = false;
  };
  struct Sum {
    std::vector<collective::Piece> pieces;
    DType dtype;
    std::vector<std::byte> fused;  // empty if a single piece lies where MPI sums it
    bool over = false;
    Gathered described{};  // a part tells what the rank sums
  };

  Status Gather(const std::vector<double>& part, uint64_t ticket, Gathered* gathered);
  Status BeginDescribed(uint64_t sequence, Sum* sum);
  void Fuse(Sum* sum);
  void Mark(uint64_t ticket);
  Status CompareVersions() const;
  static Status Compare(const Sum& sum);
  void Deliver(Sum* sum);

  MpiLibrary* const library_;
  const MpiLauncher launcher_;
  std::optional<Gathered> versions_;           // until they are compared
  std::map<uint64_t, Sum> sums_;               // under way, by sequence number
  std::vector<std::vector<std::byte>> spare_;  // memory for fused pieces
  uint64_t next_ = 0;                          // the sum that MPI gets next
  size_t in_use_ = 0;                          // sums of either channel that MPI has not ended
  std::atomic<bool> stopped_ = false;
};

}  // namespace bs::backend
