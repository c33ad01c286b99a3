// Opens, configures and closes libzmq's objects.
#include "transport/zmq/zmq_socket.h"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/descriptors.h"

namespace ps {
namespace {

constexpr int kMaxSockets = 65536;  // two for each peer
// The context opens its own with the first socket; libzmq aborts where it gets none.
constexpr uint64_t kContextDescriptors = 8;

}  // namespace

ZmqContext::ZmqContext() : context_(zmq_ctx_new()) {
  BS_CHECK(context_ != nullptr);
  BS_CHECK(zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, kMaxSockets) == 0);
}

ZmqContext::~ZmqContext() {
  while (zmq_ctx_term(context_) != 0 && errno == EINTR) {
  }
}

bs::Result<std::unique_ptr<ZmqSocket>> ZmqSocket::Open(const ZmqContext& context, int type) {
  bs::Status room = bs::CheckDescriptors(kContextDescriptors, "a socket");
  if (!room.ok()) return room;
  void* const socket = zmq_socket(context.get(), type);
  if (socket == nullptr) {
    return bs::Status::ResourceExhausted(std::string("no socket: ") + zmq_strerror(errno));
  }
  return std::unique_ptr<ZmqSocket>(new ZmqSocket(socket));
}

ZmqSocket::~ZmqSocket() { zmq_close(socket_); }

void ZmqSocket::Set(int option, int value) {
  BS_CHECK(zmq_setsockopt(socket_, option, &value, sizeof(value)) == 0);
}

void ZmqSocket::Set(int option, int64_t value) {
  BS_CHECK(zmq_setsockopt(socket_, option, &value, sizeof(value)) == 0);
}

void ZmqSocket::Set(int option, const std::string& value) {
  BS_CHECK(zmq_setsockopt(socket_, option, value.data(), value.size()) == 0);
}

void ZmqSocket::SetIdentity(const std::string& identity) { Set(ZMQ_ROUTING_ID, identity); }

void ZmqSocket::SetLinger(bs::Duration linger) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(linger).count();
  Set(ZMQ_LINGER, static_cast<int>(std::clamp<int64_t>(ms, 0, std::numeric_limits<int>::max())));
}

int ZmqSocket::Events() const {
  int events = 0;
  size_t size = sizeof(events);
  return zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) == 0 ? events : 0;
}

int ZmqSocket::fd() const {
  int fd = -1;
  size_t size = sizeof(fd);
  BS_CHECK(zmq_getsockopt(socket_, ZMQ_FD, &fd, &size) == 0);
  return fd;
}

}  // namespace ps
