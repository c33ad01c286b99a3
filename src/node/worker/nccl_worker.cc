// Finds NCCL, and starts its thread once the worker has its executor.
#include "node/worker/nccl_worker.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/introduction.h"
#include "backend/collective/nccl/cuda_driver.h"
#include "backend/collective/nccl/nccl_collective.h"
#include "backend/collective/nccl/nccl_library.h"
#include "base/guarded.h"
#include "node/network.h"

namespace bs::node {
namespace {

using backend::collective::Cards;
using backend::collective::Collective;
using backend::collective::CudaDriver;
using backend::collective::NcclCollective;
using backend::collective::NcclLibrary;
using backend::collective::NcclOptions;

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

// The workers of the communicator, in order.
std::vector<int32_t> RanksOf(const job::View& view, const Config& config) {
  if (config.local_sums == "nccl") return view.WorkersBeside(view.own.rank);
  std::vector<int32_t> ranks(static_cast<size_t>(view.num_workers()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// All workers of the job introduce themselves, and each host takes the cards of its own.
void IntroduceAmong(const LibraryPlace& place, const std::vector<int32_t>& ranks,
                    const std::string& card, UniqueFunction<void(const Result<Cards>&)> done) {
  backend::collective::Introduce(place.servers, place.view->own.rank, place.view->num_workers(),
                                 card, [ranks, done = std::move(done)](const Result<Cards>& cards) {
                                   if (!cards.ok()) return done(cards);
                                   Cards chosen;
                                   for (const int32_t rank : ranks) {
                                     chosen.push_back(cards.value()[static_cast<size_t>(rank)]);
                                   }
                                   done(chosen);
                                 });
}

NcclOptions OptionsAt(const LibraryPlace& place, const Config& config) {
  NcclOptions options;
  const std::vector<int32_t> ranks = RanksOf(*place.view, config);
  options.rank =
      static_cast<int32_t>(std::ranges::find(ranks, place.view->own.rank) - ranks.begin());
  options.size = static_cast<int32_t>(ranks.size());
  options.workers = ranks;
  options.introduce = [place, ranks](const std::string& card,
                                     UniqueFunction<void(const Result<Cards>&)> done) {
    IntroduceAmong(place, ranks, card, std::move(done));
  };
  options.spin = config.spin;
  // The back end looks first, as it knows the ranks that have not joined.
  options.deadline = 2 * config.timeout;
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
