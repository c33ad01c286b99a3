// The node's sockets on one loop: a listener, accepted connections, and a connection to each peer.
#include "transport/tcp/tcp_transport.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/guarded.h"
#include "base/limited_log.h"
#include "transport/loop_transport.h"
#include "transport/tcp/tcp_connection.h"
#include "transport/tcp/tcp_inbound.h"
#include "transport/tcp_queue.h"
#include "transport/tcp_socket.h"
#include "transport/unknown_peer_log.h"

namespace ps {
namespace {

// Pause after accept has found no descriptor left.
constexpr bs::Duration kAcceptAgain = std::chrono::milliseconds(100);
// Connections accepted in a turn of the loop; then other sockets get their turn.
constexpr int kAcceptsPerTurn = 16;

int MostStrangers(const TcpOptions& options) {
  if (options.most_strangers > 0) return options.most_strangers;
  constexpr rlim_t kMost = 4096;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return kMost;
  return static_cast<int>(std::clamp<rlim_t>(descriptors.rlim_cur / 4, 1, kMost));
}

VerbsDevice::Access AccessFor(Lending use) {
  return use == Lending::kSent ? VerbsDevice::Access::kLend : VerbsDevice::Access::kFill;
}

// Null, and the log says why, if it cannot be used.
std::shared_ptr<RdmaNic> OpenNic(bs::LoopThread* loop, const RdmaOptions& options,
                                 const bs::Logger& log) {
  if (!options.verbs) return nullptr;
  const auto watch = [loop](int fd, const std::function<void()>& on_readable) {
    on_readable ? loop->WatchReadable(fd, on_readable) : loop->Unwatch(fd);
  };
  const RdmaNic::Loop of{.executor = loop, .watch = watch};
  auto nic = RdmaNic::Open(of, options, log);
  if (nic.ok()) return std::move(nic.value());
  log.Warning("no RDMA, so data goes over TCP: " + nic.status().message());
  return nullptr;
}

// The network of a LoopTransport; see loop_transport.h for the promises.
class TcpNetwork {
 public:
  using Options = TcpOptions;
  using Connection = TcpConnection;

  TcpNetwork(bs::LoopThread* loop, const TcpOptions& options, const Upcalls* upcalls,
             const bs::Logger& log)
      : loop_(loop),
        log_(log),
        upcalls_(upcalls),
        refusals_(loop, log),
        unknown_peers_(loop, log),
        most_strangers_(MostStrangers(options)),
        scratch_(ZmtpInput::kScratchBytes),
        nic_(OpenNic(loop, options.rdma, log)),
        budget_(loop, options.link_ahead, {.held_bytes = HeldBytes, .round_trip = LeastRoundTrip}),
        shared_{.loop = loop,
                .options = options,
                .budget = options.link_ahead > bs::Duration(0) ? &budget_ : nullptr,
                .input = {scratch_, std::make_shared<BlockPool>()},
                .lookup = [this](bool apart) { return LookupThread(apart); },
                .on_no_socket =
                    [this](const bs::Status& why) {
                      refusals_.Warning("cannot connect: " + why.message());
                    },
                .on_no_memory = [this](const bs::Status& why) { OnNoMemory(why); },
                .nic = nic_.get(),
                .on_rdma = [this](const std::string& what) { log_.Warning(what); }} {}
  TcpNetwork(const TcpNetwork&) = delete;
  TcpNetwork& operator=(const TcpNetwork&) = delete;
  ~TcpNetwork() = default;

  bs::Result<Listening> Listen(const Address& address);
  bs::Result<std::shared_ptr<TcpConnection>> Connect(int32_t peer, const Address& address,
                                                     const std::string& identity,
                                                     ConnectionListener listener);
  std::shared_ptr<void> Lend(std::span<std::byte> memory, Lending use) const;
  bs::Result<std::shared_ptr<Registration>> Register(std::span<std::byte> memory,
                                                     Lending use) const;
  // kUnknown: there is no connection of `peer`.
  bs::Carrier CarrierFrom(int32_t peer) const;
  void StopListening();
  void AwaitEnd() {
    lookup_.reset();
    lookup_apart_.reset();
  }

 private:
  // Null if the system has no thread.
  bs::LoopThread* LookupThread(bool apart);
  void Accept();
  void AcceptLater(const std::string& why);
  void Adopt(TcpSocket socket);
  // Hangs up on the host's oldest connection from outside the job if there are too many.
  void BoundStrangers(const std::string& host);
  void OnReady(uint64_t number, const std::string& identity);
  void OnNoMemory(const bs::Status& why);
  void OnInput(uint64_t number, int32_t peer, bs::Result<Message> message);
  void Drop(uint64_t number, const bs::Status& why);

  bs::LoopThread* const loop_;
  const bs::Logger log_;
  const Upcalls* const upcalls_;
  bs::LimitedLog refusals_;
  UnknownPeerLog unknown_peers_;
  const int most_strangers_;  // of a host
  std::vector<std::byte> scratch_;
  const std::shared_ptr<RdmaNic> nic_;  // null: no RDMA
  LinkBudget budget_;
  const TcpConnection::Shared shared_;
  bool told_of_no_memory_ = false;
  // Made when a name is first looked up there; destroyed by AwaitEnd.
  std::unique_ptr<bs::LoopThread> lookup_;
  std::unique_ptr<bs::LoopThread> lookup_apart_;  // for nodes that get no place

  TcpSocket listener_;
  bs::TimerId accept_again_ = 0;
  uint64_t next_inbound_ = 0;
  std::map<uint64_t, std::unique_ptr<TcpInbound>> inbound_;
};

bs::Result<Listening> TcpNetwork::Listen(const Address& address) {
  BS_CHECK(!listener_);
  auto listener = ListenTcp(address);
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener.value());
  loop_->WatchReadable(listener_.fd(), [this] { Accept(); });
  const SocketAddress local = LocalAddress(listener_);
  return Listening{.port = local.port(), .exposed = !local.is_loopback()};
}

bs::LoopThread* TcpNetwork::LookupThread(bool apart) {
  std::unique_ptr<bs::LoopThread>& thread = apart ? lookup_apart_ : lookup_;
  if (thread) return thread.get();
  const bs::Status made = bs::Guarded([&] {
    thread = std::make_unique<bs::LoopThread>("bs-lookup");
    return bs::Status::Ok();
  });
  if (!made.ok()) refusals_.Warning("cannot look up names of hosts: " + made.message());
  return thread.get();
}

void TcpNetwork::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    TcpSocket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      Adopt(std::move(socket));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return AcceptLater("cannot accept a connection: " + bs::SystemError(errno));
    }
    // Otherwise this connection was gone before it was accepted.
  }
}

// The listener stays readable: without a pause the loop would do nothing else.
void TcpNetwork::AcceptLater(const std::string& why) {
  refusals_.Warning(why);
  loop_->Unwatch(listener_.fd());
  accept_again_ = loop_->PostAt(loop_->Now() + kAcceptAgain, [this] {
    accept_again_ = 0;
    loop_->WatchReadable(listener_.fd(), [this] { Accept(); });
  });
}

void TcpNetwork::Adopt(TcpSocket socket) {
  const uint64_t number = next_inbound_++;
  // `this` outlives the accepted connections: only the loop destroys them, before the network ends.
  TcpInbound::Listener listener{
      .on_ready = [this, number](const std::string& identity) { OnReady(number, identity); },
      .on_message = [this, number](
                        int32_t peer,
                        bs::Result<Message> message) { OnInput(number, peer, std::move(message)); },
      .place = [this](int32_t peer, const Meta& meta,
                      uint64_t size_bytes) { return upcalls_->Place(peer, meta, size_bytes); },
      .knows = [this](int32_t peer) { return upcalls_->Knows(peer); },
      .most_bytes = [this](int32_t peer,
                           const Meta& meta) { return upcalls_->MostBytes(peer, meta); },
      .on_memory_refused =
          [this, number](const std::string& why) {
            log_.Debug(
                [&] { return "refused memory of " + inbound_.at(number)->address() + ": " + why; });
          },
      .on_rdma_refused =
          [this](const std::string& peer, const std::string& why) {
            log_.Warning("no RDMA from " + peer + ": " + why);
          },
      .on_closed = [this, number](const bs::Status& why) { Drop(number, why); }};
  auto inbound = std::make_unique<TcpInbound>(
      loop_, std::move(socket), shared_.input, shared_.options.patience,
      TcpInbound::Takes{.memory = shared_.options.shared_bytes > 0, .nic = nic_.get()},
      std::move(listener));
  const std::string host = UnknownPeerLog::HostOf(inbound->address());
  inbound_.emplace(number, std::move(inbound));
  BoundStrangers(host);
}

void TcpNetwork::BoundStrangers(const std::string& host) {
  int count = 0;
  uint64_t oldest = 0;
  for (const auto& [number, inbound] : inbound_) {
    if (!inbound->stranger() || UnknownPeerLog::HostOf(inbound->address()) != host) continue;
    if (count++ == 0) oldest = number;
  }
  if (count <= most_strangers_) return;
  Drop(oldest, bs::Status::ResourceExhausted("it is not in the job, and its host has " +
                                             std::to_string(most_strangers_) +
                                             " such connections already"));
}

// A restarted peer comes back under its old identity; its dead connection must give way.
void TcpNetwork::OnReady(uint64_t number, const std::string& identity) {
  if (identity.empty()) return;
  bool torn = false;
  const size_t ended = std::erase_if(inbound_, [&](const auto& other) {
    const bool earlier = other.first != number && other.second->identity() == identity;
    torn = torn || (earlier && other.second->torn());
    return earlier;
  });
  const int32_t peer = inbound_.at(number)->peer();
  if (peer == kEmpty) return;
  if (ended > 0) upcalls_->OnInboundEnded(peer, torn);
  upcalls_->OnInbound(peer);
}

// Warns once: the cause concerns every peer.
void TcpNetwork::OnNoMemory(const bs::Status& why) {
  if (std::exchange(told_of_no_memory_, true)) return;
  log_.Warning(
      "no memory to share with nodes of this host, so what is sent to them goes through "
      "sockets: " +
      why.message());
}

void TcpNetwork::OnInput(uint64_t number, int32_t peer, bs::Result<Message> message) {
  if (!message.ok()) {
    if (!upcalls_->Knows(peer)) {
      unknown_peers_.Tell("dropped bytes from", inbound_.at(number)->address(),
                          message.status().message());
    }
    return upcalls_->OnGarbage(peer, message.status());
  }
  message.value().peer = peer;
  upcalls_->OnMessage(std::move(message.value()));
}

void TcpNetwork::Drop(uint64_t number, const bs::Status& why) {
  // All that the peer sent before it hung up has come.  It may end this connection as well.
  if (inbound_.at(number)->has_rdma()) nic_->Settle();
  const auto it = inbound_.find(number);
  if (it == inbound_.end()) return;
  if (why.code() == bs::StatusCode::kUnavailable) {
    if (it->second->stranger()) unknown_peers_.CameAndWent(it->second->address());
    log_.Debug([&] {
      return "the connection of " + it->second->address() + " is over: " + why.message();
    });
  } else {
    unknown_peers_.Tell("hung up on", it->second->address(), why.message());
  }
  const int32_t peer = it->second->peer();
  const bool torn = it->second->torn();
  inbound_.erase(it);
  if (peer != kEmpty) upcalls_->OnInboundEnded(peer, torn);
}

bs::Result<std::shared_ptr<TcpConnection>> TcpNetwork::Connect(int32_t peer, const Address& address,
                                                               const std::string& identity,
                                                               ConnectionListener listener) {
  bs::Status possible = CheckRemotePort(address);
  if (!possible.ok()) return possible;
  const bool apart = peer >= kFirstRefusedId;
  auto connection =
      std::make_shared<TcpConnection>(&shared_, address, identity, std::move(listener), apart);
  connection->Open();
  return connection;
}

std::shared_ptr<void> TcpNetwork::Lend(std::span<std::byte> memory, Lending use) const {
  if (!nic_) return nullptr;
  auto loan = nic_->memory()->Lend(memory, AccessFor(use));
  return loan.ok() ? std::shared_ptr<void>(std::move(loan.value())) : nullptr;
}

bs::Result<std::shared_ptr<Registration>> TcpNetwork::Register(std::span<std::byte> memory,
                                                               Lending use) const {
  if (!nic_) return std::shared_ptr<Registration>();
  return nic_->memory()->Keep(memory, AccessFor(use));
}

bs::Carrier TcpNetwork::CarrierFrom(int32_t peer) const {
  for (const auto& [number, inbound] : inbound_) {
    if (inbound->peer() == peer) return inbound->carrier();
  }
  return bs::Carrier::kUnknown;
}

void TcpNetwork::StopListening() {
  if (accept_again_ != 0) {
    loop_->Cancel(accept_again_);
  } else if (listener_) {
    loop_->Unwatch(listener_.fd());
  }
  listener_ = TcpSocket();
  inbound_.clear();
}

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(bs::LoopThread* loop, const TcpOptions& options,
                                            const bs::Logger& log) {
  return std::make_unique<LoopTransport<TcpNetwork>>(loop, options, log);
}

}  // namespace ps
