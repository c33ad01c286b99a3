// Puts the collective back end together from a library and the back end of servers.
#include "node/worker/collective_worker.h"

#include <optional>
#include <utility>

#include "backend/collective/collective_backend.h"
#include "backend/host_plan.h"

namespace bs::node {
namespace {

std::optional<backend::collective::HostOptions> HostOf(const job::View& view,
                                                       const LibraryUse& use) {
  if (!use.within_hosts) return std::nullopt;
  const backend::HostPlan plan(view, /*also_on_one_host=*/true);
  return backend::collective::HostOptions{
      .plan = plan,
      .crosses = plan.num_workers() < static_cast<size_t>(view.num_workers()),
      .credit_bytes = use.credit_bytes};
}

}  // namespace

LibraryUse UseOf(const Config& config) {
  protocol::Division division{.priority_order = config.scheduling};
  if (config.partition_or_credit_given) {
    division.partition_bytes = config.partition_bytes;
    division.credit_bytes = config.credit_bytes;
  }
  return {.deadline = config.timeout,
          .within_hosts = config.local_sums == "nccl",
          .credit_bytes = config.credit_bytes,
          .division = division};
}

std::unique_ptr<backend::Backend> WithLibrary(const MakeLibraryFn& make_library,
                                              std::unique_ptr<backend::PsBackend> servers,
                                              const job::SharedView& view, Executor* executor,
                                              const LibraryUse& use) {
  using backend::collective::Collective;
  using backend::collective::CollectiveBackend;
  backend::PsBackend* const asked = servers.get();
  Result<std::unique_ptr<Collective>> library = make_library({view, executor, asked});
  std::unique_ptr<Collective> made = library.ok() ? std::move(library.value()) : nullptr;
  return std::make_unique<CollectiveBackend>(
      backend::collective::CollectiveOptions{.rank = view->own.rank,
                                             .deadline = use.deadline,
                                             .host = HostOf(*view, use),
                                             .division = use.division,
                                             .no_library = library.status()},
      executor, std::move(servers), std::move(made),
      [asked](ps::KvRequest request, ps::KvWorker::Done done) {
        asked->Ask(std::move(request), std::move(done));
      });
}

}  // namespace bs::node
