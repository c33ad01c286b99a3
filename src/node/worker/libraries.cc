// The table of libraries.
#include "node/worker/libraries.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "node/worker/mpi_worker.h"
#include "node/worker/nccl_worker.h"

namespace bs::node {
namespace {

struct Library {
  std::string_view comm;  // BYTESCHEDULER_COMM
  Result<MakeLibraryFn> (*find)(const Config& config);
};

constexpr auto kLibraries = std::to_array<Library>({
    {.comm = "mpi", .find = FindMpi},
    {.comm = "nccl", .find = FindNccl},
});

}  // namespace

Result<MakeLibraryFn> FindLibrary(const Config& config) {
  const auto* const library = std::ranges::find(kLibraries, config.comm, &Library::comm);
  return library == kLibraries.end() ? MakeLibraryFn() : library->find(config);
}

}  // namespace bs::node
