// The receiver's half of a link: what it takes, where it puts it, and peers that send nonsense.
#include "transport/rdma/rdma_inbound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/links/raw_link.h"
#include "ps-lite/transport/rdma/links/rdma_pair.h"
#include "ps-lite/transport/transport_node.h"

namespace ps::test {
namespace {

using Kind = RdmaHeader::Kind;
using ::testing::HasSubstr;

class RdmaInboundTest : public ::testing::Test {
 protected:
  RdmaInboundTest() { Renew(); }
  // A fresh link.
  void Renew() {
    inbound_.reset();
    broken_ = bs::Status::Ok();
    raw_ = std::make_unique<RawLink>(pair_.sender_nic());
    auto taken = RdmaInbound::Take(
        pair_.receiver_nic(), TextOf(raw_->offer()),
        [blocks = blocks_](size_t size, std::span<std::byte>* memory) {
          return blocks->New(size, memory);
        },
        {.on_message = [this](bs::Result<Message> message) { got_.push_back(std::move(message)); },
         .place = [this](const Meta&, uint64_t) { return landing_; },
         .known = [this] { return known_; },
         .most_bytes = [](const Meta&) { return kMostBytes; },
         .on_broken =
             [this](const bs::Status& why) {
               broken_ = why;
               inbound_.reset();
             }});
    EXPECT_TRUE(taken.ok()) << taken.status().ToString();
    inbound_ = std::move(taken.value());
    raw_->Join(inbound_->answer());
  }
  ~RdmaInboundTest() override {
    inbound_.reset();
    EXPECT_THAT(pair_.fabric().Violations(), ::testing::IsEmpty());
  }

  void Settle() {
    for (int i = 0; i < 10'000 && pair_.Step(); ++i) {
    }
  }
  void Prove() {
    ASSERT_TRUE(raw_->SendProof());
    Settle();
    ASSERT_TRUE(inbound_ && inbound_->proved());
  }
  static std::string MetaOf(int32_t number) { return EncodeMeta(Numbered(8, number).meta); }
  // A header of a message with this meta.
  static RdmaHeader Header(Kind kind, const std::string& meta, size_t frames) {
    return {.kind = kind,
            .frames = static_cast<uint8_t>(frames),
            .meta_bytes = static_cast<uint32_t>(meta.size()),
            .id = 1};
  }
  void SendAdvert(const RdmaFrame& frame) {
    const std::string meta = MetaOf(5);
    ASSERT_TRUE(raw_->Send(Header(Kind::kAdvert, meta, 1), {frame}, meta));
    Settle();
  }
  // Memory of the peer that may be read.
  RdmaFrame Lent(size_t size_bytes = 10'000) {
    lent_ = pair_.sender_nic()->memory()->Take(size_bytes);
    std::ranges::fill(lent_.bytes(), std::byte{9});
    return {.size_bytes = lent_.bytes().size(),
            .address = reinterpret_cast<uintptr_t>(lent_.bytes().data()),
            .key = lent_.remote_key()};
  }

  static constexpr uint64_t kMostBytes = 1U << 20U;
  RdmaPair pair_{{}};
  const std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>();
  std::shared_ptr<Landing> landing_;
  bool known_ = true;
  bs::Status broken_;
  std::vector<bs::Result<Message>> got_;
  RdmaMemory::Block lent_;
  std::unique_ptr<RawLink> raw_;
  std::unique_ptr<RdmaInbound> inbound_;
};

TEST_F(RdmaInboundTest, ReadsTheBytesThatAnAdvertShows) {
  Prove();
  SendAdvert(Lent());
  ASSERT_EQ(got_.size(), 1U);
  ASSERT_TRUE(got_[0].ok());
  EXPECT_EQ(got_[0].value().data[0].size(), 10'000U);
  EXPECT_EQ(got_[0].value().data[0].bytes().back(), std::byte{9});
}

TEST_F(RdmaInboundTest, ItsWindowIsCountedAsLongAsItLives) {
  const RdmaCounts* const counts = pair_.receiver_nic()->counts();
  EXPECT_EQ(counts->window_bytes, RdmaWindow::kFirstBytes);
  Renew();
  EXPECT_EQ(counts->window_bytes, RdmaWindow::kFirstBytes);
  inbound_.reset();
  EXPECT_EQ(counts->window_bytes, 0U);
}

TEST_F(RdmaInboundTest, AFixedWindowBoundsEachReadInWholePages) {
  EXPECT_EQ(RdmaWindow(0).read_bytes(), RdmaWindow::kLongestRead);
  EXPECT_EQ(RdmaWindow(1U << 20U).read_bytes(), RdmaWindow::kLongestRead);
  EXPECT_EQ(RdmaWindow(10'000).read_bytes(), 8192U);
  EXPECT_EQ(RdmaWindow(1).read_bytes(), 4096U);
}

TEST_F(RdmaInboundTest, NothingIsTakenBeforeTheProof) {
  SendAdvert(Lent());
  EXPECT_THAT(broken_.message(), HasSubstr("before its proof"));
  EXPECT_TRUE(got_.empty());
}

TEST_F(RdmaInboundTest, MalformedPacketsBreakTheLinkWithTheReason) {
  struct Case {
    std::function<void(RawLink*)> sends;
    const char* what;
  };
  const std::string meta = MetaOf(1);
  const std::vector<Case> cases = {
      {[](RawLink* raw) { raw->Send(std::vector<std::byte>(3)); }, "cut short"},
      {[](RawLink* raw) { raw->Send({.kind = static_cast<Kind>(9)}); }, "kind 9"},
      {[](RawLink* raw) { raw->Send({.kind = Kind::kMore}, {}, "x"); }, "more of no message"},
      {[](RawLink* raw) { raw->SendProof(); }, "another token"},
      {[](RawLink* raw) {
         raw->Send({.kind = Kind::kControl, .count = 1}, {}, std::string(4, '\1'));
       },
       "releases adverts"},
      {[](RawLink* raw) { raw->Send({.kind = Kind::kControl, .credits = 100}); },
       "more credits than it got"},
      {[](RawLink* raw) { raw->Send({.kind = Kind::kMessage, .meta_bytes = 0}); }, "meta of 0"},
      {[](RawLink* raw) { raw->Send({.kind = Kind::kMessage, .meta_bytes = 1U << 30U}); },
       "meta of 1073741824"},
      {[&](RawLink* raw) { raw->Send(Header(Kind::kMessage, meta, 0), {}, meta + "x"); },
       "bytes behind a message"},
      {[&](RawLink* raw) {
         raw->Send({.kind = Kind::kMessage, .meta_bytes = 100}, {}, "x");
         raw->Send({.kind = Kind::kMessage, .meta_bytes = 100}, {}, "x");
       },
       "a message inside another"}};
  for (const Case& one : cases) {
    Renew();
    Prove();
    one.sends(raw_.get());
    Settle();
    EXPECT_EQ(broken_.code(), bs::StatusCode::kInvalidArgument) << one.what;
    EXPECT_THAT(broken_.message(), HasSubstr(one.what));
    EXPECT_TRUE(got_.empty()) << one.what;
  }
}

// A peer that shows more than can be read meanwhile, and waits for no release.
TEST_F(RdmaInboundTest, AdvertsThatAreNotReleasedAreBounded) {
  Prove();
  const RdmaFrame frame = Lent(kMostBytes);
  const std::string meta = MetaOf(5);
  size_t sent = 0;
  while (broken_.ok() && raw_->Send(Header(Kind::kAdvert, meta, 1), {frame}, meta)) {
    ++sent;
  }
  Settle();
  EXPECT_EQ(broken_.code(), bs::StatusCode::kInvalidArgument) << sent;
  EXPECT_THAT(broken_.message(), HasSubstr("more adverts at a time than 256"));
}

TEST_F(RdmaInboundTest, AnAdvertOfMemoryThatIsNotLentBreaksTheLink) {
  Prove();
  RdmaFrame frame = Lent();
  frame.key ^= 1U;
  SendAdvert(frame);
  EXPECT_THAT(broken_.message(), HasSubstr("remote access error"));
  EXPECT_TRUE(got_.empty());
}

TEST_F(RdmaInboundTest, AnAdvertPastTheEndOfLentMemoryBreaksTheLink) {
  Prove();
  RdmaFrame frame = Lent();
  frame.size_bytes = kMostBytes;
  frame.address += RdmaMemory::kArenaBytes;
  SendAdvert(frame);
  EXPECT_THAT(broken_.message(), HasSubstr("remote access error"));
}

TEST_F(RdmaInboundTest, TooMuchDataIsGarbageAndNothingIsRead) {
  Prove();
  SendAdvert({.size_bytes = kMostBytes + 1, .address = 4096, .key = 1});
  ASSERT_EQ(got_.size(), 1U);
  EXPECT_THAT(got_[0].status().message(), HasSubstr("1048577 bytes of data, more than"));
  EXPECT_TRUE(broken_.ok()) << "the link goes on";
  EXPECT_EQ(pair_.receiver_nic()->counts()->reads, 0U);
}

TEST_F(RdmaInboundTest, MetaThatIsNoneIsGarbage) {
  Prove();
  const std::string meta = "this is no meta";
  ASSERT_TRUE(raw_->Send(Header(Kind::kMessage, meta, 0), {}, meta));
  Settle();
  ASSERT_EQ(got_.size(), 1U);
  EXPECT_FALSE(got_[0].ok());
  EXPECT_TRUE(broken_.ok());
}

TEST_F(RdmaInboundTest, APeerThatHasLeftTheJobMaySendLittle) {
  Prove();
  known_ = false;
  SendAdvert({.size_bytes = kMaxStrangerBytes + 1, .address = 4096, .key = 1});
  ASSERT_EQ(got_.size(), 1U);
  EXPECT_THAT(got_[0].status().message(), HasSubstr("not in the job"));
}

TEST_F(RdmaInboundTest, DataLandsWhereItBelongs) {
  std::vector<std::byte> memory(10'000);
  landing_ = std::make_shared<Landing>(Landing{.bytes = memory});
  Prove();
  SendAdvert(Lent());
  ASSERT_EQ(got_.size(), 1U);
  EXPECT_EQ(got_[0].value().data[0].bytes().data(), memory.data());
  EXPECT_EQ(memory.back(), std::byte{9});
  EXPECT_EQ(landing_->writes, 0U);
}

TEST_F(RdmaInboundTest, ARevokedLandingIsFreeOnceTheNicIsDone) {
  std::vector<std::byte> memory(10'000);
  auto loan = pair_.receiver_nic()->memory()->Lend(memory, VerbsDevice::Access::kFill);
  landing_ = std::make_shared<Landing>(Landing{.bytes = memory});
  Prove();
  const std::string meta = MetaOf(5);
  const RdmaFrame frame = Lent();
  ASSERT_TRUE(raw_->Send(Header(Kind::kAdvert, meta, 1), {frame}, meta));
  for (int i = 0; i < 1000 && landing_->writes == 0; ++i) pair_.Step();
  ASSERT_GT(landing_->writes, 0U);
  bool free = false;
  landing_->revoked = true;
  landing_->on_written = [&] { free = true; };
  EXPECT_FALSE(free);
  Settle();
  EXPECT_TRUE(free);
  EXPECT_TRUE(got_.empty()) << "the message is dropped";
  inbound_.reset();
}

TEST_F(RdmaInboundTest, ALinkThatEndsGivesItsLandingBack) {
  std::vector<std::byte> memory(10'000);
  auto loan = pair_.receiver_nic()->memory()->Lend(memory, VerbsDevice::Access::kFill);
  landing_ = std::make_shared<Landing>(Landing{.bytes = memory});
  Prove();
  const std::string meta = MetaOf(5);
  ASSERT_TRUE(raw_->Send(Header(Kind::kAdvert, meta, 1), {Lent()}, meta));
  for (int i = 0; i < 1000 && landing_->writes == 0; ++i) pair_.Step();
  ASSERT_GT(landing_->writes, 0U);
  EXPECT_TRUE(inbound_->unfinished());
  bool free = false;
  landing_->on_written = [&] { free = true; };
  inbound_.reset();
  EXPECT_TRUE(free);
}

}  // namespace
}  // namespace ps::test
