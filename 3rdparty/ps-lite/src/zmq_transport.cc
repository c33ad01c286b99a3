// The node's sockets on one loop: a ROUTER that receives, and a link for each peer.
#include "zmq_transport.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/notification.h"
#include "limited_log.h"
#include "wire.h"
#include "zmq_endpoint.h"
#include "zmq_link.h"
#include "zmq_socket.h"

namespace ps {
namespace {

// So many messages come in in one turn of the loop, then others get theirs.
constexpr int kMessagesPerTurn = 64;

// Who is at the other end of a connection, for people.
std::string PeerOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "gone already";
  if (address.sin_family != AF_INET) return "on this host";
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return std::string(text.data()) + ":" + std::to_string(ntohs(address.sin_port));
}

// Everything behind the transport; on the loop but for what says otherwise.
//
// Held by the transport and by the tasks it posts, so a task that comes late finds it closed
// instead of gone.
class Hub : public std::enable_shared_from_this<Hub> {
 public:
  Hub(bs::LoopThread* loop, const ZmqOptions& options, const bs::Logger& log)
      : loop_(loop),
        options_(options),
        log_(log),
        refusals_(loop, log),
        context_(std::make_unique<ZmqContext>(options.io_threads, options.max_sockets)) {}

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
    context_.reset();
  }

  void Start(Transport::Handler handler) { handler_ = std::move(handler); }
  void Bind(const Address& address, const Transport::BindDone& done);
  void Connect(int32_t peer, const Address& address, int32_t own_id);
  void Disconnect(int32_t peer, bs::Duration linger);
  void Send(Message message);
  void Close(bs::Duration linger);

 private:
  void DrainLink(std::shared_ptr<ZmqLink> link, bs::TimePoint deadline);
  void DropLink(const std::shared_ptr<ZmqLink>& link);
  void EndIfQuiet();
  ZmqLink::Listener ListenerFor(int32_t peer, const Address& address);
  void Receive();
  void ReceiveLater();
  void ReceiveMessage();
  void Deliver(int32_t peer, std::vector<std::unique_ptr<ZmqMessage>> parts, size_t num_parts);
  void ReportGarbage(int32_t peer, bs::Status what);
  // Logs connections that come without our keys.
  bs::Status WatchRefusals();

  bs::LoopThread* const loop_;
  const ZmqOptions options_;
  const bs::Logger log_;
  LimitedLog refusals_;
  std::unique_ptr<ZmqContext> context_;  // gone after AwaitEnd
  std::atomic<bool> muted_ = false;
  bs::Notification ended_;

  Transport::Handler handler_;
  std::unique_ptr<ZmqListener> listener_;
  std::shared_ptr<ZmqMonitor> refusal_monitor_;  // with keys only
  std::string latest_caller_;
  std::map<int32_t, std::shared_ptr<ZmqLink>> links_;  // by peer
  // Links without a peer that still send, each with the timer that ends it.
  std::map<std::shared_ptr<ZmqLink>, bs::TimerId> draining_;
  uint64_t next_link_ = 0;
  bool receive_posted_ = false;
  bool closed_ = false;
};

void Hub::Bind(const Address& address, const Transport::BindDone& done) {
  if (muted_) return;
  BS_CHECK(listener_ == nullptr);
  auto listener = ZmqListener::Open(*context_, address, options_.ipc, options_.curve);
  if (!listener.ok()) return done(listener.status());
  listener_ = std::move(listener.value());
  loop_->WatchReadable(listener_->socket().fd(), [this] { Receive(); });
  ReceiveLater();  // what came before the watch began is not told
  if (options_.curve) {
    const bs::Status watched = WatchRefusals();
    if (!watched.ok()) return done(watched);
  } else if (!options_.ipc && !listener_->loopback()) {
    log_.Warning("listening on " + address.host + ":" + std::to_string(listener_->port()) +
                 " without BYTESCHEDULER_SECRET_FILE: whoever reaches this port can read and "
                 "change what is trained");
  }
  done(listener_->port());
}

bs::Status Hub::WatchRefusals() {
  auto monitor = ZmqMonitor::Open(
      loop_, *context_, &listener_->socket(), "listener", ZMQ_EVENT_ACCEPTED | kHandshakeFailed,
      [this](int event, int value) {
        if (event == ZMQ_EVENT_ACCEPTED) latest_caller_ = PeerOf(value);
        if ((event & kHandshakeFailed) == 0) return;
        refusals_.Warning("refused a connection whose handshake failed (the latest caller was " +
                          latest_caller_ +
                          "): it has no or another BYTESCHEDULER_SECRET_FILE. "
                          "MXNet's own stores cannot have one");
      });
  if (!monitor.ok()) return monitor.status();
  refusal_monitor_ = std::move(monitor.value());
  return bs::Status::Ok();
}

void Hub::Connect(int32_t peer, const Address& address, int32_t own_id) {
  if (closed_) return;
  links_.erase(peer);
  const auto endpoint = RemoteEndpoint(address, options_.ipc);
  bs::Status status = endpoint.status();
  if (endpoint.ok()) {
    auto link =
        std::make_shared<ZmqLink>(loop_, options_, next_link_++, ListenerFor(peer, address));
    status = link->Open(*context_, endpoint.value(), IdentityOf(own_id));
    if (status.ok()) links_.emplace(peer, std::move(link));
  }
  if (!status.ok()) log_.Warning("cannot reach " + DescribeId(peer) + ": " + status.message());
}

ZmqLink::Listener Hub::ListenerFor(int32_t peer, const Address& address) {
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
              [this, peer] {
                if (muted_ || closed_) return;
                log_.Warning(DescribeId(peer) +
                             " refused the handshake: do both have the "
                             "same BYTESCHEDULER_SECRET_FILE?");
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
  if (listener_) loop_->UnwatchReadable(listener_->socket().fd());
  refusal_monitor_.reset();
  listener_.reset();
  const bs::TimePoint deadline = loop_->Now() + linger;
  for (auto& [peer, link] : std::exchange(links_, {})) DrainLink(link, deadline);
  EndIfQuiet();
}

void Hub::DrainLink(std::shared_ptr<ZmqLink> link, bs::TimePoint deadline) {
  const auto drop = [self = shared_from_this(), weak = std::weak_ptr<ZmqLink>(link)] {
    if (const auto drained = weak.lock()) self->DropLink(drained);
  };
  link->Drain(deadline, drop);
  const bs::TimerId timer = loop_->PostAt(deadline, drop);
  draining_.emplace(std::move(link), timer);
}

void Hub::DropLink(const std::shared_ptr<ZmqLink>& link) {
  const auto it = draining_.find(link);
  if (it == draining_.end()) return;
  loop_->Cancel(it->second);
  draining_.erase(it);
  EndIfQuiet();
}

void Hub::EndIfQuiet() {
  if (closed_ && draining_.empty()) ended_.Notify();
}

void Hub::Receive() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    if (!listener_ || (listener_->socket().Events() & ZMQ_POLLIN) == 0) return;
    ReceiveMessage();
  }
  ReceiveLater();
}

void Hub::ReceiveLater() {
  if (std::exchange(receive_posted_, true)) return;
  Post([](Hub* self) {
    self->receive_posted_ = false;
    self->Receive();
  });
}

void Hub::ReceiveMessage() {
  ZmqMessage identity;
  if (!identity.ReceiveFrom(listener_->socket())) return;
  std::vector<std::unique_ptr<ZmqMessage>> parts;
  size_t num_parts = 0;
  for (bool more = identity.more(); more; ++num_parts) {
    auto part = std::make_unique<ZmqMessage>();
    if (!part->ReceiveFrom(listener_->socket())) break;
    more = part->more();
    if (num_parts <= kMaxDataFrames) parts.push_back(std::move(part));
  }
  Deliver(IdOfIdentity(identity.text()), std::move(parts), num_parts);
}

void Hub::Deliver(int32_t peer, std::vector<std::unique_ptr<ZmqMessage>> parts, size_t num_parts) {
  if (num_parts == 0) return ReportGarbage(peer, bs::Status::InvalidArgument("no meta frame"));
  if (num_parts > 1 + kMaxDataFrames) {
    return ReportGarbage(peer, bs::Status::InvalidArgument(std::to_string(num_parts - 1) +
                                                           " data frames are too many"));
  }
  auto meta = ParseMeta(parts.front()->bytes());
  if (!meta.ok()) return ReportGarbage(peer, meta.status());
  Message message{.peer = peer, .meta = std::move(meta.value())};
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto bytes = parts[i]->bytes();
    message.data.push_back(Frame::Borrow(bytes, [part = std::move(parts[i])] {}));
  }
  if (!muted_ && handler_.on_message) handler_.on_message(std::move(message));
}

void Hub::ReportGarbage(int32_t peer, bs::Status what) {
  if (!muted_ && handler_.on_garbage) handler_.on_garbage(peer, std::move(what));
}

class ZmqTransport final : public Transport {
 public:
  ZmqTransport(bs::LoopThread* loop, const ZmqOptions& options, const bs::Logger& log)
      : hub_(std::make_shared<Hub>(loop, options, log)) {}
  ZmqTransport(const ZmqTransport&) = delete;
  ZmqTransport& operator=(const ZmqTransport&) = delete;
  ~ZmqTransport() override { hub_->AwaitEnd(); }

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

std::unique_ptr<Transport> MakeZmqTransport(bs::LoopThread* loop, const ZmqOptions& options,
                                            const bs::Logger& log) {
  return std::make_unique<ZmqTransport>(loop, options, log);
}

}  // namespace ps
