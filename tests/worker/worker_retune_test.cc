// Tensors that are cut anew while the worker runs, and the credit that changes with them.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "codec/two_bit.h"
#include "protocol/bodies.h"
#include "protocol/next_layout.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

using test::About;

PsWorkerOptions Options(int32_t rank = 0) {
  PsWorkerOptions options;
  options.SetView(job::MakeView({.rank = rank}, 2, 2));
  options.partition_bytes = 64;
  options.credit_bytes = 1000;
  return options;
}

class Retuned : public testing::Test {
 protected:
  explicit Retuned(const PsWorkerOptions& options = Options()) : bench_(options) {}

  Status Retune(uint64_t partition_bytes, uint64_t credit_bytes) {
    std::optional<Status> outcome;
    bench_.worker()->Retune(partition_bytes, credit_bytes,
                            [&](Status status) { outcome = std::move(status); });
    EXPECT_FALSE(outcome) << "inside the call";
    bench_.Run();
    return outcome.value_or(Status::Internal("never called"));
  }
  // A round of the key, answered as servers do; returns its pushes.
  std::vector<test::Asked> Round(Key key, std::span<std::byte> value) {
    std::vector<std::byte> out(value.size());
    std::vector<test::Asked> pushes;
    std::map<uint32_t, std::string> next;
    const Bench::Sum sum = bench_.PushPull(key, 0, value, out);
    bench_.Run();
    while (!bench_.sent.empty()) {
      ps::Message request = bench_.Next();
      const test::Asked about = About(request);
      if (about.op == ps::Op::kRelease) {
        released_.push_back(about);
        bench_.Answer(std::move(request));
        continue;
      }
      if (about.op == ps::Op::kPush) {
        pushes.push_back(about);
        next[about.partition] = about.next_layout;
        bench_.Answer(std::move(request));
        continue;
      }
      ps::Message answer = Bench::ResponseTo(request);
      test::ChangeResponse(&answer, [&](auto* body) { body->next_layout = next[about.partition]; });
      if (about.size_bytes > 0) answer.data.push_back(ps::Frame::Copy(Bytes(about.size_bytes, 3)));
      request = {};
      bench_.Tell(std::move(answer));
    }
    EXPECT_TRUE(sum.pushed->ok() && sum.pulled->ok()) << sum.pulled->text();
    EXPECT_EQ(out, Bytes(value.size(), 3));
    return pushes;
  }

  void Declare(Key key, std::span<std::byte> value, const Coding& coding) {
    Status outcome = Status::Internal("never called");
    bench_.worker()->Broadcast(key, {.coding = coding}, value,
                               [&outcome](const Status& status) { outcome = status; });
    bench_.Run();
    while (!bench_.sent.empty()) bench_.Answer(bench_.Next());
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  }
  // A round of the key in `coding`, whose sum has codes of zeros; returns its pushes.
  std::vector<test::Asked> CodedRound(Key key, std::span<std::byte> value, const Coding& coding) {
    std::vector<std::byte> out(value.size());
    std::vector<test::Asked> pushes;
    std::map<uint32_t, std::string> next;
    Status outcome = Status::Internal("never called");
    bench_.worker()->PushPull(
        key, {.coding = coding}, value, out, [](const Status&) {},
        [&outcome](const Status& status) { outcome = status; });
    bench_.Run();
    while (!bench_.sent.empty()) {
      ps::Message request = bench_.Next();
      const test::Asked about = About(request);
      if (about.op == ps::Op::kPush) {
        pushes.push_back(about);
        next[about.partition] = about.next_layout;
        bench_.Answer(std::move(request));
        continue;
      }
      const Coding of_sum = codec::Builtin().OfSums(coding);
      ps::Message answer = Bench::ResponseTo(request);
      test::ChangeResponse(&answer, [&](auto* body) {
        body->coding = of_sum;
        body->next_layout = next[about.partition];
      });
      const uint64_t size = codec::Builtin().SentBytes(of_sum, about.size_bytes);
      answer.data.push_back(ps::Frame::Copy(Bytes(size, 0)));
      request = {};
      bench_.Tell(std::move(answer));
    }
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
    return pushes;
  }

  Bench bench_;
  std::vector<test::Asked> released_;
};

TEST_F(Retuned, ATensorIsCutAnewBehindTheRoundThatSaysSo) {
  std::vector<std::byte> value = Bytes(200, 1);
  bench_.Initialise(7, value);
  EXPECT_EQ(Round(7, value).size(), 4U);
  EXPECT_TRUE(Retune(100, 500).ok()) << "rounded down to 64: nothing but the credit changes";
  EXPECT_FALSE(Round(7, value)[0].next_layout.empty());
  EXPECT_EQ(Round(7, value).size(), 4U);
  EXPECT_TRUE(Retune(128, 500).ok());
  const std::vector<test::Asked> says = Round(7, value);
  EXPECT_EQ(says.size(), 4U);
  EXPECT_FALSE(says[0].next_layout.empty());
  for (size_t i = 1; i < says.size(); ++i) EXPECT_TRUE(says[i].next_layout.empty());
  EXPECT_TRUE(released_.empty());
  const std::vector<test::Asked> cut = Round(7, value);
  ASSERT_EQ(cut.size(), 2U);
  EXPECT_EQ(cut[0].size_bytes, 128U);
  EXPECT_EQ(cut[1].size_bytes, 72U);
  EXPECT_EQ(cut[1].offset_bytes, 128U);
  for (const test::Asked& push : cut) {
    EXPECT_EQ(push.layout_version, 1U);
    EXPECT_EQ(push.round, 5U);
    EXPECT_TRUE(push.next_layout.empty());
  }
  ASSERT_EQ(released_.size(), 2U) << "each server that had some of it";
  for (const test::Asked& release : released_) {
    EXPECT_EQ(release.key, 7U);
    EXPECT_EQ(release.oldest_layout, 1U);
    EXPECT_EQ(release.num_partitions, 4U);
  }
  EXPECT_EQ(Round(7, value).size(), 2U);
  EXPECT_EQ(released_.size(), 2U);
}

TEST_F(Retuned, AResidualOfServersKeepsThePartitions) {
  std::vector<std::byte> value = Bytes(256, 0);
  Coding coding = codec::TwoBitCoding(0.5F);
  coding.sums = SumsTravel::kSame;
  bench_.Initialise(7, value);
  EXPECT_EQ(CodedRound(7, value, coding).size(), 4U);
  EXPECT_TRUE(Retune(128, 500).ok());
  for (int round = 0; round < 3; ++round) {
    const std::vector<test::Asked> pushes = CodedRound(7, value, coding);
    ASSERT_EQ(pushes.size(), 4U);
    EXPECT_EQ(pushes[0].layout_version, 0U);
  }
  EXPECT_EQ(CodedRound(7, value, codec::TwoBitCoding(0.5F)).size(), 4U) << "it is still there";
  EXPECT_TRUE(released_.empty());
}

TEST_F(Retuned, AKeyThatIsCodedInWholeUnitsKeepsItsPartitionsAndTheCreditFollows) {
  constexpr uint64_t kUnitBytes = 65536 * sizeof(float);
  constexpr uint64_t kCreditOfUnit = kUnitBytes / 8;
  constexpr std::string_view kOnebit = "onebit";
  const codec::Option options[] = {{"scaling", "True"}};
  const Coding coding = codec::Builtin().Parse(&kOnebit, options).value();
  std::vector<std::byte> value = Bytes(6 * kUnitBytes, 0);
  std::vector<std::byte> out = value;
  const auto in_flight_bytes = [&] {
    bench_.worker()->PushPull(
        7, {.coding = coding}, value, out, [](const Status&) {}, [](const Status&) {});
    bench_.Run();
    const std::vector<uint64_t> in_flight = {bench_.worker()->in_flight_bytes(0),
                                             bench_.worker()->in_flight_bytes(1)};
    return in_flight;
  };
  Declare(7, value, coding);
  EXPECT_TRUE(Retune(2 * kUnitBytes, 2 * kCreditOfUnit).ok());
  for (int round = 0; round < 2; ++round) {
    const std::vector<test::Asked> pushes = CodedRound(7, value, coding);
    ASSERT_EQ(pushes.size(), 6U);
    EXPECT_EQ(pushes[0].layout_version, 0U);
    EXPECT_EQ(pushes[0].next_layout.empty(), round > 0) << "it announces the credit";
  }
  EXPECT_TRUE(released_.empty());
  Declare(8, value, coding);
  EXPECT_EQ(CodedRound(8, value, coding).size(), 3U) << "a key that is declared later";
  EXPECT_EQ(in_flight_bytes(), std::vector<uint64_t>(2, 2 * kCreditOfUnit)) << "two units of three";
}

TEST_F(Retuned, TheSameDecisionAgainSaysNothing) {
  std::vector<std::byte> value = Bytes(200, 1);
  bench_.Initialise(7, value);
  EXPECT_TRUE(Retune(64, 1000).ok());
  EXPECT_FALSE(Round(7, value)[0].next_layout.empty()) << "others may have another credit";
  EXPECT_TRUE(Retune(64, 1000).ok());
  EXPECT_TRUE(Round(7, value)[0].next_layout.empty());
}

TEST_F(Retuned, AKeyThatIsDeclaredLaterIsCutSoAtOnce) {
  std::vector<std::byte> value = Bytes(200, 1);
  EXPECT_TRUE(Retune(128, 1000).ok());
  bench_.Initialise(7, value);
  EXPECT_EQ(Round(7, value).size(), 2U);
}

TEST_F(Retuned, TheCreditChangesBehindTheFirstRound) {
  std::vector<std::byte> value = Bytes(64, 1);
  std::vector<std::byte> large = Bytes(640, 1);
  bench_.Initialise(7, value);
  bench_.Initialise(8, large);
  EXPECT_TRUE(Retune(64, 64).ok());
  std::vector<std::byte> out = Bytes(640, 0);
  const Bench::Sum before = bench_.PushPull(8, 0, large, out);
  bench_.Run();
  EXPECT_EQ(bench_.worker()->in_flight_bytes(0) + bench_.worker()->in_flight_bytes(1), 640U);
  while (!bench_.sent.empty()) {
    ps::Message request = bench_.Next();
    const std::string next = About(request).partition == 0
                                 ? protocol::Encode({.decision = 1, .credit_bytes = 64})
                                 : std::string();
    ps::Message answer = Bench::ResponseTo(request);
    if (About(request).op == ps::Op::kPull) {
      test::ChangeResponse(&answer, [&](auto* body) { body->next_layout = next; });
      answer.data.push_back(ps::Frame::Copy(Bytes(64, 0)));
    } else {
      EXPECT_EQ(About(request).next_layout, next);
    }
    request = {};
    bench_.Tell(std::move(answer));
  }
  EXPECT_TRUE(before.pulled->ok());
  bench_.PushPull(8, 0, large, out);
  bench_.Run();
  EXPECT_EQ(bench_.worker()->in_flight_bytes(0), 64U);
  EXPECT_EQ(bench_.worker()->in_flight_bytes(1), 64U);
}

TEST_F(Retuned, NonsenseConcernsOnlyTheCall) {
  EXPECT_EQ(Retune(63, 1000).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Retune(64, 0).code(), StatusCode::kInvalidArgument);
  std::vector<std::byte> value = Bytes(200, 1);
  bench_.Initialise(7, value);
  EXPECT_TRUE(Round(7, value)[0].next_layout.empty());
}

TEST_F(Retuned, ANextLayoutThatMakesNoSenseFailsTheWorker) {
  std::vector<std::byte> value = Bytes(64, 1);
  std::vector<std::byte> out = Bytes(64, 0);
  bench_.Initialise(7, value);
  bench_.PushPull(7, 0, value, out);
  bench_.Answer(bench_.Next());
  ps::Message pull = bench_.Next();
  ps::Message answer = Bench::ResponseTo(pull);
  test::ChangeResponse(&answer, [](auto* body) { body->next_layout = "nonsense"; });
  answer.data.push_back(ps::Frame::Copy(Bytes(64, 0)));
  pull = {};
  bench_.Tell(std::move(answer));
  ASSERT_EQ(bench_.failures.size(), 1U);
  EXPECT_EQ(bench_.failures[0].code(), StatusCode::kInternal);
  EXPECT_NE(bench_.failures[0].message().find("key=7"), std::string::npos);
}

class RetunedSecond : public Retuned {
 protected:
  RetunedSecond() : Retuned(Options(1)) {}
};

TEST_F(RetunedSecond, OnlyRankZeroDecides) {
  const Status status = Retune(128, 1000);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("worker 0 decides"), std::string::npos);
}

// Pieces that suit the link, which takes 128 KiB in a millisecond.
class Fitted : public testing::Test {
 protected:
  static constexpr uint64_t kKiB = 1024;

  explicit Fitted(bool fits = true, double shared = 0) : bench_(FittedOptions(fits, shared)) {}

  static PsWorkerOptions FittedOptions(bool fits, double shared) {
    PsWorkerOptions options = Options();
    options.partition_bytes = 128 * kKiB;
    options.credit_bytes = 512 * kKiB;
    options.measures_bandwidth = fits;
    options.shared_bytes = [shared] { return static_cast<uint64_t>(shared * 8192 * kKiB); };
    return options;
  }
  // Declares the key and pushes its first value; how large its partitions are.
  uint64_t Publish(Key key, std::span<std::byte> value,
                   Duration each = std::chrono::milliseconds(1), Mode mode = Mode::kSynchronous,
                   Duration declared = std::chrono::milliseconds(1)) {
    Outcome done;
    bench_.worker()->Broadcast(key, DType::kFloat32, mode, value,
                               [&](Status status) { done = {done.calls + 1, std::move(status)}; });
    uint64_t partition_bytes = 0;
    for (bench_.Run(); !bench_.sent.empty(); bench_.Run()) {
      ps::Message request = bench_.Next();
      const bool declares = About(request).op == ps::Op::kDeclare;
      if (declares) partition_bytes = About(request).partition_bytes;
      bench_.RunFor(declares ? declared : each);
      bench_.Answer(std::move(request));
    }
    EXPECT_TRUE(done.ok()) << done.text();
    return partition_bytes;
  }
  uint64_t PublishAsynchronous(Key key) {
    return Publish(key, value_, std::chrono::milliseconds(1), Mode::kAsynchronous);
  }
  // Returns the announcement in the next push of the key.
  std::string Says(Key key, std::span<std::byte> value, float threshold = 0) {
    bench_.PushPull(key, 0, value, std::span(out_).first(value.size()), threshold);
    return About(bench_.Next()).next_layout;
  }
  // The first push of an asynchronous key's next update.
  test::Asked Update(Key key) {
    const auto nothing = [](const Status&) {};
    bench_.worker()->Update(key, {.in = value_, .out = out_, .pushed = nothing, .pulled = nothing});
    return About(bench_.Next());
  }
  protocol::NextLayout SaysToAll(Key key, std::span<std::byte> value) {
    protocol::Tensor tensor;
    tensor.size_bytes = value.size();
    tensor.partition_bytes = 128 * kKiB;
    return protocol::DecodeNextLayout(Says(key, value), tensor, 2).value();
  }
  // Where each of two tensors takes 16 ms.
  uint64_t CreditOfAFastLink() {
    for (const Key key : {7U, 8U}) Publish(key, value_, std::chrono::microseconds(250));
    return SaysToAll(7, value_).credit_bytes;
  }
  double PartitionBytes() {
    Metrics metrics;
    bench_.worker()->Measure(&metrics);
    return metrics.numbers().at({"partition_bytes", Metrics::kWhole});
  }

  Bench bench_;
  std::vector<std::byte> value_ = Bytes(8192 * kKiB, 1);
  std::vector<std::byte> out_ = Bytes(8192 * kKiB, 0);
};

TEST_F(Fitted, ATensorIsCutAsSuitsTheLinkOnceThatIsKnown) {
  EXPECT_EQ(Publish(7, value_), 128 * kKiB);
  EXPECT_EQ(PartitionBytes(), 128 * kKiB);
  const protocol::NextLayout next = SaysToAll(7, value_);
  EXPECT_EQ(next.partition_bytes, 64 * kKiB);
  EXPECT_EQ(next.credit_bytes, 128 * kKiB);
  EXPECT_EQ(PartitionBytes(), 64 * kKiB);
}

TEST_F(Fitted, AKeyThatIsDeclaredLaterFitsToo) {
  Publish(7, value_);
  SaysToAll(7, value_);
  bench_.sent.clear();
  bench_.Broadcast(8, DType::kFloat32, value_);
  EXPECT_EQ(About(bench_.Next()).partition_bytes, 64 * kKiB);
}

TEST_F(Fitted, ACompressedKeyStaysAsItIs) {
  Publish(7, value_);
  EXPECT_EQ(Says(7, value_, 0.5), "");
  EXPECT_EQ(PartitionBytes(), 128 * kKiB);
}

TEST_F(Fitted, AnAsynchronousKeyDecidesNothing) {
  EXPECT_EQ(PublishAsynchronous(7), 128 * kKiB);
  EXPECT_EQ(Update(7).next_layout, "");
  EXPECT_EQ(PartitionBytes(), 128 * kKiB);
}

TEST_F(Fitted, AnAsynchronousKeyStaysAsItIsWhenAnotherDecides) {
  PublishAsynchronous(7);
  const std::span<std::byte> one = std::span(value_).first(128 * kKiB);
  Publish(8, one);
  EXPECT_EQ(SaysToAll(8, one).partition_bytes, 64 * kKiB);
  bench_.sent.clear();
  const test::Asked push = Update(7);
  EXPECT_EQ(push.op, ps::Op::kPush);
  EXPECT_EQ(push.size_bytes, 128 * kKiB);
  EXPECT_EQ(push.next_layout, "");
}

// More than enough bytes, six pieces at a time.
TEST_F(Fitted, SmallTensorsTellNothingOfTheLink) {
  const std::span<std::byte> little = std::span(value_).first(768 * kKiB);
  for (Key key = 7; key < 27; ++key) EXPECT_EQ(Publish(key, little), 128 * kKiB);
  EXPECT_EQ(Says(7, little), "");
  EXPECT_EQ(PartitionBytes(), 128 * kKiB);
}

TEST_F(Fitted, ACallOfRetuneDecides) {
  Publish(7, value_);
  bench_.worker()->Retune(256 * kKiB, 300 * kKiB, [](const Status&) {});
  bench_.Run();
  EXPECT_EQ(Publish(8, value_), 256 * kKiB);
  EXPECT_EQ(SaysToAll(7, value_).partition_bytes, 256 * kKiB);
  EXPECT_EQ(PartitionBytes(), 256 * kKiB);
}

TEST_F(Fitted, SmallTensorsTellOfALinkThatNeedsFarLongerThanADeclaration) {
  const auto small = std::span(value_).first(384 * kKiB);  // three pieces
  const Duration each = std::chrono::milliseconds(10);
  const Duration declared = std::chrono::microseconds(300);
  for (Key key = 1; key <= 12; ++key) {
    EXPECT_EQ(Publish(key, small, each, Mode::kSynchronous, declared), 128 * kKiB);
  }
  EXPECT_NE(Says(1, small), "");
  EXPECT_EQ(PartitionBytes(), 32 * kKiB);
}

class FittedToSomeMemory : public Fitted {
 protected:
  FittedToSomeMemory() : Fitted(true, 0.8) {}
};

TEST_F(FittedToSomeMemory, NoMoreIsInFlightWhereLittleIsShared) {
  EXPECT_EQ(CreditOfAFastLink(), 512 * kKiB) << "0.8 of one of the two";
}

class FittedToAllMemory : public Fitted {
 protected:
  FittedToAllMemory() : Fitted(true, 2) {}
};

TEST_F(FittedToAllMemory, MoreIsInFlightWhereMostIsShared) {
  EXPECT_EQ(CreditOfAFastLink(), 1024 * kKiB);
}

class FittedByHand : public Fitted {
 protected:
  FittedByHand() : Fitted(false) {}
};

TEST_F(FittedByHand, ASetPartitionSizeStays) {
  for (const Key key : {7U, 8U, 9U}) EXPECT_EQ(Publish(key, value_), 128 * kKiB);
  EXPECT_EQ(Says(7, value_), "");
  EXPECT_EQ(PartitionBytes(), 128 * kKiB);
}

}  // namespace
}  // namespace bs::worker
