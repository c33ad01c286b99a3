// Barriers over a store, with their deadline, and the end of the operations on it.
#include "node/worker/store_membership.h"

#include <string>
#include <utility>

#include "base/run_on.h"
#include "ps/text.h"

namespace bs::node {

StoreMembership::StoreMembership(const Config& config, int32_t rank, WrappedStore::BeginFn begin,
                                 bool blocks)
    : view_(job::ShareView({.rank = rank}, config.num_workers, config.num_servers)),
      timeout_(config.timeout),
      straggler_timeout_(config.straggler_timeout),
      thread_("bs-worker"),
      store_(&thread_, std::move(begin), blocks) {}

void StoreMembership::Join(Handler handler) {
  handler_ = std::move(handler);
  thread_.Post([this] { handler_.on_view(view_); });
}

void StoreMembership::Barrier(Done done) {
  const uint64_t number = next_barrier_++;
  const TimerId deadline =
      thread_.PostAt(thread_.Now() + straggler_timeout_, [this] { FailLateBarrier(); });
  barriers_.emplace(number, Meeting{std::move(done), deadline});
  backend_->Barrier([this, number](const Status& status) {
    const auto node = barriers_.extract(number);
    if (!node) return;
    thread_.Cancel(node.mapped().deadline);
    node.mapped().done(status);
  });
}

void StoreMembership::FailLateBarrier() {
  const Status late = Status::DeadlineExceeded(
      "barrier: after " + ps::TextOf(straggler_timeout_) +
      " not every worker has come, or a server is gone: look which process of the job has "
      "ended (BYTESCHEDULER_STRAGGLER_TIMEOUT)");
  handler_.on_failure(late);
  EndBarriers(late);
}

void StoreMembership::EndBarriers(const Status& why) {
  for (const auto& [number, meeting] : std::exchange(barriers_, {})) {
    thread_.Cancel(meeting.deadline);
    meeting.done(why);
  }
}

void StoreMembership::Leave(const Goodbye& goodbye, Done done) {
  // After a good end only the last probes are still in flight; after another that is unknown.
  if (!goodbye.drained)
    return done(Status::Unavailable("operations on the wrapped store have not ended"));
  // Owners: the end of the last operation and the deadline.
  const auto waiting = std::make_shared<Done>(std::move(done));
  const auto end = [waiting](const Status& status) {
    if (const Done first = std::exchange(*waiting, {})) first(status);
  };
  const TimerId deadline = thread_.PostAt(thread_.Now() + timeout_, [end] {
    end(Status::DeadlineExceeded("operations on the wrapped store have not ended"));
  });
  store_.WhenIdle([this, end, deadline] {
    thread_.Cancel(deadline);
    end(Status::Ok());
  });
}

Status StoreMembership::Close() {
  bool busy = false;
  RunOn(&thread_, [&] {
    EndBarriers(Status::Cancelled("the worker was closed"));
    busy = store_.busy();
  });
  if (busy) return Status::Unavailable("operations on the wrapped store have not ended");
  return Status::Ok();
}

}  // namespace bs::node
