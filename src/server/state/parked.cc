// Keeps requests that wait, one of each worker, and hands them out most urgent first.
#include "server/state/parked.h"

#include <algorithm>
#include <utility>

#include "protocol/describe.h"

namespace bs::server {
namespace {

void RefuseSuperseded(const protocol::Call& call, const SendFn& send) {
  send(protocol::MakeErrorResponse(
      call, Status::Cancelled(DescribeCall(call) + ": superseded by a newer request")));
}

}  // namespace

void ParkedCalls::Park(protocol::Call call, const Whom& whom, const SendFn& send) {
  const auto same = std::find_if(calls_.begin(), calls_.end(), [&](const protocol::Call& parked) {
    return parked.worker_id == call.worker_id;
  });
  if (same != calls_.end()) {
    const uint64_t parked = same->extension.sequence;
    if (parked == call.extension.sequence)
      return send(protocol::MakePendingResponse(call, whom(call)));
    if (parked > call.extension.sequence) return RefuseSuperseded(call, send);
    RefuseSuperseded(*same, send);
    calls_.erase(same);
  }
  const auto behind = std::upper_bound(
      calls_.begin(), calls_.end(), call,
      [](const protocol::Call& a, const protocol::Call& b) { return a.priority > b.priority; });
  calls_.insert(behind, std::move(call));
}

void ParkedCalls::MakeRoom() {
  if (calls_.size() == calls_.capacity()) calls_.reserve(2 * calls_.size() + 1);
}

std::vector<protocol::Call> ParkedCalls::TakeAll() { return std::exchange(calls_, {}); }

void ParkedCalls::RefuseAll(const Status& why, const SendFn& send) {
  for (const protocol::Call& call : TakeAll()) send(protocol::MakeErrorResponse(call, why));
}

void ParkedCalls::Forget(int32_t rank) {
  std::erase_if(calls_, [&](const protocol::Call& call) { return call.worker_rank == rank; });
}

}  // namespace bs::server
