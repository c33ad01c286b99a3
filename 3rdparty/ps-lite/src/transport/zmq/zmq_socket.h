// libzmq's context, sockets and messages as owned C++ objects.
//
// Each is confined to one thread, but ~ZmqContext and ZmqMessage may run on any.
#pragma once

#include <zmq.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/types.h"

namespace ps {

class ZmqContext {
 public:
  ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  // Blocks until every socket has lingered.  REQUIRES: every socket is closed.
  ~ZmqContext();

  void* get() const { return context_; }

 private:
  void* const context_;
};

class ZmqSocket {
 public:
  // kResourceExhausted when there are too many sockets or descriptors.
  static bs::Result<std::unique_ptr<ZmqSocket>> Open(const ZmqContext& context, int type);
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;
  // Does not block: libzmq goes on sending in the background until the linger is over.
  ~ZmqSocket();

  // REQUIRES: libzmq knows the option and takes the value.
  void Set(int option, int value);
  void Set(int option, int64_t value);
  void Set(int option, const std::string& value);
  void SetIdentity(const std::string& identity);
  void SetLinger(bs::Duration linger);

  // Returns which of ZMQ_POLLIN and ZMQ_POLLOUT are possible now.  The call clears fd(), which only
  // reports changes: call it after every send and receive, before waiting for fd() again.
  int Events() const;
  int fd() const;
  void* get() const { return socket_; }

 private:
  explicit ZmqSocket(void* socket) : socket_(socket) {}
  void* const socket_;
};

// A received part.  Not movable, because libzmq keeps short parts inside.
class ZmqMessage {
 public:
  ZmqMessage() { zmq_msg_init(&message_); }
  ZmqMessage(const ZmqMessage&) = delete;
  ZmqMessage& operator=(const ZmqMessage&) = delete;
  ~ZmqMessage() { zmq_msg_close(&message_); }

  // False if no part is there.
  bool ReceiveFrom(const ZmqSocket& socket) {
    return zmq_msg_recv(&message_, socket.get(), ZMQ_DONTWAIT) >= 0;
  }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::span<const std::byte> bytes() const {
    auto* const message = const_cast<zmq_msg_t*>(&message_);  // libzmq's signature knows no const
    return {static_cast<const std::byte*>(zmq_msg_data(message)), zmq_msg_size(message)};
  }
  // The descriptor of the connection that the part came on, or -1; and the host of its other end,
  // for people.
  int descriptor() const { return zmq_msg_get(&message_, ZMQ_SRCFD); }
  std::string host() const {
    const char* const host = zmq_msg_gets(&message_, "Peer-Address");
    return host == nullptr ? "this host" : host;
  }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
  }

 private:
  zmq_msg_t message_{};
};

}  // namespace ps
