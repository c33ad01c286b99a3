#include "membership/role_limits.h"

#include <gtest/gtest.h>

namespace ps {
namespace {

TEST(RoleLimits, OfDataAreThoseOfTheReceiversRole) {
  Meta push;
  push.extension.version = kExtensionVersion;
  push.extension.op = Op::kPush;
  push.extension.size_bytes = 1000000;
  EXPECT_EQ(MostDataBytes(Role::kScheduler, push), uint64_t{64} << 10U);
  EXPECT_EQ(MostDataBytes(Role::kServer, push), 1000000U);
  EXPECT_EQ(MostDataBytes(Role::kWorker, push), uint64_t{5} << 30U);
}

TEST(RoleLimits, OfFramesAreLowWhereNoDataIs) {
  EXPECT_EQ(MostFrameBytes(Role::kScheduler), 16U << 20U);
  for (const Role role : {Role::kServer, Role::kWorker}) {
    EXPECT_EQ(MostFrameBytes(role), uint64_t{4} << 30U);
  }
}

}  // namespace
}  // namespace ps
