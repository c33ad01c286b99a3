// CollectiveBackend: which sums the library makes, in which order, and how they fail.
#include "backend/collective/collective_backend.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/collective/ranks.h"
#include "base/snapshot.h"
#include "codec/bf16.h"

namespace bs::backend::collective {
namespace {

using std::chrono::milliseconds;

// An array of one tensor on each rank: `value` + rank in each element.
class Arrays {
 public:
  Arrays(int32_t num_ranks, size_t count, float value) : out_(static_cast<size_t>(num_ranks)) {
    for (int32_t rank = 0; rank < num_ranks; ++rank) {
      in_.emplace_back(count, value + static_cast<float>(rank));
      out_[static_cast<size_t>(rank)].resize(count);
      expected_ += value + static_cast<float>(rank);
    }
  }
  std::span<const std::byte> in(int32_t rank) const {
    return std::as_bytes(std::span(in_[static_cast<size_t>(rank)]));
  }
  std::span<std::byte> out(int32_t rank) {
    return std::as_writable_bytes(std::span(out_[static_cast<size_t>(rank)]));
  }
  void ExpectSums() const {
    for (const std::vector<float>& sums : out_) {
      for (const float sum : sums) ASSERT_EQ(sum, expected_);
    }
  }

 private:
  float expected_ = 0;
  std::vector<std::vector<float>> in_;
  std::vector<std::vector<float>> out_;
};

// The first error, and how many partitions have ended.  Ranks that end later may still tell it.
struct Outcome {
  struct State {
    std::optional<Status> error{};
    int ended = 0;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
  std::optional<Status>& error = state->error;
  int& ended = state->ended;

  std::function<void(const Status&)> Take() const {
    return [kept = state](const Status& status) {
      ++kept->ended;
      if (!status.ok() && !kept->error) kept->error = status;
    };
  }
};

FakeOptions Takes(Duration each, Duration of_a_mebibyte) {
  return {.duration = [=](uint64_t size_bytes) {
    return each + of_a_mebibyte * static_cast<int64_t>(size_bytes >> 20U);
  }};
}

TEST(CollectiveBackend, AThousandSmallTensorsAreFewOperationsWithExactSums) {
  constexpr int32_t kRanks = 4;
  Ranks ranks({.num_ranks = kRanks, .library = Takes(std::chrono::microseconds(100), {})});
  std::vector<Arrays> arrays;
  Outcome outcome;
  for (Key key = 0; key < 1000; ++key) arrays.emplace_back(kRanks, 1024, static_cast<float>(key));
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    for (Key key = 0; key < 1000; ++key) {
      ranks.Start(rank, {.key = key, .in = arrays[key].in(rank), .out = arrays[key].out(rank)},
                  outcome.Take());
    }
  }
  ranks.Run();
  EXPECT_EQ(outcome.ended, 1000 * kRanks);
  EXPECT_FALSE(outcome.error);
  for (const Arrays& array : arrays) array.ExpectSums();
  EXPECT_EQ(ranks.library()->counts().pieces, 1000U);
  EXPECT_LE(ranks.library()->counts().operations, 20U);
}

// They become ready one after another, as in backward.
TEST(CollectiveBackend, SmallTensorsThatBecomeReadyMeanwhileGoTogether) {
  Ranks ranks({.library = Takes(milliseconds(1), {})});
  std::vector<Arrays> arrays;
  Outcome outcome;
  for (Key key = 0; key < 200; ++key) arrays.emplace_back(2, 16, 1.0F);
  for (Key key = 0; key < 200; ++key) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      ranks.Start(rank, {.key = key, .in = arrays[key].in(rank), .out = arrays[key].out(rank)},
                  outcome.Take());
    }
    ranks.Run(std::chrono::microseconds(50));
  }
  ranks.Run();
  EXPECT_EQ(outcome.ended, 400);
  EXPECT_LE(ranks.library()->counts().operations, 20U);
  for (const Arrays& array : arrays) array.ExpectSums();
}

TEST(CollectiveBackend, ALateUrgentTensorOvertakesAllThatIsNotGranted) {
  constexpr uint64_t kCredit = uint64_t{16} << 20U;
  Ranks ranks({.library = Takes({}, milliseconds(1))});
  Arrays large(2, size_t{16} << 20U, 1);  // 64 MiB
  Arrays urgent(2, 1024, 2);
  uint64_t ahead_bytes = 0;
  bool is_called = false;
  bool is_summed = false;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, {.key = 1, .priority = -5, .in = large.in(rank), .out = large.out(rank)},
                [&, rank](const Status&) {
                  if (rank == 0 && is_called && !is_summed) ahead_bytes += uint64_t{1} << 20U;
                });
  }
  ranks.Run(milliseconds(5));
  is_called = true;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, {.key = 2, .priority = 5, .in = urgent.in(rank), .out = urgent.out(rank)},
                [&, rank](const Status&) { is_summed = is_summed || rank == 0; });
  }
  ranks.Run();
  EXPECT_TRUE(is_summed);
  EXPECT_GT(ahead_bytes, 0U);
  EXPECT_LE(ahead_bytes, kCredit);
  large.ExpectSums();
  urgent.ExpectSums();
}

TEST(CollectiveBackend, ArraysOfTwoDtypesAreTwoOperations) {
  Ranks ranks({});
  Arrays singles(2, 64, 1);
  const std::vector<double> doubles(32, 0.5);
  std::vector<std::vector<double>> sums(2, std::vector<double>(32));
  Outcome outcome;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, {.key = 1, .in = singles.in(rank), .out = singles.out(rank)}, outcome.Take());
    ranks.Start(rank,
                {.key = 2,
                 .dtype = DType::kFloat64,
                 .in = std::as_bytes(std::span(doubles)),
                 .out = std::as_writable_bytes(std::span(sums[static_cast<size_t>(rank)]))},
                outcome.Take());
  }
  ranks.Run();
  EXPECT_EQ(outcome.ended, 4);
  EXPECT_EQ(ranks.library()->counts().operations, 2U);
  EXPECT_EQ(sums[1], std::vector<double>(32, 1.0));
  singles.ExpectSums();
}

double StartedAtServers(Backend* backend) {
  Metrics metrics;
  backend->Measure(&metrics);
  return metrics.numbers().at({"started", Metrics::kWhole});
}

TEST(CollectiveBackend, FirstValuesIntegersAndCodedSumsGoToServers) {
  Ranks ranks({});
  Arrays array(2, 64, 1);
  Outcome outcome;
  ranks.Start(0, {.key = 1, .round = 0, .in = array.in(0), .out = array.out(0)}, outcome.Take());
  ranks.Start(0, {.key = 2, .dtype = DType::kInt32, .in = array.in(0), .out = array.out(0)},
              outcome.Take());
  EXPECT_EQ(StartedAtServers(ranks.backend(0)), 2);
  const protocol::Tensor tensor{.key = 3, .size_bytes = 256, .partitions = {{.size_bytes = 256}}};
  for (const bool later : {true, false}) {
    Exchange coded{.round = later ? Round{1} : Round{2}, .partition = tensor.partitions[0]};
    coded.coder.coding = {.codec = 1, .later = later};
    coded.sent = [](const Status&) {};
    coded.summed = [](const Status&, const std::string&) {};
    ranks.backend(0)->Start(tensor, std::move(coded));
  }
  EXPECT_EQ(StartedAtServers(ranks.backend(0)), 4);
  ranks.Run();
  EXPECT_EQ(ranks.library()->counts().operations, 0U);
}

TEST(CollectiveBackend, AKeyThatTheLibrarySumsHasNoCarrierOfServers) {
  Ranks ranks({});
  Arrays array(2, 64, 1);
  Outcome outcome;
  ranks.Start(0, {.key = 1, .dtype = DType::kInt32, .in = array.in(0), .out = array.out(0)},
              outcome.Take());
  ranks.Start(0, {.key = 2, .in = array.in(0), .out = array.out(0)}, outcome.Take());
  const auto carriers_of = [&](Key key) {
    protocol::Tensor tensor;
    tensor.key = key;
    return ranks.backend(0)->CarriersOf(tensor, {}, {});
  };
  EXPECT_EQ(carriers_of(1), (Carriers{.to = Carrier::kTcp, .from = Carrier::kTcp}));
  EXPECT_EQ(carriers_of(2), Carriers());
}

TEST(CollectiveBackend, AnotherSizeOnAnotherRankFailsAllRanks) {
  Ranks ranks({.num_ranks = 3});
  Arrays array(3, 64, 1);
  std::vector<Outcome> outcomes(3);
  for (int32_t rank = 0; rank < 3; ++rank) {
    const size_t size_bytes = rank == 2 ? 128 : 256;
    ranks.Start(rank,
                {.key = 9,
                 .in = array.in(rank).subspan(0, size_bytes),
                 .out = array.out(rank).subspan(0, size_bytes)},
                outcomes[static_cast<size_t>(rank)].Take());
    ranks.Run(milliseconds(1));
  }
  ranks.Run();
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(outcome.error->message(),
              "key=9 round=1: worker 2 has float32 of 128 bytes, worker 0 has float32 of 256 "
              "bytes");
  }
}

TEST(CollectiveBackend, AnotherRoundOnAnotherRankFailsAllRanks) {
  Ranks ranks({});
  Arrays array(2, 64, 1);
  std::vector<Outcome> outcomes(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank,
                {.key = 9,
                 .round = static_cast<Round>(rank + 1),
                 .in = array.in(rank),
                 .out = array.out(rank)},
                outcomes[static_cast<size_t>(rank)].Take());
    ranks.Run(milliseconds(1));
  }
  ranks.Run();
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->message(),
              "key=9: worker 1 is in round 2, worker 0 in round 1; every worker must call the same "
              "sums");
  }
}

TEST(CollectiveBackend, AnErrorOfTheLibraryOnOneRankFailsAllRanks) {
  Ranks ranks({.num_ranks = 3});
  Arrays array(3, 64, 1);
  std::vector<Outcome> outcomes(3);
  ranks.library()->FailNext(1, Status::Unavailable("no route to host"));
  for (int32_t rank = 0; rank < 3; ++rank) {
    ranks.Start(rank, {.key = 9, .in = array.in(rank), .out = array.out(rank)},
                outcomes[static_cast<size_t>(rank)].Take());
  }
  ranks.Run();
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), StatusCode::kUnavailable);
    EXPECT_EQ(outcome.error->message(),
              "worker 1: sum 0 (key=9 round=1 bytes 0 to 256): no route to host");
  }
}

TEST(CollectiveBackend, ALostRankFailsTheTensorsThatNeedIt) {
  Ranks ranks({.num_ranks = 3});
  Arrays array(3, 64, 1);
  Outcome outcome;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, {.key = 9, .in = array.in(rank), .out = array.out(rank)}, outcome.Take());
  }
  ranks.Run(milliseconds(1));
  ranks.server()->OnWorkerGone(2, Status::Unavailable("lost worker 2"));
  ranks.Run();
  EXPECT_EQ(outcome.ended, 2);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->message(), "lost worker 2");
}

// It is inside an operation, so the leader cannot end it.
TEST(CollectiveBackend, AFailureEndsOperationsThatARankHasLeft) {
  Ranks ranks({});
  Arrays array(2, 64, 1);
  Outcome outcome;
  ranks.library()->Kill(1);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, {.key = 9, .in = array.in(rank), .out = array.out(rank)}, outcome.Take());
  }
  ranks.Run();
  EXPECT_EQ(outcome.ended, 0);
  ranks.backend(0)->Fail(Status::Unavailable("lost worker 1"));
  ranks.Run();
  EXPECT_EQ(outcome.ended, 1);
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->message(), "lost worker 1");
}

// Starts a sum of 64 elements on `num_ranks` ranks, and returns how it ends there.
std::vector<Outcome> StartOnRanks(Ranks* ranks, Arrays* array, int32_t num_ranks, Key key = 9) {
  std::vector<Outcome> outcomes(static_cast<size_t>(num_ranks));
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    ranks->Start(rank, {.key = key, .in = array->in(rank), .out = array->out(rank)},
                 outcomes[static_cast<size_t>(rank)].Take());
  }
  return outcomes;
}

TEST(CollectiveBackend, ASumThatDoesNotEndNamesTheRankThatHasNotJoinedIt) {
  Ranks ranks({.num_ranks = 3, .library = {.hint = "DEBUG=1 shows more"}});
  Arrays array(3, 64, 1);
  ranks.library()->Stall(1);
  const std::vector<Outcome> outcomes = StartOnRanks(&ranks, &array, 3);
  ranks.Run(std::chrono::seconds(59));
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.ended, 0);
  ranks.Run(std::chrono::seconds(20));
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(outcome.error->message(),
              "sum 0 (key=9 round=1 bytes 0 to 256) has not ended for 60 s (DEBUG=1 shows more); "
              "missing there: worker 1");
  }
}

TEST(CollectiveBackend, ASumThatDoesNotEndThoughAllHaveJoinedItNamesNoRank) {
  Ranks ranks({.library = Takes(std::chrono::seconds(1000), {})});
  Arrays array(2, 64, 1);
  const std::vector<Outcome> outcomes = StartOnRanks(&ranks, &array, 2);
  ranks.Run(std::chrono::seconds(1100));
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->message(),
              "sum 0 (key=9 round=1 bytes 0 to 256) has not ended for 60 s, though all "
              "workers have joined it");
  }
}

TEST(CollectiveBackend, SumsThatEndOneAfterAnotherMeetNoDeadline) {
  Ranks ranks({.grants = {.partition_bytes = 256, .credit_bytes = 768},
               .library = Takes(std::chrono::seconds(40), {})});
  std::vector<Arrays> arrays;
  std::vector<Outcome> outcomes;
  for (Key key = 0; key < 3; ++key) arrays.emplace_back(2, 64, 1.0F);
  for (Key key = 0; key < 3; ++key) {
    for (const Outcome& outcome : StartOnRanks(&ranks, &arrays[key], 2, key)) {
      outcomes.push_back(outcome);
    }
  }
  ranks.Run(std::chrono::seconds(200));
  EXPECT_EQ(ranks.library()->counts().operations, 3U);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.ended, 1);
    EXPECT_FALSE(outcome.error);
  }
}

TEST(CollectiveBackend, ARankThatIsNotReadyIsNamed) {
  Ranks ranks({.num_ranks = 3});
  Arrays array(3, 64, 1);
  const std::vector<Outcome> outcomes = StartOnRanks(&ranks, &array, 2);
  ranks.Run(std::chrono::minutes(29));
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.ended, 0);
  ranks.Run(std::chrono::minutes(3));
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(
        outcome.error->message().ends_with("still waiting for worker 2 to sum key=9 round=1"))
        << outcome.error->message();
  }
}

// The rank with codes waits at a server, and the other at the leader.
TEST(CollectiveBackend, CodedSumsOfSomeRanksFailAllRanksAtOnce) {
  for (const bool coded_first : {true, false}) {
    Ranks ranks({.num_ranks = 3});
    Arrays array(3, 64, 1);
    const protocol::Tensor tensor{.key = 9, .size_bytes = 256, .partitions = {{.size_bytes = 256}}};
    Status refused;
    const auto start_coded = [&] {
      Exchange coded{.round = 1, .partition = tensor.partitions[0]};
      coded.coder.coding = codec::Bf16Coding();
      coded.released = [](const Status&) {};
      coded.sent = [](const Status&) {};
      coded.summed = [&](const Status& status, const std::string&) { refused = status; };
      ranks.backend(2)->Start(tensor, std::move(coded));
      ranks.Run(milliseconds(1));
    };
    if (coded_first) start_coded();
    const std::vector<Outcome> outcomes = StartOnRanks(&ranks, &array, 2);
    ranks.Run(milliseconds(1));
    if (!coded_first) start_coded();
    ranks.Run();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(refused.message(),
              "key=9 round=1: worker 0 is not compressed, worker 2 is compressed to bf16, pull "
              "plain; set gradient compression alike on all workers");
    for (const Outcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.error);
      EXPECT_EQ(outcome.error->message(), refused.message());
    }
  }
}

TEST(CollectiveBackend, AKeyCannotChangeToCodedSums) {
  Ranks ranks({});
  Arrays array(2, 64, 1);
  Outcome plain;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank, {.key = 9, .in = array.in(rank), .out = array.out(rank)}, plain.Take());
  }
  ranks.Run();
  EXPECT_EQ(plain.ended, 2);
  const protocol::Tensor tensor{.key = 9, .size_bytes = 256, .partitions = {{.size_bytes = 256}}};
  Exchange coded{.round = 2, .partition = tensor.partitions[0]};
  coded.coder.coding.codec = 1;
  Status status;
  coded.sent = [&](const Status& sent) { status = sent; };
  coded.summed = [](const Status&, const std::string&) {};
  ranks.backend(0)->Start(tensor, std::move(coded));
  ranks.Run();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "key=9 round=2: its sums began without compression, and cannot be compressed "
                  "later where a library makes them; set gradient compression before the key's "
                  "first round");
}

TEST(CollectiveBackend, WithoutALibraryJoiningFails) {
  sim::SimClock clock(1);
  sim::SimExecutor executor(&clock);
  CollectiveBackend backend({.no_library = Status::NotFound("no library")}, &executor, nullptr,
                            nullptr, {});
  Status status;
  backend.Prepare([&](const Status& prepared) { status = prepared; });
  EXPECT_EQ(status.message(), "no library");
}

}  // namespace
}  // namespace bs::backend::collective
