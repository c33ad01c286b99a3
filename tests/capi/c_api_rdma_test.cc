// The measurement of RDMA through the C API, on hosts without a device.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "bytescheduler/c_api.h"

namespace {

const std::vector<bs_setting> kSettings = {{"DMLC_ROLE", "worker"},
                                           {"DMLC_NUM_WORKER", "1"},
                                           {"DMLC_NUM_SERVER", "1"},
                                           {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                                           {"DMLC_PS_ROOT_PORT", "9"}};

TEST(CApiRdma, AHostWithoutRdmaGetsAnErrorWithTheRemedy) {
  if (::access("/sys/class/infiniband", F_OK) == 0) GTEST_SKIP() << "this host may have a device";
  bs_error error{};
  EXPECT_EQ(bs_rdma_probe_open(kSettings.data(), kSettings.size(), &error), nullptr);
  EXPECT_EQ(error.code, 4);  // kUnavailable
  EXPECT_NE(std::string(error.message).find(": "), std::string::npos) << error.message;
  bs_rdma_probe_close(nullptr);
}

TEST(CApiRdma, AWrongSettingIsNamed) {
  std::vector<bs_setting> settings = kSettings;
  settings.push_back({"BYTESCHEDULER_RDMA_SL", "8"});
  bs_error error{};
  EXPECT_EQ(bs_rdma_probe_open(settings.data(), settings.size(), &error), nullptr);
  EXPECT_NE(std::string(error.message).find("BYTESCHEDULER_RDMA_SL=8"), std::string::npos)
      << error.message;
}

}  // namespace
