// The message by which a process leaves for a node of another.
#include "membership/goodbye.h"

#include <gtest/gtest.h>

#include <string>

#include "membership/control_body.h"

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

TEST(Goodbye, AnythingElseIsNoPlace) {
  for (const std::string place : {"", "9", "9 7", "9 7 x", "worker 7 1", "9 7 1 1", "9 -7 z"}) {
    const bs::Result<Goodbye> goodbye = Goodbye::From(place);
    ASSERT_FALSE(goodbye.ok()) << place;
    EXPECT_EQ(goodbye.status().code(), bs::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ps
