// Frames of ZMTP that lie in shared memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/shm/shared_memory.h"
#include "transport/tcp/zmtp.h"
#include "wire/wire.h"

namespace ps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSharedBytes = uint64_t{1} << 20U;

std::string FrameOf(const std::string& body, bool more) {
  std::string frame;
  AppendFrameHeader(body.size(), more, &frame);
  return frame + body;
}
std::string ReferenceTo(uint64_t offset_bytes, uint64_t size_bytes, bool more) {
  std::string frame;
  AppendReference(offset_bytes, size_bytes, more, &frame);
  return frame;
}
// The metadata of a push, whose data may have any value, or of a message whose data are checked.
std::string MetaOf(int32_t number, bool push) {
  Meta meta;
  meta.timestamp = number;
  meta.extension.version = kExtensionVersion;
  meta.extension.op = push ? Op::kPush : Op::kDeclare;
  return EncodeMeta(meta);
}

class ZmtpMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { Begin(true); }
  // A connection whose other end has introduced itself.
  void Begin(bool shares) {
    messages_.clear();
    garbage_.clear();
    outbox_ = std::move(SharedOutbox::Create(kSharedBytes).value());
    input_.emplace(ZmtpInput::Shared{scratch_, std::make_shared<BlockPool>()},
                   ZmtpInput::Listener{
                       .on_greeting = {},
                       .on_ready = [this](std::string_view who) { heard_ += who; },
                       .on_takes_memory = [this] { heard_ += " takes"; },
                       .on_memory = [this](std::string_view offer) { heard_ += offer; },
                       .on_memory_answer = [this](bool taken) { heard_ += taken ? "yes" : "no"; },
                       .on_message = [this](bs::Result<Message> m) { Add(std::move(m)); },
                       .place = place_,
                       .known = {},
                       .most_bytes = most_bytes_});
    ASSERT_TRUE(More(ZmtpGreeting() + ZmtpReady("DEALER", "ps9", {.memory = true})).ok());
    if (shares) input_->Share(SharedInbox::Open(outbox_->offer()).value());
  }
  bs::Status More(const std::string& bytes) {
    const ZmtpInput::Rooms rooms = input_->MakeRooms();
    EXPECT_LE(bytes.size(), rooms[0].iov_len);
    std::memcpy(rooms[0].iov_base, bytes.data(), bytes.size());
    return input_->Filled(bytes.size());
  }
  // Puts `text`; the frame that says where.
  std::string Put(const std::string& text, bool more) {
    const auto at = outbox_->Put(std::as_bytes(std::span(text)));
    EXPECT_TRUE(at);
    return ReferenceTo(at.value_or(0), text.size(), more);
  }
  bool AllRoomIsBack() {
    const std::string all(kSharedBytes, 'x');
    return outbox_->Put(std::as_bytes(std::span(all))).has_value();
  }

  std::function<std::shared_ptr<Landing>(const Meta& meta, uint64_t size_bytes)> place_;
  std::function<uint64_t(const Meta& meta)> most_bytes_;
  std::string heard_;
  std::vector<Message> messages_;
  std::vector<bs::Status> garbage_;
  std::optional<ZmtpInput> input_;

 private:
  void Add(bs::Result<Message> message) {
    if (message.ok()) return messages_.push_back(std::move(message.value()));
    garbage_.push_back(message.status());
  }

  std::vector<std::byte> scratch_ = std::vector<std::byte>(ZmtpInput::kScratchBytes);
  std::unique_ptr<SharedOutbox> outbox_;
};

TEST_F(ZmtpMemoryTest, MemoryIsOfferedAndTakenOrRefused) {
  ASSERT_TRUE(More(ZmtpMemory(" an offer ")).ok());
  ASSERT_TRUE(More(ZmtpMemoryAnswer(false) + ZmtpMemoryAnswer(true)).ok());
  EXPECT_EQ(heard_, "ps9 takes an offer noyes");
}

TEST_F(ZmtpMemoryTest, FramesMayLieThere) {
  const std::string text(100000, 'x');
  const std::string other(50000, 'y');
  ASSERT_TRUE(More(FrameOf(MetaOf(1, true), true) + Put(text, true) + FrameOf("here", true) +
                   Put(other, false) + FrameOf(MetaOf(2, false), true) + Put(text, false))
                  .ok());
  ASSERT_EQ(messages_.size(), 2U);
  ASSERT_EQ(messages_[0].data.size(), 3U);
  EXPECT_EQ(messages_[0].data[0].text(), text);
  EXPECT_EQ(messages_[0].data[1].text(), "here");
  EXPECT_EQ(messages_[0].data[2].text(), other);
  EXPECT_EQ(messages_[1].data[0].text(), text);
  EXPECT_FALSE(AllRoomIsBack());
  messages_[0] = {};
  EXPECT_TRUE(AllRoomIsBack()) << "what is checked is copied at once";
}

TEST_F(ZmtpMemoryTest, TheyAreCopiedToWhereTheyBelong) {
  const std::string text(100000, 'x');
  std::string memory(text.size(), ' ');
  place_ = [&](const Meta&, uint64_t size_bytes) {
    EXPECT_EQ(size_bytes, memory.size());
    return std::make_shared<Landing>(Landing{.bytes = std::as_writable_bytes(std::span(memory))});
  };
  Begin(true);
  ASSERT_TRUE(More(FrameOf(MetaOf(1, true), true) + Put(text, false)).ok());
  ASSERT_EQ(messages_.size(), 1U);
  EXPECT_EQ(messages_[0].data[0].text().data(), memory.data());
  EXPECT_EQ(memory, text);
  EXPECT_TRUE(AllRoomIsBack());
}

TEST_F(ZmtpMemoryTest, ReferencesHaveTheLimitsOfFrames) {
  most_bytes_ = [](const Meta&) -> uint64_t { return 1000; };
  Begin(true);
  const std::string text(100000, 'x');
  ASSERT_TRUE(More(FrameOf(MetaOf(1, true), true) + Put(text, false)).ok());
  ASSERT_EQ(garbage_.size(), 1U);
  EXPECT_THAT(garbage_[0].message(), HasSubstr("100000 bytes of data, more than the 1000"));
  EXPECT_TRUE(AllRoomIsBack());
}

TEST_F(ZmtpMemoryTest, ATurnTakesFewerReferencesThanShortFrames) {
  const std::string text(kSharedBytes, 'x');
  const std::string reference = Put(text, false);
  std::string many;
  for (int32_t i = 0; i < 100; ++i) many += FrameOf(MetaOf(i, true), true) + reference;
  ASSERT_TRUE(More(many).ok());
  EXPECT_TRUE(input_->turn_over());
  EXPECT_LE(messages_.size(), ZmtpInput::kFramesPerTurn / (kSharedBytes / (64U << 10U)) + 1);
  while (input_->waiting()) {
    input_->BeginTurn();
    ASSERT_TRUE(input_->Continue().ok());
  }
  EXPECT_EQ(messages_.size(), 100U);
}

TEST_F(ZmtpMemoryTest, AWrongReferenceEndsTheConnection) {
  const std::string meta = FrameOf(MetaOf(1, false), true);
  EXPECT_THAT(More(meta + ReferenceTo(kSharedBytes, 1, false)).message(),
              HasSubstr("shared memory: 1 byte at 1048576 of 1048576"));
  Begin(true);
  EXPECT_THAT(More(ReferenceTo(0, 100, false)).message(), HasSubstr("a reference"));
  Begin(true);
  EXPECT_THAT(More(meta + std::string("\x08\1x", 3)).message(), HasSubstr("a reference"));
  Begin(true);
  EXPECT_THAT(More("\x0a").message(), HasSubstr("flags 10"));
  Begin(true);
  EXPECT_THAT(More("\x0c").message(), HasSubstr("flags 12"));
  Begin(false);
  EXPECT_THAT(More(meta + ReferenceTo(0, 100, false)).message(), HasSubstr("flags 8"));
}

}  // namespace
}  // namespace ps
