// Hands requests to the partitions of one thread and tells them when workers are gone.
#include "server/shard.h"

#include <new>
#include <utility>

#include "server/describe.h"

namespace bs::server {

void Shard::Handle(ps::KvCall call) {
  if (failure_) return state_.send(ps::MakeErrorResponse(call, *failure_));
  try {
    const SlotId id{call.extension.key, call.extension.part};
    Slot& slot = slots_.try_emplace(id, &state_, id).first->second;
    call.extension.op == ps::Op::kPush ? slot.Push(call) : slot.Pull(call);
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
}

void Shard::Fail(const Status& why) {
  if (failure_) return;
  failure_ = why;
  for (auto& [id, slot] : slots_) slot.Fail(why);
}

}  // namespace bs::server
