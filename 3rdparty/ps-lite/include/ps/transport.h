// Transport: messages between numbered nodes over some network.
//
// A transport belongs to one executor; every callback runs there, never inside a call, never under
// a lock.  It knows ids and frames; it does not know the meaning of messages.
//
// Implementations: TcpTransport (tcp), ZmqTransport (tcp, also encrypted, and ipc) and the
// simulator's.  One conformance suite runs over all of them.
//
// Order: messages of equal priority between one sender and one receiver arrive in the order of
// Send.  Each arrives once, or not at all if the connection broke; the KV layer above repeats.
// Among messages that wait for the same receiver, the message with the highest priority leaves
// first.  Little is committed to the network ahead of it:
// docs/design/decisions/0022-sockets-of-our-own.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/executor.h"
#include "base/status.h"
#include "base/types.h"
#include "ps/message.h"

namespace ps {

struct Address {
  std::string host;
  int32_t port = 0;

  bool operator==(const Address&) const = default;
};

// Memory for the data frame of a message that is arriving: the transport reads it there, without a
// copy.  Confined to the transport's executor.  Shared by the transport, which writes, and the
// owner of the memory, which sets `revoked` to have it back before the message has come.
struct Landing {
  std::span<std::byte> bytes;
  bool revoked = false;  // the transport writes nothing more and drops the message
  // Writes of a device that cannot be called back, which last at most a few seconds.  The owner
  // leaves the memory alone until there are none, even if it has set `revoked`.
  uint32_t writes = 0;
  std::function<void()> on_written{};  // the owner's; called once, when `writes` becomes 0

  void EndWrites(uint32_t count) {
    writes -= count;
    if (writes == 0 && on_written) std::exchange(on_written, {})();
  }
};

// Counts of the messages that a transport was given to send, all peers together.  Thread-safe.
struct SentCounts {
  std::atomic<uint64_t> messages = 0;
  std::atomic<uint64_t> fused = 0;         // messages that travelled inside another message
  std::atomic<uint64_t> shared_bytes = 0;  // frame bytes that went through shared memory
  std::atomic<uint64_t> tcp_bytes = 0;     // all that the kernel has taken, on TcpTransport only
};

// Uses of lent memory.
enum class Lending { kSent, kFilled };

// Memory of a caller that a network device has registered.  Thread-safe.  Destroying it ends that,
// and blocks a little.
class Registration {
 public:
  Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  virtual ~Registration() = default;

  // Lends the memory as Transport::Lend does, without a call of the device.  Between uses
  // no message reads or fills the memory, so other data may have come to lie at the address.  The
  // handle keeps the registration.  Loans may overlap.  Null: the memory cannot be lent now.
  virtual std::shared_ptr<void> Use() = 0;
};

class Transport {
 public:
  struct Handler {
    // A parsed message; `peer` is the sender's id by its identity, kEmpty if it has none.
    std::function<void(Message message)> on_message;
    // Bytes that are no message: the sender, and the fault.  The transport drops them.  A sender
    // that is not a node of the job has been named in the log already, by its address where the
    // network tells it.
    std::function<void(int32_t peer, bs::Status what)> on_garbage;
    // The outgoing connection to `peer` came up, or broke.  The transport retries until Disconnect.
    std::function<void(int32_t peer)> on_connected;
    std::function<void(int32_t peer)> on_disconnected;
    // While no connection to `peer` is up: where the latest attempt goes, and why it failed once
    // that is known, for people: "10.0.0.1:4711: Connection refused".  May be empty.  A transport
    // that does not see its attempts does not call it.
    std::function<void(int32_t peer, const std::string& what)> on_attempt{};
    // `peer` has opened a connection to us, which ends its earlier one; or its connection ended.
    // `torn`: a message that had begun to arrive is lost with it.  May be empty.  Called only where
    // the network identifies the peer: not by ZmqTransport.
    std::function<void(int32_t peer)> on_inbound{};
    std::function<void(int32_t peer, bool torn)> on_inbound_ended{};
    // Returns where the data frame of a message belongs, or null.  The message has this one data
    // frame, of `size_bytes`; all but its bytes is known.  on_message then gets a frame that shows
    // that memory and does not own it.  A message whose landing was revoked may not come at all.
    // May be empty; a transport need not ask.
    std::function<std::shared_ptr<Landing>(int32_t peer, const Meta& meta, uint64_t size_bytes)>
        place{};
    // True if `peer` is a node of the job.  Other peers may send little (PROTOCOL.md, "Limits").
    // Empty: every peer is.
    std::function<bool(int32_t peer)> knows{};
    // Returns how many bytes the data frames of a message may have together; all but these bytes
    // is known.  A longer message is garbage.  Asked for nodes of the job only.  Empty: as many as
    // any message may have.
    std::function<uint64_t(int32_t peer, const Meta& meta)> most_bytes{};
    // Too many bytes wait to leave for `peer`, which does not seem to read; `why` is for people.
    // The transport has dropped them and forgotten the peer, as Disconnect does.
    std::function<void(int32_t peer, const std::string& why)> on_overflow{};
    // The node at the other end of the connection to `peer` is none of ours.  Called before
    // on_connected, with nothing sent yet.  May be empty.  Called only where the network shows the
    // identity of the other end: not by ZmqTransport.
    std::function<void(int32_t peer)> on_foreign{};
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
  // Receives on host:port; port 0 takes a free port.  `done` gets the port, or an error that names
  // the address: kAlreadyExists (port in use) or kInvalidArgument (no such local address).
  // REQUIRES: called at most once.  If Close comes first, `done` is dropped uncalled.
  virtual void Bind(const Address& address, BindDone done) = 0;
  // Sends to `peer` go to `address` from now on and identify us as `own_id` (kEmpty: anonymous).
  // Replaces an earlier connection to `peer` and drops the messages that waited there.
  virtual void Connect(int32_t peer, const Address& address, int32_t own_id) = 0;
  // Forgets `peer`; messages that wait for it get `linger` to leave.
  virtual void Disconnect(int32_t peer, bs::Duration linger) = 0;
  // Sends message.meta and message.data to message.peer without copying the frames.  A frame is
  // released when its bytes have left or were dropped.  A message to an unknown peer is dropped.
  virtual void Send(Message message) = 0;
  // Memory of the caller that a network device may read (frames in it are sent without a copy) or
  // fill (landings).  The handle ends that; destroying it may block a little.  The memory stays
  // until the handle is gone and frames and landings in it are given back.  Null where no device
  // helps, or where it refuses; then bytes are copied.
  virtual std::shared_ptr<void> Lend(std::span<std::byte> /*memory*/, Lending /*use*/) {
    return nullptr;
  }
  // Registers memory for many loans; may block for as long as the system locks its pages.  Null
  // where no device helps.  kResourceExhausted if there would be room without other registrations;
  // kFailedPrecondition if not even then.
  virtual bs::Result<std::shared_ptr<Registration>> Register(std::span<std::byte> /*memory*/,
                                                             Lending /*use*/) {
    return std::shared_ptr<Registration>();
  }
  // The carriers of long data to `peer` and from it now.  REQUIRES: called on the executor.
  virtual bs::Carriers CarriersOf(int32_t /*peer*/) const { return {}; }
  // Stops receiving, and makes no callback any more; a callback that already runs on another thread
  // ends.  Messages that wait get `linger` to leave.  Idempotent.
  virtual void Close(bs::Duration linger) = 0;
};

}  // namespace ps
