// Messages of the ps-lite protocol as values: nodes, meta data, frames of bytes.
//
// PROTOCOL.md defines each field on the wire; src/wire/wire.h encodes and parses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_function.h"
#include "ps/body.h"

namespace ps {

// The protocol's marker for "not set": ids, head, app id, customer id, time stamp.
inline constexpr int32_t kEmpty = std::numeric_limits<int32_t>::max();

inline constexpr int32_t kSchedulerId = 1;
// Group ids are bit sets.
inline constexpr int32_t kServerGroup = 2;
inline constexpr int32_t kWorkerGroup = 4;
inline constexpr int32_t kEveryone = 7;

// An attached worker is a native worker beside a stock worker in the same process: same rank, its
// own id, not counted in groups.  Added to the id of the worker it stands beside.
inline constexpr int32_t kAttachedIdBase = 1 << 20;
// Connections of the scheduler node to nodes without an id; never on the wire, far from all ids.
inline constexpr int32_t kFirstTemporaryId = 1 << 28;

constexpr int32_t ServerId(int32_t rank) { return 8 + 2 * rank; }
constexpr int32_t WorkerId(int32_t rank) { return 9 + 2 * rank; }
constexpr int32_t AttachedId(int32_t rank) { return kAttachedIdBase + WorkerId(rank); }
constexpr bool IsAttachedId(int32_t id) { return id >= kAttachedIdBase && id != kEmpty; }
constexpr int32_t RankOf(int32_t id) {
  const int32_t base = IsAttachedId(id) ? id - kAttachedIdBase : id;
  return base < 8 ? 0 : (base - 8) / 2;
}

enum class Role : int32_t { kServer = 0, kWorker = 1, kScheduler = 2 };
std::string_view NameOf(Role role);
// "server 0", "worker 1", "the scheduler"; with an attached id the worker it stands beside.
std::string DescribeId(int32_t id);

enum class Command : int32_t {
  kNone = 0,
  kTerminate = 1,
  kAddNode = 2,
  kBarrier = 3,
  kAck = 4,
  kHeartbeat = 5,
};

struct Node {
  Role role = Role::kServer;
  int32_t id = kEmpty;
  std::string hostname{};
  int32_t port = 0;
  bool is_recovery = false;
  int32_t customer_id = 0;
  // A native node's statement about the link of its host, in bits a second; 0: there is none.
  uint64_t link_rate = 0;
  // The host that had this place at the rendezvous, if that is another: decisions about hosts there
  // hold for the whole job.
  std::string first_hostname{};

  bool operator==(const Node&) const = default;
};

// Present in control messages only.
struct Control {
  Command command = Command::kNone;
  std::vector<Node> nodes{};
  int32_t barrier_group = 0;
  uint64_t signature = 0;

  bool operator==(const Control&) const = default;
};

// The subject of a native message.  Numbers are on the wire.
enum class Op : uint32_t {
  kNone = 0,
  // data, worker <-> server; each request has exactly one final response with the same op
  kDeclare = 1,    // rank 0 tells the key's home server shape and placement of a tensor
  kLookup = 2,     // a worker asks the home server for them; pending until declared
  kPush = 3,       // a partition of one round; answered as soon as it has been taken
  kPull = 4,       // asks for a partition's sum of one round; pending until the round is complete
  kPending = 5,    // not final: the request is alive, `text` names the cause of the wait; or
                   // (`status`) it was not taken for want of room, and is to be repeated
  kOptimizer = 6,  // a worker tells every server, perhaps with a pickle, how to update asynchronous
                   // keys
  kPushPull = 7,   // both at once, of a synchronous key; its only answer is the pull's
  kRelease = 8,    // rank 0 tells a server that no worker needs earlier layouts of a key any more
  kFused = 9,      // several small messages together; seen by transports only
  kGiveBack = 10,  // a worker tells the key's home server that it needs the key no more for now, or
                   // that it needs the key again
  kReady = 11,  // a worker tells the leader of collective operations which tensors are ready; the
                // response, pending until there are some, has operations to execute
  kGive = 12,   // a giver's partition of an exchange; answered as soon as it has been taken up
  kTake = 13,   // a taker asks for a partition of an exchange's result; pending until all gave;
                // with a payload it gives that too
  kTaken = 14,  // a worker tells a server which partitions of exchanges it has
  kQuit = 15,   // a worker ends an exchange, for all workers of it: `status`, and `text` why
  // control, member <-> scheduler node
  kRegister = 16,  // rides on ADD_NODE of a native node
  kAttach = 17,    // rides on ADD_NODE of an attached worker
  kStatus = 18,    // the scheduler's word while a node waits: `text`; with `status` a refusal
  kLeave = 19,     // a native node says goodbye; answered in kind
  kShutdown = 20,  // the scheduler's word: the job is over (`status` 0) or has failed
  kState = 21,     // rides on heartbeat answers: state of the job in `status` and `text`
  kVacate = 22,    // a worker was lost and its place is free: the scheduler node's word to servers,
                   // or a server's to it, on a heartbeat
  kVouch = 23,     // a launcher's word: workers live which have not registered
};

// A worker's place may be taken again when it was lost.  Each holder has one incarnation, counted
// from 0; its field on the wire has 16 bits.
inline constexpr uint64_t kMostIncarnations = uint64_t{1} << 16U;

// The part of a job's number that its data carries.
constexpr uint32_t JobMark(uint64_t job) { return static_cast<uint32_t>(job); }

// Our extension of PBMeta, fields 100 and up; stock nodes ignore it.  ps-lite reads its envelope.
// The rest is the body: src/protocol/ reads and writes the body of data, membership/control_body.h
// the body of control messages.
struct Extension {
  uint32_t version = 0;  // 0: a stock message, nothing below is on the wire
  Op op = Op::kNone;
  // Identifies a request of a sender; repeated on a retry, echoed.  Of data below 2^48.
  uint64_t sequence = 0;
  // In data messages: the incarnation of the worker that asks.  It shows a late request of an
  // earlier holder of the place; echoed.
  uint16_t incarnation = 0;
  // In data messages: JobMark of the job.  It shows messages that nodes of another job still send;
  // echoed.
  uint32_t job = 0;
  uint32_t status = 0;  // a bs::StatusCode; 0 is ok
  std::string text{};   // for people
  Body body{};

  bool operator==(const Extension&) const = default;
};
inline constexpr uint32_t kExtensionVersion = 1;

struct Meta {
  int32_t head = kEmpty;
  std::string body{};
  bool is_control = false;
  Control control{};
  bool request = false;
  bool push = false;
  bool pull = false;
  bool simple_app = false;
  int32_t app_id = kEmpty;
  int32_t timestamp = kEmpty;
  std::vector<int32_t> data_types{};
  int32_t customer_id = kEmpty;
  int32_t priority = 0;
  Extension extension{};

  bool native() const { return extension.version != 0; }
  bool operator==(const Meta&) const = default;
};

// A range of bytes that keeps its memory alive.  A resource: moved, not copied; the memory is given
// back on the thread that destroys it.
class Frame {
 public:
  Frame() = default;
  static Frame Copy(std::span<const std::byte> bytes);
  static Frame Copy(std::string_view bytes);
  // The bytes stay the caller's and unchanged until `release` has run, which happens exactly once,
  // on any thread.  `release` may be empty.
  static Frame Borrow(std::span<const std::byte> bytes, bs::UniqueFunction<void()> release);
  // The same with bytes that only the frame's holder reads or writes until then.
  static Frame Own(std::span<std::byte> bytes, bs::UniqueFunction<void()> release);
  // Bytes of `whole`, whose memory goes with the last frame that shares it.
  static Frame PartOf(std::shared_ptr<const Frame> whole, std::span<const std::byte> bytes);
  // Returns a frame for long keeping: it keeps no more memory than its bytes need, and is a copy if
  // `frame` shares memory with other frames.  `frame` is empty then.  May throw std::bad_alloc,
  // which changes nothing.
  static Frame Alone(Frame&& frame);

  Frame(Frame&& other) noexcept;
  Frame& operator=(Frame&& other) noexcept;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame();

  std::span<const std::byte> bytes() const { return bytes_; }
  // The same bytes where the holder may write them: in frames of Own and Copy.  Empty elsewhere.
  std::span<std::byte> writable() const { return writable_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  size_t size() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  std::span<std::byte> writable_;
  bs::UniqueFunction<void()> release_;
  bool shares_ = false;
};

struct Message {
  // Sender of a received message (kEmpty: anonymous), receiver of a sent message.
  int32_t peer = kEmpty;
  Meta meta{};
  std::vector<Frame> data{};
  // True while a native message waits to leave and only its frames keep their memory: that memory
  // counts for its receiver.  Frames of stock messages always count.  Not on the wire.
  bool keeps_memory = false;
};

}  // namespace ps
