// ZmqMonitor: libzmq's events about the connections of a socket.
//
// Belongs to `loop`: Open, the destructor and `on_event` run there, the last never inside Open.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "base/status.h"
#include "transport/zmq/zmq_socket.h"

namespace ps {

inline constexpr int kHandshakeFailed = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

class ZmqMonitor : public std::enable_shared_from_this<ZmqMonitor> {
 public:
  // A ZMQ_EVENT_* and its value (a descriptor or an error number, as libzmq documents).
  using OnEvent = std::function<void(int event, int value)>;

  // `name` is unique within the context; `watched` outlives the monitor.  The caller is the only
  // owner.  kResourceExhausted if there are too many sockets.
  static bs::Result<std::shared_ptr<ZmqMonitor>> Open(bs::LoopThread* loop,
                                                      const ZmqContext& context, ZmqSocket* watched,
                                                      const std::string& name, int events,
                                                      OnEvent on_event);
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;
  ~ZmqMonitor();

 private:
  ZmqMonitor(bs::LoopThread* loop, ZmqSocket* watched, std::unique_ptr<ZmqSocket> pair,
             OnEvent on_event);
  void OnReadable();

  bs::LoopThread* const loop_;
  ZmqSocket* const watched_;
  const std::unique_ptr<ZmqSocket> pair_;
  const OnEvent on_event_;
};

}  // namespace ps
