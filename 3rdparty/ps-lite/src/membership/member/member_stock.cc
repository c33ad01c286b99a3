// Member: a server in a job whose scheduler node is MXNet's own, which knows no extension.
#include <utility>

#include "membership/member/member_impl.h"
#include "wire/control.h"

namespace ps {

bool Member::Impl::TakeStock(const Message& message) {
  suspicion_timer_.OnHeard(message.peer);
  Resends::Verdict verdict = resends_.Take(message, own_.id);
  if (verdict.ack) transport_->Send({.peer = message.peer, .meta = std::move(*verdict.ack)});
  return verdict.fresh;
}

void Member::Impl::OnStockControl(const Message& message) {
  if (state_ != MemberState::kRegistering && !stock_scheduler_) {
    Drop(kSchedulerId, "control of a stock scheduler node, and ours is none");
    return;
  }
  last_word_ = scope_.Now();
  if (!TakeStock(message)) return;
  switch (message.meta.control.command) {
    case Command::kAddNode:
      OnStockList(message.meta);
      return;
    case Command::kBarrier:
      OnStockBarrier();
      return;
    case Command::kHeartbeat:
      return;
    default:
      DropViolation(kSchedulerId, "unexpected control command");
  }
}

void Member::Impl::OnStockList(const Meta& meta) {
  if (state_ != MemberState::kRegistering) return;
  bs::Result<View> view = CheckList(meta);
  if (!view.ok()) {
    Drop(kSchedulerId, view.status().message());
    return;
  }
  OnStockScheduler();
  if (stock_scheduler_) Enter(std::move(view.value()));
}

void Member::Impl::OnStockScheduler() {
  if (std::exchange(stock_scheduler_, options_.role == Role::kServer)) return;
  if (!stock_scheduler_) {
    Fail(bs::Status::FailedPrecondition(
        "the scheduler node at " + TextOf(options_.root) +
        " is MXNet's own, which native workers cannot join: start ours (bslaunch), or wrap a dist "
        "store (BYTESCHEDULER_BACKEND=kvstore)"));
    return;
  }
  retry_.Stop();
  log_.Info("the scheduler node at " + TextOf(options_.root) +
            " is MXNet's own: it does not say which process is lost");
}

void Member::Impl::RegisterWithStock() {
  Meta meta;
  meta.is_control = true;
  meta.control.command = Command::kAddNode;
  meta.control.nodes = {own_};
  meta.control.nodes.front().link_rate = 0;  // no field of its protocol
  meta.timestamp = 0;
  SendControl(std::move(meta));
}

void Member::Impl::OnStockBarrier() {
  if (barriers_.empty()) return;
  if (barriers_.in_last()) {
    OnShutdown(Extension());
  } else {
    barriers_.EndFirst(bs::Status::Ok());
  }
}

void Member::Impl::SendStockBarrier(int32_t group) {
  Meta meta;
  meta.is_control = true;
  meta.control.command = Command::kBarrier;
  meta.control.barrier_group = group;
  meta.request = true;
  meta.app_id = 0;
  meta.customer_id = 0;
  SendStock(std::move(meta));
}

void Member::Impl::SendStockHeartbeat() {
  Meta meta;
  meta.is_control = true;
  meta.control.command = Command::kHeartbeat;
  meta.control.nodes = {own_};
  SendStock(std::move(meta));
}

void Member::Impl::SendStock(Meta meta) {
  meta.timestamp = stock_number_++;
  SendControl(std::move(meta));
}

}  // namespace ps
