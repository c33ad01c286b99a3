// The message by which a process leaves for a node of another.
#include "membership/goodbye.h"

#include <gtest/gtest.h>

#include <string>

#include "membership/control_body.h"
#include "wire/control.h"

namespace ps {
namespace {

TEST(Goodbye, HasTheNodesIdAndItsIncarnation) {
  View view;
  view.own_id = 11;
  view.job = 0xffffffffffffffff;
  view.incarnation = 3;
  const bs::Result<Goodbye> goodbye = Goodbye::From(PlaceOf(view));
  ASSERT_TRUE(goodbye.ok()) << goodbye.status().ToString();
  EXPECT_EQ(goodbye.value().id, 11);
  EXPECT_EQ(goodbye.value().message.peer, kSchedulerId);
  EXPECT_EQ(goodbye.value().message.meta.extension.op, Op::kLeave);
  EXPECT_EQ(DecodeMemberBody(goodbye.value().message.meta.extension.body).value(),
            (MemberBody{.job = 0xffffffffffffffff, .incarnation = 3}));
}

TEST(Goodbye, AReasonFailsTheJob) {
  const bs::Result<Goodbye> goodbye = Goodbye::From("11 7 0", "exit code 3");
  ASSERT_TRUE(goodbye.ok());
  EXPECT_EQ(StatusOf(goodbye.value().message.meta.extension).ToString(),
            "kUnavailable: worker 1 gave up: exit code 3");
}

TEST(Vouch, SaysHowManyWorkersLive) {
  const Message message = Vouch(3, 17);
  EXPECT_EQ(message.meta.control.command, Command::kAck) << "a stock scheduler node drops it";
  EXPECT_EQ(message.meta.extension.op, Op::kVouch);
  EXPECT_EQ(message.meta.extension.sequence, 17U);
  EXPECT_EQ(DecodeMemberBody(message.meta.extension.body).value().rank, 3);
}

TEST(Goodbye, AnythingElseIsNoPlace) {
  for (const std::string place : {"", "9", "9 7", "9 7 x", "worker 7 1", "9 7 1 1", "9 -7 z"}) {
    const bs::Result<Goodbye> goodbye = Goodbye::From(place);
    ASSERT_FALSE(goodbye.ok()) << place;
    EXPECT_EQ(goodbye.status().code(), bs::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ps
