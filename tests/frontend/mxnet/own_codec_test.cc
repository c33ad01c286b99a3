// A codec that only the test has goes all the way: its name and option enter by the C API, the
// plug-in carries the coding, and two workers and two servers of a real job use it.  Nothing but
// the table that this program links (tests/codec/steps_table.cc) knows it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "capi/job.h"
#include "frontend/mxnet/fake_mxnet.h"
#include "frontend/mxnet/mxnet.h"

namespace bs::test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kKey = 7;
constexpr size_t kElements = 3000;  // two partitions
constexpr double kStep = 0.5;

class OwnCodec : public ::testing::Test {
 protected:
  void Start() {
    job_.StartAll();
    ASSERT_FALSE(HasFatalFailure());
    std::vector<Floats> values(2, Floats(kElements));
    BroadcastAll(&job_, kKey, &values);
    const bs_mxnet_functions functions = mxnet_.functions();
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(bs_mxnet_open(job_.workers[i].get(), &functions, &plugins_[i], nullptr), 0);
    }
  }
  void TearDown() override {
    for (bs_mxnet* const plugin : plugins_) {
      EXPECT_EQ(bs_mxnet_drain(plugin, kPatienceMs), 1);
      bs_mxnet_close(plugin);
    }
    CloseWorkers(&job_);
  }
  // One round of both workers.
  void Round(const std::vector<bs_coding>& codings) {
    const size_t before = mxnet_.operations.size();  // they stay: their last may still return
    for (size_t i = 0; i < 2; ++i) {
      const bs_mxnet_round round{.key = kKey,
                                 .name = "'fc1'",
                                 .priority = 0,
                                 .send_stage = &send_[i],
                                 .recv_stage = &recv_[i],
                                 .size_bytes = kElements * sizeof(float),
                                 .coding = codings[i],
                                 .joined = 0,
                                 .value = nullptr,
                                 .copied = 0,
                                 .out = nullptr,
                                 .rates = nullptr};
      ASSERT_EQ(bs_mxnet_push_pull(plugins_[i], &round, nullptr), 0);
    }
    for (size_t i = before; i < mxnet_.operations.size(); ++i) mxnet_.Run(i);
    AwaitRound();
  }
  void AwaitRound() {
    for (const bs_mxnet* const plugin : plugins_) {
      const auto deadline =
          std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
      while (bs_mxnet_pending(plugin) > 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
      }
      ASSERT_EQ(bs_mxnet_pending(plugin), 0);
    }
  }
  std::string Errors() {
    std::string all;
    for (const FakeMxnet::Operation& operation : mxnet_.operations) {
      all += operation.error.value_or("");
    }
    return all;
  }

  Job job_{2, 2, {{"BYTESCHEDULER_PARTITION", "4096"}}};
  FakeMxnet mxnet_;
  FakeMxnet::Array send_[2] = {{Floats(kElements)}, {Floats(kElements)}};
  FakeMxnet::Array recv_[2] = {{Floats(kElements)}, {Floats(kElements)}};
  bs_mxnet* plugins_[2] = {nullptr, nullptr};
};

TEST_F(OwnCodec, GoesThroughPlugInWorkersAndServers) {
  Start();
  ASSERT_FALSE(HasFatalFailure());
  const bs_coding coding = CodingOf("steps", "step", std::to_string(kStep));
  std::vector<double> given(kElements);
  std::vector<double> arrived(kElements);
  for (size_t round = 1; round <= 5; ++round) {
    for (size_t rank = 0; rank < 2; ++rank) {
      for (size_t i = 0; i < kElements; ++i) {
        send_[rank].values[i] = (static_cast<float>((i * 7 + rank * 3 + round) % 11) - 5) * 0.3F;
        given[i] += send_[rank].values[i];
      }
    }
    Round({coding, coding});
    ASSERT_EQ(Errors(), "");
    ASSERT_EQ(recv_[0].values, recv_[1].values);
    for (size_t i = 0; i < kElements; ++i) {
      arrived[i] += recv_[0].values[i];
      // The residuals have the rest, half a step each at most.
      ASSERT_LE(std::abs(given[i] - arrived[i]), kStep + 1e-3) << "element " << i;
      ASSERT_EQ(std::fmod(recv_[0].values[i], kStep), 0) << "not in steps";
    }
  }
}

TEST_F(OwnCodec, WithOtherOptionsOnAWorkerFailsTheJobWithBothDescriptions) {
  Start();
  ASSERT_FALSE(HasFatalFailure());
  Round({CodingOf("steps", "step", "0.5"), CodingOf("steps", "step", "0.25")});
  EXPECT_THAT(Errors(), HasSubstr("compressed to steps of 0.5"));
  EXPECT_THAT(Errors(), HasSubstr("compressed to steps of 0.25"));
  EXPECT_THAT(Errors(), HasSubstr("set gradient compression alike on all workers"));
}

TEST_F(OwnCodec, IsToldApartFromTheEnginesByNumber) {
  Start();
  ASSERT_FALSE(HasFatalFailure());
  Round({CodingOf("steps", "step", "0.5"), CodingOf("2bit", "threshold", "0.5")});
  EXPECT_THAT(Errors(), HasSubstr("compressed to steps of 0.5"));
  EXPECT_THAT(Errors(), HasSubstr("compressed to two bits with threshold 0.5"));
}

}  // namespace
}  // namespace bs::test
