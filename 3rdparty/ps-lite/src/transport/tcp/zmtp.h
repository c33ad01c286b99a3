// ZMTP 3.0 with the NULL mechanism (rfc.zeromq.org/spec/23): the part that a DEALER that only sends
// and a ROUTER that only receives need.
//
// The functions are pure; ZmtpInput belongs to one thread.  No input aborts the process.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ps/message.h"
#include "ps/transport.h"
#include "transport/shm/shared_memory.h"
#include "transport/tcp/block_pool.h"
#include "transport/tcp/growing_block.h"
#include "wire/wire.h"

namespace ps {

// The greeting that both ends send first.
std::string ZmtpGreeting();
// Offers of the other end that this end looks at.
struct ZmtpTakes {
  bool memory = false;
  bool rdma = false;
};
// The READY command that follows, as a frame.
std::string ZmtpReady(std::string_view socket_type, std::string_view identity,
                      ZmtpTakes takes = {});
// The command that carries SharedOutbox::offer, and the command that answers it.
std::string ZmtpMemory(std::string_view offer);
std::string ZmtpMemoryAnswer(bool taken);
// The command that carries RdmaLink::offer, and the command that answers it: with the line of the
// taker, or with the reason of a refusal.
std::string ZmtpRdma(std::string_view offer);
std::string ZmtpRdmaAnswer(bool taken, std::string_view text);
// Appends a frame of a message whose bytes lie in shared memory.
void AppendReference(uint64_t offset_bytes, uint64_t size_bytes, bool more, std::string* out);
// Appends the header of a frame of a message.
void AppendFrameHeader(uint64_t size_bytes, bool more, std::string* out);

// The input of a connection: a greeting, READY, then messages.
//
// Keeps no more than a single unfinished message, within the limits of its sender.  Memory for a
// long frame is taken as its bytes come, and none for a frame that is refused.
class ZmtpInput {
 public:
  // Called inside Filled.
  struct Listener {
    std::function<void()> on_greeting;
    std::function<void(std::string_view identity)> on_ready;
    // Called after on_ready if the other end looks at offers of memory; may be empty.
    std::function<void()> on_takes_memory{};
    // The other end offers memory, or answers an offer; may be empty.
    std::function<void(std::string_view offer)> on_memory{};
    std::function<void(bool taken)> on_memory_answer{};
    // The same of RDMA.
    std::function<void()> on_takes_rdma{};
    std::function<void(std::string_view offer)> on_rdma{};
    std::function<void(bool taken, std::string_view text)> on_rdma_answer{};
    // A message, or its fault; without its peer.
    std::function<void(bs::Result<Message> message)> on_message;
    // See Transport::Handler::place; may be empty.
    std::function<std::shared_ptr<Landing>(const Meta& meta, uint64_t size_bytes)> place{};
    // See Transport::Handler::knows and most_bytes; both are about the other end; may be empty.
    std::function<bool()> known{};
    std::function<uint64_t(const Meta& meta)> most_bytes{};
  };
  // The memory to read into, in this order; valid until Filled.
  using Rooms = std::array<iovec, 2>;

  static constexpr size_t kScratchBytes = 64U << 10U;
  // State that the inputs of a thread share.
  struct Shared {
    std::span<std::byte> scratch;               // of kScratchBytes; outlives the inputs
    std::shared_ptr<BlockPool> blocks;          // shared with the frames
    uint64_t max_frame_bytes = kMaxFrameBytes;  // a longer frame ends the connection
    // Bytes kept for unfinished messages of peers outside the job, all inputs together; at most
    // kMaxStrangersBytes.
    std::shared_ptr<uint64_t> strangers_bytes = std::make_shared<uint64_t>(0);
  };
  ZmtpInput(Shared shared, Listener listener);
  ZmtpInput(const ZmtpInput&) = delete;
  ZmtpInput& operator=(const ZmtpInput&) = delete;
  ~ZmtpInput();

  // From now on frames may lie in `inbox`.
  void Share(std::shared_ptr<SharedInbox> inbox) { inbox_ = std::move(inbox); }

  Rooms MakeRooms();
  // A turn parses at most kFramesPerTurn frames; a message fused into another counts as one frame.
  // So a peer that sends many tiny messages does not delay other peers.  When the turn is over, the
  // remaining bytes wait here for the next.
  static constexpr int kFramesPerTurn = 128;
  void BeginTurn() { frames_left_ = kFramesPerTurn; }
  bool turn_over() const { return frames_left_ == 0; }
  bool waiting() const { return waiting_; }
  // Parses the bytes that wait, as Filled does.
  bs::Status Continue();
  // True if a message, or the introduction, has begun and is not whole.
  bool unfinished() const { return num_parts_ > 0 || body_ || !rest_.empty(); }
  uint64_t num_messages() const { return num_messages_; }  // whole messages so far
  // `size_bytes` were read into the rooms.  Not ok: the bytes are no ZMTP that we speak, and the
  // connection is over.  REQUIRES: no bytes wait; MakeRooms was called; since then no other input
  // has used `scratch`.
  bs::Status Filled(size_t size_bytes);

 private:
  enum class State { kGreeting, kHandshake, kMessages };
  struct Header {
    bool more = false;
    bool command = false;
    bool reference = false;  // its body says where the bytes lie
    uint64_t size_bytes = 0;
    size_t own_bytes = 0;  // of the header itself
  };
  // A long body that is read straight into its memory.
  struct Body {
    Body();  // defined elsewhere: Clang cannot put the initializers below into an optional here
    Header header;
    uint64_t filled_bytes = 0;
    std::span<std::byte> memory;  // for the body's beginning, or all of it; owned by one of:
    Frame frame;
    GrowingBlock block{};
    std::shared_ptr<Landing> landing;
    bool skipped = false;  // the bytes are dropped

    uint64_t left_bytes() const { return header.size_bytes - filled_bytes; }
    bool goes_nowhere() const { return skipped || (landing && landing->revoked); }
  };

  // Takes whole headers and frames from the front of `bytes`.
  bs::Status Parse(std::span<const std::byte>* bytes);
  bs::Status ParseGreeting(std::span<const std::byte>* bytes);
  // False if the header is not whole yet.
  bs::Result<bool> ParseHeader(std::span<const std::byte> bytes, Header* header) const;
  // Returns where the body of the message's first data frame belongs; null: no place is given.
  std::shared_ptr<Landing> Place(bool more, uint64_t size_bytes) const;
  // Checks a frame that begins.  Not ok if the connection is over; if only the message is refused,
  // wrong_ says why.
  bs::Status Admit(const Header& header, bool whole);
  bs::Status AdmitMeta(uint64_t size_bytes, bool known) const;
  void CheckData(uint64_t size_bytes, bool known);
  bool refused() const { return !wrong_.ok() || num_parts_ > kMaxDataFrames; }
  bs::Status BeginBody(const Header& header, std::span<const std::byte>* bytes);
  // Takes more memory for the body if its memory is full.
  bs::Status GrowBody();
  bs::Status OnFrame(const Header& header, std::span<const std::byte> body);
  bs::Status OnCommand(std::span<const std::byte> body);
  bs::Status OnReady(std::span<const std::byte> body);
  bs::Status OnReference(Header header, std::span<const std::byte> body);
  void EndBody();
  // Adds a part to the message: `frame`, or a copy of `bytes` if that is empty.
  void OnPart(bool more, std::span<const std::byte> bytes, Frame frame);
  void EndMessage();
  // Takes `frames` from the number that the turn has left.
  void Charge(uint64_t frames);
  // Returns the parts of the current message, and begins a new message.
  Message TakeMessage();

  const Shared shared_;
  const Listener listener_;
  std::shared_ptr<SharedInbox> inbox_;  // null: the other end shares no memory with us
  State state_ = State::kGreeting;
  // Bytes of an unfinished header or short frame; or bytes that wait, from rest_at_ on.
  std::vector<std::byte> rest_;
  size_t rest_at_ = 0;
  int frames_left_ = kFramesPerTurn;
  bool waiting_ = false;
  uint64_t num_messages_ = 0;
  std::optional<Body> body_;
  bool among_long_ = false;  // a long body came, and no full read without a long body since
  // The current message.
  size_t num_parts_ = 0;
  uint64_t data_bytes_ = 0;      // announced
  uint64_t stranger_bytes_ = 0;  // its part of shared_.strangers_bytes
  bs::Status wrong_;
  Message message_;
};

}  // namespace ps
