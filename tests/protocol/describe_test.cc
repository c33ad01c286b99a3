#include "protocol/describe.h"

#include <gtest/gtest.h>

#include "base/snapshot.h"
#include "codec/steps_codec.h"
#include "server/support.h"

namespace bs::protocol {
namespace {

TEST(DescribeTest, ArraysAreNamedByTypeAndSize) {
  EXPECT_EQ(DescribeArray(0, 4096), "float32 of 4096 bytes");
  EXPECT_EQ(DescribeArray(12, 2), "bfloat16 of 2 bytes");
  EXPECT_EQ(DescribeArray(99, 7), "dtype 99 of 7 bytes");
}

TEST(DescribeTest, RequestsAreNamedByOperationKeyAndSender) {
  server::Ask ask = server::Push(1, 12, {});
  ask.partition = 2;
  EXPECT_EQ(DescribeCall(server::MakeCall(ask)), "push key=7 round=12 partition=2 from worker 1");
  ask.op = ps::Op::kPull;
  EXPECT_EQ(DescribeCall(server::MakeCall(ask)), "pull key=7 round=12 partition=2 from worker 1");
  ask.mode = Mode::kAsynchronous;
  EXPECT_EQ(DescribeCall(server::MakeCall(ask)),
            "pull key=7 push_count=12 partition=2 from worker 1");
  ask.op = ps::Op::kDeclare;
  EXPECT_EQ(DescribeCall(server::MakeCall(ask)), "declare key=7 from worker 1");
  ask.op = ps::Op::kLookup;
  EXPECT_EQ(DescribeCall(server::MakeCall(ask)), "lookup key=7 from worker 1");
  ask.op = static_cast<ps::Op>(17);
  EXPECT_EQ(DescribeCall(server::MakeCall(ask)), "operation 17 from worker 1");
}

TEST(DescribeTest, OfManyWorkersTheFirstAreNamed) {
  EXPECT_EQ(DescribeWorkers({1}), "worker 1");
  EXPECT_EQ(DescribeWorkers({1, 3}), "workers 1, 3");
  EXPECT_EQ(DescribeWorkers({0, 1, 2, 3, 4, 5, 6, 7}), "workers 0, 1, 2, 3, 4, 5, 6, 7");
  EXPECT_EQ(DescribeWorkers({0, 1, 2, 3, 4, 5, 6, 7, 9, 11}),
            "workers 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(DescribeTest, BytesThatAreNoCodesAreRefused) {
  const codec::Table table({codec::testing::StepsCodec()});
  server::Ask ask = server::Push(1, 12, std::vector<std::byte>(3));
  ask.size_bytes = 3 * sizeof(float);
  ask.coding = codec::testing::StepsCoding(0.5);
  EXPECT_TRUE(CheckPayload(server::MakeCall(ask), table).ok());
  ask.payload[2] = std::byte{codec::testing::kNoCode};
  const Status wrong = CheckPayload(server::MakeCall(ask), table);
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(
      wrong.message(),
      "push key=7 round=12 partition=0 from worker 1: it is compressed to steps of 0.500000: "
      "a byte that is no code");
}

TEST(DescribeTest, AnArrayIsWholeElementsOfATypeWeKnow) {
  server::Ask ask = server::Pull(1, 0, 10);
  ask.dtype = DType::kFloat16;
  EXPECT_TRUE(CheckArray(server::MakeCall(ask), 10).ok());
  ask.dtype = DType::kFloat32;
  EXPECT_EQ(CheckArray(server::MakeCall(ask), 10).code(), StatusCode::kInvalidArgument);
  ask.dtype = static_cast<DType>(7);
  EXPECT_EQ(CheckArray(server::MakeCall(ask), 10).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace bs::protocol
