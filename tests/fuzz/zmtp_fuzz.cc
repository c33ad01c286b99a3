// ZMTP from a stranger: whatever the bytes are, it returns; and however the network cuts them up,
// the same comes out.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/shm/shared_memory.h"
#include "transport/tcp/zmtp.h"
#include "wire/fusion.h"
#include "wire/wire.h"

namespace {

constexpr uint64_t kSharedBytes = uint64_t{128} << 10U;

// What came out, in words.
class Stream {
 public:
  Stream(std::span<std::byte> scratch, bool known, std::shared_ptr<ps::SharedInbox> inbox)
      : input_(
            {scratch, std::make_shared<ps::BlockPool>(), kMaxFrameBytes},
            {.on_greeting = [this] { said_ += "greeting;"; },
             .on_ready =
                 [this](std::string_view identity) {
                   said_ += "ready " + std::string(identity) + ";";
                 },
             .on_takes_memory = [this] { said_ += "takes memory;"; },
             .on_memory =
                 [this](std::string_view offer) { said_ += "offered " + std::string(offer) + ";"; },
             .on_memory_answer = [this](bool taken) { said_ += taken ? "taken;" : "refused;"; },
             .on_message = [this](bs::Result<ps::Message> message) { Note(message); },
             .place = [this](const ps::Meta& meta,
                             uint64_t size_bytes) { return Place(meta, size_bytes); },
             // Known after some messages; each says how much it may have.
             .known = [this, known] { return known || input_.num_messages() > 2; },
             .most_bytes =
                 [](const ps::Meta& meta) {
                   if (ps::IsFused(meta)) return ps::kMostFusedBytes;
                   return static_cast<uint64_t>(meta.customer_id & 0xffff);
                 }}) {
    if (inbox) input_.Share(std::move(inbox));
  }

  // In pieces of at most `longest` bytes.
  std::string Read(std::string_view bytes, size_t longest) {
    while (!bytes.empty()) {
      const size_t given = Give(bytes.substr(0, longest));
      bs::Status status = input_.Filled(given);
      while (status.ok() && input_.waiting()) {
        input_.BeginTurn();
        status = input_.Continue();
      }
      input_.BeginTurn();
      if (!status.ok()) return said_ + "over: " + status.message();
      bytes.remove_prefix(given);
    }
    return said_;
  }

 private:
  static constexpr uint64_t kMaxFrameBytes = uint64_t{1} << 20U;

  size_t Give(std::string_view bytes) {
    size_t given = 0;
    for (const iovec& room : input_.MakeRooms()) {
      const size_t part = std::min(room.iov_len, bytes.size() - given);
      if (part > 0) std::memcpy(room.iov_base, bytes.data() + given, part);
      given += part;
    }
    return given;
  }
  // Some payloads have a place of their own.
  std::shared_ptr<ps::Landing> Place(const ps::Meta& meta, uint64_t size_bytes) {
    if (meta.timestamp % 2 == 0 || size_bytes > kMaxFrameBytes) return nullptr;
    places_.push_back(std::make_unique<std::vector<std::byte>>(size_bytes));
    return std::make_shared<ps::Landing>(ps::Landing{.bytes = *places_.back()});
  }
  void Note(const bs::Result<ps::Message>& message) {
    if (!message.ok()) {
      said_ += "garbage: " + message.status().message() + ";";
      return;
    }
    said_ += "message " + ps::EncodeMeta(message.value().meta);
    for (const ps::Frame& frame : message.value().data) said_ += "," + std::string(frame.text());
    said_ += ";";
  }

  std::vector<std::unique_ptr<std::vector<std::byte>>> places_;
  std::string said_;
  ps::ZmtpInput input_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes;
  if (data[0] % 4 != 0) bytes = ps::ZmtpGreeting() + ps::ZmtpReady("DEALER", "ps9");
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  // New ones for each run cost most of it.
  static std::vector<std::byte> scratch(ps::ZmtpInput::kScratchBytes);
  static const auto outbox = std::move(ps::SharedOutbox::Create(kSharedBytes).value());
  static const auto inbox = ps::SharedInbox::Open(outbox->offer()).value();
  const bool known = data[0] % 2 == 0;
  const auto shared = data[0] % 32 < 16 ? nullptr : inbox;
  const std::string whole = Stream(scratch, known, shared).Read(bytes, bytes.size());
  if (Stream(scratch, known, shared).Read(bytes, 1 + data[0] / 4U) != whole) std::abort();
  return 0;
}
