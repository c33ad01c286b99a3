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
  Directory directory_{job::ShareView({.role = job::Role::kServer}, 3, 1), kMaxPartitionBytes,
                       outbox_.sender()};
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

// The key is declared under `version` of its layouts.
protocol::Call DeclaredAfresh(uint32_t version) {
  protocol::Call call = Declaration();
  call.request.layout_version = version;
  return call;
}

class GivingBack : public DirectoryTest {
 protected:
  // Returns whether the directory says that the key is forgotten.
  bool GiveBack(int32_t rank, uint64_t turn, uint32_t version = 0) {
    directory_.GiveBack(MakeCall(
        {.op = ps::Op::kGiveBack, .rank = rank, .round = turn, .layout_version = version}));
    const ps::Message answer = outbox_.Next();
    EXPECT_EQ(CodeOf(answer), StatusCode::kOk) << TextOf(answer);
    return test::ResponseIn(answer).given_back;
  }
  void GiveBackAll(uint32_t version = 0) {
    EXPECT_FALSE(GiveBack(0, 1, version));
    EXPECT_FALSE(GiveBack(1, 1, version));
    EXPECT_TRUE(GiveBack(2, 1, version));
  }
};

TEST_F(GivingBack, AKeyIsForgottenWhenAllWorkersHaveGivenItBack) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  GiveBackAll();
  EXPECT_TRUE(GiveBack(2, 1)) << "a repeat";
  EXPECT_EQ(directory_.FindSynchronous(), 7U) << "its values are on no server";
}

TEST_F(GivingBack, AWorkerThatTakesAKeyAgainKeepsIt) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  EXPECT_FALSE(GiveBack(0, 1));
  EXPECT_FALSE(GiveBack(0, 2)) << "it takes the key again";
  EXPECT_FALSE(GiveBack(0, 1)) << "a late repeat";
  EXPECT_FALSE(GiveBack(1, 1));
  EXPECT_FALSE(GiveBack(2, 1));
  EXPECT_TRUE(GiveBack(0, 3));
}

TEST_F(GivingBack, AForgottenKeyIsDeclaredAfreshWithLaterLayouts) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  GiveBackAll();
  EXPECT_TRUE(GiveBack(1, 2)) << "it takes the key again, and has to look it up";
  Ask ask = LookupBy(1);
  ask.layout_version = 3;
  Lookup(ask);
  EXPECT_TRUE(outbox_.empty()) << "it waits for worker 0";
  directory_.Declare(DeclaredAfresh(3));
  EXPECT_EQ(OpOf(outbox_.Next()), ps::Op::kDeclare);
  EXPECT_EQ(test::ResponseIn(outbox_.Next()).layout_version, 3U);
  EXPECT_TRUE(GiveBack(0, 1)) << "a late repeat from before counts for nothing";
  GiveBackAll(3);
}

TEST_F(GivingBack, LateRepeatsFromBeforeAreRefused) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  GiveBackAll();
  const std::pair<StatusCode, std::string> again = Declare(Declaration());
  EXPECT_EQ(again.first, StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(again.second,
                  "declare key=7 from worker 0: all workers have given this key back");
  Lookup(LookupBy(1));
  EXPECT_SNAPSHOT(TextOf(outbox_.Next()),
                  "lookup key=7 from worker 1: all workers have given this key back");
  EXPECT_EQ(Declare(DeclaredAfresh(1)).first, StatusCode::kOk);
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kFailedPrecondition);
}

TEST_F(GivingBack, AKeyThatItsWorkerHasGivenBackIsNeitherDeclaredNorFound) {
  EXPECT_EQ(Declare(Declaration()).first, StatusCode::kOk);
  EXPECT_FALSE(GiveBack(0, 1));
  EXPECT_FALSE(GiveBack(1, 1));
  EXPECT_SNAPSHOT(Declare(Declaration()).second,
                  "key 7: worker 0 has given it back, and other workers have not; close it on "
                  "every worker, or take another name");
  Lookup(LookupBy(1));
  EXPECT_SNAPSHOT(TextOf(outbox_.Next()),
                  "lookup key=7 from worker 1: this worker has given the key back");
  Lookup(LookupBy(2));
  EXPECT_EQ(CodeOf(outbox_.Next()), StatusCode::kOk);
}

TEST_F(GivingBack, AnAsynchronousKeyStays) {
  protocol::Call declaration = Declaration();
  declaration.request.mode = static_cast<uint32_t>(Mode::kAsynchronous);
  EXPECT_EQ(Declare(declaration).first, StatusCode::kOk);
  directory_.GiveBack(MakeCall({.op = ps::Op::kGiveBack, .round = 1}));
  EXPECT_SNAPSHOT(TextOf(outbox_.Next()),
                  "give-back key=7 from worker 0: the values of an asynchronous key stay");
}

TEST_F(DirectoryTest, FailingRefusesPendingLookups) {
  Lookup(LookupBy(1));
  directory_.Fail(Status::Cancelled("over"));
  EXPECT_EQ(TextOf(outbox_.Next()), "over");
}

}  // namespace
}  // namespace bs::server
