// TcpConnection: the connection to one peer, with the queue of what waits for it.
#pragma once

#include <netinet/in.h>

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
#include "transport/send_queue.h"
#include "transport/shm/shared_memory.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"

namespace ps {

// A DEALER that connects, and connects again for as long as the connection lives.  Messages wait
// here, not in the kernel, so that an urgent one can overtake: the kernel holds little that is not
// sent, and little more is taken out of the queue at a time, which goes out in one call.  A message
// that was cut off by a broken connection is lost, those behind it are not.
//
// Belongs to the shared loop: every method and the destructor run there, and so do the listener's
// callbacks.  The queue is bounded by what the owner sends.
//
// Held by one owner; tasks that the connection posts know it weakly.
class TcpConnection : public std::enable_shared_from_this<TcpConnection> {
 public:
  // What the connections of a transport share.
  struct Shared {
    bs::LoopThread* loop;
    TcpOptions options;
    ZmtpInput::Shared input;
    // Where host names are looked up, which blocks; `apart`: those for which nobody else may wait.
    std::function<bs::Executor*(bool apart)> lookup;
    // There was none to share with a peer, or no more.
    std::function<void(const bs::Status& why)> on_no_memory;
  };

  // Connects to `address` as `identity` (empty: anonymous) once Open is called; its host is looked
  // up `apart` or not.
  TcpConnection(const Shared* shared, Address address, std::string identity,
                ConnectionListener listener, bool apart);
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;
  // What still waits here is dropped.
  ~TcpConnection();

  void Open();
  void Send(Message message);
  uint64_t waiting_bytes() const { return queue_.waiting_bytes(); }
  // Sends what waits, tells the listener nothing any more, and posts `on_drained` once nothing
  // waits here.  The owner drops the connection then, or at the deadline.
  void Drain(bs::TimePoint deadline, bs::Task on_drained);

 private:
  // A message that leaves next.
  struct Outgoing {
    // Of one: its long frames are copied to `outbox` if there is one and it has room.  Of several:
    // fused.
    Outgoing(std::vector<Message> m, SharedOutbox* outbox);
    void Write(SharedOutbox* outbox);
    void WriteFused();
    std::vector<Message> messages;
    std::string heads;  // everything but the frames' bytes
    std::vector<iovec> parts;
    size_t next = 0;  // of parts; what is before it has left
    uint64_t left_bytes = 0;
    uint64_t shared_bytes = 0;
    bool begun = false;
  };

  void Connect(const sockaddr_in& address);
  void ConnectLater(bs::Duration delay);
  bs::Duration host_timeout() const;
  // Whether the other host is still there.
  void LookAtHost();
  void OnChange();
  // This and Read: false if the connection is over.
  bool Greet();
  bool Read();
  bool Put(const std::string& bytes) const;
  void TellRefused(const std::string& what);
  void Break(bs::Duration retry_after);
  void OfferMemory();
  void OnMemoryAnswer(bool taken);
  void Pump();
  void PumpLater();
  // Makes up what goes out next; how much of it was copied to shared memory.
  uint64_t TakeFromQueue();
  // What may yet be taken ahead of the network: it can not be overtaken any more.
  struct Room {
    size_t messages = 0;
    uint64_t bytes = 0;
  };
  Room RoomAhead() const;
  // The first of the queue, with those behind it that travel with it and find room.
  std::vector<Message> TakeFused(const Room& room);
  size_t Gather(std::span<iovec> parts) const;
  void Leave(uint64_t size_bytes);

  const Shared* const shared_;
  bs::LoopThread* const loop_;
  const Address address_;
  const std::string identity_;
  const bool apart_;
  ConnectionListener listener_;
  std::optional<sockaddr_in> resolved_;  // where the latest connection came up
  TcpSocket socket_;
  std::unique_ptr<ZmtpInput> input_;      // of this connection
  bool greeted_ = false;                  // by us
  bool ready_ = false;                    // the peer has said so
  bool refused_ = false;                  // the peer did not take our READY
  bool connected_ = false;                // and the listener has been told
  std::unique_ptr<SharedOutbox> outbox_;  // of this connection
  bool shares_ = false;                   // the peer has taken it
  SendQueue queue_;
  std::deque<Outgoing> out_;
  uint64_t out_bytes_ = 0;
  bool pump_posted_ = false;
  bs::TimerId retry_ = 0;
  bs::TimerId look_ = 0;
  bs::Task on_drained_;  // empty: not draining, or told already
};

}  // namespace ps
