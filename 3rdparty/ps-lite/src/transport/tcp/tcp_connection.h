// TcpConnection: the outgoing connection to a peer, with the queue of messages that wait for it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/loop_thread.h"
#include "ps/message.h"
#include "transport/connection_listener.h"
#include "transport/rdma/rdma_link.h"
#include "transport/rdma/rdma_nic.h"
#include "transport/send_queue.h"
#include "transport/shm/shared_memory.h"
#include "transport/tcp/link_budget.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"

namespace ps {

// A DEALER that connects, and reconnects until it is destroyed.  Messages wait here, not in the
// kernel, so that an urgent message can overtake.  The kernel holds few unsent bytes.  Few more
// leave the queue at a time, in a single call.  A message that a broken connection cut off is lost;
// messages behind it are not.
//
// Belongs to the shared loop: every method, the destructor and the listener's callbacks run there.
// The owner bounds the queue.
//
// Held by a single owner; tasks that the connection posts hold it weakly.
class TcpConnection : public std::enable_shared_from_this<TcpConnection> {
 public:
  // State that the connections of a transport share.
  struct Shared {
    bs::LoopThread* loop;
    TcpOptions options;
    LinkBudget* budget;  // null: no bound
    ZmtpInput::Shared input;
    // Executors on which host names are looked up, which blocks.  `apart`: a separate executor for
    // names that must not delay other names.  Null if the system has no thread for it.
    std::function<bs::Executor*(bool apart)> lookup;
    // The system has no socket to connect with; the connection tries again.
    std::function<void(const bs::Status& why)> on_no_socket;
    // There is no memory to share with a peer, or no more of it.
    std::function<void(const bs::Status& why)> on_no_memory;
    RdmaNic* nic = nullptr;  // null: no RDMA
    // Whether data goes to a peer by RDMA, for people.
    std::function<void(const std::string& what)> on_rdma{};
  };

  // Connects to `address` as `identity` (empty: anonymous) once Open is called.  `apart`: see
  // Shared::lookup.
  TcpConnection(const Shared* shared, Address address, std::string identity,
                ConnectionListener listener, bool apart);
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;
  // Drops the messages that still wait here.
  ~TcpConnection();

  void Open();
  void Send(Message message);
  uint64_t waiting_bytes() const {
    return queue_.waiting_bytes() + (rdma_ ? rdma_->waiting_bytes() : 0);
  }
  // The carrier of long data now; kUnknown while it is not up.
  bs::Carrier carrier() const;
  // Sends the messages that wait, calls the listener no more, and posts `on_drained` once none
  // waits here.  The owner drops the connection then, or at the deadline.
  void Drain(bs::TimePoint deadline, bs::Task on_drained);

 private:
  // The bytes that leave next: one message, or several fused messages.
  struct Outgoing {
    // A single message has its long frames copied to `outbox`, if that has room.  Several messages
    // are fused.
    Outgoing(std::vector<Message> m, SharedOutbox* outbox);
    void Write(SharedOutbox* outbox);
    void WriteFused();
    std::vector<Message> messages;
    std::string heads;  // everything but the frames' bytes
    std::vector<iovec> parts;
    size_t next = 0;  // index in parts; all parts before it have left
    uint64_t left_bytes = 0;
    uint64_t shared_bytes = 0;
    bool begun = false;
  };

  void OnResolved(const bs::Result<SocketAddress>& resolved);
  void Connect(const SocketAddress& address);
  void ConnectLater(bs::Duration delay);
  // Tells the listener of the latest attempt.
  void TellAttempt(const std::string& what);
  bs::Duration host_timeout() const;
  // Breaks the connection if the other host has vanished.
  void LookAtHost();
  void OnChange();
  void ShareLink();
  // Greet and Read return false if the connection is over.
  bool Greet();
  bool Read();
  bool Put(const std::string& bytes) const;
  void TellRefused(const std::string& what);
  void Break(bs::Duration retry_after);
  void OfferMemory();
  void OnMemoryAnswer(bool taken);
  void OfferRdma();
  void OnRdmaAnswer(bool taken, std::string_view text);
  void OnRdmaTurn();
  // Goes on without RDMA, until the next connection.
  void GiveUpRdma(const std::string& why);
  void BreakRdma(const bs::Status& why);
  void PumpRdma();
  void Pump();
  void PumpLater();
  // Takes messages that go out next; returns how many of their bytes lie in shared memory.
  uint64_t TakeFromQueue(uint64_t most_bytes);
  // Takes messages for the bytes that the kernel may be given now.  Returns how many bytes that is;
  // 0: the budget calls Pump later.  REQUIRES: something waits.
  uint64_t TakeWithin(uint64_t* taken_bytes);
  // How much may still be taken ahead of the network, where nothing can overtake it.
  struct Room {
    size_t messages = 0;
    uint64_t bytes = 0;
  };
  Room RoomAhead(uint64_t most_bytes) const;
  // Takes the first message of the queue, and the messages behind it that can be fused with it.
  std::vector<Message> TakeFused(const Room& room);
  // At most `most_bytes`.
  size_t Gather(std::span<iovec> parts, uint64_t most_bytes) const;
  void Leave(uint64_t size_bytes);

  const Shared* const shared_;
  bs::LoopThread* const loop_;
  const Address address_;
  const std::string identity_;
  const bool apart_;
  ConnectionListener listener_;
  std::optional<SocketAddress> resolved_;  // where the latest connection came up
  TcpSocket socket_;
  std::string where_;                          // the address of socket_, for people
  int error_ = 0;                              // of the latest call on socket_ that failed
  std::unique_ptr<ZmtpInput> input_;           // of socket_
  bool greeted_ = false;                       // our greeting is sent
  bool ready_ = false;                         // the peer's READY has come
  bool foreign_ = false;                       // the peer is no node of ours; valid once ready_
  bool refused_ = false;                       // the peer did not take our READY
  bool takes_rdma_ = false;                    // the peer's READY said so
  bool connected_ = false;                     // ready_, and the listener has been called
  std::unique_ptr<SharedOutbox> outbox_;       // of socket_
  bool shares_ = false;                        // the peer has opened outbox_
  std::unique_ptr<RdmaLink> rdma_;             // of socket_; nothing leaves before it is proved
  bs::TimerId rdma_timer_ = 0;                 // until then
  std::unique_ptr<LinkBudget::Member> share_;  // of socket_; null: without a bound
  SendQueue queue_;
  std::deque<Outgoing> out_;
  uint64_t out_bytes_ = 0;
  bool pump_posted_ = false;
  bs::TimerId retry_ = 0;
  bs::TimerId look_ = 0;
  bs::Task on_drained_;  // empty: not draining, or already posted
};

}  // namespace ps
