// Rounds whose gradients and sums travel coded: what is sent, and which answers are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/snapshot.h"
#include "codec/codec.h"
#include "codec/two_bit.h"
#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

const Coding kBf16{.codec = 3, .sums = SumsTravel::kSame};

std::vector<std::byte> BytesOf(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> CodesOf(const std::vector<float>& values) {
  std::vector<std::byte> codes(values.size() * 2);
  codec::Builtin().Get(kBf16).encode({}, {}, values.data(), nullptr, codes.data(), values.size());
  return codes;
}

// A worker alone, and a key that is declared for bf16.
class CodedWorker : public ::testing::Test {
 protected:
  CodedWorker() : bench_(OptionsOfBench()) {
    bench_.worker()->Broadcast(7, {.coding = kBf16}, value_, [](const Status&) {});
    bench_.Run();
    while (!bench_.sent.empty()) bench_.Answer(bench_.Next());
  }
  static PsWorkerOptions OptionsOfBench() {
    PsWorkerOptions options;
    options.partition_bytes = 64;
    options.credit_bytes = 1024;
    return options;
  }
  void PushPull(const Coding& coding = kBf16) {
    bench_.worker()->PushPull(
        7, {.coding = coding}, in_, out_, [](const Status&) {},
        [this](const Status& status) { outcome_ = status; });
    push_ = bench_.Next();
    pull_ = bench_.Next();
    bench_.Answer(std::move(push_));
  }
  // Answers the pull with `codes`, which are in `coding`.
  void AnswerPull(const std::vector<std::byte>& codes, const Coding& coding) {
    ps::Message answer = Bench::ResponseTo(pull_);
    test::ChangeResponse(&answer, [&](auto* body) { body->coding = coding; });
    answer.data.push_back(ps::Frame::Copy(codes));
    bench_.Tell(std::move(answer));
  }

  std::vector<std::byte> value_ = BytesOf({0, 0, 0});
  std::vector<std::byte> in_ = BytesOf({1, 2, 1.001F});
  std::vector<std::byte> out_ = BytesOf({9, 9, 9});
  Status outcome_ = Status::Internal("never called");
  Bench bench_;
  ps::Message push_;
  ps::Message pull_;
};

TEST_F(CodedWorker, APushHasTwoBytesAnElementAndTheSumIsDecoded) {
  bench_.worker()->PushPull(
      7, {.coding = kBf16}, in_, out_, [](const Status&) {},
      [this](const Status& status) { outcome_ = status; });
  push_ = bench_.Next();
  const auto about = test::RequestIn(push_);
  EXPECT_EQ(about.coding, kBf16) << "from the first round on";
  EXPECT_EQ(about.size_bytes, 12U);
  EXPECT_EQ(push_.data.at(0).size(), 6U);
  pull_ = bench_.Next();
  EXPECT_EQ(test::RequestIn(pull_).size_bytes, 12U);
  bench_.Answer(std::move(push_));
  AnswerPull(CodesOf({3, 4, 5}), {.codec = 3});
  EXPECT_TRUE(outcome_.ok()) << outcome_.ToString();
  EXPECT_EQ(out_, BytesOf({3, 4, 5}));
}

TEST_F(CodedWorker, ASumThatIsCutOffIsRefused) {
  PushPull();
  std::vector<std::byte> codes = CodesOf({3, 4, 5});
  codes.pop_back();
  AnswerPull(codes, {.codec = 3});
  EXPECT_SNAPSHOT(outcome_.message(),
                  "pull key=7 round=1 partition=0 to server 0: answered 5 bytes, want 6");
  EXPECT_EQ(out_, BytesOf({9, 9, 9}));
}

TEST_F(CodedWorker, ASumInAnotherCodingIsRefused) {
  PushPull();
  AnswerPull(CodesOf({3, 4, 5}), {.codec = 2});
  EXPECT_SNAPSHOT(outcome_.message(),
                  "pull key=7 round=1 partition=0 to server 0: answered a sum in another coding");
}

TEST_F(CodedWorker, ASumOfCodesThatLieIsRefused) {
  constexpr std::string_view kName = "topk";
  const codec::Option options[] = {{"k", "2/3"}};
  const Coding topk = codec::Builtin().Parse(&kName, options).value();
  PushPull(topk);
  const float values[] = {4, 5, 6};
  std::vector<std::byte> codes(codec::Builtin().SentBytes(topk, sizeof(values)));
  codec::Builtin().Get(topk).encode(topk.parameters, {}, values, nullptr, codes.data(), 3);
  codes.at(sizeof(uint16_t)) = std::byte{3};  // the first index is right
  AnswerPull(codes, codec::Builtin().OfSums(topk));
  EXPECT_SNAPSHOT(outcome_.message(),
                  "pull key=7 round=1 partition=0 to server 0: answered index 3 of a unit of 3 "
                  "elements");
  EXPECT_EQ(out_, BytesOf({9, 9, 9}));
}

TEST(CodedCredit, AnEighthOfTheGradientCountsAtLeast) {
  constexpr size_t kUnit = 65536;
  constexpr std::string_view kName = "onebit";
  const Result<Coding> onebit = codec::Builtin().Parse(&kName, {});
  PsWorkerOptions options;
  options.credit_bytes = 2 * kUnit * sizeof(float) / 8;  // two partitions
  std::vector<std::byte> memory(32 * kUnit * sizeof(float));
  std::vector<std::byte> sums(memory.size());
  Bench bench(options);
  bench.worker()->Broadcast(7, {.coding = onebit.value()}, memory, [](const Status&) {});
  for (bench.Run(); !bench.sent.empty(); bench.Run()) bench.Answer(bench.Next());
  bench.worker()->PushPull(
      7, {.coding = onebit.value()}, memory, sums, [](const Status&) {}, [](const Status&) {});
  bench.Run();
  const auto pushes = std::ranges::count_if(
      bench.sent, [](const ps::Message& message) { return !message.data.empty(); });
  EXPECT_EQ(pushes, 2) << "codes have a 32nd of the bytes";
}

// A worker alone with an asynchronous key of so many elements.
class AsynchronousKey {
 public:
  AsynchronousKey(size_t count, const Coding& declared, uint64_t partition_bytes = 1 << 20,
                  uint64_t incarnation = 0)
      : value_(count * sizeof(float)), bench_(OptionsWith(partition_bytes, incarnation)) {
    bench_.worker()->Broadcast(7, {.mode = Mode::kAsynchronous, .coding = declared}, value_,
                               [](const Status&) {});
    bench_.Run();
    while (!bench_.sent.empty()) {
      ps::Message request = bench_.Next();
      const bool pulls = request.meta.extension.op == ps::Op::kPull;
      const size_t size = pulls ? test::RequestIn(request).size_bytes : 0;
      bench_.Answer(std::move(request), std::vector<std::byte>(size));
    }
  }
  // Pushes a gradient in a coding, and takes the push; how that ends.
  Status Push(const Coding& coding, const std::vector<float>& gradient = {},
              const PushRates& rates = {}) {
    if (!gradient.empty()) value_ = BytesOf(gradient);
    Status outcome = Status::Internal("never called");
    Worker::UpdateCall call{.coding = coding, .rates = rates, .in = value_};
    call.pushed = [&outcome](const Status& status) { outcome = status; };
    bench_.worker()->Update(7, std::move(call));
    bench_.Run();
    pushes.clear();
    while (!bench_.sent.empty()) {
      ps::Message push = bench_.Next();
      const std::span<const std::byte> codes = push.data.at(0).bytes();
      pushes.push_back({test::RequestIn(push), {codes.begin(), codes.end()}});
      bench_.Answer(std::move(push));
    }
    return outcome;
  }
  struct Sent {
    protocol::DataRequest about;
    std::vector<std::byte> codes;
  };
  std::vector<Sent> pushes;  // of the latest call
  const std::vector<std::string>& lines() const { return bench_.lines; }

 private:
  static PsWorkerOptions OptionsWith(uint64_t partition_bytes, uint64_t incarnation) {
    PsWorkerOptions options;
    options.partition_bytes = partition_bytes;
    options.SetView(job::MakeView({.incarnation = incarnation}, 1, 1));
    return options;
  }

  std::vector<std::byte> value_;
  Bench bench_;
};

Coding OnebitWith(Feedback feedback) {
  const std::byte scaled{1};
  return {.codec = 4,
          .parameters = CodecParameters(std::span(&scaled, 1)),
          .sums = SumsTravel::kSame,
          .feedback = feedback};
}

std::vector<float> ValuesOf(const AsynchronousKey::Sent& push) {
  const Coding& coding = push.about.coding;
  std::vector<float> values(push.about.size_bytes / sizeof(float));
  codec::Builtin().Get(coding).decode(coding.parameters, {}, push.codes.data(), values.data(),
                                      values.size());
  return values;
}

TEST(WorkerCoded, AnUpdateKeepsTheLossOfItsCodes) {
  const Coding coding = OnebitWith(Feedback::kVanilla);
  AsynchronousKey key(3, coding);
  const PushRates half{.learning_rate = 0.5, .weight_decay = 0, .rescale_grad = 0.5};
  ASSERT_TRUE(key.Push(coding, {3, -1, 2}, half).ok());
  EXPECT_EQ(ValuesOf(key.pushes.at(0)), (std::vector<float>{2, -2, 2}));
  // The residual is {1, 1, 0}: {4, 0, 2} is sent, and then it is {2, -2, 0}.
  ASSERT_TRUE(key.Push(coding, {3, -1, 2}, half).ok());
  EXPECT_EQ(ValuesOf(key.pushes.at(0)), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(key.pushes.at(0).about.learning_rate, 0.5);
  // Twice the residual, as rescale_grad is half of what it was, whatever the learning rate is.
  const PushRates less{.learning_rate = 0.1, .weight_decay = 0, .rescale_grad = 0.25};
  ASSERT_TRUE(key.Push(coding, {2, 1, 3}, less).ok());
  EXPECT_EQ(ValuesOf(key.pushes.at(0)), (std::vector<float>{4, -4, 4}));
}

TEST(WorkerCoded, AWorkerThatTakesALostPlaceBeginsWithEmptyResidualsAndSaysSo) {
  const Coding coding = OnebitWith(Feedback::kVanilla);
  {
    AsynchronousKey lost(3, coding);
    ASSERT_TRUE(lost.Push(coding, {3, -1, 2}).ok()) << "its residual is {1, 1, 0}";
    EXPECT_THAT(lost.lines(), ::testing::IsEmpty());
  }
  AsynchronousKey key(3, coding, 1 << 20, /*incarnation=*/1);
  EXPECT_THAT(key.lines(), ::testing::IsEmpty());
  // The first codes are those of the gradient alone; the residual behind them is the worker's own.
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(key.Push(coding, {3, -1, 2}).ok());
    EXPECT_EQ(ValuesOf(key.pushes.at(0)),
              (round == 0 ? std::vector<float>{2, -2, 2} : std::vector<float>{2, 2, 2}));
  }
  EXPECT_THAT(key.lines(), ::testing::ElementsAre(::testing::HasSubstr(
                               "worker 0 took the place of a lost worker, and with that worker "
                               "went its residuals of gradient compression: they begin empty")));
}

TEST(WorkerCoded, AnAsynchronousKeyIsCutIntoUnitsWhenItIsDeclared) {
  constexpr size_t kUnits = 3;
  const Coding coding = OnebitWith(Feedback::kNone);
  AsynchronousKey key(kUnits * 65536, coding, /*partition_bytes=*/64);
  ASSERT_TRUE(key.Push(coding).ok());
  ASSERT_EQ(key.pushes.size(), kUnits);
  for (const AsynchronousKey::Sent& push : key.pushes) {
    EXPECT_EQ(push.about.coding, coding);
    EXPECT_EQ(push.codes.size(), 4U + 65536 / 8);
  }
}

TEST(WorkerCoded, AnAsynchronousKeyThatWasCutOtherwiseIsRefused) {
  AsynchronousKey key(64, Coding{}, /*partition_bytes=*/64);
  const Status outcome = key.Push(OnebitWith(Feedback::kNone));
  EXPECT_EQ(outcome.code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(outcome.message(),
                  "push_pull key=7: partitions of 64 bytes cannot be compressed to onebit scaled, "
                  "only multiples of 262144 bytes");
  EXPECT_TRUE(key.pushes.empty());
}

TEST(WorkerCoded, AnAsynchronousKeyHasNoRatesAndSumsInCommon) {
  AsynchronousKey key(3, kBf16);
  Status outcome = key.Push(OnebitWith(Feedback::kCorrected));
  EXPECT_EQ(outcome.code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(outcome.message(),
                  "push_pull key=7: an asynchronous key cannot be compressed to onebit scaled, ef "
                  "corrected: its workers have no learning rate in common; use ef 'vanilla', or a "
                  "synchronous key");
  Coding halves = OnebitWith(Feedback::kVanilla);
  halves.sums = SumsTravel::kBf16;
  outcome = key.Push(halves);
  EXPECT_EQ(outcome.code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(outcome.message(),
                  "push_pull key=7: an asynchronous key cannot be compressed to onebit scaled, ef "
                  "vanilla, pull bf16: its weights travel plain; leave out pull, or use a "
                  "synchronous key");
  Coding two_bits = codec::TwoBitCoding(0.5F);
  two_bits.sums = SumsTravel::kSame;
  EXPECT_EQ(key.Push(two_bits).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(key.pushes.empty());
  EXPECT_TRUE(key.Push(codec::TwoBitCoding(0.5F)).ok());
}

TEST(WorkerCoded, AKeyThatIsThereTravelsPlainOnceAndNamesTheCoding) {
  std::vector<std::byte> value = BytesOf({1, 2, 3});
  std::vector<std::byte> out = value;
  Bench bench(PsWorkerOptions{});
  bench.Initialise(7, value);
  for (const bool later : {true, false}) {
    bench.worker()->PushPull(
        7, {.coding = kBf16}, value, out, [](const Status&) {}, [](const Status&) {});
    ps::Message push = bench.Next();
    Coding expected = kBf16;
    expected.later = later;
    EXPECT_EQ(test::RequestIn(push).coding, expected);
    EXPECT_EQ(push.data.at(0).size(), later ? 12U : 6U);
    bench.Answer(std::move(push));
    ps::Message pull = bench.Next();
    ps::Message answer = Bench::ResponseTo(pull);
    if (!later) test::ChangeResponse(&answer, [](auto* body) { body->coding = {.codec = 3}; });
    answer.data.push_back(ps::Frame::Copy(later ? value : CodesOf({1, 2, 3})));
    bench.Tell(std::move(answer));
    EXPECT_EQ(out, value);
  }
}

}  // namespace
}  // namespace bs::worker
