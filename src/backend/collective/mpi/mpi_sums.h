// MpiSums: sums over all ranks by an MPI library, with the checks that MPI lacks.
//
// MPI sums arrays in the order of the calls and does not compare them.  Ranks that call in other
// orders, or with other sizes, get wrong sums, or crash.  So a small sum goes before each sum and
// brings every rank's sequence number, size and type to all ranks.
//
// MPI cannot end a sum that has begun.  So it only gets memory of this object, into which arrays of
// callers are copied: after an error nothing reads or writes a caller's array.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/collective.h"
#include "backend/collective/mpi/mpi_gate.h"
#include "backend/collective/mpi/mpi_launcher.h"
#include "backend/collective/mpi/mpi_library.h"
#include "base/status.h"
#include "base/types.h"

namespace bs::backend::collective {

// Confined to the library's thread, but for Stop.  While in_use() it must not be destroyed.
class MpiSums {
 public:
  // Both stay valid.
  MpiSums(MpiLibrary* library, const MpiLauncher& launcher)
      : library_(library), launcher_(launcher) {}

  // Initialises MPI and gathers what the ranks' libraries are; Poll returns kStarted if they and
  // their algorithms are alike.  Blocks until all processes of the launcher have called it.
  // kFailedPrecondition: the library counts other processes than the launcher.
  Status Start();
  // Begins Collective::Begin.  The memory of `pieces` stays valid until Poll returns
  // `sequence` or an error, or Stop has returned.  REQUIRES: Poll has returned kStarted.
  Status Begin(std::vector<Piece> pieces, DType dtype, uint64_t sequence);

  static constexpr uint64_t kStarted = UINT64_MAX;
  // Makes progress, and returns the sequence numbers of sums that have ended, and kStarted.  An
  // error is for all sums under way: no sum follows.  Sums that differ are an error once the sums
  // before them have ended.
  Result<std::vector<uint64_t>> Poll();
  // Lets peers end sums that have ended here.  False: it can do so no more.  REQUIRES: not
  // in_use().
  bool Progress() { return !stopped_ && library_->Progress(); }
  // No later sum reaches the library, and no memory of a caller is in use once this returns.  Any
  // thread; waits for a copy of an array at most.
  void Stop() {
    stopped_ = true;
    copies_.Close();
  }
  bool is_stopped() const { return stopped_; }
  // Gives back what Start took, but for Progress, if no sum is under way.
  Status End();

  bool is_idle() const { return sums_.empty() && !cards_; }
  // MPI has memory of this object.
  bool in_use() const { return in_use_ > 0 || has_failed_; }

 private:
  // One part of an array for each rank; all ranks get all parts.
  struct Gathered {
    std::vector<double> parts;
    bool over = false;
  };
  // Bytes with any content at first.
  struct Memory {
    std::unique_ptr<std::byte[]> bytes{};
    size_t room = 0;
  };
  struct Sum {
    std::vector<Piece> pieces;
    DType dtype;
    Memory memory{};  // in which MPI sums all pieces as one array
    bool over = false;
    Gathered described{};  // a part tells what the rank sums
  };

  // Room for a part of each rank, with that of this rank.
  std::vector<double> PartsWith(const std::vector<double>& part) const;
  Status Gather(const std::vector<double>& part, uint64_t ticket, Gathered* gathered);
  Status BeginDescribed(uint64_t sequence, Sum* sum);
  // Without bytes: there is no memory.
  Memory TakeMemory(size_t size_bytes);
  // False: Stop forbids it, here and below.
  bool CopyIn(Sum* sum);
  void Mark(uint64_t ticket);
  Status CompareCards(const std::vector<double>& cards) const;
  static Status Compare(const Sum& sum);
  bool CopyOut(Sum* sum);

  MpiLibrary* const library_;
  const MpiLauncher launcher_;
  std::optional<std::vector<double>> cards_;  // of all ranks, until they are compared
  std::map<uint64_t, Sum> sums_;              // under way, by sequence number
  // Memory that no sum uses, by its room.
  std::multimap<size_t, std::unique_ptr<std::byte[]>> spare_;
  uint64_t next_ = 0;        // the sum that MPI gets next
  size_t in_use_ = 0;        // sums of either channel that MPI has not ended
  bool has_failed_ = false;  // MPI has, and may keep all memory that it has had
  std::atomic<bool> stopped_ = false;
  MpiGate copies_;  // between memory of callers and of this object
};

}  // namespace bs::backend::collective
