// The node's sockets on one loop: a listener with what it has accepted, and a link for each peer.
#include "tcp_transport.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/notification.h"
#include "limited_log.h"
#include "tcp_inbound.h"
#include "tcp_link.h"
#include "tcp_socket.h"
#include "wire.h"

namespace ps {
namespace {

constexpr bs::Duration kHandshakePatience = std::chrono::seconds(30);
// After accept has found no descriptor left.
constexpr bs::Duration kAcceptAgain = std::chrono::milliseconds(100);

// Everything behind the transport; on the loop but for what says otherwise.
//
// Held by the transport and by the tasks it posts, so a task that comes late finds it closed
// instead of gone.
class Hub : public std::enable_shared_from_this<Hub> {
 public:
  Hub(bs::LoopThread* loop, const TcpOptions& options, const bs::Logger& log)
      : loop_(loop),
        log_(log),
        strangers_(loop, log),
        scratch_(ZmtpInput::kScratchBytes),
        shared_{.loop = loop,
                .options = options,
                .input = {scratch_, std::make_shared<BlockPool>()},
                .lookup = [this] {
                  if (!lookup_) lookup_ = std::make_unique<bs::LoopThread>("bs-lookup");
                  return lookup_.get();
                }} {}

  // Thread-safe.  Runs `task` on the loop.
  template <typename F>
  void Post(F task) {
    loop_->Post([self = shared_from_this(), t = std::move(task)]() mutable { t(self.get()); });
  }

  // Thread-safe.  Whatever is called back from now on is dropped.
  void Mute() { muted_ = true; }
  // Blocks until everything is sent or given up.
  void AwaitEnd() {
    BS_CHECK(muted_);
    BS_CHECK(!loop_->IsCurrent());
    ended_.Wait();
    lookup_.reset();
  }

  void Start(Transport::Handler handler) { handler_ = std::move(handler); }
  void Bind(const Address& address, const Transport::BindDone& done);
  void Connect(int32_t peer, const Address& address, int32_t own_id);
  void Disconnect(int32_t peer, bs::Duration linger);
  void Send(Message message);
  void Close(bs::Duration linger);

 private:
  void Accept();
  void AcceptLater(const std::string& why);
  void Adopt(TcpSocket socket);
  void OnReady(uint64_t number, const std::string& identity);
  void OnInput(int32_t peer, bs::Result<Message> message);
  void Drop(uint64_t number, const bs::Status& why);
  TcpLink::Listener ListenerFor(int32_t peer, const Address& address);
  void DrainLink(std::shared_ptr<TcpLink> link, bs::TimePoint deadline);
  void DropLink(const std::shared_ptr<TcpLink>& link);
  void EndIfQuiet();

  bs::LoopThread* const loop_;
  const bs::Logger log_;
  LimitedLog strangers_;
  std::vector<std::byte> scratch_;
  const TcpLink::Shared shared_;
  std::unique_ptr<bs::LoopThread> lookup_;  // once a name was looked up; gone after AwaitEnd
  std::atomic<bool> muted_ = false;
  bs::Notification ended_;

  Transport::Handler handler_;
  TcpSocket listener_;
  bs::TimerId accept_again_ = 0;
  uint64_t next_inbound_ = 0;
  std::map<uint64_t, std::unique_ptr<TcpInbound>> inbound_;
  std::map<int32_t, std::shared_ptr<TcpLink>> links_;  // by peer
  // Links without a peer that still send, each with the timer that ends it.
  std::map<std::shared_ptr<TcpLink>, bs::TimerId> draining_;
  bool closed_ = false;
};

void Hub::Bind(const Address& address, const Transport::BindDone& done) {
  if (muted_) return;
  BS_CHECK(!listener_);
  auto listener = ListenTcp(address);
  if (!listener.ok()) return done(listener.status());
  listener_ = std::move(listener.value());
  loop_->WatchReadable(listener_.fd(), [this] { Accept(); });
  constexpr uint32_t kLoopbackNet = 127;
  const sockaddr_in local = LocalAddress(listener_);
  const int32_t port = ntohs(local.sin_port);
  if (ntohl(local.sin_addr.s_addr) >> 24U != kLoopbackNet) {
    log_.Warning("listening on " + address.host + ":" + std::to_string(port) +
                 " without BYTESCHEDULER_SECRET_FILE: whoever reaches this port can read and "
                 "change what is trained");
  }
  done(port);
}

void Hub::Accept() {
  for (;;) {
    TcpSocket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      Adopt(std::move(socket));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return AcceptLater("cannot accept a connection: " + std::system_category().message(errno));
    }
    // Else that one connection is gone before we had it.
  }
}

// It stays readable: without a pause the loop would do nothing else.
void Hub::AcceptLater(const std::string& why) {
  strangers_.Warning(why);
  loop_->UnwatchReadable(listener_.fd());
  accept_again_ = loop_->PostAt(loop_->Now() + kAcceptAgain, [this] {
    accept_again_ = 0;
    loop_->WatchReadable(listener_.fd(), [this] { Accept(); });
  });
}

void Hub::Adopt(TcpSocket socket) {
  const uint64_t number = next_inbound_++;
  // `this` outlives what it has accepted: only the loop destroys them, before the end of the hub.
  TcpInbound::Listener listener{
      .on_ready = [this, number](const std::string& identity) { OnReady(number, identity); },
      .on_message =
          [this, number](bs::Result<Message> message) {
            OnInput(IdOfIdentity(inbound_.at(number)->identity()), std::move(message));
          },
      .place =
          [this, number](const Meta& meta, uint64_t size_bytes) {
            const int32_t peer = IdOfIdentity(inbound_.at(number)->identity());
            return muted_ || !handler_.place ? nullptr : handler_.place(peer, meta, size_bytes);
          },
      .on_closed = [this, number](const bs::Status& why) { Drop(number, why); }};
  inbound_.emplace(number, std::make_unique<TcpInbound>(loop_, std::move(socket), shared_.input,
                                                        kHandshakePatience, std::move(listener)));
}

// A restarted peer comes back under its old identity; its dead connection must not be in the way.
void Hub::OnReady(uint64_t number, const std::string& identity) {
  if (identity.empty()) return;
  std::erase_if(inbound_, [&](const auto& other) {
    return other.first != number && other.second->identity() == identity;
  });
}

void Hub::OnInput(int32_t peer, bs::Result<Message> message) {
  if (muted_) return;
  if (!message.ok()) {
    if (handler_.on_garbage) handler_.on_garbage(peer, message.status());
    return;
  }
  message.value().peer = peer;
  if (handler_.on_message) handler_.on_message(std::move(message.value()));
}

void Hub::Drop(uint64_t number, const bs::Status& why) {
  const auto it = inbound_.find(number);
  if (why.code() == bs::StatusCode::kUnavailable) {
    log_.Debug([&] {
      return "the connection of " + it->second->DescribePeer() + " is over: " + why.message();
    });
  } else {
    strangers_.Warning("hung up on " + it->second->DescribePeer() + ": " + why.message());
  }
  inbound_.erase(it);
}

void Hub::Connect(int32_t peer, const Address& address, int32_t own_id) {
  if (closed_) return;
  links_.erase(peer);
  const bs::Status possible = CheckRemotePort(address);
  if (!possible.ok()) {
    log_.Warning("cannot reach " + DescribeId(peer) + ": " + possible.message());
    return;
  }
  const auto link =
      std::make_shared<TcpLink>(&shared_, address, IdentityOf(own_id), ListenerFor(peer, address));
  links_.emplace(peer, link);
  link->Open();
}

TcpLink::Listener Hub::ListenerFor(int32_t peer, const Address& address) {
  const auto say = [this, peer, address](const char* what) {
    log_.Debug([&] {
      return what + DescribeId(peer) + " at " + address.host + ":" + std::to_string(address.port);
    });
  };
  // `this` outlives its links: only the loop destroys them, before the end of the hub.
  return {.on_connected =
              [this, peer, say] {
                say("connected to ");
                if (!muted_ && handler_.on_connected) handler_.on_connected(peer);
              },
          .on_disconnected =
              [this, peer, say] {
                say("lost the connection to ");
                if (!muted_ && handler_.on_disconnected) handler_.on_disconnected(peer);
              },
          .on_refused =
              [this, peer](const std::string& what) {
                if (muted_ || closed_) return;
                log_.Warning(DescribeId(peer) +
                             " refused the handshake: do both have the "
                             "same BYTESCHEDULER_SECRET_FILE? (" +
                             what + ")");
              }};
}

void Hub::Disconnect(int32_t peer, bs::Duration linger) {
  auto link = links_.extract(peer);
  if (link) DrainLink(std::move(link.mapped()), loop_->Now() + linger);
}

void Hub::Send(Message message) {
  const auto link = links_.find(message.peer);
  if (link != links_.end()) link->second->Send(std::move(message));
}

void Hub::Close(bs::Duration linger) {
  if (closed_) return;
  closed_ = true;
  if (accept_again_ != 0) {
    loop_->Cancel(accept_again_);
  } else if (listener_) {
    loop_->UnwatchReadable(listener_.fd());
  }
  listener_ = TcpSocket();
  inbound_.clear();
  const bs::TimePoint deadline = loop_->Now() + linger;
  for (auto& [peer, link] : std::exchange(links_, {})) DrainLink(link, deadline);
  EndIfQuiet();
}

void Hub::DrainLink(std::shared_ptr<TcpLink> link, bs::TimePoint deadline) {
  const auto drop = [self = shared_from_this(), weak = std::weak_ptr<TcpLink>(link)] {
    if (const auto drained = weak.lock()) self->DropLink(drained);
  };
  link->Drain(drop);
  const bs::TimerId timer = loop_->PostAt(deadline, drop);
  draining_.emplace(std::move(link), timer);
}

void Hub::DropLink(const std::shared_ptr<TcpLink>& link) {
  const auto it = draining_.find(link);
  if (it == draining_.end()) return;
  loop_->Cancel(it->second);
  draining_.erase(it);
  EndIfQuiet();
}

void Hub::EndIfQuiet() {
  if (closed_ && draining_.empty()) ended_.Notify();
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(bs::LoopThread* loop, const TcpOptions& options, const bs::Logger& log)
      : hub_(std::make_shared<Hub>(loop, options, log)) {}
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;
  ~TcpTransport() override { hub_->AwaitEnd(); }

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
  void Close(bs::Duration linger) override {
    hub_->Mute();
    hub_->Post([linger](Hub* hub) { hub->Close(linger); });
  }

 private:
  const std::shared_ptr<Hub> hub_;  // also held by the tasks it posts
};

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(bs::LoopThread* loop, const TcpOptions& options,
                                            const bs::Logger& log) {
  return std::make_unique<TcpTransport>(loop, options, log);
}

}  // namespace ps
