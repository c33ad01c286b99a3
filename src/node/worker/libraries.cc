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
  std::string_view comm;        // BYTESCHEDULER_COMM
  std::string_view local_sums;  // BYTESCHEDULER_LOCAL_SUMS, in place of `comm`
  Result<MakeLibraryFn> (*find)(const Config& config);
};

constexpr auto kLibraries = std::to_array<Library>({
    {.comm = "mpi", .local_sums = {}, .find = FindMpi},
    {.comm = "nccl", .local_sums = {}, .find = FindNccl},
    {.comm = {}, .local_sums = "nccl", .find = FindNccl},
});

}  // namespace

Result<MakeLibraryFn> FindLibrary(const Config& config) {
  const auto* const library = std::ranges::find_if(kLibraries, [&](const Library& row) {
    return row.local_sums.empty() ? row.comm == config.comm : row.local_sums == config.local_sums;
  });
  return library == kLibraries.end() ? MakeLibraryFn() : library->find(config);
}

}  // namespace bs::node
