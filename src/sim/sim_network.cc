// SimNetwork: links between simulated nodes, and the fate of messages on them.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/sim_network_impl.h"
#include "wire/wire.h"

namespace bs::sim {
namespace {

std::string NameOf(const Address& address) {
  return address.host + ":" + std::to_string(address.port);
}

void OwnFrames(Message* message) {
  for (Frame& frame : message->data) frame = Frame::Copy(frame.bytes());
}

void OwnFrames(SimLink* link) {
  for (auto& [priority, messages] : link->waiting) {
    for (Message& message : messages) OwnFrames(&message);
  }
  OwnFrames(&link->current);
}

}  // namespace

std::shared_ptr<SimNode> SimNetwork::Impl::AddNode(Executor* executor) {
  auto node = std::make_shared<SimNode>();
  node->number = next_number_++;
  node->executor = executor;
  nodes_.emplace(node->number, node);
  return node;
}

void SimNetwork::Impl::RemoveNode(const std::shared_ptr<SimNode>& node) {
  Close(node, Duration(0));
  // A real transport would wait for its linger to pass; here the network keeps the messages that
  // still wait.
  for (const uint64_t number : node->lingering) {
    if (SimLink* const link = Find(number)) OwnFrames(link);
  }
  nodes_.erase(node->number);
}

SimLink* SimNetwork::Impl::Find(uint64_t number) {
  const auto it = links_.find(number);
  return it == links_.end() ? nullptr : it->second.get();
}

void SimNetwork::Impl::Erase(uint64_t number) {
  const auto it = links_.find(number);
  if (it == links_.end()) return;
  links_to_[it->second->to].erase(number);
  links_.erase(it);
}

TimePoint SimNetwork::Impl::AfterDelay() {
  const auto low = static_cast<uint64_t>(options_.delay_min.count());
  const auto high = static_cast<uint64_t>(options_.delay_max.count());
  return clock_->Now() + Duration(static_cast<int64_t>(clock_->Uniform(low, high)));
}

void SimNetwork::Impl::Bind(const std::shared_ptr<SimNode>& node, const Address& address,
                            Transport::BindDone done) {
  if (address.port < 0 || address.port > 65535) {
    const auto why =
        Status::InvalidArgument("cannot listen on " + NameOf(address) + ": no such port");
    Tell(node, [done = std::move(done), why](SimNode*) { done(why); });
    return;
  }
  Address real = address;
  while (real.port == 0 || (address.port == 0 && bound_.count(NameOf(real)) > 0)) {
    real.port = next_port_++;
  }
  Result<int32_t> outcome = real.port;
  if (bound_.count(NameOf(real)) > 0) {
    outcome = Status::AlreadyExists("cannot listen on " + NameOf(real) + ": the port is in use");
  } else {
    node->bound = NameOf(real);
    bound_.emplace(node->bound, node);
    ConnectAllTo(node->bound);
  }
  Tell(node, [done = std::move(done), outcome](SimNode*) { done(outcome); });
}

void SimNetwork::Impl::Connect(const std::shared_ptr<SimNode>& node, int32_t peer,
                               const Address& address, int32_t own_id) {
  Disconnect(node, peer, Duration(0));
  if (node->closed) return;
  auto link = std::make_unique<SimLink>();
  link->number = next_number_++;
  link->owner = node;
  link->peer = peer;
  link->own_id = own_id;
  link->to = NameOf(address);
  node->links[peer] = link->number;
  links_to_[link->to].insert(link->number);
  TryConnectLater(link->number);
  links_.emplace(link->number, std::move(link));
}

void SimNetwork::Impl::Disconnect(const std::shared_ptr<SimNode>& node, int32_t peer,
                                  Duration linger) {
  const auto it = node->links.find(peer);
  if (it == node->links.end()) return;
  const uint64_t number = it->second;
  node->links.erase(it);
  SimLink* const link = Find(number);
  if (link == nullptr) return;
  link->closing = true;
  if (link->idle() || linger <= Duration(0)) {
    Erase(number);
  } else {
    node->lingering.push_back(number);
    wires_.PostAt(clock_->Now() + linger, [this, number] { Erase(number); });
  }
}

void SimNetwork::Impl::Close(const std::shared_ptr<SimNode>& node, Duration linger) {
  if (node->closed) return;
  while (!node->links.empty()) Disconnect(node, node->links.begin()->first, linger);
  node->closed = true;
  Unbind(node.get());
}

void SimNetwork::Impl::Kill(const std::shared_ptr<SimNode>& node) {
  Close(node, Duration(0));
  for (const uint64_t number : node->lingering) Erase(number);
}

void SimNetwork::Impl::Unbind(SimNode* node) {
  if (node->bound.empty()) return;
  std::vector<uint64_t> broken;
  for (const uint64_t number : links_to_[node->bound]) {
    if (Find(number)->target.get() == node) broken.push_back(number);
  }
  bound_.erase(std::exchange(node->bound, {}));
  Break(broken, false);
}

void SimNetwork::Impl::CutOff(const std::shared_ptr<SimNode>& node, Duration duration) {
  node->cut_off = true;
  Break([&node](const SimLink& link) { return link.target == node || link.owner == node; });
  wires_.PostAt(clock_->Now() + duration, [this, node] {
    node->cut_off = false;
    ConnectAllTo(node->bound);
    for (const auto& [peer, number] : node->links) TryConnectLater(number);
  });
}

void SimNetwork::Impl::Part(const SimNode* from, const SimNode* to, bool for_good) {
  if (for_good) parted_.insert({from->number, to->number});
  Break([&](const SimLink& link) { return link.owner.get() == from && link.target.get() == to; },
        !for_good);
}

void SimNetwork::Impl::Break(const std::function<bool(const SimLink&)>& pick, bool torn) {
  std::vector<uint64_t> broken;
  for (const auto& [number, link] : links_) {
    if (link->target != nullptr && pick(*link)) broken.push_back(number);
  }
  Break(broken, torn);
}

void SimNetwork::Impl::Break(const std::vector<uint64_t>& broken, bool torn) {
  for (const uint64_t number : broken) {
    SimLink* const link = Find(number);
    TellInbound(*link, false, torn);
    link->target = nullptr;
    link->breaking = true;
    wires_.PostAt(AfterDelay(), [this, number] { NoticeBreak(number); });
  }
}

void SimNetwork::Impl::NoticeBreak(uint64_t number) {
  SimLink* const link = Find(number);
  if (link == nullptr) return;
  link->breaking = false;
  if (!link->closing) {
    Tell(link->owner, [peer = link->peer](SimNode* owner) {
      if (owner->handler.on_disconnected) owner->handler.on_disconnected(peer);
    });
  }
  TryConnect(number);
}

void SimNetwork::Impl::Overflow(const std::shared_ptr<SimNode>& node, int32_t peer) {
  Disconnect(node, peer, Duration(0));
  Tell(node, [peer](SimNode* told) {
    if (told->handler.on_overflow) told->handler.on_overflow(peer, "it does not read");
  });
}

void SimNetwork::Impl::Tell(const std::shared_ptr<SimNode>& node,
                            std::function<void(SimNode*)> what) {
  if (node->closed) return;
  node->executor->Post([node, what = std::move(what)] {
    if (!node->closed) what(node.get());
  });
}

void SimNetwork::Impl::ConnectAllTo(const std::string& address) {
  for (const uint64_t number : links_to_[address]) TryConnectLater(number);
}

void SimNetwork::Impl::TryConnectLater(uint64_t number) {
  wires_.PostAt(AfterDelay(), [this, number] { TryConnect(number); });
}

void SimNetwork::Impl::TryConnect(uint64_t number) {
  SimLink* const link = Find(number);
  if (link == nullptr || link->target != nullptr || link->breaking) return;
  const auto it = bound_.find(link->to);
  if (it == bound_.end() || it->second->cut_off || link->owner->cut_off) return;
  if (parted_.contains({link->owner->number, it->second->number})) return;
  link->target = it->second;
  TellInbound(*link, true, false);
  if (!link->closing) {
    Tell(link->owner, [peer = link->peer, foreign = it->second->foreign](SimNode* owner) {
      if (foreign && owner->handler.on_foreign) owner->handler.on_foreign(peer);
      if (owner->handler.on_connected) owner->handler.on_connected(peer);
    });
  }
  Pump(link);
}

void SimNetwork::Impl::Send(const std::shared_ptr<SimNode>& node, Message message) {
  if (node->closed) return;
  const auto it = node->links.find(message.peer);
  if (it == node->links.end()) return;
  SimLink* const link = Find(it->second);
  link->waiting[message.meta.priority].push_back(std::move(message));
  if (node->host) {
    SimHost* const host = node->host.get();
    host->counters.most_waiting = std::max(host->counters.most_waiting, ++host->waiting);
  }
  Pump(link);
}

SimPacket SimNetwork::Impl::Pack(const SimLink& link, const Message& message) {
  SimPacket packet{link.own_id, ps::EncodeMeta(message.meta), {}};
  for (const Frame& frame : message.data) {
    packet.data.emplace_back(frame.bytes().begin(), frame.bytes().end());
  }
  return packet;
}

void SimNetwork::Impl::Pump(SimLink* link) {
  if (link->target == nullptr || link->sending) return;
  if (link->waiting.empty()) {
    if (link->closing) Erase(link->number);
    return;
  }
  if (link->owner->host && link->target->host &&
      link->owner->host->interface == link->target->host->interface) {
    while (!link->waiting.empty()) Commit(link);
    return;
  }
  if (link->owner->host) {
    Queue(link);
    return TakeTurns(link->owner);
  }
  link->current = TakeUrgent(link);
  link->sending = true;
  uint64_t bytes = 64;  // about the size of an encoded meta
  for (const Frame& frame : link->current.data) bytes += frame.size();
  const double seconds =
      options_.bytes_per_second == 0
          ? 0
          : static_cast<double>(bytes) / static_cast<double>(options_.bytes_per_second);
  const auto takes = Duration(static_cast<int64_t>(seconds * 1e9));
  wires_.PostAt(clock_->Now() + takes, [this, number = link->number] { Transmitted(number); });
}

TimePoint SimNetwork::Impl::ArrivalOf(SimLink* link, int32_t priority) {
  std::erase_if(link->last_arrival, [this](const auto& e) { return e.second < clock_->Now(); });
  TimePoint& last = link->last_arrival[priority];
  last = std::max(last, AfterDelay());
  return last;
}

void SimNetwork::Impl::Transmitted(uint64_t number) {
  SimLink* const link = Find(number);
  if (link == nullptr) return;
  const Message message =
      std::exchange(link->current, Message());  // releases the frames at the end
  link->sending = false;
  if (link->target == nullptr) {
    ++lost;  // with the connection
    return;
  }
  const bool may_fail = message.meta.native();
  if (link->owner->muted || (may_fail && clock_->Chance(options_.loss))) {
    ++lost;
  } else {
    Travel(link, message);
  }
  Pump(link);
}

void SimNetwork::Impl::Travel(SimLink* link, const Message& message) {
  SimPacket packet = Pack(*link, message);
  const TimePoint arrival = ArrivalOf(link, message.meta.priority);
  if (message.meta.native() && clock_->Chance(options_.repeat)) {
    ++repeated;
    const auto later = static_cast<int64_t>(clock_->Uniform(1, 20)) * options_.delay_max;
    wires_.PostAt(arrival + later,
                  [this, target = link->target, packet] { Arrive(target, packet); });
  }
  wires_.PostAt(arrival, [this, target = link->target, packet = std::move(packet)] {
    Arrive(target, packet);
  });
}

void SimNetwork::Impl::Arrive(const std::shared_ptr<SimNode>& target, const SimPacket& packet) {
  if (target->closed || target->cut_off) {
    ++lost;
    return;
  }
  ++delivered;
  target->executor->Post([target, packet] { Deliver(target, packet); });
}

void SimNetwork::Impl::Deliver(const std::shared_ptr<SimNode>& target, const SimPacket& packet) {
  if (target->closed) return;
  Result<ps::Meta> meta = ps::ParseMeta(std::as_bytes(std::span(packet.meta)));
  if (!meta.ok()) {
    if (target->handler.on_garbage) target->handler.on_garbage(packet.from, meta.status());
    return;
  }
  Message message;
  message.peer = packet.from;
  message.meta = std::move(meta.value());
  for (const std::vector<std::byte>& bytes : packet.data) {
    message.data.push_back(Frame::Copy(bytes));
  }
  target->handler.on_message(std::move(message));
}

// A node's handle on the network.
class SimNetwork::Impl::Endpoint final : public Transport {
 public:
  Endpoint(Impl* network, Executor* executor)
      : network_(network), node_(network->AddNode(executor)) {}
  ~Endpoint() override { network_->RemoveNode(node_); }
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void Start(Handler handler) override { node_->handler = std::move(handler); }
  void Bind(const Address& address, BindDone done) override {
    network_->Bind(node_, address, std::move(done));
  }
  void Connect(int32_t peer, const Address& address, int32_t own_id) override {
    network_->Connect(node_, peer, address, own_id);
  }
  void Disconnect(int32_t peer, Duration linger) override {
    network_->Disconnect(node_, peer, linger);
  }
  void Send(Message message) override { network_->Send(node_, std::move(message)); }
  void Close(Duration linger) override { network_->Close(node_, linger); }

  const std::shared_ptr<SimNode>& node() const { return node_; }

 private:
  Impl* const network_;
  const std::shared_ptr<SimNode> node_;  // shared with the network's links and tasks
};

const std::shared_ptr<SimNode>& SimNetwork::Impl::NodeOf(Transport* transport) {
  return static_cast<Endpoint*>(transport)->node();
}

std::unique_ptr<Transport> SimNetwork::Impl::MakeEndpoint(Executor* executor) {
  return std::make_unique<Endpoint>(this, executor);
}

SimNetwork::SimNetwork(SimClock* clock, const SimNetworkOptions& options)
    : impl_(std::make_unique<Impl>(clock, options)) {}
SimNetwork::~SimNetwork() = default;
std::unique_ptr<Transport> SimNetwork::MakeTransport(Executor* executor) {
  return impl_->MakeEndpoint(executor);
}
void SimNetwork::PutOnHost(Transport* transport, const SimHostOptions& options, Transport* beside) {
  impl_->PutOnHost(Impl::NodeOf(transport), options,
                   beside == nullptr ? nullptr : Impl::NodeOf(beside).get());
}
SimHostCounters SimNetwork::CountersOf(Transport* transport) const {
  return Impl::NodeOf(transport)->host->counters;
}
void SimNetwork::Kill(Transport* transport) { impl_->Kill(Impl::NodeOf(transport)); }
void SimNetwork::CutOff(Transport* transport, Duration duration) {
  impl_->CutOff(Impl::NodeOf(transport), duration);
}
void SimNetwork::Part(Transport* from, Transport* to, bool for_good) {
  impl_->Part(Impl::NodeOf(from).get(), Impl::NodeOf(to).get(), for_good);
}
void SimNetwork::Mute(Transport* transport) { Impl::NodeOf(transport)->muted = true; }
void SimNetwork::SetForeign(Transport* transport) { Impl::NodeOf(transport)->foreign = true; }
void SimNetwork::Overflow(Transport* of, int32_t peer) { impl_->Overflow(Impl::NodeOf(of), peer); }
bool SimNetwork::Knows(Transport* of, int32_t peer) const {
  return Impl::NodeOf(of)->handler.knows(peer);
}
uint64_t SimNetwork::delivered() const { return impl_->delivered; }
uint64_t SimNetwork::lost() const { return impl_->lost; }
uint64_t SimNetwork::repeated() const { return impl_->repeated; }

}  // namespace bs::sim
