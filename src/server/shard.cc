// Hands requests to the partitions of one thread and tells them when workers are gone.
#include "server/shard.h"

#include <new>
#include <utility>

#include "base/count_of.h"
#include "protocol/describe.h"

namespace bs::server {
namespace {

template <typename S>
void HandIn(S& slot, protocol::Call* call) {
  call->extension.op == ps::Op::kPull ? slot.Pull(*call) : slot.Push(*call);
}

bool IsAsynchronous(const protocol::Call& call) {
  return call.request.mode == static_cast<uint32_t>(Mode::kAsynchronous);
}

}  // namespace

void Shard::Handle(protocol::Call call) {
  if (failure_) return state_.send(protocol::MakeErrorResponse(call, *failure_));
  try {
    const SlotId id{call.request.key, call.request.partition, call.request.layout_version};
    if (const Status wrong = CheckMode(call, id); !wrong.ok()) {
      return state_.send(protocol::MakeErrorResponse(call, wrong));
    }
    if (IsAsynchronous(call)) {
      HandIn(async_slots_.try_emplace(id, &state_, id).first->second, &call);
    } else {
      const Round first = id.layout_version == 0 ? 0 : call.request.round;
      HandIn(slots_.try_emplace(id, &state_, id, first).first->second, &call);
    }
  } catch (const std::bad_alloc&) {
    state_.send(protocol::MakeErrorResponse(
        call, Status::ResourceExhausted(protocol::DescribeCall(call) + ": no memory for " +
                                        CountOf(call.request.size_bytes, "byte"))));
  }
}

void Shard::Forget(SlotId id) {
  const auto slot = slots_.find(id);
  if (slot == slots_.end()) return;
  slot->second.Fail(Status::FailedPrecondition("worker 0 has released this layout of key " +
                                               std::to_string(id.key)));
  state_.counters.Freed(slot->second.kept_bytes());
  slots_.erase(slot);
}

void Shard::OnWorkerGone(int32_t rank, const Status& why) {
  state_.gone.resize(static_cast<size_t>(state_.view->num_workers()));
  std::optional<Status>& known = state_.gone[static_cast<size_t>(rank)];
  if (!known) known = why;
  for (auto& [id, slot] : slots_) slot.OnWorkerGone(rank);
  for (auto& [id, slot] : async_slots_) slot.OnWorkerGone(rank);
}

void Shard::OnWorkerVacant(int32_t rank) {
  for (auto& [id, slot] : async_slots_) slot.OnWorkerVacant(rank);
}

void Shard::Fail(const Status& why) {
  if (failure_) return;
  failure_ = why;
  for (auto& [id, slot] : slots_) slot.Fail(why);
  for (auto& [id, slot] : async_slots_) slot.Fail(why);
}

void Shard::SetOptimizer(OptimizerInForce optimizer) { state_.optimizer = std::move(optimizer); }

void Shard::Measure(Metrics* metrics) const {
  state_.counters.Measure(metrics);
  metrics->Add("held_bytes", static_cast<double>(state_.early_bytes));
}

Status Shard::CheckMode(const protocol::Call& call, SlotId id) const {
  const bool asynchronous = IsAsynchronous(call);
  if (asynchronous && call.extension.op == ps::Op::kPushPull) {
    return Status::InvalidArgument(protocol::DescribeCall(call) +
                                   ": of an asynchronous key push and pull go apart");
  }
  const bool other = asynchronous ? slots_.contains(id) : async_slots_.contains(id);
  if (!other) return Status::Ok();
  return Status::InvalidArgument(protocol::DescribeCall(call) + ": the key is " +
                                 (asynchronous ? "synchronous" : "asynchronous") +
                                 " on the other workers; create the store with the same name "
                                 "everywhere");
}

}  // namespace bs::server
