// Detector: evidence, and when it is enough.
#include "membership/coordinator/detector.h"

#include <algorithm>

#include "wire/control.h"

namespace ps {

Detector::Detector(const MembershipOptions& options, TaskScope* scope, Lost lost, Lost unheard)
    : heartbeat_interval_(options.heartbeat_interval),
      heartbeat_timeout_(options.heartbeat_timeout),
      reconnect_grace_(options.reconnect_grace),
      scope_(scope),
      lost_(std::move(lost)),
      reconnect_timer_(scope, options.timeout, options.reconnect_grace,
                       [this](int32_t id, const std::string& why) {
                         const Evidence* const known = Find(id);
                         if (known != nullptr)
                           lost_(id, attempts_.WhyLost(id, known->address, why));
                       }),
      inbound_(scope, options.reconnect_grace, std::move(unheard)) {}

void Detector::Begin(int32_t id, const Address& address, bs::Duration patience) {
  evidence_[id] = {.address = address, .last_heard = scope_->Now()};
  attempts_.Forget(id);
  reconnect_timer_.Watch(id, patience);
}

void Detector::OnConnected(int32_t id) {
  attempts_.OnConnected(id);
  reconnect_timer_.OnConnected(id);
  if (Evidence* const known = Find(id)) known->connected = true;
}

void Detector::OnDisconnected(int32_t id) {
  reconnect_timer_.OnDisconnected(id);
  if (Evidence* const known = Find(id)) known->broke = scope_->Now();
}

void Detector::OnHeard(int32_t id) {
  if (Evidence* const known = Find(id)) known->last_heard = scope_->Now();
}

bool Detector::WasConnected(int32_t id) const {
  const Evidence* const known = Find(id);
  return known != nullptr && known->connected;
}

bool Detector::NeverBroke(int32_t id) const {
  const Evidence* const known = Find(id);
  return known != nullptr && !known->broke;
}

bool Detector::HeardSinceBreak(int32_t id) const {
  const Evidence* const known = Find(id);
  return known != nullptr && (!known->broke || known->last_heard > *known->broke);
}

bool Detector::IsGone(int32_t id) const {
  const Evidence* const known = Find(id);
  if (known == nullptr || !known->broke) return false;
  // A live node sends a heartbeat when it is connected again.
  const bs::Duration patience = std::max(reconnect_grace_, 2 * heartbeat_interval_);
  // Messages from before the kill may be read after the connection has broken.
  const bs::Duration late = heartbeat_interval_ / 4;
  return known->last_heard <= *known->broke + late && scope_->Now() >= *known->broke + patience;
}

bs::Duration Detector::SilenceOf(int32_t id) const {
  const Evidence* const known = Find(id);
  return known == nullptr ? bs::Duration(0) : scope_->Now() - known->last_heard;
}

void Detector::Start() {
  pause_detector_.emplace(heartbeat_interval_, heartbeat_timeout_, scope_->Now());
}

void Detector::CheckSilence(const std::vector<int32_t>& ids) {
  const bs::TimePoint now = scope_->Now();
  const bs::TimePoint limit = now - heartbeat_timeout_;
  if (!pause_detector_ || pause_detector_->LastPauseEnd(now) >= limit) return;
  std::vector<int32_t> silent;
  for (const int32_t id : ids) {
    const Evidence* const known = Find(id);
    if (known != nullptr && known->last_heard < limit) silent.push_back(id);
  }
  for (const int32_t id : silent) {
    lost_(id, attempts_.WhyLost(id, Find(id)->address, SilentFor(heartbeat_timeout_)));
  }
}

bool Detector::CountViolation(int32_t id) {
  Evidence* const known = Find(id);
  if (known == nullptr || !violations_.Add(id, scope_->Now())) return false;
  known->dismissed = true;
  return true;
}

bool Detector::IsDismissed(int32_t id) const {
  const Evidence* const known = Find(id);
  return known != nullptr && known->dismissed;
}

bool Detector::ReportsLiveServer(int32_t id, int32_t server) {
  Evidence* const reporter = Find(id);
  const Evidence* const reported = Find(server);
  if (reporter == nullptr || reported == nullptr) return false;
  if (!reporter->reported) reporter->reported = scope_->Now();
  reporter->heartbeats_since_report = 0;
  // A server that is lost itself sends nothing more.
  return reported->last_heard > *reporter->reported + reconnect_grace_;
}

void Detector::ForgetOldReport(int32_t id) {
  // A report may be lost on its way, or come behind the heartbeat.
  constexpr int kMostMissed = 3;
  Evidence* const known = Find(id);
  if (known == nullptr || !known->reported) return;
  if (++known->heartbeats_since_report > kMostMissed) known->reported.reset();
}

Detector::Evidence* Detector::Find(int32_t id) {
  const auto it = evidence_.find(id);
  return it == evidence_.end() ? nullptr : &it->second;
}

const Detector::Evidence* Detector::Find(int32_t id) const {
  const auto it = evidence_.find(id);
  return it == evidence_.end() ? nullptr : &it->second;
}

}  // namespace ps
