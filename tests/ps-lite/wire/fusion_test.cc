#include "wire/fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/wire/golden.h"
#include "wire/wire.h"

namespace ps {
namespace {

using ::testing::HasSubstr;

Message Of(Op op, uint64_t key, const std::string& payload, bool request = true) {
  Message message;
  message.peer = 9;
  message.meta.head = 0;
  message.meta.request = request;
  message.meta.push = true;
  message.meta.app_id = 0;
  message.meta.customer_id = 0;
  message.meta.timestamp = 7;
  message.meta.priority = -static_cast<int32_t>(key);
  message.meta.extension.version = kExtensionVersion;
  message.meta.extension.op = op;
  message.meta.extension.sequence = 7;
  message.meta.extension.body = Body(test::FromHex("b806") + static_cast<char>(key & 0x7fU));
  if (!payload.empty()) message.data.push_back(Frame::Copy(payload));
  return message;
}

// As it comes out of a connection of node 9.
Message Fused(const std::vector<Message>& messages) {
  Message fused;
  fused.peer = 9;
  const std::string meta = EncodeMeta(FusedMeta(messages));
  fused.meta = ParseMeta(std::as_bytes(std::span(meta))).value();
  std::string data;
  for (const Message& message : messages) {
    for (const Frame& frame : message.data) data += frame.text();
  }
  if (!data.empty()) fused.data.push_back(Frame::Copy(data));
  return fused;
}

std::vector<Message> Some() {
  std::vector<Message> some;
  some.push_back(Of(Op::kPushPull, 1, "first"));
  some.push_back(Of(Op::kPull, 2, ""));
  some.push_back(Of(Op::kPush, 1'000'000, std::string(3000, 'x')));
  some.push_back(Of(Op::kPushPull, 3, "answer", false));
  return some;
}

TEST(Fusion, TakingApartGivesTheFusedMessages) {
  const std::vector<Message> before = Some();
  const auto after = TakeApart(Fused(before));
  ASSERT_TRUE(after.ok()) << after.status().message();
  ASSERT_EQ(after.value().size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    const Message& one = after.value()[i];
    EXPECT_EQ(one.peer, 9);
    EXPECT_EQ(one.meta, before[i].meta);
    ASSERT_EQ(one.data.size(), before[i].data.size());
    if (!one.data.empty()) {
      EXPECT_EQ(one.data[0].text(), before[i].data[0].text());
    }
  }
}

TEST(Fusion, TheBytesMatchTheProtocol) {
  std::vector<Message> two;
  two.push_back(Of(Op::kPushPull, 1, "abcd"));
  two.push_back(Of(Op::kPull, 2, ""));
  const std::string first = EncodeMeta(two[0].meta);
  const std::string second = EncodeMeta(two[1].meta);
  const std::string body = std::string("\x0a") + static_cast<char>(first.size()) + first +
                           "\x10\x04" + "\x0a" + static_cast<char>(second.size()) + second;
  const Meta meta = FusedMeta(two);
  EXPECT_EQ(meta.body, body);
  const std::string carrier = EncodeMeta(meta);
  // head 0; the body; no request, push, simple_app; app 0, customer 0; no pull; priority 0;
  // version 1, op 9.
  EXPECT_EQ(carrier, std::string("\x08\x00\x12", 3) + static_cast<char>(body.size()) + body +
                         test::FromHex("2000280030003800500060006800a00601a80609"));
}

TEST(Fusion, OnlyPushesAndPullsOfNativeNodesWithOneFrameAtMostCanBeFused) {
  for (const Op op : {Op::kPush, Op::kPull, Op::kPushPull, Op::kGive, Op::kTake}) {
    EXPECT_TRUE(CanFuse(Of(op, 1, "x")));
  }
  for (const Op op : {Op::kNone, Op::kDeclare, Op::kLookup, Op::kPending, Op::kOptimizer,
                      Op::kRelease, Op::kFused, Op::kRegister}) {
    EXPECT_FALSE(CanFuse(Of(op, 1, "x")));
  }
  Message stock = Of(Op::kPush, 1, "x");
  stock.meta.extension = {};
  EXPECT_FALSE(CanFuse(stock));
  Message control = Of(Op::kPush, 1, "x");
  control.meta.is_control = true;
  EXPECT_FALSE(CanFuse(control));
  Message frames = Of(Op::kPush, 1, "x");
  frames.data.push_back(Frame::Copy(std::string("y")));
  EXPECT_FALSE(CanFuse(frames));
}

TEST(Fusion, TheMemoryGoesWithTheLastOfTheMessagesThatKeepsIt) {
  const std::string bytes = "firstlast";
  bool released = false;
  std::vector<Message> two;
  two.push_back(Of(Op::kPush, 1, "first"));
  two.push_back(Of(Op::kPush, 2, "last"));
  Message fused = Fused(two);
  fused.data[0] = Frame::Borrow(std::as_bytes(std::span(bytes)), [&released] { released = true; });
  std::vector<Message> kept;
  HandOut(std::move(fused), true,
          [&](bs::Result<Message> one) { kept.push_back(std::move(one.value())); });
  ASSERT_EQ(kept.size(), 2U);
  kept.erase(kept.begin());
  EXPECT_FALSE(released);
  EXPECT_EQ(kept[0].data[0].bytes().data(), std::as_bytes(std::span(bytes)).subspan(5).data());
  const Frame alone = Frame::Alone(std::move(kept[0].data[0]));
  EXPECT_TRUE(released);
  EXPECT_EQ(alone.text(), "last");
}

std::string WhyNot(Message fused) {
  const auto apart = TakeApart(std::move(fused));
  return apart.ok() ? "" : apart.status().message();
}

// A list of one, whose meta is `meta`.
Message Carrier(const std::string& body, const std::string& data = "") {
  Message fused;
  fused.peer = 9;
  fused.meta.extension.version = kExtensionVersion;
  fused.meta.extension.op = Op::kFused;
  fused.meta.body = body;
  if (!data.empty()) fused.data.push_back(Frame::Copy(data));
  return fused;
}
std::string Entry(const Message& message) {
  const std::string meta = EncodeMeta(message.meta);
  return std::string("\x0a") + static_cast<char>(meta.size()) + meta;
}

TEST(Fusion, AMalformedCarrierIsRefusedWithTheReason) {
  const std::string entry = Entry(Of(Op::kPush, 1, "abcd"));
  std::string many;
  for (size_t i = 0; i <= kMostFused; ++i) many += entry;
  EXPECT_EQ(WhyNot(Carrier(entry + "\x10\x04", "abcd")), "");
  EXPECT_EQ(WhyNot(Carrier("")), "");  // carries nothing
  EXPECT_THAT(WhyNot(Carrier(many)), HasSubstr("too many"));
  EXPECT_THAT(WhyNot(Carrier(entry + "\x10\x04", "abc")), HasSubstr("lacks data"));
  EXPECT_THAT(WhyNot(Carrier(entry + "\x10\x03", "abcd")), HasSubstr("data of no message"));
  EXPECT_THAT(WhyNot(Carrier("\x10\x04", "abcd")), HasSubstr("data of no message"));
  EXPECT_THAT(WhyNot(Carrier(entry, std::string(kMostFusedBytes + 1, 'x'))),
              HasSubstr("too much data"));
  EXPECT_THAT(WhyNot(Carrier("\x0a\x7f")), HasSubstr("no list"));
  EXPECT_THAT(WhyNot(Carrier("\x0a\x01\xff")), HasSubstr("no PBMeta"));
  EXPECT_THAT(WhyNot(Carrier(Entry(Of(Op::kDeclare, 1, "")))), HasSubstr("may not be fused"));
  EXPECT_THAT(WhyNot(Carrier(Entry(Carrier(entry)))), HasSubstr("may not be fused"));
  Message frames = Carrier(entry + "\x10\x04", "abcd");
  frames.data.push_back(Frame::Copy(std::string("x")));
  EXPECT_THAT(WhyNot(std::move(frames)), HasSubstr("one data frame"));
  Message control = Carrier(entry + "\x10\x04", "abcd");
  control.meta.is_control = true;
  EXPECT_NE(WhyNot(std::move(control)), "");
}

TEST(Fusion, RandomBytesNeverAbort) {
  std::mt19937 random(1);
  const std::string good = FusedMeta(Some()).body;
  for (int i = 0; i < 20000; ++i) {
    std::string body = good;
    for (unsigned changes = random() % 8; changes > 0; --changes) {
      body[random() % body.size()] = static_cast<char>(random());
    }
    body.resize(random() % 4 == 0 ? random() % body.size() : body.size());
    const auto apart = TakeApart(Carrier(body, std::string(3011, 'x')));
    if (!apart.ok()) continue;
    for (const Message& one : apart.value()) EXPECT_TRUE(CanFuse(one));
  }
}

TEST(Fusion, OnlyNodesOfTheJobAreHeard) {
  for (const bool known : {true, false}) {
    size_t messages = 0;
    std::string why;
    const size_t given = HandOut(Fused(Some()), known, [&](const bs::Result<Message>& one) {
      one.ok() ? void(++messages) : void(why = one.status().message());
    });
    EXPECT_EQ(given, known ? 4U : 1U);
    EXPECT_EQ(messages, known ? 4U : 0U);
    EXPECT_EQ(why.empty(), known) << why;
  }
  // Others go as they are.
  size_t messages = 0;
  HandOut(Of(Op::kPush, 1, "x"), false,
          [&](const bs::Result<Message>& one) { messages += one.ok() ? 1 : 0; });
  EXPECT_EQ(messages, 1U);
}

}  // namespace
}  // namespace ps
