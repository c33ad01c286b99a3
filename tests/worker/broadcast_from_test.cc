// A broadcast from any root: what each worker sends, and where what it gets is written.
#include "worker/broadcast_from.h"

#include <gtest/gtest.h>

#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::worker {
namespace {

using test::About;

PsWorkerOptions OfRank(int32_t rank) {
  PsWorkerOptions options;
  options.SetView(job::MakeView({.rank = rank}, 2, 1));
  return options;
}

class BroadcastFromTest : public ::testing::Test {
 protected:
  void Call(Bench* bench, int32_t root, std::span<std::byte> value) {
    outcome_ = {};
    bench->worker()->BroadcastFrom(7, root, value, [this](Status status) {
      outcome_ = {outcome_.calls + 1, std::move(status)};
    });
  }
  // Answers the pushes and pulls of a round with `sum`; returns what was pushed.
  static std::vector<std::byte> Round(Bench* bench, const std::vector<std::byte>& sum) {
    ps::Message push = bench->Next();
    const auto bytes = push.data.at(0).bytes();
    std::vector<std::byte> pushed(bytes.begin(), bytes.end());
    if (About(push).op == ps::Op::kPushPull) {
      bench->Answer(std::move(push), sum);
      return pushed;
    }
    bench->Answer(std::move(push));
    bench->Answer(bench->Next(), sum);
    return pushed;
  }
  // Answers the declaration or the look-up, and the first value's round.
  static void Declare(Bench* bench, int32_t rank, const std::vector<std::byte>& first) {
    ps::Message request = bench->Next();
    EXPECT_EQ(About(request).dtype, static_cast<uint32_t>(DType::kUint8));
    if (rank == 0) {
      bench->Answer(std::move(request));
      bench->Answer(bench->Next());
    } else {
      bench->AnswerLookup(std::move(request), 1024, Bytes(2, 0));
      bench->Answer(bench->Next(), first);
    }
  }

  Outcome outcome_;
};

TEST_F(BroadcastFromTest, TheFirstOfRankZeroIsADeclarationAndTheNextARound) {
  std::vector<std::byte> value = Bytes(100, 5);
  Bench bench(OfRank(0));
  Call(&bench, 0, value);
  Declare(&bench, 0, {});
  EXPECT_TRUE(outcome_.ok()) << outcome_.text();
  EXPECT_TRUE(bench.Quiet());
  Call(&bench, 0, value);
  EXPECT_EQ(Round(&bench, Bytes(100, 9)), Bytes(100, 5));
  EXPECT_TRUE(outcome_.ok()) << outcome_.text();
  EXPECT_EQ(value, Bytes(100, 5)) << "the root's memory is only read";
}

TEST_F(BroadcastFromTest, OtherWorkersPushZerosAndGetTheBytesOfTheRoot) {
  std::vector<std::byte> value = Bytes(100, 5);
  Bench bench(OfRank(0));
  for (int call = 0; call < 2; ++call) {
    Call(&bench, 1, value);
    if (call == 0) Declare(&bench, 0, {});
    EXPECT_EQ(outcome_.calls, 0);
    EXPECT_EQ(Round(&bench, Bytes(100, 7 + call)), Bytes(100, 0));
    EXPECT_TRUE(outcome_.ok()) << outcome_.text();
    EXPECT_EQ(value, Bytes(100, 7 + call));
  }
}

TEST_F(BroadcastFromTest, ARootThatDoesNotDeclareKeepsItsValue) {
  std::vector<std::byte> value = Bytes(100, 5);
  Bench bench(OfRank(1));
  Call(&bench, 1, value);
  Declare(&bench, 1, Bytes(100, 8));
  EXPECT_EQ(value, Bytes(100, 5));
  EXPECT_EQ(Round(&bench, Bytes(100, 5)), Bytes(100, 5));
  EXPECT_TRUE(outcome_.ok()) << outcome_.text();
  EXPECT_EQ(value, Bytes(100, 5));
}

TEST_F(BroadcastFromTest, CallsThatOverlapTakeTheirTurns) {
  std::vector<std::byte> first = Bytes(100, 1);
  std::vector<std::byte> second = Bytes(100, 2);
  Bench bench(OfRank(0));
  Call(&bench, 0, first);
  Call(&bench, 0, second);
  Declare(&bench, 0, {});
  EXPECT_EQ(Round(&bench, Bytes(100, 2)), Bytes(100, 2));
  EXPECT_EQ(outcome_.calls, 2);
}

TEST_F(BroadcastFromTest, MistakesAreNamed) {
  std::vector<std::byte> value = Bytes(64, 0);
  Bench bench(OfRank(0));
  Call(&bench, 2, value);
  bench.Run();
  EXPECT_EQ(outcome_.text(), "broadcast key=7: root 2 of only 2 workers");
  bench.Initialise(7, value, DType::kFloat32);
  Call(&bench, 1, value);
  bench.Run();
  EXPECT_EQ(outcome_.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(outcome_.text().find("elements of float32, whose sums change bits"), std::string::npos)
      << outcome_.text();
  EXPECT_TRUE(bench.failures.empty());
}

}  // namespace
}  // namespace bs::worker
