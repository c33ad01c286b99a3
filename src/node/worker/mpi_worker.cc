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
using backend::collective::FindMpiLauncher;
using backend::collective::FoldersOfLaunchers;
using backend::collective::LoadMpi;
using backend::collective::MpiCollective;
using backend::collective::MpiLauncher;
using backend::collective::MpiLibrary;
using backend::collective::MpiOptions;

Result<std::unique_ptr<Collective>> Start(Executor* executor, std::unique_ptr<MpiLibrary> library,
                                          const MpiLauncher& launcher, const MpiOptions& options) {
  std::unique_ptr<Collective> started;
  const Status status = Guarded([&] {
    started = std::make_unique<MpiCollective>(executor, std::move(library), launcher, options);
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
  const Result<MpiLauncher> launcher = FindMpiLauncher(size_of, config.num_workers);
  if (!launcher.ok()) return launcher.status();
  // The function runs once, but is copied.
  const auto found = std::make_shared<Result<std::unique_ptr<MpiLibrary>>>(
      LoadMpi(launcher.value(), FoldersOfLaunchers(), config.straggler_timeout));
  return MakeLibraryFn(
      [found, launcher = launcher.value(),
       options = MpiOptions{.spin = config.spin, .start_limit = config.rendezvous_timeout},
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
