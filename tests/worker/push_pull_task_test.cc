// One round of one tensor: who gives the credit back, and when each callback comes.
#include "worker/push_pull_task.h"

#include <gtest/gtest.h>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

PsWorkerOptions TwoServers() {
  PsWorkerOptions options;
  options.SetView(job::MakeView({}, 1, 2));
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
    const auto part = static_cast<int>(test::RequestIn(request).partition);
    const size_t size = push ? 0 : test::RequestIn(request).size_bytes;
    bench.Answer(std::move(request), Bytes(size, part + 1));
    bench.Run();
  }
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_TRUE(sum.pulled->ok());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::to_integer<size_t>(out[i]), i / 64 + 1);
}

class CreditWithTheSum final : public protocol::Rules {
  bool credit_returns_with_the_push() const override { return false; }
};

// Decision 3 taken back, as the simulator does to show that it is one.
TEST(PushPullTask, CreditMayBeHeldUntilTheSumComesForATest) {
  std::vector<std::byte> value = Bytes(256, 0);
  std::vector<std::byte> out = Bytes(256, 0);
  PsWorkerOptions options = TwoServers();
  options.SetView(job::MakeView({}, 1, 1));
  const CreditWithTheSum rules;
  Bench bench(options, rules);
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out);
  bench.Answer(bench.Next());
  ps::Message pull = bench.Next();
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 64U);
  bench.Answer(std::move(pull), Bytes(64, 1));
  EXPECT_EQ(test::RequestIn(bench.Next()).partition, 1U);
}

// Loans of a network device, as a test gives them.
struct Loans {
  struct Loan {
    std::span<std::byte> memory;
    ps::Lending use;
    std::weak_ptr<void> handle;
  };
  std::vector<Loan> given{};

  PsWorkerOptions Options() {
    PsWorkerOptions options;
    options.partition_bytes = uint64_t{1} << 20U;
    options.lend = [this](std::span<std::byte> memory, ps::Lending use) {
      const auto handle = std::make_shared<int>(0);
      given.push_back({memory, use, handle});
      return handle;
    };
    return options;
  }
};

// Behind its callback the caller may give the memory away: the device must not know it any more.
TEST(PushPullTask, ItsMemoryIsLentUntilEachCallbackAndNotAMomentLonger) {
  std::vector<std::byte> value = Bytes(backend::PsBackend::kLeastLentBytes, 1);
  std::vector<std::byte> out = Bytes(value.size(), 0);
  Loans loans;
  Bench bench(loans.Options());
  bench.Initialise(7, value);
  loans.given.clear();
  int pushed = 0;
  int pulled = 0;
  bench.worker()->PushPull(
      7, {}, value, out,
      [&](const Status&) {
        ++pushed;
        EXPECT_TRUE(loans.given.at(0).handle.expired());
        EXPECT_FALSE(loans.given.at(1).handle.expired());
      },
      [&](const Status&) {
        ++pulled;
        EXPECT_TRUE(loans.given.at(1).handle.expired());
      });
  bench.Run();
  ASSERT_EQ(loans.given.size(), 2U);
  EXPECT_EQ(loans.given[0].use, ps::Lending::kSent);
  EXPECT_EQ(loans.given[0].memory.data(), value.data());
  EXPECT_EQ(loans.given[1].use, ps::Lending::kFilled);
  EXPECT_EQ(loans.given[1].memory.data(), out.data());
  ps::Message push = bench.Next();
  ps::Message pull = bench.Next();
  EXPECT_FALSE(loans.given[0].handle.expired());
  bench.Answer(std::move(push));
  bench.Run();
  bench.Answer(std::move(pull), out);
  bench.Run();
  EXPECT_EQ(pushed, 1);
  EXPECT_EQ(pulled, 1);
}

TEST(PushPullTask, ShortTensorsAreCopiedInsteadOfLent) {
  std::vector<std::byte> value = Bytes(backend::PsBackend::kLeastLentBytes - 4, 1);
  std::vector<std::byte> out = Bytes(value.size(), 0);
  Loans loans;
  Bench bench(loans.Options());
  bench.Initialise(7, value);
  bench.PushPull(7, 0, value, out);
  bench.Run();
  EXPECT_TRUE(loans.given.empty());
}

PsWorkerOptions Together(uint64_t bytes) {
  PsWorkerOptions options = TwoServers();
  options.SetView(job::MakeView({}, 1, 1));
  options.together_bytes = bytes;
  return options;
}

// A push-pull of `size_bytes` under way, in partitions of 64 bytes.
struct UnderWay {
  explicit UnderWay(size_t size_bytes) : value(Bytes(size_bytes, 3)), out(Bytes(size_bytes, 0)) {
    bench.Initialise(7, value);
    sum = bench.PushPull(7, -4, value, out);
  }
  std::vector<std::byte> value, out;
  Bench bench{Together(128)};
  Bench::Sum sum{};
};

TEST(PushPullTask, ASmallTensorIsOneRequestAPartitionAndCreditReturnsWhenItLeaves) {
  UnderWay under_way(128);
  Bench& bench = under_way.bench;
  const Bench::Sum& sum = under_way.sum;
  const std::vector<std::byte>& out = under_way.out;
  ps::Message first = bench.Next();
  EXPECT_EQ(first.meta.extension.op, ps::Op::kPushPull);
  EXPECT_GT(first.meta.priority, kEarlyPriority);
  EXPECT_EQ(first.data.at(0).size(), 64U);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 64U);
  first.data.clear();
  ps::Message second = bench.Next();
  EXPECT_EQ(test::RequestIn(second).partition, 1U);
  second.data.clear();
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 0U);
  bench.Answer(std::move(second), Bytes(64, 8));
  EXPECT_EQ(sum.pushed->calls + sum.pulled->calls, 0);
  bench.Answer(std::move(first), Bytes(64, 7));
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_TRUE(sum.pulled->ok());
  EXPECT_EQ(std::to_integer<int>(out[63]), 7);
  EXPECT_EQ(std::to_integer<int>(out[64]), 8);
}

// Their credit has to bound what a busy server has not read.
TEST(PushPullTask, SmallPartitionsOfALargeTensorGoApart) {
  UnderWay under_way(192);
  ps::Message push = under_way.bench.Next();
  EXPECT_EQ(push.meta.extension.op, ps::Op::kPush);
  EXPECT_EQ(push.data.at(0).size(), 64U);
  push.data.clear();
  EXPECT_EQ(under_way.bench.worker()->in_flight_bytes(0), 64U);
}

TEST(PushPullTask, LargerCodedAndEmptyTensorsGoApart) {
  for (const auto& [size, threshold] : {std::pair{68, 0.0F}, {64, 0.5F}, {0, 0.0F}}) {
    std::vector<std::byte> value = Bytes(static_cast<size_t>(size), 0);
    std::vector<std::byte> out = value;
    PsWorkerOptions options = Together(64);
    options.partition_bytes = 128;
    Bench bench(options);
    bench.Initialise(7, value);
    bench.PushPull(7, 0, value, out, threshold);
    EXPECT_EQ(bench.Next().meta.extension.op, ps::Op::kPush) << size << " " << threshold;
    EXPECT_EQ(bench.Next().meta.extension.op, ps::Op::kPull);
  }
}

TEST(PushPullTask, AFailedPushPullEndsBothDirections) {
  UnderWay under_way(128);
  Bench& bench = under_way.bench;
  const Bench::Sum& sum = under_way.sum;
  bench.Refuse(bench.Next(), Status::Unavailable("lost worker 1"));
  bench.sent.clear();
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(sum.pushed->text(), "lost worker 1");
  EXPECT_EQ(sum.pulled->text(), "lost worker 1");
  EXPECT_EQ(bench.failures.size(), 1U);
}

TEST(PushPullTask, APushPullIsNotAnsweredByAnotherSize) {
  UnderWay under_way(64);
  under_way.bench.Answer(under_way.bench.Next(), Bytes(60, 1));
  EXPECT_SNAPSHOT(under_way.sum.pulled->text(),
                  "pull key=7 round=1 partition=0 to server 0: answered 60 bytes, want 64");
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
