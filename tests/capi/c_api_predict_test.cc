// Predictions through the C API: what is no number, or too much, is refused before anything runs.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/snapshot.h"
#include "bytescheduler/c_api.h"

namespace {

class CApiPredictTest : public ::testing::Test {
 protected:
  CApiPredictTest() {
    job_.num_workers = job_.num_servers = 2;
    job_.bytes_per_second = 119e6;
    job_.latency_s = 50e-6;
    job_.partition_bytes = 128 << 10;
    job_.credit_bytes = 512 << 10;
    job_.steps = 3;
    job_.most_workers = 8;
  }
  int Predict() {
    job_.layers = layers_.data();
    job_.num_layers = layers_.size();
    return bs_predict(&job_, &found_, &error_);
  }
  std::string Refusal() { return Predict() == 0 ? "" : error_.message; }

  std::vector<bs_layer> layers_{{1'000'000, 0.01, 0.02}, {2'000'000, 0.01, 0.02}};
  bs_job_to_predict job_{};
  bs_prediction found_{};
  bs_error error_{};
};

TEST_F(CApiPredictTest, AJobHasAStepAndPartitions) {
  ASSERT_EQ(Predict(), 0) << error_.message;
  EXPECT_NEAR(found_.step_s, 0.068, 0.006);  // 60 ms, and the front layer on the wire
  EXPECT_EQ(found_.partitions, 24U);
  EXPECT_EQ(found_.simulated_workers, 2);
  EXPECT_GT(found_.messages, 0U);
}

TEST_F(CApiPredictTest, EveryPolicyGivesAnAnswer) {
  for (job_.policy = 0; job_.policy < 4; ++job_.policy) EXPECT_EQ(Predict(), 0);
}

TEST_F(CApiPredictTest, AnImpossibleJobIsRefusedWithTheReason) {
  job_.policy = 4;
  EXPECT_EQ(Refusal(), "no policy has the number 4");
  job_.policy = 0;
  job_.num_workers = 0;
  EXPECT_EQ(Refusal(), "want 1 to 65536 workers and servers");
  job_.num_workers = 2;
  job_.steps = 0;
  EXPECT_EQ(Refusal(), "want 1 to 10000 steps");
  job_.steps = 3;
  job_.latency_s = std::nan("");
  EXPECT_SNAPSHOT(Refusal(), "want a rate of the links and a latency of up to 100000 s");
  job_.latency_s = 0;
  layers_[1].backward_s = -1;
  EXPECT_EQ(Refusal(), "layer 1: want times of 0 to 100000 s");
  layers_.clear();
  EXPECT_EQ(Refusal(), "a model without layers");
}

TEST_F(CApiPredictTest, CodingTakesTheTimeThatIsSaid) {
  job_.bytes_per_second = 1e12;
  ASSERT_EQ(Predict(), 0) << error_.message;
  const double link_s = found_.step_s;
  for (double& cost : job_.coding_s) {
    cost = 1e-7;  // 0.3 s for the model
    ASSERT_EQ(Predict(), 0) << error_.message;
    EXPECT_GT(found_.step_s, link_s + 0.08);
    for (const double wrong : {-1e-9, 2e-3, std::nan("")}) {
      cost = wrong;
      EXPECT_EQ(Refusal(), "want 0 to 0.001 s of coding for each byte that travels");
    }
    cost = 0;
  }
}

TEST_F(CApiPredictTest, NodesOfOneHostShareItsLink) {
  job_.num_workers = job_.num_servers = 4;
  layers_ = {{8'000'000, 0.001, 0.002}};
  ASSERT_EQ(Predict(), 0) << error_.message;
  const double apart_s = found_.step_s;
  std::vector<bs_place> places;
  for (int node = 0; node < 8; ++node) places.push_back({node % 4, 119e6});
  job_.places = places.data();
  ASSERT_EQ(Predict(), 0) << error_.message;
  EXPECT_GE(found_.step_s, 1.5 * 8e6 / 119e6);  // 3/4 of a model and 3 times 1/4
  EXPECT_LE(found_.step_s, 1.6 * apart_s);
  places[0].bytes_per_second = places[4].bytes_per_second = 119e5;
  ASSERT_EQ(Predict(), 0) << error_.message;
  EXPECT_GT(found_.step_s, 5 * apart_s);
  places[0].bytes_per_second = places[4].bytes_per_second = 0;
  EXPECT_EQ(Refusal(), "want a rate of each host's link");
  places[0].bytes_per_second = HUGE_VAL;
  EXPECT_EQ(Refusal(), "want a rate of each host's link");
}

TEST(CApiPartitionAndCredit, FitTheLinkAndImpossibleLinksAreRefused) {
  uint64_t partition_bytes = 0;
  uint64_t credit_bytes = 0;
  bs_error error{};
  const auto sizes = [&](const bs_links& links) {
    return bs_partition_and_credit(&links, &partition_bytes, &credit_bytes, &error);
  };
  ASSERT_EQ(sizes({119e6, 1e-4, 2, 0}), 0);
  EXPECT_EQ(partition_bytes, 64U << 10U);
  EXPECT_EQ(credit_bytes, 128U << 10U);
  ASSERT_EQ(sizes({119e6, 1e-4, 2, 1}), 0);
  EXPECT_EQ(partition_bytes, 128U << 10U);
  EXPECT_EQ(credit_bytes, 256U << 10U);
  for (const double rate : {std::nan(""), HUGE_VAL, 0.0, -1e9}) {
    EXPECT_NE(sizes({rate, 0, 2, 0}), 0);
  }
  EXPECT_NE(sizes({119e6, -1, 2, 0}), 0);
  EXPECT_NE(sizes({119e6, 0, 0, 0}), 0);
  EXPECT_SNAPSHOT(error.message, "want a rate, a time of up to 100000 s, and 1 to 65536 servers");
}

}  // namespace
