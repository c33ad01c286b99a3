// Keys that a worker gives back to the servers, and takes again.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

using test::About;

PsWorkerOptions OptionsOf(int32_t rank) {
  PsWorkerOptions options;
  options.SetView(job::MakeView({.rank = rank}, 2, 2));
  options.partition_bytes = 64;
  return options;
}

// A worker with a key of 128 bytes: two partitions, one on each server.
class GivingBack : public testing::Test {
 protected:
  explicit GivingBack(int32_t rank = 0) : bench_(OptionsOf(rank)) {}

  void GiveBack(bool for_good) {
    outcome_.reset();
    bench_.worker()->GiveBack(7, for_good, [this](Status status) { outcome_ = std::move(status); });
    EXPECT_FALSE(outcome_) << "inside the call";
    bench_.Run();
  }
  bool done() const { return outcome_ && outcome_->ok(); }
  // Says whether the servers have forgotten the key.
  void Answer(ps::Message request, bool forgotten) {
    ps::Message answer = Bench::ResponseTo(request);
    test::ChangeResponse(&answer, [&](auto* body) { body->given_back = forgotten; });
    request = {};
    bench_.Tell(std::move(answer));
  }
  void ExpectGiveBack(uint64_t turn, bool forgotten, uint32_t version = 0) {
    ps::Message request = bench_.Next();
    EXPECT_EQ(About(request).op, ps::Op::kGiveBack);
    EXPECT_EQ(About(request).turn, turn);
    EXPECT_EQ(About(request).layout_version, version);
    Answer(std::move(request), forgotten);
  }
  // Answers pushes and pulls; returns the pushes.
  std::vector<test::Asked> AnswerRound() {
    std::vector<test::Asked> pushes;
    bench_.Run();
    while (!bench_.sent.empty() && About(bench_.sent.front()).op != ps::Op::kGiveBack) {
      ps::Message request = bench_.Next();
      const test::Asked about = About(request);
      if (about.op == ps::Op::kPush) {
        pushes.push_back(about);
        bench_.Answer(std::move(request));
      } else {
        EXPECT_EQ(about.op, ps::Op::kPull);
        bench_.Answer(std::move(request), Bytes(about.size_bytes, 3));
      }
    }
    return pushes;
  }
  std::vector<test::Asked> Round() {
    const Bench::Sum sum = bench_.PushPull(7, 0, value_, out_);
    std::vector<test::Asked> pushes = AnswerRound();
    EXPECT_TRUE(sum.pushed->ok() && sum.pulled->ok()) << sum.pulled->text();
    return pushes;
  }

  std::vector<std::byte> value_ = Bytes(128, 1);
  std::vector<std::byte> out_ = Bytes(128, 0);
  Bench bench_;
  std::optional<Status> outcome_;
};

class SecondGivingBack : public GivingBack {
 protected:
  SecondGivingBack() : GivingBack(1) {
    bench_.Broadcast(7, DType::kFloat32, value_);
    bench_.AnswerLookup(bench_.Next(), 64, Bytes(4, 0));
    AnswerRound();
  }
};

TEST_F(GivingBack, GoesBehindTheRoundUnderWay) {
  bench_.Initialise(7, value_);
  const Bench::Sum sum = bench_.PushPull(7, 0, value_, out_);
  GiveBack(false);
  EXPECT_FALSE(done());
  AnswerRound();
  EXPECT_TRUE(sum.pulled->ok());
  ExpectGiveBack(1, false);
  EXPECT_TRUE(done());
}

TEST_F(GivingBack, TheLastWorkerReleasesThePartitionsOnEachServer) {
  bench_.Initialise(7, value_);
  Round();
  GiveBack(true);
  ExpectGiveBack(1, true);
  EXPECT_TRUE(done());
  for (int server = 0; server < 2; ++server) {
    ps::Message request = bench_.Next();
    EXPECT_EQ(About(request).op, ps::Op::kRelease);
    EXPECT_EQ(About(request).oldest_layout, 1U);
    EXPECT_EQ(About(request).num_partitions, 2U);
    EXPECT_TRUE(About(request).given_back);
    bench_.Answer(std::move(request));
  }
  EXPECT_TRUE(bench_.Quiet());
}

TEST_F(GivingBack, AKeyThatAnotherWorkerHasGoesOnAsItWas) {
  bench_.Initialise(7, value_);
  Round();
  GiveBack(false);
  ExpectGiveBack(1, false);
  EXPECT_TRUE(done());
  const Bench::Sum sum = bench_.PushPull(7, 0, value_, out_);
  ExpectGiveBack(2, false);
  const std::vector<test::Asked> pushes = AnswerRound();
  EXPECT_TRUE(sum.pulled->ok());
  ASSERT_EQ(pushes.size(), 2U);
  EXPECT_EQ(pushes[0].round, 2U);
  EXPECT_EQ(pushes[0].layout_version, 0U);
  GiveBack(false);
  ExpectGiveBack(3, false);
}

TEST_F(GivingBack, RankZeroDeclaresAForgottenKeyAfresh) {
  bench_.Initialise(7, value_);
  Round();
  GiveBack(false);
  ExpectGiveBack(1, false);
  const Bench::Sum sum = bench_.PushPull(7, 0, value_, out_);
  ExpectGiveBack(2, true);
  ps::Message declaration = bench_.Next();
  EXPECT_EQ(About(declaration).op, ps::Op::kDeclare);
  EXPECT_EQ(About(declaration).layout_version, 1U);
  EXPECT_EQ(About(declaration).tensor_bytes, 128U);
  bench_.Answer(std::move(declaration));
  const std::vector<test::Asked> pushes = AnswerRound();
  EXPECT_TRUE(sum.pulled->ok());
  ASSERT_EQ(pushes.size(), 2U);
  EXPECT_EQ(pushes[0].round, 2U) << "rounds go on";
  EXPECT_EQ(pushes[0].layout_version, 1U);
  GiveBack(false);
  ExpectGiveBack(1, false, 1);
}

TEST_F(SecondGivingBack, AnotherWorkerLooksAForgottenKeyUp) {
  Round();
  GiveBack(false);
  ExpectGiveBack(1, false);
  const Bench::Sum sum = bench_.PushPull(7, 0, value_, out_);
  ExpectGiveBack(2, true);
  ps::Message lookup = bench_.Next();
  EXPECT_EQ(About(lookup).op, ps::Op::kLookup);
  EXPECT_EQ(About(lookup).layout_version, 1U);
  ps::Message answer = Bench::ResponseTo(lookup);
  test::ChangeResponse(&answer, [&](auto* body) {
    body->tensor_bytes = 128;
    body->partition_bytes = 128;
    body->layout_version = 1;
  });
  answer.data.push_back(ps::Frame::Copy(Bytes(2, 0)));
  lookup = {};
  bench_.Tell(std::move(answer));
  const std::vector<test::Asked> pushes = AnswerRound();
  EXPECT_TRUE(sum.pulled->ok());
  ASSERT_EQ(pushes.size(), 1U) << "as rank 0 has cut it now";
  EXPECT_EQ(pushes[0].layout_version, 1U);
}

TEST_F(SecondGivingBack, ALookupOfAnotherLayoutFailsTheWorker) {
  GiveBack(false);
  ExpectGiveBack(1, false);
  const Bench::Sum sum = bench_.PushPull(7, 0, value_, out_);
  ExpectGiveBack(2, true);
  bench_.AnswerLookup(bench_.Next(), 64, Bytes(4, 0));
  bench_.sent.clear();
  EXPECT_SNAPSHOT(sum.pulled->text(),
                  "lookup key=7 to server 1: answered 128 bytes of dtype 0 in partitions of 64, "
                  "layout version 0");
}

TEST_F(GivingBack, AKeyGivenBackForGoodIsUnknownAfterwards) {
  bench_.Initialise(7, value_);
  GiveBack(true);
  ExpectGiveBack(1, false);
  const Bench::Sum sum = bench_.PushPull(7, 0, value_, out_);
  bench_.Run();
  EXPECT_SNAPSHOT(sum.pulled->text(), "push_pull key=7: the key was never broadcast");
  EXPECT_TRUE(bench_.failures.empty());
}

TEST_F(GivingBack, AServerThatDoesNotKnowItKeepsTheKey) {
  bench_.Initialise(7, value_);
  GiveBack(true);
  bench_.Refuse(bench_.Next(), Status::InvalidArgument("op=10 is no request"));
  EXPECT_TRUE(done());
  EXPECT_EQ(Round().size(), 2U);
}

TEST_F(GivingBack, AKeyThatIsNotDeclaredNeedsNoRequest) {
  GiveBack(true);
  EXPECT_TRUE(done());
  EXPECT_TRUE(bench_.Quiet());
}

TEST_F(GivingBack, AfterAFailureNothingIsAsked) {
  bench_.Initialise(7, value_);
  bench_.worker()->Fail(Status::Cancelled("over"));
  GiveBack(true);
  ASSERT_TRUE(outcome_);
  EXPECT_EQ(outcome_->message(), "over");
  EXPECT_TRUE(bench_.Quiet());
}

}  // namespace
}  // namespace bs::worker
