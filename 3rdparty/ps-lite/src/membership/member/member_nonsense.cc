// Member: what it does about messages that make no sense, and about who goes on sending them.
#include "membership/member/member_impl.h"
#include "wire/control.h"

namespace ps {

void Member::ReportNonsense(int32_t peer, const std::string& what) {
  impl_->OnNonsense(peer, what);
}

void Member::Impl::Drop(int32_t peer, const std::string& why) {
  strangers_.Warning("dropped a message from " + DescribeSender(peer) + ": " + why);
}

void Member::Impl::DropNonsense(int32_t peer, const std::string& why) {
  Drop(peer, why);
  OnNonsense(peer, why);
}

void Member::Impl::OnNonsense(int32_t peer, const std::string& what) {
  const bool in_job = peer == kSchedulerId ? !scheduler_lost_ : known_.contains(peer);
  const bool running = (phase_ == Phase::kStarting || phase_ == Phase::kReady) && !left_;
  if (!in_job || !running || !nonsense_.Add(peer, scope_.Now())) return;
  dismissed_.insert(peer);
  links_.Forget(peer);
  OnLost(peer, NonsenseCount::Why(what));
}

}  // namespace ps
