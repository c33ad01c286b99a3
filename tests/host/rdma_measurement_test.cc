// The probe as rooms above see it; its measurements are tests/ps-lite/transport/rdma's.
#include "host/rdma_measurement.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "transport/rdma/rdma_probe.h"
#include "transport/rdma/sysfs_devices.h"

namespace bs::host {
namespace {

using std::chrono::seconds;

std::unique_ptr<RdmaMeasurement> OpenOn(ps::test::SimulatedFabric* fabric,
                                        const std::string& name) {
  ps::RdmaOptions options{.verbs = fabric->Add(name), .device = name};
  options.path.gid_index = 1;
  auto clock = std::make_unique<LoopThread>("clock");
  auto probe = ps::RdmaProbe::Open(options, clock.get());
  EXPECT_TRUE(probe.ok()) << probe.status().ToString();
  return std::make_unique<RdmaMeasurement>(std::move(clock), std::move(probe.value()));
}

TEST(RdmaMeasurement, TwoEndsMeasure) {
  ps::test::SimulatedFabric fabric;
  const auto here = OpenOn(&fabric, "here");
  const auto there = OpenOn(&fabric, "there");
  ASSERT_TRUE(there->Join(here->offer()).ok());
  ASSERT_TRUE(here->Join(there->offer()).ok());
  const auto found = here->Read(RdmaMeasurement::block_bytes(), 3, seconds(60));
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found.value().reads, 3U);
  EXPECT_GT(found.value().median, Duration::zero());
  for (const uint32_t size_bytes : {0U, RdmaMeasurement::block_bytes() + 1}) {
    EXPECT_EQ(here->Read(size_bytes, 1, seconds(1)).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(here->Read(4, 0, seconds(1)).status().code(), StatusCode::kInvalidArgument);
}

TEST(RdmaMeasurement, WithoutADeviceTheErrorHasTheRemedy) {
  if (!ps::DevicesInFiles().empty()) GTEST_SKIP() << "this host has an RDMA device";
  Config config;
  config.root_uri = "127.0.0.1";
  const Status status = RdmaMeasurement::Open(config).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(": "), std::string::npos) << status.message();
}

}  // namespace
}  // namespace bs::host
