// Predict: jobs of many nodes.  They take ten times as long under the sanitizers, and run code
// there that the small jobs run too.
#include <gtest/gtest.h>

#include <chrono>

#include "predict/models.h"

namespace bs::predict {
namespace {

using std::chrono::microseconds;

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

}  // namespace
}  // namespace bs::predict
