// The bodies of control messages: their bytes on the wire, and whatever else a peer may send.
#include "membership/control_body.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "ps-lite/wire/golden.h"

namespace ps {
namespace {

using test::FromHex;
using test::ToHex;

const MemberBody kOfMember{
    .job = 7, .incarnation = 2, .lost_incarnation = 3, .rank = -2, .settings = "a=b\n"};
const SchedulerBody kOfScheduler{.job = 7, .incarnation = 2, .rank = 5};
const SchedulerBody kFreePlace{.job = 7, .next_incarnation = 2, .native = true, .rank = 5};

TEST(ControlBody, HasTheBytesOfTheProtocol) {
  EXPECT_EQ(ToHex(std::string(Encode(kOfMember).bytes())),
            "b80607"
            "c00602"
            "c80603"
            "f80603"
            "8a0704613d620a");
  EXPECT_EQ(ToHex(std::string(Encode(Op::kRegister, kOfScheduler).bytes())),
            "b80607"
            "c00602"
            "f8060a");
  EXPECT_EQ(ToHex(std::string(Encode(Op::kVacate, kFreePlace).bytes())),
            "b80607"
            "c00602"
            "c80601"
            "f8060a");
}

TEST(ControlBody, ComesBackAsItWas) {
  const MemberBody yielding{.yields = true};
  EXPECT_EQ(ToHex(std::string(Encode(yielding).bytes())), "980701");
  EXPECT_EQ(DecodeMemberBody(Encode(yielding)).value(), yielding);
  EXPECT_EQ(DecodeMemberBody(Encode(kOfMember)).value(), kOfMember);
  for (const Op op : {Op::kRegister, Op::kAttach}) {
    EXPECT_EQ(DecodeSchedulerBody(op, Encode(op, kOfScheduler)).value(), kOfScheduler);
  }
  const Body free_place = Encode(Op::kVacate, kFreePlace);
  EXPECT_EQ(DecodeSchedulerBody(Op::kVacate, free_place).value(), kFreePlace);
}

// One number on the wire is the incarnation of a holder, or of the next one of a free place.
TEST(ControlBody, CarriesOnlyTheFieldsOfItsOp) {
  const SchedulerBody both{
      .job = 7, .incarnation = 2, .next_incarnation = 3, .native = true, .rank = 5};
  EXPECT_EQ(Encode(Op::kAttach, both), Encode(Op::kAttach, kOfScheduler));
  EXPECT_EQ(DecodeSchedulerBody(Op::kVacate, Encode(Op::kVacate, both)).value(),
            (SchedulerBody{.job = 7, .next_incarnation = 3, .native = true, .rank = 5}));
  const Body free_place = Encode(Op::kVacate, kFreePlace);
  EXPECT_EQ(DecodeSchedulerBody(Op::kAttach, free_place).value(), kOfScheduler);
}

TEST(ControlBody, WithNothingToSayIsEmpty) {
  EXPECT_TRUE(Encode(MemberBody{}).empty());
  EXPECT_TRUE(Encode(Op::kVacate, SchedulerBody{}).empty());
  EXPECT_EQ(DecodeMemberBody({}).value(), MemberBody{});
  EXPECT_EQ(DecodeSchedulerBody(Op::kVacate, {}).value(), SchedulerBody{});
}

TEST(ControlBody, SkipsUnknownFieldsAndOtherWireTypes) {
  const Body odd(
      FromHex("ba060141"      // job as bytes
              "fa060141"      // rank as bytes
              "d00605"        // field 106
              "c80680808000"  // 0 in four bytes
              "c00604"));
  EXPECT_EQ(DecodeMemberBody(odd).value(), (MemberBody{.incarnation = 4}));
  EXPECT_EQ(DecodeSchedulerBody(Op::kAttach, odd).value(), (SchedulerBody{.incarnation = 4}));
  EXPECT_EQ(DecodeSchedulerBody(Op::kVacate, odd).value(), (SchedulerBody{.next_incarnation = 4}));
}

TEST(ControlBody, BytesThatAreNoFieldsAreRefused) {
  for (const char* const hex : {"b8", "b806", "b806ff", "8a07056162", "0000", "bb06"}) {
    EXPECT_EQ(DecodeMemberBody(Body(FromHex(hex))).status().code(),
              bs::StatusCode::kInvalidArgument)
        << hex;
    EXPECT_EQ(DecodeSchedulerBody(Op::kVacate, Body(FromHex(hex))).status().code(),
              bs::StatusCode::kInvalidArgument)
        << hex;
  }
}

TEST(ControlBody, RandomBytesNeverAbort) {
  std::mt19937 random(1);
  const std::string good(Encode(kOfMember).bytes());
  size_t read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (unsigned changes = random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % 4 == 0 ? random() % bytes.size() : bytes.size());
    const Body body(bytes);
    const auto of_member = DecodeMemberBody(body);
    EXPECT_EQ(of_member.ok(), DecodeSchedulerBody(Op::kVacate, body).ok());
    if (!of_member.ok()) continue;
    ++read;
    EXPECT_EQ(DecodeMemberBody(Encode(of_member.value())).value(), of_member.value());
  }
  EXPECT_GT(read, 1000U);
}

}  // namespace
}  // namespace ps
