// TcpInbound: one connection that somebody opened to us.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "bytescheduler/status.h"
#include "tcp_socket.h"
#include "zmtp.h"

namespace ps {

// Belongs to `loop`: the constructor, the destructor and the callbacks run there.
class TcpInbound {
 public:
  struct Listener {
    std::function<void(const std::string& identity)> on_ready;
    // These with the id of that identity.
    std::function<void(int32_t peer, bs::Result<Message> message)> on_message;
    std::function<std::shared_ptr<Landing>(int32_t peer, const Meta& meta, uint64_t size_bytes)>
        place;
    std::function<bool(int32_t peer)> knows;
    std::function<uint64_t(int32_t peer, const Meta& meta)> most_bytes;
    std::function<void(const bs::Status& why)> on_closed;  // once; may destroy this
  };

  // `shared` is that of ZmtpInput.  Who does not introduce himself within `patience` is hung up
  // on.
  TcpInbound(bs::LoopThread* loop, TcpSocket socket, ZmtpInput::Shared shared,
             bs::Duration patience, Listener listener);
  TcpInbound(const TcpInbound&) = delete;
  TcpInbound& operator=(const TcpInbound&) = delete;
  ~TcpInbound();

  // Empty before on_ready, and for the anonymous.
  const std::string& identity() const { return identity_; }
  std::string DescribePeer() const { return ps::DescribePeer(socket_.fd()); }

 private:
  void OnReadable();
  // Why the connection is over, if it is.
  bs::Status Read();
  void Put(const std::string& bytes);
  void StopWaiting();

  bs::LoopThread* const loop_;
  const TcpSocket socket_;
  const Listener listener_;
  ZmtpInput input_;
  std::string identity_;
  int32_t peer_ = kEmpty;  // by identity_
  bs::Status broken_;
  bs::TimerId patience_ = 0;
};

}  // namespace ps
