// Hands requests to the partitions of one thread and tells them when workers are gone.
#include "server/shard.h"

#include <new>
#include <utility>

#include "server/describe.h"

namespace bs::server {
namespace {

template <typename Slots>
void HandIn(Slots* slots, ShardState* state, SlotId id, ps::KvCall* call) {
  auto& slot = slots->try_emplace(id, state, id).first->second;
  call->extension.op == ps::Op::kPush ? slot.Push(*call) : slot.Pull(*call);
}

bool IsAsynchronous(const ps::KvCall& call) {
  return call.extension.mode == static_cast<uint32_t>(Mode::kAsynchronous);
}

}  // namespace

void Shard::Handle(ps::KvCall call) {
  if (failure_) return state_.send(ps::MakeErrorResponse(call, *failure_));
  try {
    const SlotId id{call.extension.key, call.extension.part};
    if (const Status wrong = CheckMode(call, id); !wrong.ok()) {
      return state_.send(ps::MakeErrorResponse(call, wrong));
    }
    IsAsynchronous(call) ? HandIn(&async_slots_, &state_, id, &call)
                         : HandIn(&slots_, &state_, id, &call);
  } catch (const std::bad_alloc&) {
    state_.send(ps::MakeErrorResponse(
        call, Status::ResourceExhausted(DescribeCall(call) + ": no memory for " +
                                        std::to_string(call.extension.size_bytes) + " bytes")));
  }
}

void Shard::OnWorkerGone(int32_t rank, const Status& why) {
  state_.gone.resize(static_cast<size_t>(state_.num_workers));
  std::optional<Status>& known = state_.gone[static_cast<size_t>(rank)];
  if (!known) known = why;
  for (auto& [id, slot] : slots_) slot.OnWorkerGone(rank);
  for (auto& [id, slot] : async_slots_) slot.OnWorkerGone(rank);
}

void Shard::Fail(const Status& why) {
  if (failure_) return;
  failure_ = why;
  for (auto& [id, slot] : slots_) slot.Fail(why);
  for (auto& [id, slot] : async_slots_) slot.Fail(why);
}

void Shard::SetOptimizer(OptimizerInForce optimizer) { state_.optimizer = std::move(optimizer); }

void Shard::Measure(Figures* figures) const {
  state_.meters.Measure(figures);
  figures->Add("held_bytes", static_cast<double>(state_.held_bytes));
}

Status Shard::CheckMode(const ps::KvCall& call, SlotId id) const {
  const bool asynchronous = IsAsynchronous(call);
  const bool other = asynchronous ? slots_.contains(id) : async_slots_.contains(id);
  if (!other) return Status::Ok();
  return Status::InvalidArgument(DescribeCall(call) + ": the key is " +
                                 (asynchronous ? "synchronous" : "asynchronous") +
                                 " on the other workers; create the store with the same name "
                                 "everywhere");
}

}  // namespace bs::server
