// ZMTP: the bytes of the specification, and messages however the network cuts them up.
#include "zmtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "wire.h"

namespace ps {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What came out of an input.
struct Record {
  std::string identity = "none yet";
  int greetings = 0;
  std::vector<Message> messages;
  std::vector<bs::Status> garbage;
};

class ZmtpTest : public ::testing::Test {
 protected:
  // Gives `bytes` to a fresh input, at most `longest` at a time; what it says of the last of them.
  bs::Status Feed(const std::string& bytes, size_t longest) {
    static_cast<void>(Begin(""));
    std::minstd_rand random(static_cast<unsigned>(longest));
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t wanted = 1 + random() % longest;
      bs::Status status = More(bytes.substr(begin, wanted));
      if (!status.ok()) return status;
      begin += wanted;
    }
    return bs::Status::Ok();
  }
  bs::Status Begin(const std::string& bytes) {
    record_ = {};
    input_.emplace(
        ZmtpInput::Shared{scratch_, std::make_shared<BlockPool>()},
        ZmtpInput::Listener{.on_greeting = [this] { ++record_.greetings; },
                            .on_ready = [this](std::string_view who) { record_.identity = who; },
                            .on_message = [this](bs::Result<Message> m) { Add(std::move(m)); },
                            .place = place_});
    return More(bytes);
  }
  // All of them, in as few reads as there is room for.
  bs::Status More(const std::string& bytes) {
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t taken = Fill(input_->MakeRooms(), std::string_view(bytes).substr(begin));
      begin += taken;
      bs::Status status = input_->Filled(taken);
      if (!status.ok()) return status;
      // Others read between two reads of ours; not always, as it takes longer than all the rest.
      if (num_reads_++ % 64 == 0) std::memset(scratch_.data(), 0xee, scratch_.size());
    }
    return bs::Status::Ok();
  }

  Record record_;
  std::function<std::shared_ptr<Landing>(const Meta& meta, uint64_t size_bytes)> place_;

 private:
  static size_t Fill(const ZmtpInput::Rooms& rooms, std::string_view bytes) {
    size_t taken = 0;
    for (const iovec& room : rooms) {
      const size_t size = std::min(room.iov_len, bytes.size() - taken);
      if (size > 0) std::memcpy(room.iov_base, bytes.data() + taken, size);
      taken += size;
    }
    return taken;
  }
  void Add(bs::Result<Message> message) {
    if (message.ok()) return record_.messages.push_back(std::move(message.value()));
    record_.garbage.push_back(message.status());
  }

  std::optional<ZmtpInput> input_;
  size_t num_reads_ = 0;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(ZmtpInput::kScratchBytes);
};

std::string FrameOf(const std::string& body, bool more) {
  std::string frame;
  AppendFrameHeader(body.size(), more, &frame);
  return frame + body;
}

std::string MetaOf(int32_t number) {
  Meta meta;
  meta.timestamp = number;
  return EncodeMeta(meta);
}

std::string Hello() { return ZmtpGreeting() + ZmtpReady("DEALER", "ps9"); }

TEST(Zmtp, GreetingAndReadyAreThoseOfTheSpecification) {
  std::string greeting = std::string("\xff\0\0\0\0\0\0\0\0\x7f\3\0NULL", 16);
  greeting.resize(64);
  EXPECT_EQ(ZmtpGreeting(), greeting);
  EXPECT_EQ(ZmtpReady("DEALER", "ps9"),
            std::string("\4\x2c\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\3ps9", 46));
  std::string headers;
  AppendFrameHeader(255, true, &headers);
  AppendFrameHeader(256, false, &headers);
  EXPECT_EQ(headers, std::string("\1\xff\2\0\0\0\0\0\0\1\0", 11));
}

TEST_F(ZmtpTest, MessagesAreTheSameHoweverTheyAreCutUp) {
  const std::vector<size_t> sizes = {0, 1, 255, 256, 8191, 8193, 70000, 200000, 3};
  std::string bytes = Hello();
  for (int32_t number = 0; number < 3; ++number) {
    bytes += FrameOf(MetaOf(number), true);
    for (const size_t size : sizes) bytes += FrameOf(std::string(size, 'x'), size != 3);
    bytes += FrameOf(MetaOf(100), false);
  }
  for (const size_t longest : {1, 7, 5000, 100000, 10000000}) {
    ASSERT_TRUE(Feed(bytes, longest).ok());
    EXPECT_EQ(record_.greetings, 1);
    EXPECT_EQ(record_.identity, "ps9");
    EXPECT_THAT(record_.garbage, IsEmpty());
    ASSERT_EQ(record_.messages.size(), 6u) << longest;
    for (size_t i = 0; i < 6; i += 2) {
      const Message& message = record_.messages[i];
      EXPECT_EQ(message.meta.timestamp, static_cast<int32_t>(i / 2));
      ASSERT_EQ(message.data.size(), sizes.size());
      for (size_t k = 0; k < sizes.size(); ++k) {
        EXPECT_EQ(message.data[k].text(), std::string(sizes[k], 'x')) << longest;
      }
    }
  }
}

TEST_F(ZmtpTest, BodiesAreReadToWhereTheyBelong) {
  for (const size_t size : {size_t{300}, size_t{200000}}) {
    const std::string bytes = Hello() + FrameOf(MetaOf(1), true) +
                              FrameOf(std::string(size, 'x'), false) + FrameOf(MetaOf(2), true) +
                              FrameOf(std::string(size, 'y'), false);
    for (const size_t longest : {1, 1000, 10000000}) {
      std::string memory(size, ' ');
      place_ = [&](const Meta& meta, uint64_t size_bytes) -> std::shared_ptr<Landing> {
        EXPECT_EQ(size_bytes, size);
        if (meta.timestamp != 1) return nullptr;
        return std::make_shared<Landing>(
            Landing{.bytes = std::as_writable_bytes(std::span(memory))});
      };
      ASSERT_TRUE(Feed(bytes, longest).ok());
      ASSERT_EQ(record_.messages.size(), 2u);
      EXPECT_EQ(record_.messages[0].data[0].text().data(), memory.data());
      EXPECT_EQ(memory, std::string(size, 'x')) << longest;
      EXPECT_EQ(record_.messages[1].data[0].text(), std::string(size, 'y'));
    }
  }
}

TEST_F(ZmtpTest, NothingIsWrittenToMemoryThatWasRevoked) {
  std::string memory(200000, ' ');
  const auto landing = std::make_shared<Landing>();
  landing->bytes = std::as_writable_bytes(std::span(memory));
  place_ = [&](const Meta& meta, uint64_t) { return meta.timestamp == 1 ? landing : nullptr; };
  std::string bytes = Hello() + FrameOf(MetaOf(1), true);
  AppendFrameHeader(memory.size(), false, &bytes);
  ASSERT_TRUE(Begin(bytes + std::string(50000, 'x')).ok());
  EXPECT_EQ(memory[49999], 'x');
  landing->revoked = true;
  memory.assign(memory.size(), '.');
  ASSERT_TRUE(More(std::string(150000, 'x') + FrameOf(MetaOf(2), false)).ok());
  EXPECT_EQ(memory, std::string(memory.size(), '.'));
  ASSERT_EQ(record_.messages.size(), 1u);  // the other one is nobody's any more
  EXPECT_EQ(record_.messages[0].meta.timestamp, 2);
}

TEST_F(ZmtpTest, WhatIsNoMetaIsOneMessageLess) {
  const std::string bad(20000, '\xff');
  const std::string bytes = Hello() + FrameOf(bad, true) + FrameOf("data", false) +
                            FrameOf("\xff", false) + FrameOf(MetaOf(1), false);
  for (const size_t longest : {1, 100000}) {
    ASSERT_TRUE(Feed(bytes, longest).ok());
    EXPECT_EQ(record_.garbage.size(), 2u);
    ASSERT_EQ(record_.messages.size(), 1u);
    EXPECT_EQ(record_.messages[0].meta.timestamp, 1);
    EXPECT_THAT(record_.messages[0].data, IsEmpty());
  }
}

TEST_F(ZmtpTest, WhatIsNoZmtpIsRefusedAtAnyPace) {
  std::string property = ZmtpGreeting() + std::string("\4\x0c\5READY\1x\0\0\0\xff", 14);
  for (const size_t longest : {1, 100000}) {
    EXPECT_THAT(Feed("GET /", longest).message(), HasSubstr("another greeting"));
    EXPECT_THAT(Feed(property, longest).message(), HasSubstr("cut short"));
    EXPECT_THAT(Feed(Hello() + "\x08", longest).message(), HasSubstr("flags 8"));
    EXPECT_THAT(Feed(Hello() + "\2" + std::string(8, '\x7f'), longest).message(),
                HasSubstr("a frame of"));
    EXPECT_THAT(Feed(ZmtpGreeting() + std::string("\4\2\1x", 4), longest).message(),
                HasSubstr("instead of READY"));
  }
}

TEST_F(ZmtpTest, RandomBytesNeverAbort) {
  std::minstd_rand random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = Hello() + FrameOf(MetaOf(1), true) + FrameOf(std::string(300, 'x'), false);
    for (int k = 0; k < 5; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    static_cast<void>(Feed(bytes, 1 + random() % 1000));
    EXPECT_LE(record_.messages.size() + record_.garbage.size(), 200u);
  }
}

}  // namespace
}  // namespace ps
