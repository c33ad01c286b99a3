// Hands waiting messages to one DEALER, most urgent first, and follows its monitor.
#include "transport/zmq/zmq_connection.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp_socket.h"
#include "wire/wire.h"

namespace ps {
namespace {

// Messages that go out in a turn of the loop; then other sockets get their turn.
constexpr int kSentPerTurn = 64;

// A frame on its way through libzmq.  `handed` orders our writes before the release on libzmq's
// thread; libzmq does so itself, but ThreadSanitizer does not see into it.
struct Outgoing {
  explicit Outgoing(Frame f) : frame(std::move(f)) {}
  Frame frame;
  std::atomic<bool> handed = false;
};

void ReleaseOutgoing(void* /*data*/, void* hint) {
  const std::unique_ptr<Outgoing> outgoing(static_cast<Outgoing*>(hint));
  static_cast<void>(outgoing->handed.load(std::memory_order_acquire));
}

// A part that borrows the frame until libzmq releases it.
void InitBorrowed(zmq_msg_t* part, Frame frame) {
  if (frame.size() == 0) {
    zmq_msg_init(part);
    return;
  }
  auto outgoing = std::make_unique<Outgoing>(std::move(frame));
  const auto bytes = outgoing->frame.bytes();
  outgoing->handed.store(true, std::memory_order_release);
  // libzmq takes void* but does not write.
  void* const data = const_cast<std::byte*>(bytes.data());
  BS_CHECK(zmq_msg_init_data(part, data, bytes.size(), ReleaseOutgoing, outgoing.release()) == 0);
}

bool SendPart(zmq_msg_t* part, const ZmqSocket& socket, bool more) {
  if (zmq_msg_send(part, socket.get(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0) return true;
  zmq_msg_close(part);
  return false;
}

}  // namespace

ZmqConnection::ZmqConnection(bs::LoopThread* loop, const ZmqOptions& options, uint64_t number,
                             ConnectionListener listener)
    : loop_(loop), options_(options), number_(number), listener_(std::move(listener)) {}

ZmqConnection::~ZmqConnection() {
  monitor_.reset();
  if (dealer_) {
    loop_->Unwatch(dealer_->fd());
    dealer_->SetLinger(deadline_ - loop_->Now());
  }
}

bs::Status ZmqConnection::Open(const ZmqContext& context, const std::string& endpoint,
                               const std::string& identity) {
  auto dealer = ZmqSocket::Open(context, ZMQ_DEALER);
  if (!dealer.ok()) return dealer.status();
  dealer_ = std::move(dealer.value());
  if (!identity.empty()) dealer_->SetIdentity(identity);
  if (options_.curve) ConnectWith(*options_.curve, dealer_.get());
  // Commits no message before there is a connection.
  dealer_->Set(ZMQ_IMMEDIATE, 1);
  dealer_->Set(ZMQ_SNDHWM, options_.committed_messages);
  dealer_->Set(ZMQ_RCVHWM, 1);  // peers respond on their own connection; nothing is read here
  loop_->WatchReadable(dealer_->fd(), [this] { Pump(); });
  bs::Status monitored = OpenMonitor(context);
  if (!monitored.ok()) return monitored;
  if (listener_.on_attempt) {
    probe_ = std::make_unique<ConnectProbe>(loop_, endpoint, [this](const std::string& what) {
      attempt_told_ = true;
      if (listener_.on_attempt) listener_.on_attempt(what);
    });
  }
  if (options_.ipv6 || endpoint.starts_with("tcp://[")) dealer_->Set(ZMQ_IPV6, 1);
  if (zmq_connect(dealer_->get(), endpoint.c_str()) != 0) {
    return bs::Status::InvalidArgument(endpoint + ": " + zmq_strerror(errno));
  }
  return bs::Status::Ok();
}

bs::Status ZmqConnection::OpenMonitor(const ZmqContext& context) {
  constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                          ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CONNECT_RETRIED |
                          ZMQ_EVENT_DISCONNECTED | kHandshakeFailed;
  auto monitor =
      ZmqMonitor::Open(loop_, context, dealer_.get(), "connection-" + std::to_string(number_),
                       kEvents, [this](int event, int value) { OnMonitorEvent(event, value); });
  if (!monitor.ok()) return monitor.status();
  monitor_ = std::move(monitor.value());
  return bs::Status::Ok();
}

void ZmqConnection::OnMonitorEvent(int event, int value) {
  // If the connection has broken, the descriptor is closed or another connection of ours; neither
  // does harm.
  if (event == ZMQ_EVENT_CONNECTED && !options_.ipc) TuneSending(value, options_.unsent_bytes);
  OnAttemptEvent(event);
  if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && !connected_) {
    connected_ = true;
    if (listener_.on_connected) listener_.on_connected();
  }
  if (event == ZMQ_EVENT_DISCONNECTED && connected_) {
    connected_ = false;
    if (listener_.on_disconnected) listener_.on_disconnected();
  }
  if ((event & kHandshakeFailed) != 0 && listener_.on_refused) {
    std::exchange(listener_.on_refused, {})("");
  }
}

void ZmqConnection::OnAttemptEvent(int event) {
  if (!probe_) return;
  if (event == ZMQ_EVENT_CONNECTED) probe_.reset();
  if (event == ZMQ_EVENT_CONNECT_DELAYED && !attempt_told_) probe_->TellSilence();
  if (event == ZMQ_EVENT_CONNECT_RETRIED) probe_->Begin();
}

void ZmqConnection::Send(Message message) {
  queue_.Add(std::move(message));
  Pump();
}

void ZmqConnection::Drain(bs::TimePoint deadline, bs::Task on_drained) {
  listener_ = {};
  deadline_ = deadline;
  on_drained_ = std::move(on_drained);
  PumpLater();
}

void ZmqConnection::Pump() {
  int sent = 0;
  while ((dealer_->Events() & ZMQ_POLLOUT) != 0 && !queue_.empty()) {
    if (sent++ == kSentPerTurn) return PumpLater();
    if (!Hand(queue_.first())) continue;
    queue_.Take();
  }
  if (queue_.empty() && on_drained_) loop_->Post(std::exchange(on_drained_, {}));
}

void ZmqConnection::PumpLater() {
  if (std::exchange(pump_posted_, true)) return;
  loop_->Post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->pump_posted_ = false;
    self->Pump();
  });
}

bool ZmqConnection::Hand(Message* message) {
  const std::string meta = EncodeMeta(message->meta);
  zmq_msg_t part;
  BS_CHECK(zmq_msg_init_size(&part, meta.size()) == 0);
  std::memcpy(zmq_msg_data(&part), meta.data(), meta.size());
  size_t left = message->data.size();
  if (!SendPart(&part, *dealer_, left > 0)) return false;
  for (Frame& frame : message->data) {
    --left;
    InitBorrowed(&part, std::move(frame));
    // If the connection breaks between two parts, libzmq drops the whole message but still requires
    // the remaining parts.
    static_cast<void>(SendPart(&part, *dealer_, left > 0));
  }
  return true;
}

}  // namespace ps
