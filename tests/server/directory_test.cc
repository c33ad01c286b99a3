#include "server/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "server/support.h"

namespace bs::server {
namespace {

constexpr uint64_t kMaxPartitionBytes = 4096;

// A float32 tensor of 100 bytes in partitions of 40: three of them, on servers 0, 1 and 0.
protocol::Call Declaration(int32_t rank = 0) {
  Ask ask;
  ask.op = ps::Op::kDeclare;
  ask.rank = rank;
  ask.size_bytes = 100;
  ask.payload.resize(6);
  ask.payload[2] = std::byte{1};
  protocol::Call call = MakeCall(ask);
  call.request.partition_bytes = 40;
  return call;
}

Ask LookupBy(int32_t rank, uint64_t sequence = 1) {
  Ask ask;
  ask.op = ps::Op::kLookup;
  ask.rank = rank;
  ask.size_bytes = 100;
  ask.sequence = sequence;
  return ask;
}

class DirectoryTest : public testing::Test {
 protected:
  void Lookup(const Ask& ask) {
    protocol::Call call = MakeCall(ask);
    directory_.Lookup(call);
  }
  std::pair<StatusCode, std::string> Declare(const protocol::Call& call) {
    directory_.Declare(call);
    const ps::Message answer = outbox_.Next();
    return {CodeOf(answer), TextOf(answer)};
  }

  Outbox outbox_;
  Directory directory_{3, kMaxPartitionBytes, outbox_.sender()};
};

TEST_F(DirectoryTest, ALookupInAnotherModeIsRefused) {
  protocol::Call declaration = Declaration();
  declaration.request.mode = static_cast<uint32_t>(Mode::kAsynchronous);
  EXPECT_EQ(Declare(declaration).first, StatusCode::kOk);
  Lookup(LookupBy(1));
  const ps::Message refused = outbox_.Next();
  EXPECT_EQ(CodeOf(refused), StatusCode::kInvalidArgument);
  EXPECT_THAT(TextOf(refused), testing::HasSubstr("lookup key=7 from worker 1: worker 0 declared"));
  Ask ask = LookupBy(1, 2);
  ask.mode = Mode::kAsynchronous;
  Lookup(ask);
  EXPECT_EQ(CodeOf(outbox_.Next()), StatusCode::kOk);
}

TEST_F(DirectoryTest, ALookupGetsTheDeclaration) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  Ask ask = LookupBy(1);
  ask.priority = 4;
  Lookup(ask);
  const ps::Message answer = outbox_.Next();
  EXPECT_EQ(OpOf(answer), ps::Op::kLookup);
  EXPECT_EQ(CodeOf(answer), StatusCode::kOk);
  EXPECT_EQ(RankOf(answer), 1);
  EXPECT_TRUE(answer.keeps_memory);  // so it counts for who does not read it
  EXPECT_EQ(answer.meta.priority, 4);
  EXPECT_EQ(test::ResponseIn(answer).tensor_bytes, 100u);
  EXPECT_EQ(test::ResponseIn(answer).partition_bytes, 40u);
  EXPECT_EQ(test::ResponseIn(answer).dtype, 0u);
  EXPECT_EQ(ToBytes(answer.data.at(0)), ToBytes(Declaration().payload));
}

TEST_F(DirectoryTest, ALookupWaitsForTheDeclarationAndSaysSo) {
  Lookup(LookupBy(1, 5));
  Lookup(LookupBy(2, 9));
  EXPECT_TRUE(outbox_.empty());
  Lookup(LookupBy(1, 5));
  const ps::Message pending = outbox_.Next();
  EXPECT_EQ(OpOf(pending), ps::Op::kPending);
  EXPECT_EQ(TextOf(pending), "worker 0 to initialise key 7");
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  EXPECT_EQ(outbox_.Next().meta.extension.sequence, 5u);
  EXPECT_EQ(outbox_.Next().meta.extension.sequence, 9u);
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(DirectoryTest, TheSameDeclarationAgainIsFineAndAnotherOneIsNot) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  protocol::Call other = Declaration();
  other.request.dtype = static_cast<uint32_t>(DType::kFloat16);
  other.request.partition_bytes = 50;
  EXPECT_EQ(Declare(other),
            std::make_pair(StatusCode::kAlreadyExists,
                           std::string("key 7 is declared already as float32 of 100 bytes in "
                                       "partitions of 40, now as float16 of 100 bytes in "
                                       "partitions of 50 on the same servers")));
  protocol::Call moved = Declaration();
  const std::vector<std::byte> servers(6, std::byte{1});
  moved.payload = ps::Frame::Copy(std::span<const std::byte>(servers));
  EXPECT_THAT(Declare(moved).second, testing::EndsWith("on other servers"));
}

TEST_F(DirectoryTest, AWorkerWithAnotherTensorIsToldBothSides) {
  Ask pending = LookupBy(1);
  pending.size_bytes = 4096;
  Lookup(pending);
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  const ps::Message refusal = outbox_.Next();
  EXPECT_EQ(CodeOf(refusal), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(
      TextOf(refusal),
      "key 7: worker 1 has float32 of 4096 bytes, worker 0 declared float32 of 100 bytes");
  Ask half = LookupBy(2);
  half.dtype = DType::kFloat16;
  Lookup(half);
  EXPECT_SNAPSHOT(
      TextOf(outbox_.Next()),
      "key 7: worker 2 has float16 of 100 bytes, worker 0 declared float32 of 100 bytes");
}

TEST_F(DirectoryTest, OnlyRankZeroDeclares) {
  EXPECT_EQ(Declare(Declaration(1)).first, StatusCode::kPermissionDenied);
}

TEST_F(DirectoryTest, AnEmptyTensorHasOnePartition) {
  protocol::Call empty = Declaration();
  empty.request.tensor_bytes = 0;
  empty.payload = ps::Frame::Copy(std::string_view("\0\0", 2));
  EXPECT_EQ(Declare(empty).first, StatusCode::kOk);
}

TEST_F(DirectoryTest, DeclarationsThatMakeNoSenseAreRefused) {
  const auto refused = [&](const std::function<void(protocol::Call&)>& spoil) {
    protocol::Call call = Declaration();
    spoil(call);
    return Declare(call).first == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](protocol::Call& c) { c.request.dtype = 7; }));
  EXPECT_TRUE(refused([](protocol::Call& c) { c.request.tensor_bytes = 99; }));
  EXPECT_TRUE(refused([](protocol::Call& c) { c.request.partition_bytes = 0; }));
  EXPECT_TRUE(refused([](protocol::Call& c) { c.request.partition_bytes = 4; })) << "25 partitions";
  EXPECT_TRUE(refused([](protocol::Call& c) { c.payload = {}; }));
  EXPECT_TRUE(refused([](protocol::Call& c) { c.payload = ps::Frame::Copy("12345"); }));
  EXPECT_TRUE(refused([](protocol::Call& c) {
    c.request.tensor_bytes = c.request.partition_bytes = kMaxPartitionBytes + 4;
  }));
  EXPECT_TRUE(refused([](protocol::Call& c) {
    c.request.tensor_bytes = UINT64_MAX - 3;
    c.request.partition_bytes = 1;
  }));
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk) << "none of them has taken the key";
}

TEST_F(DirectoryTest, WithoutRankZeroUndeclaredKeysAreRefused) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  Ask other = LookupBy(1);
  other.key = 8;
  Lookup(other);
  directory_.OnWorkerGone(2, Status::Unavailable("worker 2 left"));
  EXPECT_TRUE(outbox_.empty());
  directory_.OnWorkerGone(0, Status::Unavailable("worker 0 left"));
  EXPECT_EQ(TextOf(outbox_.Next()), "worker 0 left");
  Lookup(other);
  EXPECT_EQ(TextOf(outbox_.Next()), "worker 0 left");
  Lookup(LookupBy(1));
  EXPECT_EQ(CodeOf(outbox_.Next()), StatusCode::kOk) << "what is declared stays";
}

TEST_F(DirectoryTest, ALookupOfAGoneWorkerIsForgotten) {
  Lookup(LookupBy(1));
  directory_.OnWorkerGone(1, Status::Unavailable("worker 1 left"));
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(DirectoryTest, FailingRefusesPendingLookups) {
  Lookup(LookupBy(1));
  directory_.Fail(Status::Cancelled("over"));
  EXPECT_EQ(TextOf(outbox_.Next()), "over");
}

}  // namespace
}  // namespace bs::server
