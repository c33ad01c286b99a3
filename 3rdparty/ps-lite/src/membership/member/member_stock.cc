// Member: a server in a job whose scheduler node is MXNet's own, which knows no extension.
#include <utility>

#include "membership/member/member_impl.h"
#include "wire/control.h"

namespace ps {

void Member::Impl::OnStockControl(const Message& message) {
  if (context_.state != MemberState::kRegistering && !context_.stock_scheduler) {
    context_.Drop(kSchedulerId, "control of a stock scheduler node, and ours is none");
    return;
  }
  last_word_ = context_.scope.Now();
  if (!contacts_.stock()->Take(message)) return;
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
      contacts_.DropViolation(kSchedulerId, "unexpected control command");
  }
}

void Member::Impl::OnStockList(const Meta& meta) {
  if (context_.state != MemberState::kRegistering) return;
  bs::Result<View> view = CheckList(meta);
  if (!view.ok()) {
    context_.Drop(kSchedulerId, view.status().message());
    return;
  }
  OnStockScheduler();
  if (context_.stock_scheduler) Enter(std::move(view.value()));
}

void Member::Impl::OnStockScheduler() {
  if (std::exchange(context_.stock_scheduler, context_.options.role == Role::kServer)) return;
  if (!context_.stock_scheduler) {
    Fail(bs::Status::FailedPrecondition(
        "the scheduler node at " + TextOf(context_.options.root) +
        " is MXNet's own, which native workers cannot join: start ours (bslaunch), or wrap a dist "
        "store (BYTESCHEDULER_BACKEND=kvstore)"));
    return;
  }
  retry_.Stop();
  context_.log.Info("the scheduler node at " + TextOf(context_.options.root) +
                    " is MXNet's own: it does not say which process is lost");
}

void Member::Impl::RegisterWithStock() {
  Meta meta;
  meta.is_control = true;
  meta.control.command = Command::kAddNode;
  meta.control.nodes = {context_.own};
  meta.control.nodes.front().link_rate = 0;  // no field of its protocol
  meta.timestamp = 0;
  context_.SendControl(std::move(meta));
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
  meta.control.nodes = {context_.own};
  SendStock(std::move(meta));
}

void Member::Impl::SendStock(Meta meta) {
  meta.timestamp = stock_number_++;
  context_.SendControl(std::move(meta));
}

}  // namespace ps
