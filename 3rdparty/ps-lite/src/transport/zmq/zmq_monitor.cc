// Reads the events that libzmq writes to a pair of sockets.
#include "transport/zmq/zmq_monitor.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace ps {
namespace {

// Events read in a turn of the loop; then other sockets get their turn.
constexpr int kEventsPerTurn = 64;

}  // namespace

bs::Result<std::shared_ptr<ZmqMonitor>> ZmqMonitor::Open(bs::LoopThread* loop,
                                                         const ZmqContext& context,
                                                         ZmqSocket* watched,
                                                         const std::string& name, int events,
                                                         OnEvent on_event) {
  auto pair = ZmqSocket::Open(context, ZMQ_PAIR);
  if (!pair.ok()) return pair.status();
  // Without it libzmq's thread and this thread would wait for each other.
  pair.value()->Set(ZMQ_RCVHWM, 0);
  const std::string endpoint = "inproc://" + name;
  if (zmq_socket_monitor(watched->get(), endpoint.c_str(), events) != 0 ||
      zmq_connect(pair.value()->get(), endpoint.c_str()) != 0) {
    return bs::Status::ResourceExhausted(std::string("no monitor: ") + zmq_strerror(errno));
  }
  // Shared, so that the watch can hold it weakly.
  const std::shared_ptr<ZmqMonitor> monitor(
      new ZmqMonitor(loop, watched, std::move(pair.value()), std::move(on_event)));
  loop->WatchReadable(monitor->pair_->fd(), [raw = monitor.get()] { raw->OnReadable(); });
  // The watch reports no change from before it began.
  loop->Post([weak = std::weak_ptr(monitor)] {
    if (const auto self = weak.lock()) self->OnReadable();
  });
  return monitor;
}

ZmqMonitor::ZmqMonitor(bs::LoopThread* loop, ZmqSocket* watched, std::unique_ptr<ZmqSocket> pair,
                       OnEvent on_event)
    : loop_(loop), watched_(watched), pair_(std::move(pair)), on_event_(std::move(on_event)) {}

ZmqMonitor::~ZmqMonitor() {
  loop_->Unwatch(pair_->fd());
  zmq_socket_monitor(watched_->get(), nullptr, 0);
}

void ZmqMonitor::OnReadable() {
  for (int i = 0; i < kEventsPerTurn; ++i) {
    if ((pair_->Events() & ZMQ_POLLIN) == 0) return;
    ZmqMessage event;
    ZmqMessage address;
    if (!event.ReceiveFrom(*pair_)) return;
    if (event.more() && !address.ReceiveFrom(*pair_)) return;
    uint16_t number = 0;
    int32_t value = 0;
    if (event.bytes().size() < sizeof(number) + sizeof(value)) continue;
    std::memcpy(&number, event.bytes().data(), sizeof(number));
    std::memcpy(&value, event.bytes().data() + sizeof(number), sizeof(value));
    on_event_(number, value);
  }
  loop_->Revisit(pair_->fd());
}

}  // namespace ps
