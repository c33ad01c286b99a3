// Member: what it does about messages that make no sense, and about who goes on sending them.
#include "membership/member/member_impl.h"
#include "wire/control.h"

namespace ps {

void Member::ReportNonsense(int32_t peer, const std::string& what) {
  impl_->OnViolation(peer, what);
}

void Member::Impl::Drop(int32_t peer, const std::string& why) {
  limited_log_.Warning("dropped a message from " + DescribeSender(peer) + ": " + why);
}

void Member::Impl::DropViolation(int32_t peer, const std::string& why) {
  Drop(peer, why);
  OnViolation(peer, why);
}

void Member::Impl::OnViolation(int32_t peer, const std::string& what) {
  const bool in_job = peer == kSchedulerId ? !scheduler_lost_ : known_.contains(peer);
  const bool running = (phase_ == Phase::kStarting || phase_ == Phase::kReady) && !left_;
  if (!in_job || !running || !violations_.Add(peer, scope_.Now())) return;
  dismissed_.insert(peer);
  reconnect_timer_.Forget(peer);
  OnLost(peer, ViolationLimiter::Why(what));
}

}  // namespace ps
