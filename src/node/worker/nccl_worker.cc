// Finds NCCL, and starts its thread once the worker has its executor.
#include "node/worker/nccl_worker.h"

#include <memory>
#include <string>
#include <utility>

#include "backend/collective/introduction.h"
#include "backend/collective/nccl/cuda_driver.h"
#include "backend/collective/nccl/nccl_collective.h"
#include "backend/collective/nccl/nccl_library.h"
#include "base/guarded.h"
#include "node/network.h"

namespace bs::node {
namespace {

using backend::CudaDriver;
using backend::NcclCollective;
using backend::NcclLibrary;
using backend::NcclOptions;
using backend::collective::Cards;
using backend::collective::Collective;

struct Found {
  std::unique_ptr<NcclLibrary> library;
  std::unique_ptr<CudaDriver> driver;
  Status status;
};

Found Find() {
  Found found;
  Result<std::unique_ptr<NcclLibrary>> library = NcclLibrary::Load(NcclLibrary::FoldersBeside());
  found.status = library.status();
  if (!library.ok()) return found;
  found.library = std::move(library.value());
  Result<std::unique_ptr<CudaDriver>> driver = CudaDriver::Load();
  found.status = driver.status();
  if (driver.ok()) found.driver = std::move(driver.value());
  return found;
}

NcclOptions OptionsAt(const LibraryPlace& place, const Config& config) {
  NcclOptions options;
  options.rank = place.view->own.rank;
  options.size = place.view->num_workers();
  options.introduce = [place, rank = options.rank, size = options.size](
                          const std::string& card,
                          UniqueFunction<void(const Result<Cards>&)> done) {
    backend::collective::Introduce(place.servers, rank, size, card, std::move(done));
  };
  options.spin = config.spin;
  options.deadline = config.timeout;
  return options;
}

}  // namespace

Result<MakeLibraryFn> FindNccl(const Config& config) {
  // The function runs once, but is copied.
  const auto found = std::make_shared<Found>(Find());
  return MakeLibraryFn([found, config, log = MakeLogger(config)](
                           const LibraryPlace& place) -> Result<std::unique_ptr<Collective>> {
    if (!found->status.ok()) return found->status;
    if (place.view->own.rank == 0) {
      log.Info("NCCL sums tensors of GPUs: " + NcclLibrary::TextOf(found->library->version()) +
               " (" + found->library->file() + ")");
    }
    std::unique_ptr<Collective> started;
    const Status status = Guarded([&] {
      started =
          std::make_unique<NcclCollective>(place.executor, std::move(found->library),
                                           std::move(found->driver), OptionsAt(place, config));
      return Status::Ok();
    });
    if (!status.ok()) return status;
    return started;
  });
}

}  // namespace bs::node
