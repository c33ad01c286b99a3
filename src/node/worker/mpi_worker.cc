// Finds MPI, and starts its thread once the worker has its executor.
#include "node/worker/mpi_worker.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backend/collective/mpi/mpi_collective.h"
#include "backend/collective/mpi/mpi_file.h"
#include "base/guarded.h"
#include "node/network.h"

namespace bs::node {
namespace {

using backend::collective::Collective;

Result<std::unique_ptr<Collective>> Start(Executor* executor,
                                          std::unique_ptr<backend::MpiLibrary> library,
                                          const backend::MpiLauncher& launcher,
                                          const backend::MpiOptions& options) {
  std::unique_ptr<Collective> started;
  const Status status = Guarded([&] {
    started =
        std::make_unique<backend::MpiCollective>(executor, std::move(library), launcher, options);
    return Status::Ok();
  });
  if (!status.ok()) return status;
  return started;
}

}  // namespace

Result<MakeLibraryFn> FindMpi(const Config& config) {
  const auto size_of = [&](std::string_view variable) -> std::optional<std::string> {
    const auto size = config.mpi_sizes.find(variable);
    return size == config.mpi_sizes.end() ? std::nullopt : std::optional(size->second);
  };
  const Result<backend::MpiLauncher> launcher =
      backend::FindMpiLauncher(size_of, config.num_workers);
  if (!launcher.ok()) return launcher.status();
  // The function runs once, but is copied.
  const auto found = std::make_shared<Result<std::unique_ptr<backend::MpiLibrary>>>(
      backend::LoadMpi(launcher.value(), backend::FoldersOfLaunchers(), config.straggler_timeout));
  return MakeLibraryFn(
      [found, launcher = launcher.value(),
       options = backend::MpiOptions{.spin = config.spin, .start_limit = config.rendezvous_timeout},
       log = MakeLogger(config)](const LibraryPlace& place) -> Result<std::unique_ptr<Collective>> {
        if (!found->ok()) return found->status();
        if (place.view->own.rank == 0) {
          log.Info("MPI sums dense tensors of floats: " + found->value()->Version() + " (" +
                   found->value()->file() + ")");
        }
        return Start(place.executor, std::move(found->value()), launcher, options);
      });
}

}  // namespace bs::node
