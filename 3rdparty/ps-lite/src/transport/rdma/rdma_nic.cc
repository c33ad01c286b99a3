// Opens the device, and hands its completions to the links.
#include "transport/rdma/rdma_nic.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "transport/rdma/rdma_choice.h"

namespace ps {
namespace {

constexpr bs::Duration kBreaksWithin = std::chrono::minutes(1);

}  // namespace

bs::Result<std::shared_ptr<RdmaNic>> RdmaNic::Open(const Loop& loop, const RdmaOptions& options,
                                                   const bs::Logger& log) {
  BS_CHECK(options.verbs);
  auto device = options.verbs->Open(options.device, kMostRdmaCompletions);
  if (!device.ok()) return device.status();
  bs::Status usable = CheckRdmaPort(device.value()->facts(), options.path.port);
  if (!usable.ok()) return usable;
  return std::make_shared<RdmaNic>(loop, options, std::move(device.value()), log);
}

RdmaNic::RdmaNic(Loop loop, RdmaOptions options, std::shared_ptr<VerbsDevice> device,
                 const bs::Logger& log)
    : loop_(std::move(loop)),
      options_(std::move(options)),
      log_(log),
      device_(std::move(device)),
      port_(*FindRdmaPort(device_->facts(), options_.path.port)),
      memory_(std::make_shared<RdmaMemory>(
          device_, options_.bounce_bytes, options_.counts,
          RdmaLoanRules{.most_bytes = options_.most_lent_bytes,
                        .whole_pages = options_.verbs->fork() == RdmaFork::kProtected},
          options_.numa_node)) {}

RdmaNic::~RdmaNic() { BS_CHECK(members_.empty()); }

bs::Status RdmaNic::Trusts(const std::string& peer) {
  OnEvents();  // nothing watches while there is no link
  const auto breaks = breaks_.find(peer);
  if (!usable_.ok()) return usable_;
  if (breaks == breaks_.end() || breaks->second.size() < kMostBreaks) return bs::Status::Ok();
  return bs::Status::Unavailable("RDMA has failed " + std::to_string(kMostBreaks) +
                                 " times within a minute: see why in the log; the next job tries "
                                 "again");
}

void RdmaNic::NoteBreak(const std::string& peer, const bs::Status& why, Completion::Result result) {
  if (counts() != nullptr) {
    ++counts()->breaks.at(std::min(static_cast<size_t>(result), RdmaCounts::kResults - 1));
  }
  std::deque<bs::TimePoint>& breaks = breaks_[peer];
  if (breaks.size() >= kMostBreaks) return;
  const bs::TimePoint now = loop_.executor->Now();
  breaks.push_back(now);
  while (breaks.front() < now - kBreaksWithin) breaks.pop_front();
  log_.Warning("RDMA with " + peer + " broke on " + options_.device + ": " + why.message() +
               (breaks.size() < kMostBreaks
                    ? ""
                    : "; that was the third time within a minute, so data goes to this peer over "
                      "TCP from now on"));
}

bool RdmaNic::Add(RdmaEnd* end, uint32_t completions, uint32_t* number) {
  const uint32_t most = std::min(kMostRdmaCompletions, device_->facts().most_completions);
  if (completions > most - reserved_) return false;
  reserved_ += completions;
  if (members_.empty()) Watch(true);
  *number = next_number_++;
  members_.emplace(*number, Member{end, completions});
  if (counts() != nullptr) ++counts()->links;
  return true;
}

void RdmaNic::Remove(uint32_t number) {
  const auto it = members_.find(number);
  BS_CHECK(it != members_.end());
  reserved_ -= it->second.completions;
  members_.erase(it);
  if (members_.empty()) Watch(false);
  touched_.erase(number);
  awaiting_room_.erase(number);
  if (counts() != nullptr) --counts()->links;
}

void RdmaNic::RoomFreed() {
  if (awaiting_room_.empty()) return;
  PostToSelf([](RdmaNic* self) {
    self->touched_.merge(std::exchange(self->awaiting_room_, {}));
    self->EndTurn();
  });
}

void RdmaNic::PostToSelf(void (*task)(RdmaNic* self)) {
  loop_.executor->Post([weak = weak_from_this(), task] {
    if (const auto self = weak.lock()) task(self.get());
  });
}

void RdmaNic::Watch(bool on) {
  const auto watch = [&](int fd, std::function<void()> does) {
    if (!on) does = {};
    loop_.watch(fd, does);
  };
  watch(device_->completion_fd(), [this] { OnCompletions(); });
  watch(device_->event_fd(), [this] { OnEvents(); });
  if (on) PostToSelf([](RdmaNic* self) { self->OnCompletions(); });  // asks for a notification
}

void RdmaNic::OnCompletions() {
  const bs::Status armed = device_->Rearm();
  if (!armed.ok()) BreakAll(armed);
  int taken = 0;
  while (taken < kCompletionsPerTurn) {
    const size_t count = PollOnce();
    if (count == 0) break;
    taken += static_cast<int>(count);
  }
  EndTurn();
  // The descriptor tells only of later completions.
  if (taken < kCompletionsPerTurn) return;
  PostToSelf([](RdmaNic* self) { self->OnCompletions(); });
}

void RdmaNic::Settle() {
  while (PollOnce() > 0) {
  }
  EndTurn();
}

size_t RdmaNic::PollOnce() {
  std::array<Completion, 16> completions;
  const bs::Result<size_t> polled = device_->Poll(completions);
  if (!polled.ok()) {
    BreakAll(polled.status());
    return 0;
  }
  for (size_t i = 0; i < polled.value(); ++i) {
    const auto number = static_cast<uint32_t>(completions.at(i).id >> 32U);
    const auto member = members_.find(number);
    if (member == members_.end()) continue;  // of a queue pair that is gone
    touched_.insert(number);
    const bs::Status taken = member->second.end->OnCompletion(completions.at(i));
    if (!taken.ok()) Break(number, taken);
  }
  return polled.value();
}

// An end may destroy itself and other ends.
void RdmaNic::EndTurn() {
  while (!touched_.empty()) {
    const uint32_t number = *touched_.begin();
    touched_.erase(touched_.begin());
    const auto member = members_.find(number);
    if (member != members_.end()) member->second.end->OnTurnOver();
  }
}

void RdmaNic::Break(uint32_t number, const bs::Status& why) {
  const auto member = members_.find(number);
  if (member != members_.end()) member->second.end->OnBroken(why);
}

void RdmaNic::BreakAll(const bs::Status& why) {
  std::vector<uint32_t> numbers;
  numbers.reserve(members_.size());
  for (const auto& [number, member] : members_) numbers.push_back(number);
  for (const uint32_t number : numbers) Break(number, why);
}

void RdmaNic::OnEvents() {
  while (const std::optional<RdmaEvent> event = device_->TakeEvent()) {
    const std::string what = options_.device + ": " + event->text;
    const bool about_port = event->port == options_.path.port;
    if (event->kind == RdmaEvent::Kind::kPortUp && about_port) usable_ = bs::Status::Ok();
    const bool down = (event->kind == RdmaEvent::Kind::kPortDown && about_port) ||
                      event->kind == RdmaEvent::Kind::kDeviceLost;
    if (!down) continue;
    usable_ = bs::Status::Unavailable(what);
    BreakAll(usable_);
  }
}

}  // namespace ps
