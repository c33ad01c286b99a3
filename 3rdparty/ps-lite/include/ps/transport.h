// Transport: messages between numbered nodes over some network.
//
// A transport belongs to one executor; every callback runs there, never inside a call, never under
// a lock.  It knows ids and frames; it does not know what the messages mean.
//
// Implementations: TcpTransport (tcp), ZmqTransport (tcp, also encrypted, and ipc), InprocTransport
// (threads of one process) and the simulator's.  One conformance suite runs over all of them.
//
// Guarantees: messages of equal priority between one sender and one receiver arrive in the order of
// Send, once, or not at all if the connection broke in between (the KV layer above repeats).  Of
// messages that wait for the same receiver the one with the highest priority leaves first; little
// is committed to the network ahead of it (see design decision 5).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/executor.h"
#include "bytescheduler/status.h"
#include "ps/message.h"

namespace ps {

struct Address {
  std::string host;
  int32_t port = 0;

  bool operator==(const Address&) const = default;
};

// Memory where the data frame of a message that is coming in belongs, so that it is read there and
// not copied.  Confined to the transport's executor; shared by the transport, which writes, and by
// whoever gave it, who revokes it to have the memory back before the message came.
struct Landing {
  std::span<std::byte> bytes;
  bool revoked = false;  // nothing is written any more; what comes is dropped
};

// What a transport was given to send, all peers together.  Thread-safe.
struct SentCounts {
  std::atomic<uint64_t> messages = 0;
  std::atomic<uint64_t> fused = 0;         // of these, so many travelled inside another message
  std::atomic<uint64_t> shared_bytes = 0;  // of frames that went through memory that a peer shares
};

class Transport {
 public:
  struct Handler {
    // A parsed message; `peer` is the sender's id by its identity, kEmpty if it has none.
    std::function<void(Message message)> on_message;
    // Bytes that are no message: from whom, and what is wrong.  The message is dropped.  Who is
    // not a node of the job has been named in the log, by his address where the network tells it.
    std::function<void(int32_t peer, bs::Status what)> on_garbage;
    // The outgoing connection to `peer` came up, or broke (it is retried until Disconnect).
    std::function<void(int32_t peer)> on_connected;
    std::function<void(int32_t peer)> on_disconnected;
    // `peer` has opened a connection to us, which ends an earlier one of its.  And one of its has
    // ended, `torn` if a message that had begun to come is lost with it.  May be empty; only
    // where the network tells who it was (not ZmqTransport, InprocTransport).
    std::function<void(int32_t peer)> on_inbound{};
    std::function<void(int32_t peer, bool torn)> on_inbound_ended{};
    // Of a message with one data frame of `size_bytes`, known but for these bytes: where they
    // belong, or null.  The message then comes to on_message with a frame that shows that memory
    // and does not own it, or, if it was revoked, perhaps not at all.  May be empty; a transport
    // need not ask.
    std::function<std::shared_ptr<Landing>(int32_t peer, const Meta& meta, uint64_t size_bytes)>
        place{};
    // Whether `peer` is a node of the job.  Who is not may send little (PROTOCOL.md, "Limits").
    // Empty: everybody is.
    std::function<bool(int32_t peer)> knows{};
    // Of a message of one that is, known but for them: how many bytes its data frames may have
    // together.  What has more is garbage.  Empty: as many as a message may have.
    std::function<uint64_t(int32_t peer, const Meta& meta)> most_bytes{};
    // So much waits to leave for `peer` that it does not seem to read: why, for people.  What waits
    // was dropped, and the peer is forgotten as by Disconnect.
    std::function<void(int32_t peer, const std::string& why)> on_overflow{};
  };
  using BindDone = std::function<void(bs::Result<int32_t> port)>;

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  // Blocks until the network is quiet and every frame is released.  REQUIRES: Close() was called,
  // and the executor runs no task of this transport any more or still runs.
  virtual ~Transport() = default;

  // All methods below are thread-safe and return at once unless they say otherwise.

  // REQUIRES: called once, before everything else.
  virtual void Start(Handler handler) = 0;
  // Receives on host:port; port 0 takes a free one.  `done` gets the port, or kAlreadyExists (port
  // in use) or kInvalidArgument (no such local address), naming it.  Called at most once; `done` is
  // dropped uncalled if Close comes first.
  virtual void Bind(const Address& address, BindDone done) = 0;
  // Sends to `peer` go to `address` from now on, and tell it that we are `own_id` (kEmpty:
  // anonymous).  Replaces an earlier connection of `peer`; what still waited there is dropped.
  virtual void Connect(int32_t peer, const Address& address, int32_t own_id) = 0;
  // Forgets `peer`; what still waits for it gets `linger` to leave.
  virtual void Disconnect(int32_t peer, bs::Duration linger) = 0;
  // Sends message.meta and message.data to message.peer without copying the frames; a frame is
  // released when its bytes have left or were dropped.  Unknown peers: dropped.
  virtual void Send(Message message) = 0;
  // Stops receiving and calls nobody back any more (a call on its way on another thread ends); what
  // waits to leave gets `linger`.  Idempotent.
  virtual void Close(bs::Duration linger) = 0;
};

}  // namespace ps
