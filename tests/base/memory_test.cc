// AvailableBytes: of this host, and of files as a kernel would show them.
#include "base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace bs {
namespace {

class AvailableBytesTest : public ::testing::Test {
 protected:
  AvailableBytesTest() { std::filesystem::remove_all(root_); }
  ~AvailableBytesTest() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }
  void PutHost() const {
    Put("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:   4000 kB\nSwapFree:  1000 kB\n");
  }
  // A folder for this process only: tests run side by side.
  const std::string root_ = ::testing::TempDir() + "memory_test-" + std::to_string(::getpid());
};

TEST_F(AvailableBytesTest, ThisHostHasSome) {
  EXPECT_GT(AvailableBytes(), uint64_t{1} << 20U);
  EXPECT_LT(AvailableBytes(), uint64_t{1} << 50U);
}

TEST_F(AvailableBytesTest, WhereNothingTellsThereIsNoBound) {
  EXPECT_EQ(AvailableBytes(root_), std::numeric_limits<uint64_t>::max());
  Put("/proc/meminfo", "MemAvailable: kB\n");
  EXPECT_EQ(AvailableBytes(root_), std::numeric_limits<uint64_t>::max());
}

TEST_F(AvailableBytesTest, SwapCounts) {
  PutHost();
  EXPECT_EQ(AvailableBytes(root_), 5000U * 1024);
}

TEST_F(AvailableBytesTest, TheGroupWithTheLeastBounds) {
  PutHost();
  Put("/proc/self/cgroup", "1:name=systemd:/x\n0::/job/server\n");
  Put("/sys/fs/cgroup/job/server/memory.max", "max\n");
  Put("/sys/fs/cgroup/job/server/memory.current", "100\n");
  EXPECT_EQ(AvailableBytes(root_), 5000U * 1024);
  Put("/sys/fs/cgroup/job/memory.max", "1000\n");
  Put("/sys/fs/cgroup/job/memory.current", "900\n");
  EXPECT_EQ(AvailableBytes(root_), 100U);
  Put("/sys/fs/cgroup/job/memory.stat", "anon 500\ninactive_file 40\nactive_file 2\n");
  EXPECT_EQ(AvailableBytes(root_), 142U);
  Put("/sys/fs/cgroup/job/memory.max", "800\n");
  EXPECT_EQ(AvailableBytes(root_), 0U);
}

}  // namespace
}  // namespace bs
