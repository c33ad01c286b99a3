// MpiLibrary: the functions of an MPI library that was found at run time, whatever its ABI.
//
// Nothing links MPI, and no header of it is included, so that a machine without MPI runs the same
// build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/collective/mpi/mpi_launcher.h"
#include "base/status.h"
#include "base/types.h"

namespace bs::backend::collective {

// A communicator of all ranks.  Only sums of one channel need the same order on all ranks.
enum class MpiChannel : uint8_t { kSums, kDescriptions };
inline constexpr size_t kMpiChannels = 2;

// An error of MPI is a Status with the library's own text.  A call may block, for as long as the
// library takes.
//
// Confined to a thread, but for file().
// The algorithm of the library's sums, where a variable of the environment chooses it.
struct MpiAlgorithm {
  enum class Source : uint8_t {
    kLibrary,  // no variable chooses it
    kWorker,   // the worker has set the variable
    kUser,     // it was set before, perhaps for an earlier job of this process
    kScript,   // the script has begun MPI without it
  };
  std::string variable{};
  std::string value{};  // empty: the library chooses
  Source source = Source::kLibrary;
};

class MpiLibrary {
 public:
  MpiLibrary() = default;
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;
  virtual ~MpiLibrary() = default;

  struct Ended {
    std::vector<uint64_t> tickets;
    Status status;  // the first error of these sums, or of the call
  };

  // The file that was loaded.
  virtual const std::string& file() const = 0;
  // The first line of what the library says of itself.  Works before Init.
  virtual std::string Version() = 0;

  // The algorithm that MPI has or will have in this process.
  virtual const MpiAlgorithm& algorithm() const = 0;

  // Initialises MPI for the process unless that was done, and makes the communicators.
  // MPI ends when the process exits with success, unless other code has initialised it, or a sum is
  // under way.  From then on, and from MPI_Finalize of other code on, no method calls MPI.
  // kFailedPrecondition: MPI has ended, or may not be called from more than a thread.
  virtual Status Init() = 0;
  // REQUIRES, here and below: Init has returned ok.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sums `count` values over all ranks, in place.  Blocks.  Unlike Begin, it is right where the
  // ranks have other algorithms.
  virtual Status SumNow(double* values, int count) = 0;
  // Begins to sum `count` elements of float32 or float64 over all ranks into `out`.  `in` is null
  // where `out` holds this rank's contribution.  Both stay valid until TakeEnded returns `ticket`.
  // All ranks call it in the channel's order with the same count and type: Open MPI reads and
  // writes foreign memory where counts differ.
  virtual Status Begin(MpiChannel channel, const void* in, void* out, int count, DType dtype,
                       uint64_t ticket) = 0;
  // Returns the sums that have ended since the last call.  No sum makes progress outside of calls.
  virtual Ended TakeEnded() = 0;
  // Lets MPI send the last bytes of sums that have ended here, and that peers wait for.  False: MPI
  // has ended, or failed.
  virtual bool Progress() = 0;
  // A rank may be lost, so MPI does not end when the process exits: MPI_Finalize would wait for it.
  // Any thread.
  virtual void StayAtExit() = 0;
  // Gives back what sums need and Progress does not.  REQUIRES: no sum is under way.
  virtual Status Free() = 0;
};

// Loads the library of `launcher`: the loaded library, if the process has it, else a file of
// `folders`, in their order, else of the system's.  kUnavailable: there is none, or it is broken;
// the text says how to install it.  Sets the variable of its `tuning`, unless it is set or
// MPI has begun, which no longer reads it: no thread may read the environment meanwhile.
// MPI_Finalize waits for all ranks.  If it takes longer than `end_limit` when the process exits,
// the process says so and ends without it.
Result<std::unique_ptr<MpiLibrary>> LoadMpi(const MpiLauncher& launcher,
                                            std::span<const std::string> folders,
                                            Duration end_limit);

}  // namespace bs::backend::collective
