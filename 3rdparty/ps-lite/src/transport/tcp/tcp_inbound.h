// TcpInbound: one connection that somebody opened to us.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/loop_thread.h"
#include "bytescheduler/status.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"

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
    // Memory that was offered cannot be shared.
    std::function<void(const std::string& why)> on_memory_refused;
    // Once; may destroy this.  kUnavailable where nothing strange has happened.
    std::function<void(const bs::Status& why)> on_closed;
  };

  // Of one that is not in the job, in that time: more than any node sends before it is known.
  static constexpr uint64_t kMostMessages = 4096;

  // `shared` is that of ZmtpInput.  Who does not introduce himself within `patience` is hung up
  // on, and who is not in the job and has nothing but the same unfinished message for so long, or
  // sends more than kMostMessages.
  // Memory that is offered from this host is taken if `shares`.
  TcpInbound(bs::LoopThread* loop, TcpSocket socket, ZmtpInput::Shared shared,
             bs::Duration patience, bool shares, Listener listener);
  TcpInbound(const TcpInbound&) = delete;
  TcpInbound& operator=(const TcpInbound&) = delete;
  ~TcpInbound();

  // Empty before on_ready, and for the anonymous.
  const std::string& identity() const { return identity_; }
  const std::string& address() const { return address_; }  // of the other end, for people
  bool stranger() const { return !listener_.knows(peer_); }
  int32_t peer() const { return peer_; }  // by the identity; kEmpty if that tells none
  // If it ends now something is lost that had begun to come, or had come and was not read.
  bool torn() const;

 private:
  void OnReadable();
  // Why the connection is over, if it is.
  bs::Status Read();
  // That, when the other end has gone.
  bs::Status Gone(const std::string& how) const;
  void WaitFor(bs::Duration patience);
  void LookAtProgress();
  void Put(const std::string& bytes);
  void TakeMemory(std::string_view offer);
  void StopWaiting();

  bs::LoopThread* const loop_;
  const TcpSocket socket_;
  const std::string address_;
  const Listener listener_;
  ZmtpInput input_;
  std::string identity_;
  int32_t peer_ = kEmpty;  // by identity_
  bs::Status broken_;
  const bs::Duration patience_;
  bs::TimerId timer_ = 0;
  bool takes_memory_ = false;  // until it was offered some
  bool heard_ = false;         // anything
  bool greeted_ = false;       // and it is ZMTP
  bool introduced_ = false;    // and READY has come
  uint64_t messages_ = 0;      // when LookAtProgress looked last
  bool stalled_ = false;       // in the middle of one then
};

}  // namespace ps
