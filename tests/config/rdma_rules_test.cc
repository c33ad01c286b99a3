// Settings that rule RDMA out, and the names that BytePS has for it.
#include "config/rdma_rules.h"

#include <gtest/gtest.h>

#include "base/snapshot.h"

namespace bs::config {
namespace {

Config Required() {
  Config config;
  config.rdma = "1";
  config.transport = "tcp";
  return config;
}

TEST(RdmaRules, OtherLibrariesAreRefusedByName) {
  EXPECT_TRUE(WhyNoRdmaOf("ucx").starts_with("UCX is not supported"));
  EXPECT_TRUE(WhyNoRdmaOf("fabric").starts_with("libfabric is not supported"));
  EXPECT_TRUE(WhyNoRdmaOf("fabric").ends_with("want ibverbs"));
  EXPECT_EQ(WhyNoRdmaOf("ibverbs"), "");
}

TEST(RdmaRules, RequiredRdmaMustNotBeRuledOut) {
  EXPECT_TRUE(CheckRdma(Required()).ok());
  const auto why = [](auto change) {
    Config config = Required();
    change(&config);
    const Status status = CheckRdma(config);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    // Without RDMA, or where it is no must, the same is fine.
    for (const char* value : {"0", "auto"}) {
      config.rdma = value;
      EXPECT_TRUE(CheckRdma(config).ok());
    }
    return status.message();
  };
  EXPECT_SNAPSHOT(
      why([](Config* config) { config->secret_file = "/etc/secret"; }),
      "DMLC_ENABLE_RDMA=1: RDMA does not encrypt, and BYTESCHEDULER_SECRET_FILE is set; "
      "unset one of both");
  EXPECT_SNAPSHOT(why([](Config* config) { config->transport = "zmq"; }),
                  "DMLC_ENABLE_RDMA=1: RDMA goes beside our own sockets; unset "
                  "BYTESCHEDULER_TRANSPORT=zmq");
  EXPECT_SNAPSHOT(why([](Config* config) { config->local_ipc = true; }),
                  "DMLC_ENABLE_RDMA=1: DMLC_LOCAL=1 talks through files; unset one of both");
}

TEST(RdmaRules, NamesOfBytepsAreAnsweredByOneLine) {
  for (const char* name : {"BYTEPS_RDMA_RX_DEPTH", "BYTEPS_UCX_HOME", "BYTEPS_ENABLE_IPC"}) {
    EXPECT_TRUE(IsRdmaOfByteps(name)) << name;
  }
  EXPECT_FALSE(IsRdmaOfByteps("BYTEPS_LOG_LEVEL"));
  EXPECT_EQ(LineOnByteps({}), "");
  EXPECT_TRUE(LineOnByteps({"BYTEPS_A"}).starts_with("BYTEPS_A has no effect here: "));
  EXPECT_TRUE(
      LineOnByteps({"BYTEPS_A", "BYTEPS_B"}).starts_with("BYTEPS_A, BYTEPS_B have no effect"));
}

}  // namespace
}  // namespace bs::config
