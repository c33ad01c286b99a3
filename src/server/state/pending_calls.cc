// Keeps requests that wait, one of each worker, and hands them out most urgent first.
#include "server/state/pending_calls.h"

#include <algorithm>
#include <utility>

#include "protocol/describe.h"

namespace bs::server {
namespace {

void RefuseSuperseded(const protocol::Call& call, const SendFn& send) {
  send(protocol::MakeErrorResponse(
      call, Status::Cancelled(protocol::DescribeCall(call) + ": superseded by a newer request")));
}

}  // namespace

void PendingCalls::Add(protocol::Call call, const Whom& whom, const SendFn& send) {
  const auto same = std::find_if(calls_.begin(), calls_.end(), [&](const protocol::Call& pending) {
    return pending.worker_id == call.worker_id;
  });
  if (same != calls_.end()) {
    const uint64_t pending = same->extension.sequence;
    if (pending == call.extension.sequence)
      return send(protocol::MakePendingResponse(call, whom(call)));
    if (pending > call.extension.sequence) return RefuseSuperseded(call, send);
    RefuseSuperseded(*same, send);
    calls_.erase(same);
  }
  const auto behind = std::upper_bound(
      calls_.begin(), calls_.end(), call,
      [](const protocol::Call& a, const protocol::Call& b) { return a.priority > b.priority; });
  calls_.insert(behind, std::move(call));
}

void PendingCalls::MakeRoom() {
  if (calls_.size() == calls_.capacity()) calls_.reserve(2 * calls_.size() + 1);
}

std::vector<protocol::Call> PendingCalls::TakeAll() { return std::exchange(calls_, {}); }

void PendingCalls::RefuseAll(const Status& why, const SendFn& send) {
  for (const protocol::Call& call : TakeAll()) send(protocol::MakeErrorResponse(call, why));
}

void PendingCalls::Forget(int32_t rank) {
  std::erase_if(calls_, [&](const protocol::Call& call) { return call.worker_rank == rank; });
}

}  // namespace bs::server
