// ProcessorQuota: of files as a kernel would show them, in both versions of control groups.
#include "base/processors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace bs {
namespace {

class ProcessorQuotaTest : public ::testing::Test {
 protected:
  ProcessorQuotaTest() { std::filesystem::remove_all(root_); }
  ~ProcessorQuotaTest() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }
  void PutVersion1(const std::string& folder, const std::string& quota,
                   const std::string& period) const {
    Put("/sys/fs/cgroup" + folder + "/cpu.cfs_quota_us", quota + "\n");
    Put("/sys/fs/cgroup" + folder + "/cpu.cfs_period_us", period + "\n");
  }
  double Quota() const { return ProcessorQuota(root_); }
  // A folder for this process only: tests run side by side.
  const std::string root_ = ::testing::TempDir() + "processors_test-" + std::to_string(::getpid());
};

TEST_F(ProcessorQuotaTest, ThisHostAllowsSomething) { EXPECT_GT(ProcessorQuota(), 0); }

TEST_F(ProcessorQuotaTest, WhereNothingTellsThereIsNone) {
  EXPECT_TRUE(std::isinf(Quota()));
  Put("/proc/self/cgroup", "nonsense\n0:\n");
  EXPECT_TRUE(std::isinf(Quota()));
}

TEST_F(ProcessorQuotaTest, OfVersion2TheLeastOfAllAbove) {
  Put("/proc/self/cgroup", "0::/pods/pod7/container\n");
  Put("/sys/fs/cgroup/pods/pod7/container/cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(Quota()));
  Put("/sys/fs/cgroup/pods/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(Quota(), 4);
  Put("/sys/fs/cgroup/pods/pod7/container/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(Quota(), 0.5);
}

TEST_F(ProcessorQuotaTest, OfAContainerThatIsTheRootOfItsGroups) {
  Put("/proc/self/cgroup", "0::/\n");
  Put("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(Quota(), 1.5);
}

TEST_F(ProcessorQuotaTest, OfVersion1UnderEachNameOfItsFolder) {
  Put("/proc/self/cgroup", "4:cpuset:/x\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/x\n");
  PutVersion1("/cpu,cpuacct/docker/abc", "-1", "100000");
  EXPECT_TRUE(std::isinf(Quota()));
  PutVersion1("/cpu,cpuacct/docker/abc", "50000", "100000");
  EXPECT_DOUBLE_EQ(Quota(), 0.5);
  PutVersion1("/cpu/docker", "25000", "250000");
  EXPECT_DOUBLE_EQ(Quota(), 0.1);
}

TEST_F(ProcessorQuotaTest, OfVersion1WhereThePathIsTheHosts) {
  Put("/proc/self/cgroup", "2:cpuacct,cpu:/kubepods/pod7/abc\n0::/kubepods/pod7/abc\n");
  PutVersion1("/cpuacct,cpu", "200000", "100000");
  EXPECT_DOUBLE_EQ(Quota(), 2);
}

}  // namespace
}  // namespace bs
