// The node's sockets on one loop: a ROUTER that receives, and a link for each peer.
#include "zmq_transport.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "limited_log.h"
#include "link_transport.h"
#include "task_scope.h"
#include "tcp_socket.h"
#include "wire.h"
#include "zmq_endpoint.h"
#include "zmq_link.h"
#include "zmq_socket.h"

namespace ps {
namespace {

// So many messages come in in one turn of the loop, then others get theirs.
constexpr int kMessagesPerTurn = 64;

// As link_transport.h says.
class ZmqNetwork {
 public:
  using Options = ZmqOptions;
  using Link = ZmqLink;

  ZmqNetwork(bs::LoopThread* loop, const ZmqOptions& options, const Upcalls* upcalls,
             const bs::Logger& log)
      : loop_(loop),
        options_(options),
        upcalls_(upcalls),
        refusals_(loop, log),
        tasks_(std::make_unique<TaskScope>(loop)),
        context_(std::make_unique<ZmqContext>()) {}
  ZmqNetwork(const ZmqNetwork&) = delete;
  ZmqNetwork& operator=(const ZmqNetwork&) = delete;
  ~ZmqNetwork() = default;

  bs::Result<Listening> Listen(const Address& address);
  bs::Result<std::shared_ptr<ZmqLink>> Connect(const Address& address, const std::string& identity,
                                               LinkListener listener);
  void StopListening();
  void AwaitEnd() { context_.reset(); }

 private:
  void Receive();
  void ReceiveLater();
  void ReceiveMessage();
  void Deliver(int32_t peer, std::vector<std::unique_ptr<ZmqMessage>> parts, size_t num_parts);
  // Logs connections that come without our keys.
  bs::Status WatchRefusals();

  bs::LoopThread* const loop_;
  const ZmqOptions options_;
  const Upcalls* const upcalls_;
  LimitedLog refusals_;
  std::unique_ptr<TaskScope> tasks_;     // gone after StopListening
  std::unique_ptr<ZmqContext> context_;  // gone after AwaitEnd

  std::unique_ptr<ZmqListener> listener_;
  std::shared_ptr<ZmqMonitor> refusal_monitor_;  // with keys only
  std::string latest_caller_;
  uint64_t next_link_ = 0;
  bool receive_posted_ = false;
};

bs::Result<Listening> ZmqNetwork::Listen(const Address& address) {
  BS_CHECK(listener_ == nullptr);
  auto listener = ZmqListener::Open(*context_, address, options_);
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener.value());
  loop_->WatchReadable(listener_->socket().fd(), [this] { Receive(); });
  ReceiveLater();  // what came before the watch began is not told
  if (options_.curve) {
    bs::Status watched = WatchRefusals();
    if (!watched.ok()) return watched;
  }
  return Listening{.port = listener_->port(),
                   .exposed = !options_.curve && !options_.ipc && !listener_->loopback()};
}

bs::Status ZmqNetwork::WatchRefusals() {
  auto monitor = ZmqMonitor::Open(
      loop_, *context_, &listener_->socket(), "listener", ZMQ_EVENT_ACCEPTED | kHandshakeFailed,
      [this](int event, int value) {
        if (event == ZMQ_EVENT_ACCEPTED) latest_caller_ = DescribePeer(value);
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

bs::Result<std::shared_ptr<ZmqLink>> ZmqNetwork::Connect(const Address& address,
                                                         const std::string& identity,
                                                         LinkListener listener) {
  const auto endpoint = RemoteEndpoint(address, options_.ipc);
  if (!endpoint.ok()) return endpoint.status();
  auto link = std::make_shared<ZmqLink>(loop_, options_, next_link_++, std::move(listener));
  bs::Status opened = link->Open(*context_, endpoint.value(), identity);
  if (!opened.ok()) return opened;
  return link;
}

void ZmqNetwork::StopListening() {
  if (listener_) loop_->Unwatch(listener_->socket().fd());
  tasks_.reset();
  refusal_monitor_.reset();
  listener_.reset();
}

void ZmqNetwork::Receive() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    if ((listener_->socket().Events() & ZMQ_POLLIN) == 0) return;
    ReceiveMessage();
  }
  ReceiveLater();
}

void ZmqNetwork::ReceiveLater() {
  if (std::exchange(receive_posted_, true)) return;
  tasks_->Post([this] {
    receive_posted_ = false;
    Receive();
  });
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
  Deliver(IdOfIdentity(identity.text()), std::move(parts), num_parts);
}

void ZmqNetwork::Deliver(int32_t peer, std::vector<std::unique_ptr<ZmqMessage>> parts,
                         size_t num_parts) {
  if (num_parts == 0)
    return upcalls_->OnGarbage(peer, bs::Status::InvalidArgument("no meta frame"));
  if (num_parts > 1 + kMaxDataFrames) {
    return upcalls_->OnGarbage(peer, bs::Status::InvalidArgument(std::to_string(num_parts - 1) +
                                                                 " data frames are too many"));
  }
  const uint64_t meta_bytes = parts.front()->bytes().size();
  if (meta_bytes > kMaxStrangerBytes && !upcalls_->Knows(peer)) {
    return upcalls_->OnGarbage(peer,
                               bs::Status::InvalidArgument("meta of " + std::to_string(meta_bytes) +
                                                           " bytes of one that is not in the job"));
  }
  auto meta = ParseMeta(parts.front()->bytes());
  if (!meta.ok()) return upcalls_->OnGarbage(peer, meta.status());
  uint64_t data_bytes = 0;
  for (size_t i = 1; i < parts.size(); ++i) data_bytes += parts[i]->bytes().size();
  const uint64_t most = upcalls_->MostBytes(peer, meta.value());
  if (data_bytes > most) {
    return upcalls_->OnGarbage(
        peer,
        bs::Status::InvalidArgument(std::to_string(data_bytes) + " bytes of data, more than the " +
                                    std::to_string(most) + " that such a message may have"));
  }
  Message message{.peer = peer, .meta = std::move(meta.value())};
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto bytes = parts[i]->bytes();
    message.data.push_back(Frame::Borrow(bytes, [part = std::move(parts[i])] {}));
  }
  upcalls_->OnMessage(std::move(message));
}

}  // namespace

std::unique_ptr<Transport> MakeZmqTransport(bs::LoopThread* loop, const ZmqOptions& options,
                                            const bs::Logger& log) {
  return std::make_unique<LinkTransport<ZmqNetwork>>(loop, options, log);
}

}  // namespace ps
