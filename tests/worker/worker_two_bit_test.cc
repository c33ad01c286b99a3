// Rounds in two bits an element: what is sent, what stays behind, what credit counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/snapshot.h"
#include "codec/two_bit.h"
#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

PsWorkerOptions OneWorker() {
  PsWorkerOptions options;
  options.partition_bytes = 64;
  options.credit_bytes = 1024;
  return options;
}

std::vector<std::byte> Floats(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<int> PayloadOf(const ps::Message& message) {
  std::vector<int> payload;
  if (message.data.empty()) return payload;
  for (const std::byte byte : message.data[0].bytes())
    payload.push_back(std::to_integer<int>(byte));
  return payload;
}

// Everything sent; pulls are answered with zeros.
void AnswerAll(Bench* bench) {
  bench->Run();
  while (!bench->sent.empty()) {
    ps::Message request = bench->Next();
    const bool push = request.meta.extension.op == ps::Op::kPush;
    const size_t size = push ? 0 : test::RequestIn(request).size_bytes;
    bench->Answer(std::move(request), Bytes(size, 0));
    bench->Run();
  }
}

TEST(WorkerTwoBit, PushesAreCodedInitialValuesAndSumsAreNot) {
  std::vector<std::byte> value = Floats(std::vector<float>(17, 2));
  std::vector<std::byte> out = Bytes(68, 0);
  Bench bench(OneWorker());
  bench.Broadcast(7, DType::kFloat32, value);
  bench.Answer(bench.Next());  // declare
  for (const size_t size : {64U, 4U}) {
    const ps::Message initial = bench.Next();
    EXPECT_TRUE(test::RequestIn(initial).coding.plain());
    EXPECT_EQ(initial.data.at(0).size(), size);
    bench.Tell(Bench::ResponseTo(initial));
  }
  const Bench::Sum sum = bench.PushPull(7, 0, value, out, 0.5F);
  const std::vector<std::vector<int>> words = {{0xff, 0xff, 0xff, 0xff}, {0xc0, 0, 0, 0}};
  for (uint32_t part = 0; part < 2; ++part) {
    ps::Message push = bench.Next();
    const test::Asked about = test::About(push);
    EXPECT_EQ(about.coding, codec::TwoBitCoding(0.5F));
    EXPECT_EQ(about.partition, part);
    EXPECT_EQ(about.offset_bytes, part * 64U);
    EXPECT_EQ(about.size_bytes, part == 0 ? 64U : 4U);
    EXPECT_EQ(PayloadOf(push), words[part]);
    bench.Answer(std::move(push));
    ps::Message pull = bench.Next();
    EXPECT_TRUE(test::RequestIn(pull).coding.plain());
    EXPECT_EQ(test::RequestIn(pull).size_bytes, about.size_bytes);
    bench.Answer(std::move(pull), Bytes(about.size_bytes, 5));
  }
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_TRUE(sum.pulled->ok());
  EXPECT_EQ(out, Bytes(68, 5));
}

TEST(WorkerTwoBit, AnUpdateOfAnAsynchronousKeyIsCodedToo) {
  std::vector<std::byte> value = Floats({0.75F, -0.25F});
  Bench bench(OneWorker());
  bench.worker()->Broadcast(7, DType::kFloat32, Mode::kAsynchronous, value, [](const Status&) {});
  AnswerAll(&bench);
  std::vector<std::vector<int>> words;
  for (int step = 0; step < 2; ++step) {
    bench.worker()->Update(7, {.coding = codec::TwoBitCoding(0.5F),
                               .rates = {0.25, {}, {}},
                               .in = value,
                               .pushed = [](const Status&) {}});
    ps::Message push = bench.Next();
    EXPECT_EQ(test::RequestIn(push).coding, codec::TwoBitCoding(0.5F));
    EXPECT_EQ(test::RequestIn(push).learning_rate, 0.25);
    words.push_back(PayloadOf(push));
    bench.Answer(std::move(push));
  }
  EXPECT_EQ(words, (std::vector<std::vector<int>>{{0b11000000, 0, 0, 0}, {0b11100000, 0, 0, 0}}));
}

TEST(WorkerTwoBit, EachKeyKeepsItsOwnResidual) {
  std::vector<std::byte> value = Floats({0.75F, -0.75F, 0.25F});
  std::vector<std::byte> out = Bytes(12, 0);
  Bench bench(OneWorker());
  bench.Initialise(7, value);
  bench.Initialise(8, value);
  const auto round = [&](Key key, float threshold) {
    bench.PushPull(key, 0, value, out, threshold);
    bench.Run();
    const std::vector<int> words = PayloadOf(bench.sent.at(0));
    AnswerAll(&bench);
    return words.at(0);
  };
  EXPECT_EQ(round(7, 0.5F), 0b11100000);  // residual 0.25, -0.25, 0.25
  EXPECT_EQ(round(7, 0.5F), 0b11101100);  // 0.5, -0.5, 0
  EXPECT_EQ(round(8, 0.5F), 0b11100000) << "another key, another residual";
  bench.PushPull(7, 0, value, out);
  bench.Run();
  EXPECT_EQ(PayloadOf(bench.sent.at(0)).size(), 12U) << "a round that is not coded";
  AnswerAll(&bench);
  EXPECT_EQ(round(7, 1.25F), 0b11100000) << "the residual stays, whatever the threshold: 1.25";
}

TEST(WorkerTwoBit, ARepeatSendsTheSameCodes) {
  std::vector<std::byte> value = Floats({0.4F, 0.6F});
  std::vector<std::byte> out = Bytes(8, 0);
  PsWorkerOptions options = OneWorker();
  options.requests.retry_interval = std::chrono::milliseconds(1);
  Bench bench(options);
  bench.Initialise(7, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out, 0.5F);
  const std::vector<int> words = PayloadOf(bench.Next());
  EXPECT_EQ(words, (std::vector<int>{0b00110000, 0, 0, 0}));
  bench.sent.clear();
  value = Bytes(8, 0x77);  // not even that may change them
  bench.RunFor(std::chrono::milliseconds(2));
  ps::Message repeat = bench.Next();
  EXPECT_EQ(repeat.meta.extension.op, ps::Op::kPush);
  EXPECT_EQ(PayloadOf(repeat), words);
  EXPECT_EQ(sum.pushed->calls, 0) << "the codes are in use";
  bench.Answer(std::move(repeat));
  EXPECT_TRUE(sum.pushed->ok());
}

TEST(WorkerTwoBit, CreditCountsAnEighthOfTheGradient) {
  std::vector<std::byte> value = Floats(std::vector<float>(1 + 16 * 5, 1));
  std::vector<std::byte> out = Bytes(value.size(), 0);
  PsWorkerOptions options = OneWorker();
  options.credit_bytes = 24;  // a partition of 64 bytes has 4 bytes of codes
  Bench bench(options);
  bench.Initialise(7, value);
  const Bench::Sum sum = bench.PushPull(7, 0, value, out, 1);
  bench.Run();
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 24U);
  EXPECT_EQ(bench.sent.size(), 6U) << "three pushes and their pulls";
  bench.Answer(bench.Next());
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 24U);
  AnswerAll(&bench);
  EXPECT_EQ(bench.worker()->in_flight_bytes(0), 0U);
  EXPECT_TRUE(sum.pushed->ok());
}

TEST(WorkerTwoBit, AnEmptyTensorTakesPart) {
  Bench bench(OneWorker());
  bench.Initialise(7, {});
  const Bench::Sum sum = bench.PushPull(7, 0, {}, {}, 0.5F);
  AnswerAll(&bench);
  EXPECT_TRUE(sum.pushed->ok());
  EXPECT_TRUE(sum.pulled->ok());
}

TEST(WorkerTwoBit, ATensorThatCannotBeCodedIsRefusedAndHarmsNothing) {
  std::vector<std::byte> value = Bytes(64, 0);
  std::vector<std::byte> out = Bytes(64, 0);
  Bench bench(OneWorker());
  bench.Initialise(7, value, DType::kFloat16);
  bench.Initialise(8, value);
  const Bench::Sum halves = bench.PushPull(7, 0, value, out, 0.5F);
  EXPECT_TRUE(bench.Quiet());
  EXPECT_EQ(halves.pulled->code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(
      halves.pushed->text(),
      "push_pull key=7: float16 cannot be compressed to two bits with threshold 0.5, only "
      "float32");
  for (const float threshold :
       {-0.5F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Bench::Sum wrong = bench.PushPull(8, 0, value, out, threshold);
    EXPECT_TRUE(bench.Quiet());
    EXPECT_THAT(wrong.pulled->text(), testing::HasSubstr("want a finite number greater than 0"));
  }
  bench.PushPull(8, 0, value, out, 0.5F);
  EXPECT_EQ(test::RequestIn(bench.Next()).round, 1U) << "they took no round";
  EXPECT_TRUE(bench.failures.empty());
}

}  // namespace
}  // namespace bs::worker
