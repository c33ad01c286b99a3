// ZMTP: the bytes of the specification, and messages however the network cuts them up.
#include "transport/tcp/zmtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "ps-lite/transport/tcp/zmtp_harness.h"
#include "wire/wire.h"

namespace ps::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Zmtp, GreetingAndReadyMatchTheSpecification) {
  std::string greeting = std::string("\xff\0\0\0\0\0\0\0\0\x7f\3\0NULL", 16);
  greeting.resize(64);
  EXPECT_EQ(ZmtpGreeting(), greeting);
  EXPECT_EQ(ZmtpReady("DEALER", "ps9"),
            std::string("\4\x2c\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\3ps9", 46));
  EXPECT_EQ(ZmtpReady("DEALER", "ps267"),
            std::string("\4\x2e\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0\5ps267", 48));
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
  ASSERT_EQ(record_.messages.size(), 1u);  // the other one was dropped
  EXPECT_EQ(record_.messages[0].meta.timestamp, 2);
}

TEST_F(ZmtpTest, AFrameThatIsNoMetaIsOneMessageLess) {
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

TEST_F(ZmtpTest, BytesThatAreNoZmtpAreRefusedAtAnyPace) {
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

std::string HeaderOf(uint64_t size_bytes, bool more) {
  std::string header;
  AppendFrameHeader(size_bytes, more, &header);
  return header;
}

TEST_F(ZmtpTest, ALongFrameHasMemoryForLittleMoreThanHasCome) {
  const uint64_t size_bytes = uint64_t{3} << 30U;
  ASSERT_TRUE(Begin(Hello() + FrameOf(MetaOf(1), true) + HeaderOf(size_bytes, false) + "x").ok());
  EXPECT_LE(RoomBytes(), BlockPool::kMostKeptBytes);
  ASSERT_TRUE(More(std::string(BlockPool::kMostKeptBytes, 'x')).ok());
  EXPECT_LE(RoomBytes(), BlockPool::kMostKeptBytes);
}

TEST_F(ZmtpTest, AFrameInAGrowingBlockArrivesWhole) {
  std::string data(3 * BlockPool::kMostKeptBytes + 5, ' ');
  std::minstd_rand random(1);
  for (size_t i = 0; i < data.size(); i += 100) data[i] = static_cast<char>(random());
  ASSERT_TRUE(Begin(Hello() + FrameOf(MetaOf(1), true) + FrameOf(data, true) +
                    FrameOf("behind it", false) + FrameOf(MetaOf(2), false))
                  .ok());
  ASSERT_EQ(record_.messages.size(), 2U);
  EXPECT_TRUE(record_.messages[0].data[0].text() == data);
  EXPECT_EQ(record_.messages[0].data[1].text(), "behind it");
}

TEST_F(ZmtpTest, LongMetaEndsTheConnectionBeforeThereIsMemoryForIt) {
  EXPECT_THAT(Begin(Hello() + HeaderOf(kMaxMetaBytes + 1, true)).message(),
              HasSubstr("meta of 16777217 bytes, more than the 16777216 that any may have"));
  EXPECT_TRUE(Begin(Hello() + HeaderOf(kMaxMetaBytes, true)).ok());
  known_ = false;
  EXPECT_THAT(Begin(Hello() + HeaderOf(kMaxStrangerBytes + 1, true)).message(),
              HasSubstr("meta of 65537 bytes, more than the 65536 that one not in the job may"));
  EXPECT_TRUE(Begin(Hello() + HeaderOf(kMaxStrangerBytes, true)).ok());
}

TEST_F(ZmtpTest, DataOfAMessageThatMayNotHaveSoMuchIsReadToNowhere) {
  place_ = [](const Meta&, uint64_t) -> std::shared_ptr<Landing> {
    ADD_FAILURE() << "nobody may be asked where that belongs";
    return nullptr;
  };
  most_bytes_ = [](const Meta& meta) -> uint64_t { return meta.timestamp == 1 ? 100000 : 0; };
  for (const std::string who : {"such a message", "one not in the job"}) {
    known_ = who == "such a message";
    const std::string limit = known_ ? "100000" : "65536";
    ASSERT_TRUE(Begin(Hello() + FrameOf(MetaOf(1), true) + FrameOf(std::string(60000, 'x'), true) +
                      HeaderOf(60000000, true) + "x")
                    .ok());
    EXPECT_LE(RoomBytes(), ZmtpInput::kScratchBytes) << who;
    ASSERT_TRUE(More(std::string(59999999, 'x') + FrameOf("behind it", false)).ok());
    ASSERT_EQ(record_.garbage.size(), 1U);
    EXPECT_EQ(record_.garbage[0].message(),
              "60060000 bytes of data, more than the " + limit + " that " + who + " may have");
    ASSERT_TRUE(More(FrameOf(MetaOf(2), false)).ok());
    EXPECT_EQ(record_.messages.size(), 1U) << who;
  }
}

TEST_F(ZmtpTest, DataBehindAFrameThatIsNoMetaTakesNoMemory) {
  ASSERT_TRUE(Begin(Hello() + FrameOf("\xff", true) + HeaderOf(60000000, false) + "x").ok());
  EXPECT_LE(RoomBytes(), ZmtpInput::kScratchBytes);
}

TEST_F(ZmtpTest, ATurnTakesSoManyFramesAndTheRestWaits) {
  std::string many = Hello();
  for (int i = 0; i < 1000; ++i) many += FrameOf(MetaOf(i), i % 3 == 0) + FrameOf("", false);
  ASSERT_TRUE(Begin("").ok());
  ASSERT_TRUE(MoreTo(&*input_, many).ok());
  const size_t whole = record_.messages.size() + record_.garbage.size();
  EXPECT_LE(whole, static_cast<size_t>(ZmtpInput::kFramesPerTurn));
  EXPECT_GT(whole, 0U);
  size_t turns = 1;
  for (; input_->waiting(); ++turns) {
    EXPECT_TRUE(input_->turn_over());
    input_->BeginTurn();
    ASSERT_TRUE(input_->Continue().ok());
  }
  EXPECT_EQ(turns, 2001 / static_cast<size_t>(ZmtpInput::kFramesPerTurn) + 1);
  EXPECT_EQ(record_.messages.size() + record_.garbage.size(), input_->num_messages());
  // The same as of an input that never had to wait.
  const size_t messages = record_.messages.size();
  ASSERT_TRUE(Feed(many, 30).ok());
  EXPECT_EQ(record_.messages.size(), messages);
  EXPECT_FALSE(input_->unfinished());
}

TEST_F(ZmtpTest, AllStrangersTogetherKeepLittle) {
  known_ = false;
  const std::string half = Hello() + FrameOf(MetaOf(1), true) + HeaderOf(65000, false) + "x";
  std::vector<std::unique_ptr<ZmtpInput>> inputs;
  bs::Status status;
  while (status.ok() && inputs.size() < 2000) {
    inputs.push_back(std::make_unique<ZmtpInput>(shared_, MakeListener()));
    status = MoreTo(inputs.back().get(), half);
  }
  EXPECT_LE(inputs.size() * 65000, kMaxStrangersBytes + 65000);
  EXPECT_THAT(status.message(), HasSubstr("unfinished messages of such peers take"));
  // A whole message needs no memory here, and nodes of the job do not count.
  EXPECT_TRUE(Begin(Hello() + FrameOf(MetaOf(2), false)).ok());
  EXPECT_EQ(record_.messages.size(), 1U);
  known_ = true;
  EXPECT_TRUE(Begin(half).ok());
  known_ = false;
  // A peer that ends its message, or goes, makes room for the next.
  EXPECT_TRUE(MoreTo(inputs[0].get(), std::string(64999, 'x')).ok());
  EXPECT_EQ(record_.messages.size(), 1U);
  EXPECT_TRUE(Begin(half).ok());
  inputs.clear();
  input_.reset();
  EXPECT_EQ(*shared_.strangers_bytes, 0U);
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
}  // namespace ps::test
