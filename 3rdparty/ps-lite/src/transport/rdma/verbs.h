// Verbs: the calls of a transport to RDMA network cards, in types of our own.
//
// VerbsLibrary implements it over libibverbs.so.1, which it loads at run time; tests have a
// simulated card.  Only reliable connections (RC) are used, with SEND and READ: no end ever writes
// into the memory of another.
//
// Errors are statuses that name the device and the call that failed: "mlx5_0: ibv_create_qp: Cannot
// allocate memory".  kUnavailable: there is no library, device or active port, and the message
// names the package to install or the device to pass.  kResourceExhausted: a limit (locked memory,
// queue entries) is reached.  kInvalidArgument: the device refuses these values.  No call aborts
// the process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ps {

// An entry of a port's table of addresses.
using GidBytes = std::array<std::byte, 16>;  // an IPv4 address is written as ::ffff:a.b.c.d
struct RdmaGid {
  enum class Type { kInfiniBand, kRoceV1, kRoceV2 };
  int index = 0;
  GidBytes bytes{};
  Type type = Type::kInfiniBand;
};

enum class RdmaLayer { kInfiniBand, kEthernet, kOther };  // kOther: iWARP and unknown layers

struct RdmaPort {
  int number = 1;  // from 1, as libibverbs counts
  RdmaLayer layer = RdmaLayer::kOther;
  bool active = false;
  std::string state{};                    // for people: "ACTIVE", "DOWN"
  uint32_t mtu_bytes = 0;                 // of a packet's data; a power of two from 256 to 4096
  uint16_t lid = 0;                       // InfiniBand's local address; 0 on Ethernet
  std::vector<RdmaGid> gids{};            // entries that are set and can be read
  std::vector<std::string> interfaces{};  // network interfaces of the port: "eth0", "ib0"
};

struct RdmaDevice {
  std::string name{};  // "mlx5_0"
  std::vector<RdmaPort> ports{};
  int numa_node = -1;  // -1: it has none of its own
  // READs of a queue pair at a time: of its own, and of its peer.
  uint32_t most_reads = 0;
  uint32_t most_answered_reads = 0;
  uint32_t most_completions = 0;    // of a completion queue
  uint32_t most_queue_entries = 0;  // of a send or receive queue
  uint64_t most_region_bytes = 0;
  bool relaxed_ordering = false;
};

// The effect of a child process after fork() on registered memory.
enum class RdmaFork {
  kHarmless,   // the kernel copies pinned pages for the child
  kProtected,  // registered pages are missing in the child, and it dies if it touches them
};

// Where a queue pair is, as its peer must know it.
struct QueuePairAddress {
  RdmaLayer layer = RdmaLayer::kOther;
  GidBytes gid{};
  uint16_t lid = 0;
  uint32_t number = 0;        // of the queue pair; 24 bits
  uint32_t first_packet = 0;  // the PSN of the first packet that it sends; 24 bits

  bool operator==(const QueuePairAddress&) const = default;
};

// Which port and address a device's queue pairs use.
struct RdmaPath {
  int port = 1;
  int gid_index = 0;
  uint8_t traffic_class = 0;  // DSCP << 2
  uint8_t service_level = 0;  // 0 to 7
};

struct QueuePairLimits {
  uint32_t sends = 0;  // SENDs and READs posted and not yet complete
  uint32_t receives = 0;
  uint32_t inline_bytes = 0;  // wished for; inline_bytes() tells the number in force
};

// Terms that both ends have agreed upon.
struct QueuePairTerms {
  uint32_t mtu_bytes = 0;
  uint32_t reads = 0;           // READs that this end may have under way
  uint32_t answered_reads = 0;  // READs of the peer that it answers at a time
};

// Part of a message to send, or memory to fill.
struct RdmaPiece {
  std::byte* data = nullptr;  // not written by Send
  uint32_t size_bytes = 0;
  uint32_t local_key = 0;  // of the region around it; not looked at for inline data
};

struct Completion {
  enum class Kind { kSend, kRead, kReceive };
  // The numbers are ibv_wc_status's.
  enum class Result : uint32_t {
    kOk = 0,
    kLocalLength = 1,
    kLocalProtection = 4,
    kFlushed = 5,  // the queue pair is in the state of errors; another completion says why
    kRemoteInvalid = 9,
    kRemoteAccess = 10,
    kRemoteOperation = 11,
    kRetriesExceeded = 12,
    kReceiverNotReady = 13,
  };

  uint64_t id = 0;              // as posted
  Kind kind = Kind::kSend;      // valid only if ok
  Result result = Result::kOk;  // may have another number than the named results
  uint32_t vendor_code = 0;     // of an error, for the card's maker
  uint32_t size_bytes = 0;      // kReceive: of the message
  uint32_t queue_pair = 0;      // its number

  bool ok() const { return result == Result::kOk; }
};
// For people: "transport retry counter exceeded".
std::string_view NameOf(Completion::Result result);

// The cure where no packet of RDMA arrives.
inline constexpr std::string_view kLetRdmaPass =
    "let packets of RDMA pass (for RoCE UDP port 4791), and none be lost (PFC, ECN)";
// A completion that is not ok, for people: its result and numbers, and behind a colon the remedy
// where it is known.
std::string TextOfFailure(const Completion& completion);

// Something that happens to the device by itself.
struct RdmaEvent {
  enum class Kind { kPortUp, kPortDown, kDeviceLost, kQueuePairLost, kOther };
  Kind kind = Kind::kOther;
  int port = 0;             // kPortUp, kPortDown
  uint32_t queue_pair = 0;  // kQueuePairLost
  std::string text{};       // for people: "port error"
};

// Memory that the device may use.  Destroying it ends that: it blocks a little, on any thread.
// REQUIRES: nothing posted still uses it, and the memory is still mapped.  Keeps its device open.
class RdmaRegion {
 public:
  RdmaRegion() = default;
  RdmaRegion(const RdmaRegion&) = delete;
  RdmaRegion& operator=(const RdmaRegion&) = delete;
  virtual ~RdmaRegion() = default;
  virtual uint32_t local_key() const = 0;
  virtual uint32_t remote_key() const = 0;  // named by a peer's READ
};

// A reliable connection.  Confined to the thread that polls its device.  Keeps its device open.
// Destroying it blocks a little; afterwards the card touches none of the memory that was posted.
// Its completions may still be polled then, so ids must not be pointers.
//
// A post that fails has no effect; kResourceExhausted: the queue is full.  When any completion of
// the queue pair is not ok, it sends and receives no more; posted work completes as kFlushed.
class QueuePair {
 public:
  QueuePair() = default;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  virtual ~QueuePair() = default;

  // This end, made up by Create; valid at once.
  virtual const QueuePairAddress& address() const = 0;
  virtual uint32_t inline_bytes() const = 0;
  // Moves from INIT to RTR: receives from `peer`.  Receives may be posted before.
  virtual bs::Status Receive(const QueuePairAddress& peer, const QueuePairTerms& terms) = 0;
  // Moves from RTR to RTS.  REQUIRES: Receive was ok.
  virtual bs::Status Activate() = 0;
  // Moves to ERR: everything posted completes, as kFlushed unless it is done.
  virtual void Abandon() = 0;

  // The next message goes to `memory`; messages fill receives in the order of posting.
  virtual bs::Status PostReceive(uint64_t id, const RdmaPiece& memory) = 0;
  // Sends a message of at most two pieces.  `in_line`: the bytes are copied now; they are at most
  // inline_bytes().  Otherwise they stay unchanged until this or a later signalled send completes.
  // Not `signalled`: it completes only if it fails.
  struct Send {
    uint64_t id = 0;
    std::span<const RdmaPiece> pieces{};
    bool in_line = false;
    bool signalled = true;
  };
  virtual bs::Status PostSend(const Send& send) = 0;
  // Reads the peer's memory at `remote_address` into `memory`.  Always signalled.  REQUIRES: fewer
  // than QueuePairTerms::reads are under way.
  virtual bs::Status PostRead(uint64_t id, const RdmaPiece& memory, uint64_t remote_address,
                              uint32_t remote_key) = 0;
};

// An open device with one completion queue.  Confined to one thread, but Register is thread-safe.
// Everything made by it keeps it open.
class VerbsDevice {
 public:
  VerbsDevice() = default;
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;
  virtual ~VerbsDevice() = default;

  virtual const RdmaDevice& facts() const = 0;  // when it was opened

  // Uses of registered memory by the device.  It reads the bytes of sends in any case.
  enum class Access {
    kFill,  // it writes received bytes, and bytes that this end READs
    kLend,  // peers may READ it; the memory may be read-only
    kBoth,
  };
  // Thread-safe.  Pins whole pages around `memory`, which must stay mapped until the region is
  // destroyed.  Ranges may overlap.  May block for milliseconds.
  virtual bs::Result<std::unique_ptr<RdmaRegion>> Register(std::span<std::byte> memory,
                                                           Access access) = 0;

  virtual bs::Result<std::unique_ptr<QueuePair>> Create(const RdmaPath& path,
                                                        const QueuePairLimits& limits) = 0;

  // Readable when a completion has come since Rearm, and perhaps without a completion.  Edge or
  // level.
  virtual int completion_fd() const = 0;
  // Makes the descriptor unreadable, and readable again with the next completion.  Completions that
  // came before may not show: poll until there is none after Rearm.
  virtual bs::Status Rearm() = 0;
  // Fills the front of `completions` in the order of their queues; returns how many.
  virtual bs::Result<size_t> Poll(std::span<Completion> completions) = 0;

  // Readable when TakeEvent has something to say.
  virtual int event_fd() const = 0;
  virtual std::optional<RdmaEvent> TakeEvent() = 0;  // never blocks
};

// Thread-safe.
class Verbs {
 public:
  Verbs() = default;
  Verbs(const Verbs&) = delete;
  Verbs& operator=(const Verbs&) = delete;
  virtual ~Verbs() = default;

  // Devices that are there now.  Not ok if there is none, with the remedy.
  virtual bs::Result<std::vector<RdmaDevice>> Devices() = 0;
  // REQUIRES: called before the first Register of the process decides (ibv_fork_init).
  virtual RdmaFork fork() = 0;
  // `most_completions`: the number that may wait to be polled, or RdmaDevice::most_completions if
  // that is less; more is an error of the caller.  The device and its objects may outlive the
  // Verbs.
  virtual bs::Result<std::unique_ptr<VerbsDevice>> Open(const std::string& device,
                                                        uint32_t most_completions) = 0;
};

}  // namespace ps
