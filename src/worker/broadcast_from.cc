// Makes the operations of a broadcast from any root.
#include "worker/broadcast_from.h"

#include <algorithm>
#include <utility>

namespace bs::worker {
namespace {

// The system gives zeros of its own until they are written, or registered for RDMA.  Null if it has
// no memory.
std::byte* Zeros(size_t size_bytes) {
  return static_cast<std::byte*>(std::calloc(std::max<size_t>(size_bytes, 1), 1));
}

}  // namespace

BroadcastFrom::BroadcastFrom(std::span<std::byte> value)
    : value_(value), other_(Zeros(value.size())) {}

std::vector<Operation> BroadcastFrom::Operations(const std::shared_ptr<BroadcastFrom>& call,
                                                 const Place& place, Worker::Done done) {
  const bool is_root = place.rank == place.root;
  call->done_ = std::move(done);
  std::vector<Operation> operations;
  if (place.first) {
    // The root's value must stay, unless it is the declared value.
    const bool keeps_value = is_root && place.root != 0;
    operations.push_back({.is_broadcast = true,
                          .dtype = DType::kUint8,
                          .out = keeps_value ? call->other() : call->value_,
                          .pulled = End(call)});
  }
  if (!place.first || place.root != 0) {
    operations.push_back({.in = is_root ? call->value_ : call->other(),
                          .out = is_root ? call->other() : call->value_,
                          .is_value = true,
                          .pushed = End(call),
                          .pulled = End(call)});
  }
  return operations;
}

Worker::Done BroadcastFrom::End(const std::shared_ptr<BroadcastFrom>& call) {
  ++call->pending_;
  return [call](Status status) { call->OnEnd(std::move(status)); };
}

void BroadcastFrom::OnEnd(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
  if (--pending_ > 0) return;
  const Worker::Done done = std::move(done_);
  done(std::move(failure_));
}

}  // namespace bs::worker
