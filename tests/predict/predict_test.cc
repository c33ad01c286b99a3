// Predict: against closed forms where there are any, and in the order in which policies must come.
#include "predict/predict.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/snapshot.h"
#include "predict/models.h"

namespace bs::predict {
namespace {

using std::chrono::milliseconds;

TEST(Predict, AFastLinkLeavesTheComputeAlone) {
  Options options = Fat(Policy::kOurs);
  options.bytes_per_second = 10e9;
  EXPECT_NEAR(StepOf(options), 0.453, 0.010);
}

TEST(Predict, ASlowLinkIsAllThereIs) {
  Options options = Fat(Policy::kOurs);
  options.bytes_per_second = kGigabit / 10;
  EXPECT_GE(StepOf(options), 55e6 / options.bytes_per_second);
  EXPECT_LE(StepOf(options), 1.1 * Ideal(options));
}

TEST(Predict, PriorityIsCloseToTheBestAndFirstComeIsNot) {
  const double ideal = Ideal(Fat(Policy::kOurs));
  const double ours = StepOf(Fat(Policy::kOurs));
  const double fifo = StepOf(Fat(Policy::kFifo));
  EXPECT_GE(ours, ideal);
  EXPECT_LE(ours, 1.08 * ideal);
  EXPECT_GE(fifo, 1.1 * ours);
}

TEST(Predict, P3IsBetweenFirstComeAndOurs) {
  const double p3 = StepOf(Fat(Policy::kP3));
  EXPECT_GE(p3, StepOf(Fat(Policy::kOurs)));
  EXPECT_LE(p3, 1.02 * StepOf(Fat(Policy::kFifo)));
}

// The last layer's gradient is one message to each server, ready first, and all others wait for it.
TEST(Predict, DistSyncSendsWholeTensorsInTheOrderOfBackward) {
  const double stock = StepOf(Fat(Policy::kDistSync));
  EXPECT_GE(stock, StepOf(Fat(Policy::kFifo)));
  EXPECT_LE(stock, 0.453 + 1.2 * 2 * 55e6 / kGigabit);
}

// A tensor of a million floats is spread over all servers, a smaller one has one server.
TEST(Predict, DistSyncSpreadsLargeTensorsOnly) {
  Options options;
  options.policy = Policy::kDistSync;
  options.bytes_per_second = kGigabit;
  options.num_workers = options.num_servers = 4;
  options.layers = {{4 * kMega - 4, milliseconds(1), milliseconds(1)}};
  const double whole = StepOf(options);
  EXPECT_GE(whole, 4 * 4e6 / kGigabit);  // all workers' messages cross one server's link
  options.layers.front().size_bytes = 4 * kMega;
  EXPECT_LE(StepOf(options), 0.75 * whole);
}

// Each worker codes 55 MB and decodes as many, each of two servers adds 2 * 27.5 MB and codes half.
TEST(Predict, CodingIsTheLimitWhereItTakesLongerThanTheLink) {
  Options options = Fat(Policy::kOurs);
  options.steps = 1;
  const double link_s = StepOf(options);
  options.coding = {.encode_ns = 20, .decode_ns = 10};
  EXPECT_NEAR(StepOf(options), 55e6 * 30e-9, 0.15);
  options.coding = {.add_ns = 20, .encode_sum_ns = 40};
  EXPECT_NEAR(StepOf(options), 27.5e6 * (2 * 20e-9 + 40e-9), 0.15 * 2.2);
  options.coding = {.encode_ns = 2, .add_ns = 1, .encode_sum_ns = 2, .decode_ns = 1};
  EXPECT_NEAR(StepOf(options), link_s, 0.05 * link_s);
}

TEST(Predict, FewWorkersThatStandForAllLoadTheCodersOfServersAsAllDo) {
  Options options;
  options.layers = {{8 * kMega, milliseconds(1), milliseconds(1)}};
  options.bytes_per_second = 100e9;
  options.num_workers = 16;
  options.num_servers = 1;
  options.coding = {.add_ns = 10, .encode_sum_ns = 10};
  options.most_workers = 16;
  const double all_s = StepOf(options);
  // Its thread also takes 0.3 ns a byte, each way.
  EXPECT_NEAR(all_s, 8e6 * (17 * 10e-9 + 16 * 2 * 0.3e-9), 0.05);
  options.most_workers = 4;
  EXPECT_NEAR(StepOf(options), all_s, 0.05 * all_s);
}

TEST(Predict, TheSameOptionsGiveTheSame) {
  EXPECT_EQ(StepOf(Fat(Policy::kOurs)), StepOf(Fat(Policy::kOurs)));
}

TEST(Predict, ALayerOfNoBytesAndNoTimeIsALayer) {
  Options options = Fat(Policy::kOurs);
  options.layers.push_back({});
  EXPECT_GT(StepOf(options), 0.4);
}

TEST(Predict, AnImpossibleJobIsRefusedWithTheReason) {
  const auto refused = [](auto change) {
    Options options = Fat(Policy::kOurs);
    change(&options);
    const Result<Prediction> found = Predict(options);
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
    return found.status().message();
  };
  EXPECT_EQ(refused([](Options* o) { o->layers.clear(); }), "a model without layers");
  EXPECT_SNAPSHOT(refused([](Options* o) { o->num_servers = 0; }),
                  "want at least one worker and one server");
  EXPECT_EQ(refused([](Options* o) { o->bytes_per_second = 0; }), "want a rate of the links");
  EXPECT_SNAPSHOT(refused([](Options* o) { o->worker_hosts = {0, 1}; }),
                  "want a host for each worker and each server, or none");
  EXPECT_EQ(refused([](Options* o) { o->host_rates[0] = 1e6; }), "rates of hosts without nodes");
  EXPECT_EQ(refused([](Options* o) { o->layers[0].forward = -milliseconds(1); }),
            "a layer that takes less than no time");
  EXPECT_EQ(refused([](Options* o) { o->layers[0].size_bytes = uint64_t{1} << 50U; }),
            "a model of more than 1048576 partitions of 131072 bytes");
}

}  // namespace
}  // namespace bs::predict
