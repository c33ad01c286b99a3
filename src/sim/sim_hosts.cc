// Hosts of a simulated network: the messages that wait for an interface or are on their way.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/sim_network_impl.h"

namespace bs::sim {
namespace {

// Approximate bytes that libzmq's protocol and ours put before a frame.
constexpr uint64_t kFrameHeaderBytes = 9;

Duration Nanoseconds(double count) { return Duration(static_cast<int64_t>(count)); }

}  // namespace

Duration SimHost::TimeOf(uint64_t size_bytes) const {
  return Nanoseconds(1e9 * static_cast<double>(size_bytes) / options.bytes_per_second);
}

TimePoint SimHost::Serve(TimePoint now, uint64_t size_bytes, double more_ns) {
  const double bytes_ns = options.byte_cost_ns * static_cast<double>(size_bytes);
  const Duration cost = options.message_cost + Nanoseconds(bytes_ns + more_ns);
  counters.busy += cost;
  thread_free = std::max(thread_free, now) + cost;
  return thread_free;
}

void SimNetwork::Impl::PutOnHost(const std::shared_ptr<SimNode>& node,
                                 const SimHostOptions& options, const SimNode* beside) {
  BS_CHECK(options_.loss == 0 && options_.repeat == 0 && options.bytes_per_second > 0);
  BS_CHECK(node->links.empty() && !node->host);
  BS_CHECK(beside == nullptr || beside->host != nullptr);
  node->host = std::make_unique<SimHost>();
  node->host->options = options;
  node->host->interface = beside == nullptr ? std::make_shared<SimInterface>()  // of all nodes here
                                            : beside->host->interface;
  hosts_.push_back(node);
}

// Nodes with messages for each other hold each other, in circles.
void SimNetwork::Impl::ForgetHosts() {
  for (const std::weak_ptr<SimNode>& held : hosts_) {
    if (const std::shared_ptr<SimNode> node = held.lock()) node->host->leaving.clear();
  }
}

void SimNetwork::Impl::Queue(SimLink* link) {
  if (!std::exchange(link->in_turn, true)) link->owner->host->turns.push_back(link->number);
}

// Each link in turn commits one message as long as there is room on this side.
void SimNetwork::Impl::TakeTurns(const std::shared_ptr<SimNode>& node) {
  SimHost* const host = node->host.get();
  const uint64_t most = host->options.ahead_bytes;
  while (!host->turns.empty() && host->out_bytes < host->options.queued_bytes &&
         (most == 0 || host->unacknowledged_bytes < most)) {
    SimLink* const link = Find(host->turns.front());
    host->turns.pop_front();
    if (link == nullptr) continue;
    link->in_turn = false;
    if (link->target == nullptr || link->waiting.empty()) continue;
    // Its next acknowledgement gives it a turn again.
    if (most > 0 && link->unacknowledged_bytes >= host->options.ahead_each_bytes) continue;
    SimHost* const there = link->target->host.get();
    BS_CHECK(there != nullptr);
    if (!there->has_room()) {
      link->in_turn = true;
      there->held_up.push_back(link->number);
      continue;
    }
    Commit(link);
    if (!link->waiting.empty()) Queue(link);
  }
}

// The receiver's kernel has the bytes.
void SimNetwork::Impl::Acknowledge(const std::shared_ptr<SimNode>& owner, uint64_t number,
                                   uint64_t size_bytes) {
  owner->host->unacknowledged_bytes -= size_bytes;
  if (SimLink* const link = Find(number)) {
    link->unacknowledged_bytes -= size_bytes;
    if (!link->waiting.empty()) Queue(link);
  }
  TakeTurns(owner);
}

Message SimNetwork::Impl::TakeUrgent(SimLink* link) {
  const auto urgent = link->waiting.begin();
  Message message = std::move(urgent->second.front());
  urgent->second.pop_front();
  if (urgent->second.empty()) link->waiting.erase(urgent);
  return message;
}

double SimNetwork::Impl::PayloadBytes(const SimPacket& packet) const {
  size_t moved_bytes = 0;
  for (const auto& bytes : packet.data) moved_bytes += bytes.size();
  return static_cast<double>(options_.payload_scale * moved_bytes);
}

void SimNetwork::Impl::Commit(SimLink* link) {
  SimHost* const host = link->owner->host.get();
  const Message message = TakeUrgent(link);
  --host->waiting;
  SimHost::Leaving leaving{.packet = Pack(*link, message), .target = link->target};
  leaving.size_bytes = kFrameHeaderBytes + leaving.packet.meta.size();
  for (const auto& bytes : leaving.packet.data) {
    leaving.size_bytes += kFrameHeaderBytes + options_.payload_scale * bytes.size();
  }
  ++host->counters.messages;
  const TimePoint served =
      host->Serve(clock_->Now(), leaving.size_bytes,
                  host->options.sent_payload_cost_ns * PayloadBytes(leaving.packet));
  if (link->target->host->interface == host->interface) return Pass(served, std::move(leaving));
  host->out_bytes += leaving.size_bytes;
  host->unacknowledged_bytes += leaving.size_bytes;
  link->unacknowledged_bytes += leaving.size_bytes;
  leaving.link = link->number;
  host->counters.bytes += static_cast<double>(leaving.size_bytes);
  leaving.ready = served;
  host->leaving.push_back(std::move(leaving));
  if (!host->sends) Leave(link->owner);
}

// To a node of the same host: only the threads take time.
void SimNetwork::Impl::Pass(TimePoint served, SimHost::Leaving leaving) {
  leaving.target->host->in_bytes += leaving.size_bytes;
  wires_.PostAt(served, [this, target = leaving.target, size_bytes = leaving.size_bytes,
                         packet = std::move(leaving.packet)]() mutable {
    Reach(target, std::move(packet), size_bytes);
  });
}

// The first in the queue that finds room at the other end goes out, and in there as far as that
// interface is free.
void SimNetwork::Impl::Leave(const std::shared_ptr<SimNode>& node) {
  SimHost* const host = node->host.get();
  const auto first =
      std::find_if(host->leaving.begin(), host->leaving.end(),
                   [](const auto& leaving) { return leaving.target->host->has_room(); });
  if (first == host->leaving.end()) {
    for (const SimHost::Leaving& leaving : host->leaving) {
      leaving.target->host->stopped.insert_or_assign(node->number, node);
    }
    return;
  }
  SimHost* const there = first->target->host.get();
  SimInterface* const out = host->interface.get();
  SimInterface* const in = there->interface.get();
  host->sends = true;
  there->in_bytes += first->size_bytes;
  const TimePoint begin = std::max({clock_->Now(), first->ready, out->out_free});
  const TimePoint left = out->out_free = begin + host->TimeOf(first->size_bytes);
  const Duration delay = AfterDelay() - clock_->Now();
  const TimePoint begins = std::max(begin + delay, in->in_free);
  in->in_free = std::max(begins + there->TimeOf(first->size_bytes), left + delay);
  const auto acknowledged = in->in_free + delay;
  wires_.PostAt(acknowledged, [this, node, number = first->link, size_bytes = first->size_bytes] {
    Acknowledge(node, number, size_bytes);
  });
  wires_.PostAt(in->in_free, [this, target = first->target, size_bytes = first->size_bytes,
                              packet = std::move(first->packet)]() mutable {
    Reach(target, std::move(packet), size_bytes);
  });
  wires_.PostAt(left, [this, node, size_bytes = first->size_bytes] { Left(node, size_bytes); });
  host->leaving.erase(first);
}

void SimNetwork::Impl::Left(const std::shared_ptr<SimNode>& node, uint64_t size_bytes) {
  SimHost* const host = node->host.get();
  host->sends = false;
  host->out_bytes -= size_bytes;
  if (!host->leaving.empty()) Leave(node);
  TakeTurns(node);
}

void SimNetwork::Impl::Reach(const std::shared_ptr<SimNode>& target, SimPacket packet,
                             uint64_t size_bytes) {
  SimHost* const host = target->host.get();
  host->in_bytes -= size_bytes;
  if (target->closed) {
    ++lost;
  } else {
    ++delivered;
    const TimePoint served = host->Serve(
        clock_->Now(), size_bytes, host->options.received_payload_cost_ns * PayloadBytes(packet));
    target->executor->PostAt(served,
                             [target, packet = std::move(packet)] { Deliver(target, packet); });
  }
  for (const auto& [number, stopped] : std::exchange(host->stopped, {})) {
    const std::shared_ptr<SimNode> sender = stopped.lock();
    if (sender == nullptr) continue;
    if (!sender->host->sends && !sender->host->leaving.empty()) Leave(sender);
  }
  // Each link goes on once: a message that finds no room again is held up behind the other
  // messages.
  for (size_t count = host->held_up.size(); count > 0 && host->has_room(); --count) {
    SimLink* const link = Find(host->held_up.front());
    host->held_up.pop_front();
    if (link == nullptr) continue;
    link->owner->host->turns.push_front(link->number);
    TakeTurns(link->owner);
  }
}

}  // namespace bs::sim
