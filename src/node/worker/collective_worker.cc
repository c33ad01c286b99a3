// Puts the collective back end together from a library and the back end of servers.
#include "node/worker/collective_worker.h"

#include <utility>

#include "backend/collective/collective_backend.h"

namespace bs::node {

std::unique_ptr<backend::Backend> WithLibrary(const MakeLibraryFn& make_library,
                                              std::unique_ptr<backend::PsBackend> servers,
                                              const job::SharedView& view, Executor* executor,
                                              Duration deadline) {
  using backend::collective::Collective;
  using backend::collective::CollectiveBackend;
  backend::PsBackend* const asked = servers.get();
  Result<std::unique_ptr<Collective>> library = make_library({view, executor, asked});
  std::unique_ptr<Collective> made = library.ok() ? std::move(library.value()) : nullptr;
  return std::make_unique<CollectiveBackend>(
      backend::collective::CollectiveOptions{.rank = view->own.rank,
                                             .deadline = deadline,
                                             .no_library = library.status()},
      executor, std::move(servers), std::move(made),
      [asked](ps::KvRequest request, ps::KvWorker::Done done) {
        asked->Ask(std::move(request), std::move(done));
      });
}

}  // namespace bs::node
