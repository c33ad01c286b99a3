// The limit of locked memory, by the process's own limit and by files that give it a capability.
#include "transport/rdma/locked_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/snapshot.h"

namespace ps::test {
namespace {

class LockedMemoryTest : public ::testing::Test {
 protected:
  LockedMemoryTest() { ::getrlimit(RLIMIT_MEMLOCK, &before_); }
  ~LockedMemoryTest() override {
    ::setrlimit(RLIMIT_MEMLOCK, &before_);
    std::filesystem::remove(status_);
  }
  uint64_t LimitWith(const std::string& capabilities) const {
    std::ofstream(status_) << "Name:\tx\nCapEff:\t" << capabilities << "\nSeccomp:\t0\n";
    return LockedMemoryLimit(status_);
  }
  const std::string status_ = ::testing::TempDir() + "locked_memory-" + std::to_string(::getpid());
  rlimit before_{};
};

TEST_F(LockedMemoryTest, TheProcessesOwnLimitCounts) {
  const rlimit little{64U << 10U, before_.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &little), 0);
  EXPECT_EQ(LimitWith("0000000000000000"), 64U << 10U);
  EXPECT_EQ(LimitWith("000001ffffffbfff"), 64U << 10U);  // all capabilities but that one
}

TEST_F(LockedMemoryTest, TheCapabilityLiftsIt) {
  const rlimit little{64U << 10U, before_.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &little), 0);
  EXPECT_EQ(LimitWith("0000000000004000"), kNoLockedMemoryLimit);
}

TEST_F(LockedMemoryTest, WithoutTheFileTheLimitCounts) {
  const rlimit little{64U << 10U, before_.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &little), 0);
  EXPECT_EQ(LockedMemoryLimit("nonesuch"), 64U << 10U);
}

TEST_F(LockedMemoryTest, TheTextNamesTheLimitAndTheRemedy) {
  EXPECT_SNAPSHOT(
      TextOfLockedMemory(64U << 10U),
      "the limit of locked memory is 64 KiB: ulimit -l unlimited, or --ulimit memlock=-1 for "
      "a container");
  EXPECT_EQ(TextOfLockedMemory(kNoLockedMemoryLimit), "");
}

}  // namespace
}  // namespace ps::test
