// Rounds whose gradients and sums travel coded: what is sent, and which answers are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/snapshot.h"
#include "codec/codec.h"
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
  void PushPull() {
    bench_.worker()->PushPull(
        7, {.coding = kBf16}, in_, out_, [](const Status&) {},
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

TEST(WorkerCoded, AnAsynchronousKeyIsNotCutIntoUnits) {
  std::vector<std::byte> value = BytesOf({1, 2, 3});
  Bench bench(PsWorkerOptions{});
  bench.worker()->Broadcast(7, {.mode = Mode::kAsynchronous}, value, [](const Status&) {});
  bench.Run();
  while (!bench.sent.empty()) bench.Answer(bench.Next());
  Status outcome;
  Worker::UpdateCall push{.coding = kBf16, .in = value};
  push.pushed = [&outcome](const Status& status) { outcome = status; };
  bench.worker()->Update(7, std::move(push));
  bench.Run();
  EXPECT_EQ(outcome.code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(outcome.message(),
                  "push_pull key=7: an asynchronous key cannot be compressed to bf16, which cuts "
                  "keys into units; use two bits, or a synchronous key");
  EXPECT_TRUE(bench.sent.empty());
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
