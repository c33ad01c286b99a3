// LoopTransport: a transport over sockets of one loop, with a connection for each peer.
//
// Such transports differ in the network, a class confined to the loop:
//
//   using Options = ...;  // with most_waiting_bytes and sent
//   // The connection to one peer.  Held by one owner and destroyed on the loop.  Destruction drops
//   // messages that have not left, unless the network goes on with them until Drain's deadline.
//   class Connection {
//     void Send(Message message);
//     uint64_t waiting_bytes() const;
//     // Sends the messages that wait, and posts `on_drained` when none waits.  Calls its listener
//     // no more.  The owner drops the connection then, or at `deadline`.
//     void Drain(bs::TimePoint deadline, bs::Task on_drained);
//   };
//   Network(bs::LoopThread* loop, const Options& options, const Upcalls* upcalls, bs::Logger log);
//   // Called at most once.  Incoming messages go to `upcalls`.
//   bs::Result<Listening> Listen(const Address& address);
//   // Fails for an address that cannot exist; retries an address where no node listens yet.
//   bs::Result<std::shared_ptr<Connection>> Connect(int32_t peer, const Address& address,
//                                             const std::string& identity, ConnectionListener
//                                             listener);
//   // See Transport::Lend.  Thread-safe.  May be missing.
//   std::shared_ptr<void> Lend(std::span<std::byte> memory, Lending use);
//   // See Transport::Register.  Thread-safe.  Is there if Lend is.
//   bs::Result<std::shared_ptr<Registration>> Register(std::span<std::byte> memory, Lending use);
//   // Receives nothing from now on.
//   void StopListening();
//   // Blocks.  REQUIRES: not called on the loop; after StopListening; every connection is gone.
//   void AwaitEnd();
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/loop_thread.h"
#include "base/notification.h"
#include "ps/transport.h"
#include "transport/connection_listener.h"
#include "transport/upcalls.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace ps {

// Where a network listens.
struct Listening {
  int32_t port = 0;
  bool exposed = false;  // to other hosts, without encryption
};

// The state behind the transport.  Every method runs on the loop unless it says otherwise.
//
// Held by the transport and by the tasks it posts, so that a late task finds a closed hub, not a
// destroyed hub.
template <typename Network>
class ConnectionHub : public std::enable_shared_from_this<ConnectionHub<Network>> {
 public:
  ConnectionHub(bs::LoopThread* loop, const typename Network::Options& options,
                const bs::Logger& log)
      : loop_(loop),
        log_(log),
        most_waiting_bytes_(options.most_waiting_bytes),
        sent_(options.sent),
        network_(loop, options, &upcalls_, log) {}
  ConnectionHub(const ConnectionHub&) = delete;
  ConnectionHub& operator=(const ConnectionHub&) = delete;
  ~ConnectionHub() = default;

  // Thread-safe.  Runs `task` on the loop.
  template <typename F>
  void Post(F task) {
    loop_->Post(
        [self = this->shared_from_this(), t = std::move(task)]() mutable { t(self.get()); });
  }

  // Thread-safe.
  std::shared_ptr<void> Lend(std::span<std::byte> memory, Lending use) {
    if constexpr (requires { network_.Lend(memory, use); }) return network_.Lend(memory, use);
    return nullptr;
  }
  // Thread-safe.
  bs::Result<std::shared_ptr<Registration>> Register(std::span<std::byte> memory, Lending use) {
    if constexpr (requires { network_.Lend(memory, use); }) return network_.Register(memory, use);
    return std::shared_ptr<Registration>();
  }
  // REQUIRES: called on the loop.
  bs::Carriers CarriersOf(int32_t peer) const {
    bs::Carriers carriers;
    if constexpr (requires { network_.CarrierFrom(peer); }) {
      const auto connection = connections_.find(peer);
      if (connection != connections_.end()) carriers.to = connection->second->carrier();
      carriers.from = network_.CarrierFrom(peer);
    }
    return carriers;
  }
  // Thread-safe.  Drops every callback from now on.
  void Mute() { upcalls_.Mute(); }
  // Blocks until every message is sent or given up.  REQUIRES: not called on the loop; Close was
  // posted.
  void AwaitEnd() {
    BS_CHECK(upcalls_.muted());
    BS_CHECK(!loop_->IsCurrent());
    ended_.Wait();
    network_.AwaitEnd();
  }

  void Start(Transport::Handler handler) { upcalls_.Start(std::move(handler)); }
  void Bind(const Address& address, const Transport::BindDone& done);
  void Connect(int32_t peer, const Address& address, int32_t own_id);
  void Disconnect(int32_t peer, bs::Duration linger);
  void Send(Message message);
  void Close(bs::Duration linger);

 private:
  using Connection = typename Network::Connection;

  ConnectionListener ListenerFor(int32_t peer, const Address& address);
  void DrainConnection(std::shared_ptr<Connection> connection, bs::TimePoint deadline);
  void DropConnection(const std::shared_ptr<Connection>& connection);
  void EndIfQuiet();

  bs::LoopThread* const loop_;
  const bs::Logger log_;
  const uint64_t most_waiting_bytes_;
  const std::shared_ptr<SentCounts> sent_;  // may be null
  bs::Notification ended_;

  Upcalls upcalls_;
  Network network_;
  std::map<int32_t, std::shared_ptr<Connection>> connections_;  // by peer
  // Connections of forgotten peers that still send, each with the timer that ends it.
  std::map<std::shared_ptr<Connection>, bs::TimerId> draining_;
  bool closed_ = false;
};

template <typename Network>
void ConnectionHub<Network>::Bind(const Address& address, const Transport::BindDone& done) {
  if (upcalls_.muted()) return;
  const bs::Result<Listening> listening = network_.Listen(address);
  if (!listening.ok()) return done(listening.status());
  const int32_t port = listening.value().port;
  if (listening.value().exposed) {
    log_.Warning(
        "listening on " + TextOf({address.host, port}) +
        " without BYTESCHEDULER_SECRET_FILE: any process that reaches this port can read and "
        "change what is trained");
  }
  done(port);
}

template <typename Network>
void ConnectionHub<Network>::Connect(int32_t peer, const Address& address, int32_t own_id) {
  if (closed_) return;
  connections_.erase(peer);
  auto connection = network_.Connect(peer, address, IdentityOf(own_id), ListenerFor(peer, address));
  if (!connection.ok()) {
    log_.Warning("cannot reach " + DescribeId(peer) + ": " + connection.status().message());
    return;
  }
  connections_.emplace(peer, std::move(connection.value()));
}

template <typename Network>
ConnectionListener ConnectionHub<Network>::ListenerFor(int32_t peer, const Address& address) {
  const auto say = [this, peer, address](const char* what) {
    log_.Debug([&] { return what + DescribeId(peer) + " at " + TextOf(address); });
  };
  // `this` outlives its connections: only the loop destroys them, before the end of the hub.
  return {
      .on_connected =
          [this, peer, say] {
            say("connected to ");
            upcalls_.OnConnected(peer);
          },
      .on_foreign = [this, peer] { upcalls_.OnForeign(peer); },
      .on_disconnected =
          [this, peer, say] {
            say("lost the connection to ");
            upcalls_.OnDisconnected(peer);
          },
      .on_attempt = [this, peer](const std::string& what) { upcalls_.OnAttempt(peer, what); },
      .on_sharing =
          [say](bool shares) { say(shares ? "sharing memory with " : "memory was refused by "); },
      .on_rdma = [say] { say("RDMA carries what goes to "); },
      .on_no_rdma =
          [this, peer, address] {
            if (peer == kSchedulerId || peer >= kFirstTemporaryId) return;  // they get no data
            log_.Warning("no RDMA to " + DescribeId(peer) + " at " + TextOf(address) +
                         ": it offers none: set DMLC_ENABLE_RDMA there, and see its log");
          },
      .on_refused =
          [this, peer](const std::string& what) {
            if (upcalls_.muted()) return;
            log_.Warning(DescribeId(peer) +
                         " refused the handshake: do both have the same "
                         "BYTESCHEDULER_SECRET_FILE?" +
                         (what.empty() ? "" : " (" + what + ")"));
          }};
}

template <typename Network>
void ConnectionHub<Network>::Disconnect(int32_t peer, bs::Duration linger) {
  auto connection = connections_.extract(peer);
  if (connection) DrainConnection(std::move(connection.mapped()), loop_->Now() + linger);
}

template <typename Network>
void ConnectionHub<Network>::Send(Message message) {
  const auto connection = connections_.find(message.peer);
  if (connection == connections_.end()) return;
  if (sent_) ++sent_->messages;
  const uint64_t waiting_bytes = connection->second->waiting_bytes();
  if (waiting_bytes < most_waiting_bytes_) return connection->second->Send(std::move(message));
  const int32_t peer = message.peer;
  connections_.erase(connection);
  const std::string why = "it does not read: " + std::to_string(waiting_bytes) +
                          " bytes wait for it, and BYTESCHEDULER_WAITING lets " +
                          std::to_string(most_waiting_bytes_) + " do so";
  log_.Warning("dropped what waits for " + DescribeId(peer) + ": " + why);
  upcalls_.OnOverflow(peer, why);
}

template <typename Network>
void ConnectionHub<Network>::Close(bs::Duration linger) {
  if (std::exchange(closed_, true)) return;
  network_.StopListening();
  const bs::TimePoint deadline = loop_->Now() + linger;
  for (auto& [peer, connection] : std::exchange(connections_, {})) {
    DrainConnection(connection, deadline);
  }
  EndIfQuiet();
}

template <typename Network>
void ConnectionHub<Network>::DrainConnection(std::shared_ptr<Connection> connection,
                                             bs::TimePoint deadline) {
  const auto drop = [self = this->shared_from_this(),
                     weak = std::weak_ptr<Connection>(connection)] {
    if (const auto drained = weak.lock()) self->DropConnection(drained);
  };
  connection->Drain(deadline, drop);
  const bs::TimerId timer = loop_->PostAt(deadline, drop);
  draining_.emplace(std::move(connection), timer);
}

template <typename Network>
void ConnectionHub<Network>::DropConnection(const std::shared_ptr<Connection>& connection) {
  const auto it = draining_.find(connection);
  if (it == draining_.end()) return;
  loop_->Cancel(it->second);
  draining_.erase(it);
  EndIfQuiet();
}

template <typename Network>
void ConnectionHub<Network>::EndIfQuiet() {
  if (closed_ && draining_.empty()) ended_.Notify();
}

template <typename Network>
class LoopTransport final : public Transport {
 public:
  // See MakeTcpTransport and MakeZmqTransport for the promises.
  LoopTransport(bs::LoopThread* loop, const typename Network::Options& options,
                const bs::Logger& log)
      : hub_(std::make_shared<Hub>(loop, options, log)) {}
  LoopTransport(const LoopTransport&) = delete;
  LoopTransport& operator=(const LoopTransport&) = delete;
  ~LoopTransport() override { hub_->AwaitEnd(); }

  void Start(Handler handler) override {
    hub_->Post([h = std::move(handler)](Hub* hub) mutable { hub->Start(std::move(h)); });
  }
  void Bind(const Address& address, BindDone done) override {
    hub_->Post([address, d = std::move(done)](Hub* hub) { hub->Bind(address, d); });
  }
  void Connect(int32_t peer, const Address& address, int32_t own_id) override {
    hub_->Post([=](Hub* hub) { hub->Connect(peer, address, own_id); });
  }
  void Disconnect(int32_t peer, bs::Duration linger) override {
    hub_->Post([=](Hub* hub) { hub->Disconnect(peer, linger); });
  }
  void Send(Message message) override {
    hub_->Post([m = std::move(message)](Hub* hub) mutable { hub->Send(std::move(m)); });
  }
  std::shared_ptr<void> Lend(std::span<std::byte> memory, Lending use) override {
    return hub_->Lend(memory, use);
  }
  bs::Result<std::shared_ptr<Registration>> Register(std::span<std::byte> memory,
                                                     Lending use) override {
    return hub_->Register(memory, use);
  }
  bs::Carriers CarriersOf(int32_t peer) const override { return hub_->CarriersOf(peer); }
  void Close(bs::Duration linger) override {
    hub_->Mute();
    hub_->Post([linger](Hub* hub) { hub->Close(linger); });
  }

 private:
  using Hub = ConnectionHub<Network>;

  const std::shared_ptr<Hub> hub_;  // also held by the tasks it posts
};

}  // namespace ps
