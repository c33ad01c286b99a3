// One round of one tensor: who gives the credit back, and when each callback comes.
#include "worker/push_pull_task.h"

#include <gtest/gtest.h>

#include "bench.h"

namespace bs::worker {
namespace {

WorkerOptions TwoServers() {
  WorkerOptions options;
  options.num_servers = 2;
  options.partition_bytes = 64;
  options.credit_bytes = 64;
  return options;
}

TEST(PushPullTask, EachServerHasItsOwnCredit) {
  std::vector<std::byte> value = Bytes(256, 0);
  std::vector<std::byte> out = Bytes(256, 0);
  Bench bench(TwoServers());
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out);
  bench.Run();
  ASSERT_EQ(bench.sent.size(), 4U);
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 64U);
  EXPECT_EQ(bench.worker()->in_flight_bytes(1), 64U);
}

TEST(PushPullTask, EverySumLandsAtItsOffset) {
  std::vector<std::byte> value = Bytes(200, 0);
  std::vector<std::byte> out = Bytes(200, 0);
  Bench bench(TwoServers());
  bench.Initialise(7, value, DType::kUint8);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out);
  bench.Run();
  while (!bench.sent.empty()) {
    ps::Message request = bench.Next();
    const bool push = request.meta.extension.op == ps::Op::kPush;
    const auto part = static_cast<int>(request.meta.extension.part);
    const size_t size = push ? 0 : request.meta.extension.size_bytes;
    bench.Answer(std::move(request), Bytes(size, part + 1));
    bench.Run();
  }
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_TRUE(sum.pulled->ok());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::to_integer<size_t>(out[i]), i / 64 + 1);
}

// Decision 3 taken back, as the simulator does to show that it is one.
TEST(PushPullTask, CreditMayBeHeldUntilTheSumComesForATest) {
  std::vector<std::byte> value = Bytes(256, 0);
  std::vector<std::byte> out = Bytes(256, 0);
  WorkerOptions options = TwoServers();
  options.num_servers = 1;
  options.test_credit_until_pulled = true;
  Bench bench(options);
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out);
  bench.Answer(bench.Next());
  ps::Message pull = bench.Next();
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 64U);
  bench.Answer(std::move(pull), Bytes(64, 1));
  EXPECT_EQ(bench.Next().meta.extension.part, 1U);
}

TEST(PushPullTask, NothingNewIsStartedAfterAFailure) {
  std::vector<std::byte> value = Bytes(256, 0);
  std::vector<std::byte> out = Bytes(256, 0);
  for (const bool push_fails : {true, false}) {
    Bench bench(TwoServers());
    bench.Initialise(7, value);
    const Bench::Sum sum = bench.PushPull(7, 0, value, out);
    ps::Message push = bench.Next();
    ps::Message pull = bench.Next();
    bench.sent.clear();
    if (push_fails) std::swap(push, pull);
    bench.Refuse(std::move(pull), Status::Unavailable("lost worker 1"));
    push = {};
    EXPECT_TRUE(bench.Quiet());
    EXPECT_EQ(sum.pushed->text(), "lost worker 1");
    EXPECT_EQ(sum.pulled->text(), "lost worker 1");
  }
}

}  // namespace
}  // namespace bs::worker
