#include "membership/role_limits.h"

#include <gtest/gtest.h>

namespace ps {
namespace {

TEST(RoleLimits, OfDataDependOnTheRoleOfTheReceiver) {
  Meta push;
  push.extension.version = kExtensionVersion;
  push.extension.op = Op::kPush;
  EXPECT_EQ(MostDataBytes(Role::kScheduler, push, 1000000), uint64_t{64} << 10U);
  EXPECT_EQ(MostDataBytes(Role::kServer, push, 1000000), 1000000U);
  EXPECT_EQ(MostDataBytes(Role::kWorker, push, 1000000), uint64_t{5} << 30U);
}

TEST(RoleLimits, OfRequestsAreTheAnnouncedBytesOrLittle) {
  const uint64_t little = uint64_t{64} << 10U;
  Meta request;
  EXPECT_EQ(MostDataBytes(Role::kServer, request, 0),
            uint64_t{5} << 30U);  // of MXNet's own workers
  request.extension.version = kExtensionVersion;
  EXPECT_EQ(MostDataBytes(Role::kServer, request, 0), little);
  EXPECT_EQ(MostDataBytes(Role::kServer, request, ~uint64_t{0}), uint64_t{4} << 30U);
  request.is_control = true;
  EXPECT_EQ(MostDataBytes(Role::kServer, request, 1000000), little);
}

TEST(RoleLimits, OfFramesAreLowWhereNoDataIs) {
  EXPECT_EQ(MostFrameBytes(Role::kScheduler), 16U << 20U);
  for (const Role role : {Role::kServer, Role::kWorker}) {
    EXPECT_EQ(MostFrameBytes(role), uint64_t{4} << 30U);
  }
}

}  // namespace
}  // namespace ps
