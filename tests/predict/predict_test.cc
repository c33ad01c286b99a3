// Predict: against closed forms where there are any, and in the order in which policies must come.
#include "predict/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/snapshot.h"

namespace bs::predict {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr double kGigabit = 119e6;  // payload of a link of 1 Gbit/s
constexpr uint64_t kMega = 1'000'000;

double SecondsOf(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// VGG-like: small layers that take long in front, a large one that takes no time behind.
Options Fat(Policy policy) {
  Options options;
  options.policy = policy;
  options.bytes_per_second = kGigabit;
  for (int i = 0; i < 10; ++i)
    options.layers.push_back({kMega, milliseconds(15), milliseconds(30)});
  options.layers.push_back({45 * kMega, milliseconds(1), milliseconds(2)});
  return options;
}

double StepOf(const Options& options) {
  const Result<Prediction> found = Predict(options);
  EXPECT_TRUE(found.ok()) << found.status().ToString();
  return found.ok() ? SecondsOf(found.value().step) : 0;
}

// The convolutions and the last layer of ResNet-50 (He et al. 2016, table 1), with times by their
// multiplications.
std::vector<Layer> ResNet50(double compute) {
  struct Weights {
    double parameters;
    double multiplications;
  };
  std::vector<Weights> weights = {{9408, 9408 * 112.0 * 112}};
  double inputs = 64;
  double size = 56;
  for (const auto& [width, blocks] : {std::pair(64, 3), {128, 4}, {256, 6}, {512, 3}}) {
    for (int block = 0; block < blocks; ++block) {
      const double own = block == 0 ? inputs * 4 * width : 0;  // the shortcut
      for (const double count : {inputs * width, 9.0 * width * width, 4.0 * width * width, own}) {
        if (count > 0) weights.push_back({count, count * size * size});
      }
      inputs = 4 * width;
    }
    size /= 2;
  }
  weights.push_back({2048 * 1000, 2048 * 1000});
  double sum = 0;
  for (const Weights& layer : weights) sum += layer.multiplications;
  std::vector<Layer> layers;
  for (const Weights& layer : weights) {
    const auto time = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(compute / sum) * layer.multiplications);
    layers.push_back({static_cast<uint64_t>(4 * layer.parameters), time / 3, time - time / 3});
  }
  return layers;
}

// The closed form of the best possible (docs/user/advise.md), where the busiest link carries `load`
// models.
double Ideal(const Options& options, double load = 1) {
  double best = 0;
  double crossed = 0;
  for (size_t k = 0; k < options.layers.size(); ++k) {
    crossed += static_cast<double>(options.layers[k].size_bytes);
    double rest = 0;
    double compute = 0;
    for (size_t j = 0; j < options.layers.size(); ++j) {
      const double takes = SecondsOf(options.layers[j].forward + options.layers[j].backward);
      compute += takes;
      if (j >= k) rest += takes;
    }
    best = std::max({best, compute, load * crossed / options.bytes_per_second + rest});
  }
  return best;
}

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

// A layer that becomes ready cuts off the one before; half of each does not wait for the next
// step's forward because of it (docs/design/scale.md).
TEST(Predict, EightWorkersAndServersAreAsCloseToTheBest) {
  Options options;
  options.bytes_per_second = kGigabit / 2;
  options.num_workers = options.num_servers = 8;
  options.partition_bytes = uint64_t{32} << 10U;
  options.credit_bytes = uint64_t{64} << 10U;
  for (int i = 0; i < 30; ++i) {
    options.layers.push_back({kMega, microseconds(5'600), microseconds(11'200)});
  }
  const double ideal = Ideal(options);
  EXPECT_LE(StepOf(options), 1.2 * ideal);
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

TEST(Predict, MoreServersThanTheWorkersNeedChangeNothingAndFewerDo) {
  Options options = Fat(Policy::kOurs);
  options.num_workers = 4;
  options.num_servers = 4;
  const double enough = StepOf(options);
  options.num_servers = 8;
  EXPECT_NEAR(StepOf(options), enough, 0.05 * enough);
  options.num_servers = 1;
  EXPECT_GE(StepOf(options), 4 * 55e6 / kGigabit);
}

TEST(Predict, FewSimulatedWorkersStandForMany) {
  Options options = Fat(Policy::kOurs);
  options.num_workers = options.num_servers = 16;
  options.most_workers = 16;
  const double all = StepOf(options);
  options.most_workers = 4;
  EXPECT_NEAR(StepOf(options), all, 0.1 * all);
}

// Four workers and four servers: two pairs together, the others on hosts of their own.
Options Mixed(double compute) {
  Options options;
  options.layers = ResNet50(compute);
  options.bytes_per_second = kGigabit / 2;
  options.num_workers = options.num_servers = 4;
  options.worker_hosts = {0, 1, 2, 3};
  options.server_hosts = {0, 1, 4, 5};
  options.steps = 2;
  return options;
}

TEST(Predict, AMixOfHostsIsCloseToTheBestWhereComputeHidesTheNetwork) {
  const Options mixed = Mixed(3.0);
  EXPECT_LE(StepOf(mixed), Ideal(mixed, 4.0 / 3) / 0.92);
}

// Without servers that advance together it is 0.8 of the best.
TEST(Predict, AMixOfHostsIsCloseToTheBestWhereLinksAreBusyToo) {
  const double link = 102e6 * 4 / 3 / (kGigabit / 2);
  Options mixed = Mixed(link);
  mixed.partition_bytes = 32 << 10;
  mixed.credit_bytes = 64 << 10;
  EXPECT_LE(StepOf(mixed), Ideal(mixed, 4.0 / 3) / 0.92);
}

TEST(Predict, TheSameOptionsGiveTheSame) {
  EXPECT_EQ(StepOf(Fat(Policy::kOurs)), StepOf(Fat(Policy::kOurs)));
}

TEST(Predict, ALayerOfNoBytesAndNoTimeIsALayer) {
  Options options = Fat(Policy::kOurs);
  options.layers.push_back({});
  EXPECT_GT(StepOf(options), 0.4);
}

TEST(Predict, WhatIsNoJobIsRefusedWithWhatIsWrong) {
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
