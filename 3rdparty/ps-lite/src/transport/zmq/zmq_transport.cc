// The node's sockets on one loop: a ROUTER that receives, and a connection to each peer.
#include "transport/zmq/zmq_transport.h"

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/count_of.h"
#include "base/limited_log.h"
#include "transport/loop_transport.h"
#include "transport/tcp_socket.h"
#include "transport/zmq/zmq_callers.h"
#include "transport/zmq/zmq_connection.h"
#include "transport/zmq/zmq_endpoint.h"
#include "transport/zmq/zmq_socket.h"
#include "wire/fusion.h"
#include "wire/wire.h"

namespace ps {
namespace {

// Messages received in a turn of the loop; then other sockets get their turn.
constexpr size_t kReceivedPerTurn = 64;

// The network of a LoopTransport; see loop_transport.h for the promises.
class ZmqNetwork {
 public:
  using Options = ZmqOptions;
  using Connection = ZmqConnection;

  ZmqNetwork(bs::LoopThread* loop, const ZmqOptions& options, const Upcalls* upcalls,
             const bs::Logger& log)
      : loop_(loop),
        options_(options),
        upcalls_(upcalls),
        log_(log),
        refusals_(loop, log),
        callers_(loop, log, options.patience),
        context_(std::make_unique<ZmqContext>()) {}
  ZmqNetwork(const ZmqNetwork&) = delete;
  ZmqNetwork& operator=(const ZmqNetwork&) = delete;
  ~ZmqNetwork() = default;

  bs::Result<Listening> Listen(const Address& address);
  bs::Result<std::shared_ptr<ZmqConnection>> Connect(int32_t peer, const Address& address,
                                                     const std::string& identity,
                                                     ConnectionListener listener);
  void StopListening();
  void AwaitEnd() { context_.reset(); }

 private:
  void Receive();
  void ReceiveMessage();
  void Deliver(int32_t peer, std::vector<std::unique_ptr<ZmqMessage>> parts, size_t num_parts);
  void Drop(int32_t peer, const ZmqMessage& part, const std::string& why);
  // Logs connections without our keys or, if there are no keys, connections that send garbage.
  bs::Status WatchCallers();
  void OnRefusal(int event, int value);

  bs::LoopThread* const loop_;
  const ZmqOptions options_;
  const Upcalls* const upcalls_;
  const bs::Logger log_;
  bs::LimitedLog refusals_;
  bool told_of_hang_up_ = false;
  ZmqCallers callers_;
  std::unique_ptr<ZmqContext> context_;  // destroyed by AwaitEnd

  std::unique_ptr<ZmqListener> listener_;
  std::shared_ptr<ZmqMonitor> monitor_;  // of listener_
  std::string latest_caller_;            // used with keys only
  uint64_t next_connection_ = 0;
  size_t taken_ = 0;  // messages in this turn
};

bs::Result<Listening> ZmqNetwork::Listen(const Address& address) {
  BS_CHECK(listener_ == nullptr);
  auto listener = ZmqListener::Open(*context_, address, options_);
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener.value());
  bs::Status watched = WatchCallers();
  if (!watched.ok()) return watched;
  loop_->WatchReadable(listener_->socket().fd(), [this] { Receive(); });
  // The watch reports no message from before it began.
  loop_->Revisit(listener_->socket().fd());
  return Listening{.port = listener_->port(),
                   .exposed = !options_.curve && !options_.ipc && !listener_->loopback()};
}

bs::Status ZmqNetwork::WatchCallers() {
  const int events = options_.curve ? ZMQ_EVENT_ACCEPTED | kHandshakeFailed : ZmqCallers::kEvents;
  auto monitor = ZmqMonitor::Open(
      loop_, *context_, &listener_->socket(), "listener", events, [this](int event, int value) {
        options_.curve ? OnRefusal(event, value) : callers_.OnEvent(event, value);
      });
  if (!monitor.ok()) return monitor.status();
  monitor_ = std::move(monitor.value());
  return bs::Status::Ok();
}

void ZmqNetwork::OnRefusal(int event, int value) {
  if (event == ZMQ_EVENT_ACCEPTED) latest_caller_ = DescribePeer(value);
  if ((event & kHandshakeFailed) == 0) return;
  // It hung up before it had said enough: a probe that only looks for a listener, or a caller that
  // found the greeting strange before its own was read.
  const bool hung_up = value == EPIPE || value == ECONNRESET;
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL && hung_up) {
    if (std::exchange(told_of_hang_up_, true)) return;
    log_.Info("a caller hung up during the handshake (the latest one was " + latest_caller_ +
              "): it only looked what listens here, or it is a store of MXNet's own, which cannot "
              "have a BYTESCHEDULER_SECRET_FILE; this is logged once");
    return;
  }
  refusals_.Warning("refused a connection whose handshake failed (the latest caller was " +
                    latest_caller_ +
                    "): it has no or another BYTESCHEDULER_SECRET_FILE. "
                    "MXNet's own stores cannot have one");
}

bs::Result<std::shared_ptr<ZmqConnection>> ZmqNetwork::Connect(int32_t /*peer*/,
                                                               const Address& address,
                                                               const std::string& identity,
                                                               ConnectionListener listener) {
  const auto endpoint = RemoteEndpoint(address, options_.ipc);
  if (!endpoint.ok()) return endpoint.status();
  auto connection =
      std::make_shared<ZmqConnection>(loop_, options_, next_connection_++, std::move(listener));
  bs::Status opened = connection->Open(*context_, endpoint.value(), identity);
  if (!opened.ok()) return opened;
  return connection;
}

void ZmqNetwork::StopListening() {
  if (listener_) loop_->Unwatch(listener_->socket().fd());
  monitor_.reset();
  listener_.reset();
}

void ZmqNetwork::Receive() {
  for (taken_ = 0; taken_ < kReceivedPerTurn; ++taken_) {
    if ((listener_->socket().Events() & ZMQ_POLLIN) == 0) return;
    ReceiveMessage();
  }
  loop_->Revisit(listener_->socket().fd());
}

void ZmqNetwork::ReceiveMessage() {
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
  const int32_t peer = IdOfIdentity(identity.text());
  if (num_parts > 0) return Deliver(peer, std::move(parts), num_parts);
  upcalls_->OnGarbage(peer, bs::Status::InvalidArgument("no meta frame"));
}

void ZmqNetwork::Deliver(int32_t peer, std::vector<std::unique_ptr<ZmqMessage>> parts,
                         size_t num_parts) {
  const ZmqMessage& first = *parts.front();
  if (num_parts > 1 + kMaxDataFrames) {
    return Drop(peer, first, std::to_string(num_parts - 1) + " data frames are too many");
  }
  const uint64_t meta_bytes = first.bytes().size();
  if (meta_bytes > kMaxStrangerBytes && !upcalls_->Knows(peer)) {
    return Drop(peer, first,
                "meta of " + bs::CountOf(meta_bytes, "byte") + " of one that is not in the job");
  }
  auto meta = ParseMeta(first.bytes());
  if (!meta.ok()) return Drop(peer, first, meta.status().message());
  uint64_t data_bytes = 0;
  for (size_t i = 1; i < parts.size(); ++i) data_bytes += parts[i]->bytes().size();
  const uint64_t most = upcalls_->MostBytes(peer, meta.value());
  if (data_bytes > most) {
    return Drop(peer, first,
                bs::CountOf(data_bytes, "byte") + " of data, more than the " +
                    std::to_string(most) + " that such a message may have");
  }
  Message message{.peer = peer, .meta = std::move(meta.value())};
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto bytes = parts[i]->bytes();
    message.data.push_back(Frame::Borrow(bytes, [part = std::move(parts[i])] {}));
  }
  const auto take = [&](bs::Result<Message> one) {
    if (one.ok()) return upcalls_->OnMessage(std::move(one.value()));
    Drop(peer, first, one.status().message());
  };
  taken_ += HandOut(std::move(message), upcalls_->Knows(peer), take) - 1;
}

void ZmqNetwork::Drop(int32_t peer, const ZmqMessage& part, const std::string& why) {
  if (!upcalls_->Knows(peer)) callers_.TellDropped(part, why);
  upcalls_->OnGarbage(peer, bs::Status::InvalidArgument(why));
}

}  // namespace

std::unique_ptr<Transport> MakeZmqTransport(bs::LoopThread* loop, const ZmqOptions& options,
                                            const bs::Logger& log) {
  return std::make_unique<LoopTransport<ZmqNetwork>>(loop, options, log);
}

}  // namespace ps
