// Reads greetings, commands and frames.
#include "transport/tcp/zmtp.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/count_of.h"
#include "transport/tcp/zmtp_parts.h"
#include "wire/fusion.h"

namespace ps {
namespace {

constexpr size_t kShortHeaderBytes = 2;
constexpr size_t kLongHeaderBytes = 9;
constexpr uint64_t kMaxCommandBytes = 64U << 10U;
// Shorter bodies are assembled in the scratch memory; longer bodies are read into memory of their
// own.
constexpr uint64_t kShortBodyBytes = 8U << 10U;
// Behind a body of this many bytes another long body is likely.  So no more is read with it than
// kHeadBytes, a header and its message's metadata, and the next body is not copied either.
constexpr uint64_t kLongBodyBytes = 16U << 10U;
constexpr size_t kHeadBytes = 512;
// A longer body gets memory as its bytes come, in steps that double.
constexpr uint64_t kAtOnceBytes = BlockPool::kMostKeptBytes;
// A node entry takes 4 bytes on the wire, and this many times that in memory.
constexpr uint64_t kParsedBytesPerByte = 16;

// True if every value of the data is valid.  A hostile sender may then change the bytes while they
// are read; data that is checked before use must be copied first.
bool OnlyNumbers(const Meta& meta) {
  const Op op = meta.extension.op;
  return meta.native() && (op == Op::kPush || op == Op::kPushPull || op == Op::kPull ||
                           op == Op::kGive || op == Op::kTake);
}

bs::Status NoMemory(uint64_t size_bytes) {
  return bs::Status::ResourceExhausted("no memory for a frame of " +
                                       bs::CountOf(size_bytes, "byte"));
}

// The properties of a READY command; views of its bytes.
struct Introduction {
  std::string_view identity;
  std::string_view memory;
  std::string_view rdma;
};

bs::Result<Introduction> ParseReady(std::span<const std::byte> body) {
  constexpr std::string_view kReady = "\5READY";
  if (!TextOf(body).starts_with(kReady)) return NoZmtp("another command instead of READY");
  std::span<const std::byte> properties = body.subspan(kReady.size());
  Introduction found;
  while (!properties.empty()) {
    const size_t name_bytes = ByteAt(properties, 0);
    if (properties.size() < 1 + name_bytes + 4) return NoZmtp("a property is cut short");
    const std::string_view name = TextOf(properties.subspan(1, name_bytes));
    const uint64_t value_bytes = ReadBigEndian(properties.subspan(1 + name_bytes, 4));
    properties = properties.subspan(1 + name_bytes + 4);
    if (properties.size() < value_bytes) return NoZmtp("a property is cut short");
    if (name == "Identity") found.identity = TextOf(properties.first(value_bytes));
    if (name == kMemory) found.memory = TextOf(properties.first(value_bytes));
    if (name == kRdma) found.rdma = TextOf(properties.first(value_bytes));
    properties = properties.subspan(value_bytes);
  }
  return found;
}

}  // namespace

ZmtpInput::ZmtpInput(Shared shared, Listener listener)
    : shared_(std::move(shared)), listener_(std::move(listener)) {
  BS_CHECK(shared_.scratch.size() == kScratchBytes);
}

ZmtpInput::Body::Body() = default;

ZmtpInput::~ZmtpInput() { *shared_.strangers_bytes -= stranger_bytes_; }

ZmtpInput::Rooms ZmtpInput::MakeRooms() {
  // Either bytes are left over or a body is unfinished, never both.
  std::copy(rest_.begin(), rest_.end(), shared_.scratch.begin());
  std::span<std::byte> room = shared_.scratch.subspan(rest_.size());
  if (body_ && body_->goes_nowhere()) {
    return {iovec{room.data(), std::min<uint64_t>(room.size(), body_->left_bytes())}, iovec{}};
  }
  if (among_long_) room = room.first(std::min(room.size(), kHeadBytes));
  if (!body_) return {iovec{room.data(), room.size()}, iovec{}};
  const std::span<std::byte> body = body_->memory.subspan(body_->filled_bytes);
  const bool all = body.size() == body_->left_bytes();
  return {iovec{body.data(), body.size()}, iovec{room.data(), all ? room.size() : 0}};
}

bs::Status ZmtpInput::Filled(size_t size_bytes) {
  if (body_) {
    const uint64_t more = std::min<uint64_t>(size_bytes, body_->left_bytes());
    body_->filled_bytes += more;
    size_bytes -= more;
    if (body_->left_bytes() > 0) return GrowBody();
    EndBody();
  }
  std::span<const std::byte> bytes = shared_.scratch.first(rest_.size() + size_bytes);
  const bs::Status parsed = Parse(&bytes);
  rest_.assign(bytes.begin(), bytes.end());
  if (!body_ && size_bytes == kHeadBytes) among_long_ = false;
  return parsed;
}

bs::Status ZmtpInput::Continue() {
  if (!waiting_) return bs::Status::Ok();
  std::span<const std::byte> bytes = std::span(rest_).subspan(rest_at_);
  const bs::Status parsed = Parse(&bytes);
  rest_at_ = rest_.size() - bytes.size();
  if (waiting_) return parsed;
  // Few bytes are left, so the capacity for many is given back.
  rest_ = std::vector<std::byte>(bytes.begin(), bytes.end());
  rest_at_ = 0;
  return parsed;
}

bs::Status ZmtpInput::Parse(std::span<const std::byte>* bytes) {
  if (state_ == State::kGreeting) {
    bs::Status greeted = ParseGreeting(bytes);
    if (!greeted.ok() || state_ == State::kGreeting) return greeted;
  }
  waiting_ = false;
  while (!bytes->empty()) {
    if (frames_left_ == 0) {
      waiting_ = true;
      return bs::Status::Ok();
    }
    Header header;
    const bs::Result<bool> whole = ParseHeader(*bytes, &header);
    if (!whole.ok()) return whole.status();
    if (!whole.value()) return bs::Status::Ok();
    if (header.size_bytes >= kLongBodyBytes) among_long_ = true;
    const std::span<const std::byte> after = bytes->subspan(header.own_bytes);
    if (after.size() < header.size_bytes) {
      const bool is_long = header.size_bytes > kShortBodyBytes && !header.command;
      return is_long ? BeginBody(header, bytes) : bs::Status::Ok();
    }
    *bytes = after.subspan(header.size_bytes);
    --frames_left_;
    bs::Status taken = OnFrame(header, after.first(header.size_bytes));
    if (!taken.ok()) return taken;
  }
  return bs::Status::Ok();
}

bs::Status ZmtpInput::ParseGreeting(std::span<const std::byte>* bytes) {
  const std::span<const std::byte> got = *bytes;
  if ((!got.empty() && ByteAt(got, 0) != 0xff) || (got.size() > 9 && (ByteAt(got, 9) & 1U) == 0)) {
    return NoZmtp("another greeting");
  }
  if (got.size() > 10 && ByteAt(got, 10) < 3) {
    return NoZmtp("version " + std::to_string(ByteAt(got, 10)) + " is too old");
  }
  if (got.size() < kGreetingBytes) return bs::Status::Ok();
  std::string mechanism = "NULL";
  mechanism.resize(kMechanismBytes);
  if (TextOf(got.subspan(kMechanismAt, kMechanismBytes)) != mechanism) {
    return NoZmtp("the other end wants to authenticate");
  }
  *bytes = got.subspan(kGreetingBytes);
  state_ = State::kHandshake;
  if (listener_.on_greeting) listener_.on_greeting();
  return bs::Status::Ok();
}

bs::Result<bool> ZmtpInput::ParseHeader(std::span<const std::byte> bytes, Header* header) const {
  const unsigned flags = ByteAt(bytes, 0);
  const bool is_long = (flags & kLong) != 0;
  header->more = (flags & kMore) != 0;
  header->command = (flags & kCommand) != 0;
  header->reference = (flags & kReference) != 0;
  header->own_bytes = is_long ? kLongHeaderBytes : kShortHeaderBytes;
  if (flags > (kMore | kLong | kCommand | kReference) || (header->command && header->more) ||
      (header->reference && (header->command || is_long || !inbox_))) {
    return NoZmtp("flags " + std::to_string(flags));
  }
  if (state_ == State::kHandshake && !header->command) return NoZmtp("a message before READY");
  if (bytes.size() < header->own_bytes) return false;
  header->size_bytes = ReadBigEndian(bytes.subspan(1, header->own_bytes - 1));
  if (header->size_bytes >
      (header->command ? kMaxCommandBytes - kLongHeaderBytes : shared_.max_frame_bytes)) {
    return NoZmtp("a frame of " + bs::CountOf(header->size_bytes, "byte"));
  }
  return true;
}

bs::Status ZmtpInput::Admit(const Header& header, bool whole) {
  const bool known = !listener_.known || listener_.known();
  if (num_parts_ > 0) {
    CheckData(header.size_bytes, known);
  } else if (bs::Status wrong = AdmitMeta(header.size_bytes, known); !wrong.ok()) {
    return wrong;
  }
  const bool kept = (header.more || !whole) && !refused();
  if (known || !kept) return bs::Status::Ok();
  const uint64_t bytes = header.size_bytes * (num_parts_ == 0 ? kParsedBytesPerByte : 1);
  uint64_t* const all = shared_.strangers_bytes.get();
  if (*all + bytes > kMaxStrangersBytes) {
    return bs::Status::ResourceExhausted(
        "it is not in the job, and unfinished messages of such peers take " +
        bs::CountOf(*all, "byte") + " already");
  }
  stranger_bytes_ += bytes;
  *all += bytes;
  return bs::Status::Ok();
}

bs::Status ZmtpInput::AdmitMeta(uint64_t size_bytes, bool known) const {
  const uint64_t most = known ? kMaxMetaBytes : kMaxStrangerBytes;
  if (size_bytes <= most) return bs::Status::Ok();
  return NoZmtp("meta of " + bs::CountOf(size_bytes, "byte") + ", more than the " +
                std::to_string(most) + " that " + (known ? "any" : "one not in the job") +
                " may have");
}

void ZmtpInput::CheckData(uint64_t size_bytes, bool known) {
  if (refused()) return;
  data_bytes_ += size_bytes;
  uint64_t most = known ? kMaxMessageBytes : kMaxStrangerBytes;
  if (known && listener_.most_bytes) most = listener_.most_bytes(message_.meta);
  if (data_bytes_ <= most) return;
  message_.data.clear();
  wrong_ = bs::Status::InvalidArgument(
      bs::CountOf(data_bytes_, "byte") + " of data, more than the " + std::to_string(most) +
      " that " + (known ? "such a message" : "one not in the job") + " may have");
}

bs::Status ZmtpInput::BeginBody(const Header& header, std::span<const std::byte>* bytes) {
  if (bs::Status over = Admit(header, false); !over.ok()) return over;
  const std::span<const std::byte> here = bytes->subspan(header.own_bytes);
  Body& body = body_.emplace();
  body.header = header;
  body.filled_bytes = here.size();
  *bytes = {};
  body.skipped = refused();
  if (body.skipped) return bs::Status::Ok();
  body.landing = Place(header.more, header.size_bytes);
  if (body.landing) {
    body.memory = body.landing->bytes;
  } else if (header.size_bytes <= kAtOnceBytes) {
    body.frame = shared_.blocks->New(header.size_bytes, &body.memory);
  } else if (body.block.GrowTo(kAtOnceBytes)) {
    body.memory = body.block.memory();
  }
  if (body.memory.empty()) return NoMemory(header.size_bytes);
  std::copy(here.begin(), here.end(), body.memory.begin());
  return bs::Status::Ok();
}

bs::Status ZmtpInput::GrowBody() {
  if (!body_) return bs::Status::Ok();
  Body& body = *body_;
  if (body.goes_nowhere() || body.filled_bytes < body.memory.size()) return bs::Status::Ok();
  // Only a GrowingBlock can be full before the body ends.
  const uint64_t whole = body.header.size_bytes;
  if (!body.block.GrowTo(std::min(2 * body.filled_bytes, whole))) return NoMemory(whole);
  body.memory = body.block.memory();
  return bs::Status::Ok();
}

std::shared_ptr<Landing> ZmtpInput::Place(bool more, uint64_t size_bytes) const {
  const bool asks = listener_.place && num_parts_ == 1 && !more && !refused() && size_bytes > 0;
  if (!asks) return nullptr;
  std::shared_ptr<Landing> landing = listener_.place(message_.meta, size_bytes);
  BS_CHECK(!landing || landing->bytes.size() == size_bytes);
  return landing;
}

void ZmtpInput::EndBody() {
  if (!body_) return;
  Body body = std::move(*body_);
  body_.reset();
  if (body.skipped) return OnPart(body.header.more, {}, {});
  if (body.landing) {
    // A message whose landing was revoked is dropped.
    if (body.landing->revoked) return static_cast<void>(TakeMessage());
    return OnPart(body.header.more, {}, Frame::Borrow(body.memory, {}));
  }
  const bool grown = !body.block.memory().empty();
  OnPart(body.header.more, {}, grown ? body.block.Release() : std::move(body.frame));
}

bs::Status ZmtpInput::OnFrame(const Header& header, std::span<const std::byte> body) {
  if (state_ == State::kHandshake) return OnReady(body);
  if (header.command) return OnCommand(body);
  if (header.reference) return OnReference(header, body);
  if (bs::Status over = Admit(header, true); !over.ok()) return over;
  const std::shared_ptr<Landing> landing = Place(header.more, body.size());
  if (landing) std::copy(body.begin(), body.end(), landing->bytes.begin());
  OnPart(header.more, body, landing ? Frame::Borrow(landing->bytes, {}) : Frame());
  return bs::Status::Ok();
}

bs::Status ZmtpInput::OnReference(Header header, std::span<const std::byte> body) {
  if (body.size() != kReferenceBytes || num_parts_ == 0) return NoZmtp("a reference");
  const uint64_t offset_bytes = ReadBigEndian(body.first(8));
  header.size_bytes = ReadBigEndian(body.subspan(8));
  bs::Result<Frame> frame = inbox_->Take(offset_bytes, header.size_bytes);
  if (!frame.ok()) return frame.status();
  if (bs::Status over = Admit(header, true); !over.ok()) return over;
  if (refused()) {
    OnPart(header.more, {}, {});
    return bs::Status::Ok();
  }
  // A copy takes time, which a turn has little of.
  Charge(header.size_bytes / kScratchBytes);
  const std::span<const std::byte> bytes = frame.value().bytes();
  if (const std::shared_ptr<Landing> landing = Place(header.more, header.size_bytes)) {
    std::memcpy(landing->bytes.data(), bytes.data(), bytes.size());
    OnPart(header.more, {}, Frame::Borrow(landing->bytes, {}));
  } else {
    if (!OnlyNumbers(message_.meta)) {
      std::span<std::byte> memory;
      Frame copy = shared_.blocks->New(bytes.size(), &memory);
      if (memory.empty()) return NoMemory(bytes.size());
      std::memcpy(memory.data(), bytes.data(), bytes.size());
      frame = std::move(copy);
    }
    OnPart(header.more, {}, std::move(frame.value()));
  }
  return bs::Status::Ok();
}

bs::Status ZmtpInput::OnCommand(std::span<const std::byte> body) {
  // Commands of later versions need no answer.
  const std::string_view text = TextOf(body);
  if (text.starts_with(kMemoryOffer) && listener_.on_memory) {
    listener_.on_memory(text.substr(kMemoryOffer.size()));
  } else if ((text == kMemoryTaken || text == kMemoryRefused) && listener_.on_memory_answer) {
    listener_.on_memory_answer(text == kMemoryTaken);
  } else if (text.starts_with(kRdmaOffer) && listener_.on_rdma) {
    listener_.on_rdma(text.substr(kRdmaOffer.size()));
  } else if (text.starts_with(kRdmaTaken) && listener_.on_rdma_answer) {
    listener_.on_rdma_answer(true, text.substr(kRdmaTaken.size()));
  } else if (text.starts_with(kRdmaRefused) && listener_.on_rdma_answer) {
    listener_.on_rdma_answer(false, text.substr(kRdmaRefused.size()));
  }
  return bs::Status::Ok();
}

bs::Status ZmtpInput::OnReady(std::span<const std::byte> body) {
  const bs::Result<Introduction> who = ParseReady(body);
  if (!who.ok()) return who.status();
  state_ = State::kMessages;
  if (listener_.on_ready) listener_.on_ready(who.value().identity);
  if (who.value().memory == kMemoryVersion && listener_.on_takes_memory) {
    listener_.on_takes_memory();
  }
  if (who.value().rdma == kRdmaVersion && listener_.on_takes_rdma) listener_.on_takes_rdma();
  return bs::Status::Ok();
}

void ZmtpInput::OnPart(bool more, std::span<const std::byte> bytes, Frame frame) {
  const std::span<const std::byte> whole = frame.size() > 0 ? frame.bytes() : bytes;
  if (num_parts_ == 0) {
    bs::Result<Meta> meta = ParseMeta(whole);
    if (meta.ok()) {
      message_.meta = std::move(meta.value());
    } else {
      wrong_ = meta.status();
    }
  } else if (num_parts_ <= kMaxDataFrames && wrong_.ok()) {
    message_.data.push_back(frame.size() > 0 ? std::move(frame) : Frame::Copy(bytes));
  }
  ++num_parts_;
  if (!more) EndMessage();
}

void ZmtpInput::EndMessage() {
  if (num_parts_ > 1 + kMaxDataFrames && wrong_.ok()) {
    wrong_ =
        bs::Status::InvalidArgument(std::to_string(num_parts_ - 1) + " data frames are too many");
  }
  ++num_messages_;
  const bs::Status wrong = wrong_;
  Message message = TakeMessage();
  if (!listener_.on_message) return;
  if (!wrong.ok()) return listener_.on_message(wrong);
  const bool known = !listener_.known || listener_.known();
  Charge(HandOut(std::move(message), known, listener_.on_message) - 1);
}

void ZmtpInput::Charge(uint64_t frames) {
  frames_left_ -= static_cast<int>(std::min(frames, static_cast<uint64_t>(frames_left_)));
}

Message ZmtpInput::TakeMessage() {
  num_parts_ = 0;
  data_bytes_ = 0;
  *shared_.strangers_bytes -= std::exchange(stranger_bytes_, 0);
  wrong_ = bs::Status::Ok();
  return std::exchange(message_, {});
}

}  // namespace ps
