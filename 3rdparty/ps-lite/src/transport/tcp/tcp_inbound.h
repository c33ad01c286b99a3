// TcpInbound: a connection that a peer opened to us.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/loop_thread.h"
#include "base/status.h"
#include "transport/rdma/rdma_inbound.h"
#include "transport/rdma/rdma_nic.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"

namespace ps {

// Belongs to `loop`: the constructor, the destructor and the callbacks run there.
class TcpInbound {
 public:
  struct Listener {
    std::function<void(const std::string& identity)> on_ready;
    // `peer` is the id of that identity in the next four.
    std::function<void(int32_t peer, bs::Result<Message> message)> on_message;
    std::function<std::shared_ptr<Landing>(int32_t peer, const Meta& meta, uint64_t size_bytes)>
        place;
    std::function<bool(int32_t peer)> knows;
    std::function<uint64_t(int32_t peer, const Meta& meta)> most_bytes;
    // Memory that was offered cannot be shared.
    std::function<void(const std::string& why)> on_memory_refused;
    // RDMA was offered, and there is none.
    std::function<void(const std::string& peer, const std::string& why)> on_rdma_refused{};
    // Called once; may destroy the TcpInbound.  kUnavailable if the peer did nothing wrong.
    std::function<void(const bs::Status& why)> on_closed;
  };

  // Offers of a peer that are taken.
  struct Takes {
    bool memory = false;     // of a peer of this host
    RdmaNic* nic = nullptr;  // null: no RDMA
  };

  // The bound of messages within `patience` from a peer outside the job; no node sends as many
  // before it is known.
  static constexpr uint64_t kMostMessages = 4096;

  // `shared`: see ZmtpInput.  The connection is closed if the peer does not introduce itself within
  // `patience`.  A peer outside the job is closed as well if a message stays unfinished for so
  // long, or if it sends more than kMostMessages.
  TcpInbound(bs::LoopThread* loop, TcpSocket socket, ZmtpInput::Shared shared,
             bs::Duration patience, Takes takes, Listener listener);
  TcpInbound(const TcpInbound&) = delete;
  TcpInbound& operator=(const TcpInbound&) = delete;
  ~TcpInbound();

  // Empty before on_ready, and for an anonymous peer.
  const std::string& identity() const { return identity_; }
  const std::string& address() const { return address_; }  // of the other end, for people
  bool stranger() const { return !listener_.knows(peer_); }
  int32_t peer() const { return peer_; }  // the identity's id; kEmpty if it has none
  // True if bytes have come that are not yet a whole message: they are lost if the connection ends.
  bool torn() const;
  bool has_rdma() const { return rdma_ != nullptr; }
  // The carrier of long data now.
  bs::Carrier carrier() const;

 private:
  void OnReadable();
  // Not ok, with the reason, if the connection is over.
  bs::Status Read();
  // The reason for a connection that the other end closed.
  bs::Status Gone(const std::string& how) const;
  void WaitFor(bs::Duration patience);
  void LookAtProgress();
  void Put(const std::string& bytes);
  void TakeMemory(std::string_view offer);
  // Takes the offer once the peer is known, or after a while refuses it.
  void TakeRdma(const std::string& offer, bs::TimePoint deadline);
  void RefuseRdma(const std::string& why);
  void OnRdmaBroken(const bs::Status& why);

  bs::LoopThread* const loop_;
  const TcpSocket socket_;
  const std::string address_;
  const Listener listener_;
  const std::shared_ptr<BlockPool> blocks_;
  ZmtpInput input_;
  const Takes takes_;
  std::unique_ptr<RdmaInbound> rdma_;
  bool rdma_offered_ = false;
  bs::TimerId rdma_timer_ = 0;
  std::string identity_;
  int32_t peer_ = kEmpty;  // by identity_
  bs::Status broken_;
  const bs::Duration patience_;
  bs::TimerId timer_ = 0;
  bool takes_memory_ = false;  // until the first offer
  bool shares_ = false;        // an offer of memory was taken
  bool heard_ = false;         // a byte has come
  bool greeted_ = false;       // a ZMTP greeting has come
  bool introduced_ = false;    // READY has come
  uint64_t messages_ = 0;      // whole messages at the last LookAtProgress
  bool stalled_ = false;       // a message was unfinished then
};

}  // namespace ps
