// ZMTP 3.0 with the NULL mechanism (rfc.zeromq.org/spec/23), as far as a DEALER that only sends and
// a ROUTER that only receives need it.
//
// The functions are pure; ZmtpInput belongs to one thread.  Nothing aborts whatever the bytes are.
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

#include "bytescheduler/status.h"
#include "ps/message.h"
#include "ps/transport.h"
#include "transport/shm/shared_memory.h"
#include "transport/tcp/block_pool.h"
#include "transport/tcp/growing_block.h"
#include "wire/wire.h"

namespace ps {

// What both ends send first.
std::string ZmtpGreeting();
// The command after it, as a frame; whether offers of memory are looked at.
std::string ZmtpReady(std::string_view socket_type, std::string_view identity,
                      bool takes_memory = false);
// The command that offers what a SharedInbox is opened by, and the one that answers it.
std::string ZmtpMemory(std::string_view offer);
std::string ZmtpMemoryAnswer(bool taken);
// Appends a frame of a message whose bytes lie in shared memory.
void AppendReference(uint64_t offset_bytes, uint64_t size_bytes, bool more, std::string* out);
// Appends the header of a frame of a message.
void AppendFrameHeader(uint64_t size_bytes, bool more, std::string* out);

// What comes in on one connection: a greeting, READY, then messages.
//
// Keeps at most one message that is not whole yet, and of that what its sender may send: memory for
// a long frame is taken as its bytes come, and none for what is refused anyway.
class ZmtpInput {
 public:
  // Called inside Filled.
  struct Listener {
    std::function<void()> on_greeting;
    std::function<void(std::string_view identity)> on_ready;
    // After on_ready, if the other end looks at offers of memory; may be empty.
    std::function<void()> on_takes_memory{};
    // The other end offers memory, or answers an offer; may be empty.
    std::function<void(std::string_view offer)> on_memory{};
    std::function<void(bool taken)> on_memory_answer{};
    // A message, or what is wrong with it; without its peer.
    std::function<void(bs::Result<Message> message)> on_message;
    // As Transport::Handler::place; may be empty.
    std::function<std::shared_ptr<Landing>(const Meta& meta, uint64_t size_bytes)> place{};
    // As Transport::Handler::knows and most_bytes, of the other end; may be empty.
    std::function<bool()> known{};
    std::function<uint64_t(const Meta& meta)> most_bytes{};
  };
  // Where to read to, in this order; valid until Filled.
  using Rooms = std::array<iovec, 2>;

  static constexpr size_t kScratchBytes = 64U << 10U;
  // What inputs of one thread share.
  struct Shared {
    std::span<std::byte> scratch;               // of kScratchBytes; outlives the inputs
    std::shared_ptr<BlockPool> blocks;          // shared with the frames
    uint64_t max_frame_bytes = kMaxFrameBytes;  // a longer one ends the connection
    // What is kept of unfinished messages of others than nodes of the job; at most
    // kMaxStrangersBytes.  Shared by the inputs.
    std::shared_ptr<uint64_t> strangers_bytes = std::make_shared<uint64_t>(0);
  };
  ZmtpInput(Shared shared, Listener listener);
  ZmtpInput(const ZmtpInput&) = delete;
  ZmtpInput& operator=(const ZmtpInput&) = delete;
  ~ZmtpInput();

  // From now on frames may lie there.
  void Share(std::shared_ptr<SharedInbox> inbox) { inbox_ = std::move(inbox); }

  Rooms MakeRooms();
  // A turn takes at most kFramesPerTurn frames out of what was read, and each message that travels
  // in another counts as one, so that who sends many tiny ones holds nobody up: then it is over,
  // and what is left waits here for the next.
  static constexpr int kFramesPerTurn = 128;
  void BeginTurn() { frames_left_ = kFramesPerTurn; }
  bool turn_over() const { return frames_left_ == 0; }
  bool waiting() const { return waiting_; }
  // Takes what waits, as Filled does.
  bs::Status Continue();
  // A message, or the introduction, has begun and is not whole.
  bool unfinished() const { return num_parts_ > 0 || body_ || !rest_.empty(); }
  uint64_t num_messages() const { return num_messages_; }  // that were whole
  // So many bytes were read.  Not ok: this is no ZMTP that we speak, and the connection is over.
  // REQUIRES: nothing waits, MakeRooms was called, and no other input has used `scratch` since.
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
  // A long body on its way straight to its memory.
  struct Body {
    Body();  // defined elsewhere: Clang cannot put the initializers below into an optional here
    Header header;
    uint64_t filled_bytes = 0;
    std::span<std::byte> memory;       // of the body's beginning, or all of it
    Frame frame;                       // owns it, or `block` does, or `landing`
    GrowingBlock block{};              //
    std::shared_ptr<Landing> landing;  //
    bool skipped = false;              // nobody wants it

    uint64_t left_bytes() const { return header.size_bytes - filled_bytes; }
    bool goes_nowhere() const { return skipped || (landing && landing->revoked); }
  };

  // Takes what it can from the front of `bytes`.
  bs::Status Parse(std::span<const std::byte>* bytes);
  bs::Status ParseGreeting(std::span<const std::byte>* bytes);
  // False if the header is not whole yet.
  bs::Result<bool> ParseHeader(std::span<const std::byte> bytes, Header* header) const;
  // Where the body of the message's first data frame belongs; null: nowhere.
  std::shared_ptr<Landing> Place(bool more, uint64_t size_bytes) const;
  // Of a frame that begins: not ok if the connection is over.  If its message is, wrong_ says so.
  bs::Status Admit(const Header& header, bool whole);
  bs::Status AdmitMeta(uint64_t size_bytes, bool known) const;
  void CheckData(uint64_t size_bytes, bool known);
  bool refused() const { return !wrong_.ok() || num_parts_ > kMaxDataFrames; }
  bs::Status BeginBody(const Header& header, std::span<const std::byte>* bytes);
  // More memory for the body if what it has is full.
  bs::Status GrowBody();
  bs::Status OnFrame(const Header& header, std::span<const std::byte> body);
  bs::Status OnCommand(std::span<const std::byte> body);
  bs::Status OnReady(std::span<const std::byte> body);
  bs::Status OnReference(Header header, std::span<const std::byte> body);
  void EndBody();
  // A part of a message; its bytes are copied, or `frame`'s own.
  void OnPart(bool more, std::span<const std::byte> bytes, Frame frame);
  void EndMessage();
  // A turn has so many fewer frames left.
  void Charge(uint64_t frames);
  // What there is of the message under way, which is over.
  Message TakeMessage();

  const Shared shared_;
  const Listener listener_;
  std::shared_ptr<SharedInbox> inbox_;  // null: the other end shares no memory with us
  State state_ = State::kGreeting;
  // Bytes that are no whole header or short frame yet; or that wait, from rest_at_ on.
  std::vector<std::byte> rest_;
  size_t rest_at_ = 0;
  int frames_left_ = kFramesPerTurn;
  bool waiting_ = false;
  uint64_t num_messages_ = 0;
  std::optional<Body> body_;
  bool among_long_ = false;  // a long body came, and behind it less than a room full without one
  // The message under way.
  size_t num_parts_ = 0;
  uint64_t data_bytes_ = 0;      // announced
  uint64_t stranger_bytes_ = 0;  // its part of shared_.strangers_bytes
  bs::Status wrong_;
  Message message_;
};

}  // namespace ps
