// The sender's half of a link: what it sends, what it shows, and when it lets go.
#include "transport/rdma/rdma_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/links/raw_link.h"
#include "ps-lite/transport/rdma/links/rdma_pair.h"
#include "ps-lite/transport/transport_node.h"

namespace ps::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RdmaHeader::Kind;

class RdmaLinkTest : public ::testing::Test {
 protected:
  void Make(const RdmaPair::Options& options) {
    pair_ = std::make_unique<RdmaPair>(options);
    const bs::Status made =
        pair_->Connect({.on_message =
                            [this](bs::Result<Message> message) {
                              ASSERT_TRUE(message.ok()) << message.status().ToString();
                              got_.push_back(std::move(message.value()));
                            },
                        .place = {},
                        .known = [] { return true; },
                        .most_bytes = [](const Meta&) { return kMaxMessageBytes; },
                        .on_broken = {}});
    ASSERT_TRUE(made.ok()) << made.ToString();
    ASSERT_TRUE(pair_->Await([&] { return pair_->link()->proved(); }));
  }
  Message Long(int32_t number, int32_t priority = 0) {
    Message message = Native(8, number, priority);
    message.data.push_back(Frame::Borrow(bytes_, [this] { ++released_; }));
    return message;
  }
  bool AwaitAll(size_t count) {
    return pair_->Await([&] { return got_.size() >= count && pair_->link()->idle(); });
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(100'000, std::byte{7});
  int released_ = 0;
  std::vector<Message> got_;
  std::unique_ptr<RdmaPair> pair_;
};

TEST_F(RdmaLinkTest, AFrameIsReleasedWhenThePeerHasReadIt) {
  Make({});
  pair_->Send(Long(1));
  EXPECT_EQ(released_, 0);
  EXPECT_GT(pair_->link()->waiting_bytes(), 0U);
  ASSERT_TRUE(AwaitAll(1));
  EXPECT_EQ(released_, 1);
  EXPECT_EQ(pair_->link()->waiting_bytes(), 0U);
  EXPECT_EQ(got_[0].data[0].size(), bytes_.size());
}

TEST_F(RdmaLinkTest, MemoryThatIsLentIsReadWithoutACopyAndOtherMemoryIsCopiedOnce) {
  Make({});
  const auto& counts = *pair_->sender_nic()->counts();
  auto loan = pair_->sender_nic()->memory()->Lend(bytes_, VerbsDevice::Access::kLend);
  ASSERT_TRUE(loan.ok());
  pair_->Send(Long(1));
  ASSERT_TRUE(AwaitAll(1));
  EXPECT_EQ(counts.bounced_bytes, 0U);
  loan.value().reset();
  pair_->Send(Long(2));
  ASSERT_TRUE(AwaitAll(2));
  EXPECT_EQ(counts.bounced_bytes, bytes_.size());
  EXPECT_EQ(counts.sent_bytes, 2 * bytes_.size());
}

TEST_F(RdmaLinkTest, AMessageThatCannotBeLentOrCopiedGoesInSlots) {
  RdmaPair::Options options;
  options.rdma.bounce_bytes = 0;
  Make(options);
  pair_->Send(Long(1));
  ASSERT_TRUE(AwaitAll(1));
  EXPECT_EQ(pair_->receiver_nic()->counts()->reads, 0U);
  EXPECT_EQ(got_[0].data[0].size(), bytes_.size());
  EXPECT_EQ(released_, 1);
}

TEST_F(RdmaLinkTest, WaitsForBounceMemoryAndLetsSmallUrgentMessagesPass) {
  RdmaPair::Options options;
  options.rdma.bounce_bytes = 128U << 10U;  // for one
  Make(options);
  for (int32_t i = 0; i < 4; ++i) pair_->Send(Long(i));
  pair_->Send(Native(8, 100, 1));
  ASSERT_TRUE(AwaitAll(5));
  const std::vector<int32_t> numbers = NumbersOf(got_);
  EXPECT_LE(std::ranges::find(numbers, 100) - numbers.begin(), 1);
  EXPECT_EQ(released_, 4);
}

TEST_F(RdmaLinkTest, AnUrgentLongMessageIsReadBeforeMessagesShownBefore) {
  RdmaPair::Options options;
  options.rdma.window_bytes = 128U << 10U;
  Make(options);
  auto loan = pair_->sender_nic()->memory()->Lend(bytes_, VerbsDevice::Access::kLend);
  for (int32_t i = 0; i < 20; ++i) pair_->Send(Long(i));
  pair_->Send(Long(100, 1));
  ASSERT_TRUE(AwaitAll(21));
  const std::vector<int32_t> numbers = NumbersOf(got_);
  const auto urgent = std::ranges::find(numbers, 100) - numbers.begin();
  EXPECT_LE(urgent, 10) << "it passes those that are not read yet";
}

TEST_F(RdmaLinkTest, ShowsNoMoreThanTheBound) {
  RdmaPair::Options options;
  options.rdma.slots = 512;
  Make(options);
  auto loan = pair_->sender_nic()->memory()->Lend(bytes_, VerbsDevice::Access::kLend);
  for (int32_t i = 0; i < 600; ++i) pair_->queue().Add(Long(i));
  pair_->Send(Long(600));
  uint64_t most_bytes = 0;
  ASSERT_TRUE(pair_->Await([&] {
    most_bytes = std::max(most_bytes, pair_->link()->waiting_bytes());
    return got_.size() == 601 && pair_->link()->idle();
  }));
  EXPECT_EQ(most_bytes, kMostRdmaAdverts * SendQueue::BytesOf(Native(8, 0)));
  EXPECT_EQ(NumbersOf(got_), Count(0, 601));
}

TEST_F(RdmaLinkTest, MetaMayBeLongerThanASlot) {
  Make({});
  Message message = Long(1);
  message.meta.body.assign(50'000, 'm');
  pair_->Send(std::move(message));
  pair_->Send(Numbered(8, 2));
  ASSERT_TRUE(AwaitAll(2));
  EXPECT_EQ(got_[0].meta.body.size(), 50'000U);
  EXPECT_EQ(NumbersOf(got_), (std::vector<int32_t>{1, 2}));
}

TEST_F(RdmaLinkTest, SmallMessagesOfAllPrioritiesShareASlot) {
  Make({});
  for (int32_t i = 0; i < 32; ++i) pair_->queue().Add(Native(8, i, i % 2));
  pair_->Send(Native(8, 32));
  ASSERT_TRUE(AwaitAll(33));
  EXPECT_LE(pair_->fabric().Counts().sends, 12U);
}

TEST_F(RdmaLinkTest, AnAnswerThatIsNoneIsRefused) {
  RdmaPair pair({});
  auto link = RdmaLink::Create(pair.sender_nic(), {}, {.on_turn = [] {}, .on_broken = {}});
  ASSERT_TRUE(link.ok());
  EXPECT_FALSE(link.value()->OnTaken("").ok());
  EXPECT_FALSE(link.value()->OnTaken("1 eth").ok());
  RdmaOffer other = ParseRdmaOffer(link.value()->offer()).value();
  other.address.layer = RdmaLayer::kInfiniBand;
  EXPECT_THAT(link.value()->OnTaken(TextOf(other)).message(), HasSubstr("on InfiniBand"));
}

// A link whose other end says what it likes.
class LyingReceiverTest : public ::testing::Test {
 protected:
  ~LyingReceiverTest() override {
    End();
    EXPECT_THAT(pair_.fabric().Violations(), ::testing::IsEmpty());
  }
  // A fresh link, not proved.
  void Renew() {
    End();
    breaks_ = 0;
    broken_ = bs::Status::Ok();
    raw_.emplace(pair_.receiver_nic());
    auto link = RdmaLink::Create(pair_.sender_nic(), {},
                                 {.on_turn = [this] { Pump(); },
                                  .on_broken =
                                      [this](const auto& why) {
                                        ++breaks_;
                                        broken_ = why;
                                        link_.reset();
                                      }});
    ASSERT_TRUE(link.ok()) << link.status().ToString();
    link_ = std::move(link.value());
    raw_->Join(link_->offer());
    token_ = ParseRdmaOffer(link_->offer()).value().token;
    ASSERT_TRUE(link_->OnTaken(TextOf(raw_->offer())).ok());
    Settle();
  }
  // The link is proved, and shows advert 1.
  void ShowOne() {
    Renew();
    ASSERT_TRUE(raw_->SendProof(token_));
    Settle();
    ASSERT_TRUE(link_ && link_->proved());
    Message message = Native(8, 1);
    message.data.push_back(Frame::Borrow(bytes_, [this] { --held_; }));
    ++held_;
    queue_.Add(std::move(message));
    Pump();
    Settle();
    ASSERT_TRUE(queue_.empty());
  }
  void Settle() {
    for (int i = 0; i < 10'000 && pair_.Step(); ++i) {
    }
  }
  void End() {
    link_.reset();
    raw_.reset();
  }

  const std::vector<std::byte> bytes_ = std::vector<std::byte>(100'000, std::byte{7});
  int held_ = 0;  // frames
  int breaks_ = 0;
  bs::Status broken_;
  RdmaToken token_{};
  RdmaPair pair_{{}};
  SendQueue queue_;
  std::optional<RawLink> raw_;
  std::unique_ptr<RdmaLink> link_;

 private:
  void Pump() {
    if (!link_ || !link_->proved()) return;
    EXPECT_TRUE(link_->Pump(&queue_).ok());
  }
};

TEST_F(LyingReceiverTest, AnHonestOneGivesTheFrameBack) {
  ShowOne();
  EXPECT_EQ(held_, 1);
  ASSERT_TRUE(raw_->Send({.kind = RdmaHeader::Kind::kControl, .credits = 2}));  // proof and advert
  ASSERT_TRUE(raw_->SendReleases({1}));
  Settle();
  EXPECT_EQ(held_, 0);
  EXPECT_TRUE(broken_.ok()) << broken_.ToString();
}

TEST_F(LyingReceiverTest, EachLieBreaksTheLinkOnceWithTheReason) {
  struct Case {
    std::function<void(RawLink* raw)> lies;
    const char* what;
  };
  const auto sends = [](const RdmaHeader& header, const std::string& rest = "") {
    return [=](RawLink* raw) { EXPECT_TRUE(raw->Send(header, {}, rest)); };
  };
  const auto releases = [](const std::vector<uint32_t>& ids) {
    return [=](RawLink* raw) { EXPECT_TRUE(raw->SendReleases(ids)); };
  };
  const std::vector<Case> cases = {
      {releases({7}), "releases advert 7, which it has not got"},
      {releases({0}), "releases advert 0, which"},
      {releases({1, UINT32_MAX}), "releases advert 4294967295, which"},
      {releases({1, 1}), "releases advert 1, which"},
      {[](RawLink* raw) {
         EXPECT_TRUE(raw->SendReleases({1}));
         EXPECT_TRUE(raw->SendReleases({1}));
       },
       "releases advert 1, which"},
      {sends({.kind = Kind::kControl, .credits = 3}), "more credits than it got"},
      {sends({.kind = Kind::kControl, .credits = UINT16_MAX}), "more credits than it got"},
      {sends({.kind = Kind::kControl, .count = 2}, std::string(4, '\1')), "ids that is not whole"},
      {sends({.kind = Kind::kControl, .count = UINT32_MAX}), "ids that is not whole"},
      {sends({.kind = Kind::kControl}, "x"), "ids that is not whole"},
      {sends({.kind = Kind::kControl, .frames = 1}, std::string(24, '\0')), "frames of no message"},
      {sends({.kind = Kind::kMessage, .meta_bytes = 1}, "x"), "receiving end of a link sends"},
      {sends({.kind = Kind::kAdvert, .meta_bytes = 1}, "x"), "receiving end of a link sends"},
      {sends({.kind = Kind::kMore}, "x"), "receiving end of a link sends"},
      {sends({.kind = Kind::kProof}, std::string(kRdmaTokenBytes, '\1')), "another token"},
      {[this](RawLink* raw) { EXPECT_TRUE(raw->SendProof(token_)); }, "another token"},
      {sends({.kind = Kind::kProof}, "short"), "a token of another size"},
      {sends({.kind = Kind{}}), "kind 0"},
      {[](RawLink* raw) { EXPECT_TRUE(raw->Send(std::vector<std::byte>(3))); }, "cut short"},
      {[](RawLink* raw) { EXPECT_TRUE(raw->Send(std::vector<std::byte>(RawLink::kSlotBytes))); },
       "local length error"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    ShowOne();
    one.lies(&*raw_);
    Settle();
    EXPECT_EQ(breaks_, 1);
    EXPECT_THAT(broken_.message(), HasSubstr(one.what));
    EXPECT_EQ(held_, 0) << "a link that is gone holds no frame";
  }
}

TEST_F(LyingReceiverTest, NoProofIsTakenButThatOfTheOffer) {
  Renew();
  ASSERT_TRUE(raw_->SendProof());
  Settle();
  EXPECT_EQ(breaks_, 1);
  EXPECT_THAT(broken_.message(), HasSubstr("another token"));
}

}  // namespace
}  // namespace ps::test
