// Routes messages between the nodes of one process, each on its own executor.
#include "transport/inproc/inproc_transport.h"

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/notification.h"
#include "transport/send_queue.h"

namespace ps {
namespace {

constexpr int32_t kMaxPort = 65535;
constexpr int32_t kFirstFreePort = 49152;

std::string TextOf(const Address& address) {
  return "inproc://" + address.host + ":" + std::to_string(address.port);
}

// A node of the network: its transport's state there.
//
// Held by the transport, by the network while it is bound or has connections, and by tasks.
struct Station {
  explicit Station(bs::Executor* e) : executor(e) {}

  bs::Executor* const executor;
  std::atomic<bool> muted = false;  // set by Close: no callback any more
  bs::Notification ended;           // closed, and no connection of it is left
  Transport::Handler handler;       // on `executor`
  // On the network's executor.
  bool closed = false;
  std::map<int32_t, uint64_t> connections;  // numbers by peer; draining ones are not in it
};
using StationPtr = std::shared_ptr<Station>;

// Runs `call` on the station's executor unless the station is muted by then.
template <typename F>
void CallBack(const StationPtr& station, F call) {
  station->executor->Post([station, c = std::move(call)]() mutable {
    if (!station->muted) c(station->handler);
  });
}

// A connection from one station to a peer, in one direction.
struct Connection {
  StationPtr from;
  int32_t peer = kEmpty;
  Address address;
  int32_t own_id = kEmpty;
  StationPtr to;      // null while no station is bound at `address`
  bool busy = false;  // a message is with `to`
  bool draining = false;
  bs::TimerId end_timer = 0;
  SendQueue queue;
};

}  // namespace

// Every method but Post runs on the network's executor.
class InprocNetwork::Impl : public std::enable_shared_from_this<InprocNetwork::Impl> {
 public:
  explicit Impl(bs::Executor* executor) : executor_(executor) {}

  bs::Executor* executor() const { return executor_; }

  // Thread-safe.
  template <typename F>
  void Post(F task) {
    executor_->Post([self = shared_from_this(), t = std::move(task)]() mutable { t(self.get()); });
  }

  void Bind(const StationPtr& station, Address address, Transport::BindDone done);
  void Connect(const StationPtr& from, int32_t peer, const Address& address, int32_t own_id);
  void Disconnect(const StationPtr& from, int32_t peer, bs::Duration linger);
  void Send(const StationPtr& from, Message message);
  void Close(const StationPtr& station, bs::Duration linger);

 private:
  using Connections = std::map<uint64_t, Connection>;  // by number; none is used twice

  static bool Less(const Address& a, const Address& b) {
    return std::pair(a.host, a.port) < std::pair(b.host, b.port);
  }

  bs::Result<int32_t> TakeAddress(const StationPtr& station, Address address);
  void GoUp(uint64_t number, Connection* connection, const StationPtr& to);
  void Drain(uint64_t number, Connection* connection, bs::Duration linger);
  void Pump(uint64_t number, Connection* connection);
  void OnDelivered(uint64_t number);
  void Drop(uint64_t number);
  void EndIfQuiet(const StationPtr& station);

  bs::Executor* const executor_;
  std::map<Address, StationPtr, decltype(&Less)> bound_{&Less};
  Connections connections_;
  uint64_t next_connection_ = 1;
  int32_t next_port_ = kFirstFreePort;
};

void InprocNetwork::Impl::Bind(const StationPtr& station, Address address,
                               Transport::BindDone done) {
  if (station->closed) return;
  const bs::Result<int32_t> port = TakeAddress(station, address);
  CallBack(station, [port, d = std::move(done)](const Transport::Handler&) { d(port); });
  if (!port.ok()) return;
  address.port = port.value();
  for (auto& [number, connection] : connections_) {
    if (connection.address == address) GoUp(number, &connection, station);
  }
}

bs::Result<int32_t> InprocNetwork::Impl::TakeAddress(const StationPtr& station, Address address) {
  if (address.host.empty() || address.port < 0 || address.port > kMaxPort) {
    return bs::Status::InvalidArgument(TextOf(address) + ": want a host, and a port of 0 to 65535");
  }
  if (address.port != 0) {
    if (bound_.emplace(address, station).second) return address.port;
    return bs::Status::AlreadyExists(TextOf(address) + ": the port is in use");
  }
  while (next_port_ <= kMaxPort) {
    address.port = next_port_++;
    if (bound_.emplace(address, station).second) return address.port;
  }
  return bs::Status::ResourceExhausted(TextOf(address) + ": every port was used");
}

void InprocNetwork::Impl::Connect(const StationPtr& from, int32_t peer, const Address& address,
                                  int32_t own_id) {
  if (from->closed) return;
  const auto old = from->connections.find(peer);
  if (old != from->connections.end()) connections_.erase(old->second);
  const uint64_t number = next_connection_++;
  from->connections[peer] = number;
  Connection& connection = connections_[number];
  connection.from = from;
  connection.peer = peer;
  connection.address = address;
  connection.own_id = own_id;
  const auto to = bound_.find(address);
  if (to != bound_.end()) GoUp(number, &connection, to->second);
}

void InprocNetwork::Impl::GoUp(uint64_t number, Connection* connection, const StationPtr& to) {
  connection->to = to;
  if (!connection->draining) {
    CallBack(connection->from, [peer = connection->peer](const Transport::Handler& handler) {
      if (handler.on_connected) handler.on_connected(peer);
    });
  }
  Pump(number, connection);
}

void InprocNetwork::Impl::Disconnect(const StationPtr& from, int32_t peer, bs::Duration linger) {
  const auto it = from->connections.find(peer);
  if (it == from->connections.end()) return;
  const uint64_t number = it->second;
  Drain(number, &connections_.at(number), linger);
}

void InprocNetwork::Impl::Drain(uint64_t number, Connection* connection, bs::Duration linger) {
  connection->draining = true;
  connection->from->connections.erase(connection->peer);
  connection->end_timer = executor_->PostAt(
      executor_->Now() + linger, [self = shared_from_this(), number] { self->Drop(number); });
  Pump(number, connection);
}

void InprocNetwork::Impl::Send(const StationPtr& from, Message message) {
  const auto it = from->connections.find(message.peer);
  if (it == from->connections.end()) return;
  Connection& connection = connections_.at(it->second);
  connection.queue.Add(std::move(message));
  Pump(it->second, &connection);
}

// May destroy the connection.
void InprocNetwork::Impl::Pump(uint64_t number, Connection* connection) {
  if (connection->busy) return;
  if (connection->queue.empty()) {
    if (connection->draining) Drop(number);
    return;
  }
  if (connection->to == nullptr) return;
  Message message = connection->queue.Take();
  message.peer = connection->own_id;
  connection->busy = true;
  const StationPtr to = connection->to;
  to->executor->Post([self = shared_from_this(), to, number, m = std::move(message)]() mutable {
    if (!to->muted && to->handler.on_message) to->handler.on_message(std::move(m));
    self->Post([number](Impl* impl) { impl->OnDelivered(number); });
  });
}

void InprocNetwork::Impl::OnDelivered(uint64_t number) {
  const auto it = connections_.find(number);
  if (it == connections_.end()) return;
  it->second.busy = false;
  Pump(number, &it->second);
}

void InprocNetwork::Impl::Drop(uint64_t number) {
  const auto it = connections_.find(number);
  if (it == connections_.end()) return;
  executor_->Cancel(it->second.end_timer);
  const StationPtr from = it->second.from;
  connections_.erase(it);
  EndIfQuiet(from);
}

void InprocNetwork::Impl::Close(const StationPtr& station, bs::Duration linger) {
  if (station->closed) return;
  station->closed = true;
  std::erase_if(bound_, [&](const auto& entry) { return entry.second == station; });
  for (auto& [number, connection] : connections_) {
    if (connection.to != station) continue;
    connection.to = nullptr;
    if (connection.draining) continue;
    CallBack(connection.from, [peer = connection.peer](const Transport::Handler& handler) {
      if (handler.on_disconnected) handler.on_disconnected(peer);
    });
  }
  while (!station->connections.empty()) {
    const uint64_t number = station->connections.begin()->second;
    Drain(number, &connections_.at(number), linger);
  }
  EndIfQuiet(station);
}

void InprocNetwork::Impl::EndIfQuiet(const StationPtr& station) {
  if (!station->closed) return;
  for (const auto& [number, connection] : connections_) {
    if (connection.from == station) return;
  }
  station->ended.Notify();
}

InprocNetwork::InprocNetwork(bs::Executor* executor) : impl_(std::make_shared<Impl>(executor)) {}

InprocNetwork::~InprocNetwork() = default;

class InprocTransport final : public Transport {
 public:
  InprocTransport(InprocNetwork* network, bs::Executor* executor)
      : network_(network->impl_), station_(std::make_shared<Station>(executor)) {}
  InprocTransport(const InprocTransport&) = delete;
  InprocTransport& operator=(const InprocTransport&) = delete;
  ~InprocTransport() override {
    BS_CHECK(station_->muted);
    BS_CHECK(!network_->executor()->IsCurrent());
    station_->ended.Wait();
  }

  void Start(Handler handler) override {
    station_->executor->Post([station = station_, h = std::move(handler)]() mutable {
      station->handler = std::move(h);
    });
  }
  void Bind(const Address& address, BindDone done) override {
    Post([address, d = std::move(done)](Network* network, const StationPtr& station) mutable {
      network->Bind(station, address, std::move(d));
    });
  }
  void Connect(int32_t peer, const Address& address, int32_t own_id) override {
    Post([=](Network* network, const StationPtr& station) {
      network->Connect(station, peer, address, own_id);
    });
  }
  void Disconnect(int32_t peer, bs::Duration linger) override {
    Post([=](Network* network, const StationPtr& station) {
      network->Disconnect(station, peer, linger);
    });
  }
  void Send(Message message) override {
    Post([m = std::move(message)](Network* network, const StationPtr& station) mutable {
      network->Send(station, std::move(m));
    });
  }
  void Close(bs::Duration linger) override {
    station_->muted = true;
    Post([=](Network* network, const StationPtr& station) { network->Close(station, linger); });
  }

 private:
  using Network = InprocNetwork::Impl;

  template <typename F>
  void Post(F task) {
    network_->Post([station = station_, t = std::move(task)](Network* network) mutable {
      t(network, station);
    });
  }

  const std::shared_ptr<Network> network_;  // also held by tasks
  const StationPtr station_;                // also held by the network and by tasks
};

std::unique_ptr<Transport> MakeInprocTransport(InprocNetwork* network, bs::Executor* executor) {
  return std::make_unique<InprocTransport>(network, executor);
}

}  // namespace ps
