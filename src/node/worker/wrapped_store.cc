// Counts the operations on a store, and calls the store where it may block.
#include "node/worker/wrapped_store.h"

#include <utility>
#include <vector>

namespace bs::node {

WrappedStore::WrappedStore(Executor* executor, BeginFn begin, bool blocks)
    : executor_(executor),
      begin_(std::move(begin)),
      thread_(blocks ? std::make_unique<LoopThread>("bs-kvstore") : nullptr) {}

void WrappedStore::Begin(const backend::StoreRequest& request, backend::StoreDone done) {
  const uint64_t token = next_token_++;
  open_.emplace(token, Open{request.size_bytes, std::move(done)});
  if (!thread_) return begin_(request, token);
  // The pushed bytes are valid during this call only.
  thread_->Post([this, request, token, lent = std::vector(request.in.begin(), request.in.end())] {
    backend::StoreRequest kept = request;
    kept.in = lent;
    begin_(kept, token);
  });
}

void WrappedStore::OnDone(uint64_t token, Status status, const std::byte* value) {
  executor_->Post([this, token, status = std::move(status), value] {
    {
      const auto node = open_.extract(token);
      const Open& open = node.mapped();
      const uint64_t size_bytes = value == nullptr ? 0 : open.size_bytes;
      open.done(status, {value, size_bytes});
    }
    if (!busy() && idle_) std::exchange(idle_, {})();
  });
}

void WrappedStore::WhenIdle(Task idle) {
  if (!busy()) return idle();
  idle_ = std::move(idle);
}

}  // namespace bs::node
