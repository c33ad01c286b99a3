// Leader: what it grants, when, and to which requests it responds.
#include "server/grants/leader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "protocol/bodies.h"
#include "server/support.h"
#include "sim/sim_executor.h"

namespace bs::server {
namespace {

using protocol::GrantedPiece;
using protocol::Readiness;
using protocol::ReadyTensor;

class LeaderTest : public ::testing::Test {
 protected:
  // The response to a request of a rank.
  struct Response {
    int32_t rank = 0;
    uint64_t number = 0;
    Status status;
    bool pending = false;
    std::string text{};
    protocol::Grants grants{};
  };

  LeaderTest() { Make({.partition_bytes = 128, .credit_bytes = 256}, 2); }

  void Make(const GrantOptions& options, int32_t num_workers) {
    leader_.reset();
    leader_ = std::make_unique<Leader>(options, num_workers, &executor_, outbox_.sender(),
                                       protocol::Rules());
  }
  void Ready(int32_t rank, uint64_t number, const Readiness& readiness) {
    protocol::Call call = MakeCall({.op = ps::Op::kReady, .rank = rank, .key = 0});
    call.request.ready_number = number;
    call.request.ready = protocol::Encode(readiness);
    leader_->Ready(std::move(call));
  }
  // The responses of this turn.
  std::vector<Response> Turn() {
    clock_.RunUntil(clock_.Now() + std::chrono::milliseconds(1));
    std::vector<Response> responses;
    for (const ps::Message& message : outbox_.All()) {
      const ps::Extension& extension = message.meta.extension;
      const auto body = protocol::DecodeResponse(ps::Op::kReady, extension.body).value();
      Response response;
      response.rank = RankOf(message);
      response.number = body.identity.count;
      response.pending = extension.op == ps::Op::kPending;
      response.text = extension.text;
      response.status = extension.status == 0
                            ? Status::Ok()
                            : Status(static_cast<StatusCode>(extension.status), extension.text);
      response.grants = protocol::DecodeGrants(body.grants).value();
      responses.push_back(std::move(response));
    }
    return responses;
  }
  static ReadyTensor Tensor(Key key, uint64_t size_bytes, Priority priority = 0) {
    return {.key = key, .round = 1, .size_bytes = size_bytes, .priority = priority};
  }
  static std::vector<Key> KeysOf(const protocol::GrantedOperation& operation) {
    std::vector<Key> keys;
    for (const GrantedPiece& piece : operation) keys.push_back(piece.key);
    return keys;
  }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  Outbox outbox_;
  std::unique_ptr<Leader> leader_;
};

TEST_F(LeaderTest, GrantsToAllRanksWhenAllAreReady) {
  Ready(1, 0, {.tensors = {Tensor(7, 64)}});
  EXPECT_TRUE(Turn().empty());
  Ready(0, 0, {.tensors = {Tensor(7, 64)}});
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 2U);
  for (const Response& response : responses) {
    EXPECT_EQ(response.number, 0U);
    EXPECT_EQ(response.grants.first, 0U);
    ASSERT_EQ(response.grants.operations.size(), 1U);
    EXPECT_EQ(response.grants.operations[0],
              (protocol::GrantedOperation{{.key = 7, .round = 1, .size_bytes = 64}}));
  }
}

TEST_F(LeaderTest, TakesPriorityAndNextLayoutOfRankZero) {
  ReadyTensor urgent = Tensor(8, 128, 5);
  urgent.next_layout = "layout";
  Ready(1, 0, {.tensors = {Tensor(7, 128, 9), Tensor(8, 128, -9)}});
  Ready(0, 0, {.tensors = {Tensor(7, 128, 1), urgent}});
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 2U);
  const auto& operations = responses[1].grants.operations;
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(KeysOf(operations[0]), std::vector<Key>{8});
  EXPECT_EQ(operations[0][0].next_layout, "layout");
  EXPECT_EQ(KeysOf(operations[1]), std::vector<Key>{7});
}

TEST_F(LeaderTest, DividesTensorsAsRankZeroSaysFirst) {
  const auto say = [&](int32_t rank, uint64_t number, uint64_t partition_bytes) {
    Ready(rank, number,
          {.tensors = {Tensor(7 + number, 256)},
           .division = protocol::Division{.partition_bytes = partition_bytes, .credit_bytes = 64}});
  };
  say(1, 0, 128);
  say(0, 0, 64);
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 2U);
  ASSERT_EQ(responses[0].grants.operations.size(), 1U);
  EXPECT_EQ(responses[0].grants.operations[0].at(0).size_bytes, 64U);
  say(0, 1, 128);
  say(1, 1, 128);
  EXPECT_TRUE(Turn().empty());
  EXPECT_EQ(leader_->in_flight_bytes(), 64U);
}

TEST_F(LeaderTest, FusesNeighboursThatFitIntoAPartition) {
  ReadyTensor other = Tensor(4, 32);
  other.dtype = DType::kFloat64;
  const Readiness readiness{
      .tensors = {Tensor(1, 64), Tensor(2, 64), Tensor(3, 32), other, Tensor(5, 32)}};
  Ready(0, 0, readiness);
  Ready(1, 0, readiness);
  const std::vector<Response> responses = Turn();
  const auto& operations = responses.at(0).grants.operations;
  ASSERT_EQ(operations.size(), 4U);
  EXPECT_EQ(KeysOf(operations[0]), (std::vector<Key>{1, 2}));
  EXPECT_EQ(KeysOf(operations[1]), std::vector<Key>{3});
  EXPECT_EQ(KeysOf(operations[2]), std::vector<Key>{4});
  EXPECT_EQ(KeysOf(operations[3]), std::vector<Key>{5});
}

TEST_F(LeaderTest, RankZeroReturnsTheCredit) {
  Ready(0, 0, {.tensors = {Tensor(7, 512)}});
  Ready(1, 0, {.tensors = {Tensor(7, 512)}});
  EXPECT_EQ(Turn().at(0).grants.operations.size(), 2U);
  Ready(1, 1, {.received = 2, .finished = 2});
  EXPECT_TRUE(Turn().empty());
  EXPECT_EQ(leader_->in_flight_bytes(), 256U);
  Ready(0, 1, {.received = 2, .finished = 1});
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 2U);
  EXPECT_EQ(responses[0].grants.first, 2U);
  EXPECT_EQ(responses[0].grants.operations.at(0).at(0).offset_bytes, 256U);
}

// Otherwise each would be an operation, as all fit into the credit.
TEST_F(LeaderTest, SmallTensorsWaitForOneOfThreeOperations) {
  for (uint64_t number = 0; number < 5; ++number) {
    for (const int32_t rank : {0, 1}) Ready(rank, number, {.tensors = {Tensor(number, 4)}});
    Turn();
  }
  EXPECT_EQ(leader_->num_operations(), 3U);
  Ready(0, 5, {.received = 3, .finished = 1});
  Turn();
  EXPECT_EQ(leader_->num_operations(), 4U);  // both that had waited
}

TEST_F(LeaderTest, RespondsToTheOldestOfThreeRequests) {
  for (uint64_t number = 0; number < 3; ++number) {
    Ready(1, number, {.tensors = {Tensor(number, 4)}});
  }
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_EQ(responses[0].number, 0U);
  EXPECT_TRUE(responses[0].grants.operations.empty());
}

TEST_F(LeaderTest, ARepeatOfAnOpenRequestNamesTheRanksThatAreMissing) {
  Make({}, 3);
  Ready(1, 0, {.tensors = {Tensor(7, 4)}});
  EXPECT_TRUE(Turn().empty());
  Ready(1, 0, {.tensors = {Tensor(7, 4)}});
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_TRUE(responses[0].pending);
  EXPECT_EQ(responses[0].text, "workers 0, 2 to sum key=7 round=1");
}

// Each request of the waiting rank is answered with the other key's operations, so none gets old.
TEST_F(LeaderTest, ATensorThatARankSkipsIsNamedWhileOtherSumsGoOn) {
  Make({.straggler_timeout = std::chrono::seconds(40)}, 3);
  for (const int32_t rank : {0, 2}) Ready(rank, 0, {.tensors = {Tensor(7, 4)}});
  EXPECT_TRUE(Turn().empty());
  std::vector<Response> responses;
  uint64_t step = 0;
  const auto sum_another_key = [&] {
    for (const int32_t rank : {0, 1, 2}) {
      ReadyTensor other = Tensor(8, 4);
      other.round = static_cast<Round>(step + 1);
      Ready(rank, step + 1, {.tensors = {other}, .received = step, .finished = step});
    }
    ++step;
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
    responses = Turn();
  };
  while (step < 39) {
    sum_another_key();
    ASSERT_GE(responses.size(), 3U);
    for (const Response& response : responses) ASSERT_TRUE(response.status.ok()) << step;
  }
  EXPECT_EQ(leader_->num_operations(), 39U);
  while (step < 52 && responses.front().status.ok()) sum_another_key();
  EXPECT_EQ(responses.front().status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(responses.front().status.message(),
            "after 40 s still waiting for worker 1 to sum key=7 round=1: every worker must call "
            "the same sums");
}

// The clock of a tensor ends with its readiness on all ranks.
TEST_F(LeaderTest, ATensorThatComesLateButInTimeIsGranted) {
  Make({.straggler_timeout = std::chrono::seconds(40)}, 2);
  Ready(0, 0, {.tensors = {Tensor(7, 4)}});
  clock_.RunUntil(clock_.Now() + std::chrono::seconds(39));
  Ready(1, 0, {.tensors = {Tensor(7, 4)}});
  EXPECT_EQ(Turn().size(), 2U);
  clock_.RunUntil(clock_.Now() + std::chrono::seconds(100));
  Ready(0, 1, {.tensors = {Tensor(8, 4)}});
  EXPECT_TRUE(Turn().empty());
  EXPECT_EQ(leader_->num_operations(), 1U);
}

TEST_F(LeaderTest, ARepeatOfARankThatWaitsForNothingIsAnswered) {
  Ready(1, 0, {});
  EXPECT_TRUE(Turn().empty());
  Ready(1, 0, {});
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_FALSE(responses[0].pending);
}

TEST_F(LeaderTest, ALateRepeatGetsUnconfirmedOperationsAndCountsForNothing) {
  Ready(0, 0, {.tensors = {Tensor(7, 64)}});
  Ready(1, 0, {.tensors = {Tensor(7, 64)}});
  EXPECT_EQ(Turn().size(), 2U);
  Ready(1, 0, {.tensors = {Tensor(7, 64)}});
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_EQ(responses[0].rank, 1);
  EXPECT_EQ(responses[0].grants.operations.size(), 1U);
  EXPECT_EQ(leader_->num_operations(), 1U);
}

TEST_F(LeaderTest, AFailureOfARankIsTheFailureOfAll) {
  Ready(0, 0, {.tensors = {Tensor(7, 64)}});
  Ready(1, 0, {.failure = Status::Unavailable("worker 1: no route to host")});
  std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 2U);
  for (const Response& response : responses) {
    EXPECT_EQ(response.status.ToString(), "kUnavailable: worker 1: no route to host");
  }
  Ready(0, 1, {});
  responses = Turn();
  ASSERT_EQ(responses.size(), 1U);
  EXPECT_FALSE(responses[0].status.ok());
}

TEST_F(LeaderTest, ALateSumNamesRanksThatHaveNotEndedNorJoinedIt) {
  Make({.partition_bytes = 128, .credit_bytes = 256}, 4);
  for (const int32_t rank : {0, 1, 2, 3}) Ready(rank, 0, {.tensors = {Tensor(7, 256)}});
  ASSERT_EQ(Turn().at(0).grants.operations.size(), 2U);
  Ready(0, 1, {.received = 2, .finished = 2});
  Ready(1, 1, {.received = 2, .finished = 1, .joined = 2});
  Ready(3, 1, {.received = 2, .finished = 1});
  Ready(2, 1,
        {.received = 2,
         .finished = 1,
         .joined = 2,
         .failure = Status::DeadlineExceeded("sum 1 is late"),
         .late = true});
  EXPECT_EQ(Turn().at(0).status.message(), "sum 1 is late; missing there: worker 3");
}

TEST_F(LeaderTest, ADeadlineOfARequestNamesNoRankOfALateSum) {
  Ready(0, 0, {.tensors = {Tensor(7, 128)}});
  Ready(1, 0, {.tensors = {Tensor(7, 128)}});
  ASSERT_EQ(Turn().at(0).grants.operations.size(), 1U);
  Ready(1, 1, {.received = 1, .failure = Status::DeadlineExceeded("still waiting for worker 0")});
  Ready(0, 1, {});
  EXPECT_EQ(Turn().at(0).status.message(), "still waiting for worker 0");
}

TEST_F(LeaderTest, APartThatIsMissingIsAwaitedFromServers) {
  ReadyTensor part = Tensor(9, 64);
  part.part = 3;
  Ready(1, 0, {.tensors = {part}});
  Ready(1, 0, {.tensors = {part}});
  EXPECT_EQ(Turn().at(0).text, "worker 0 to get from the servers key=9 round=1 partition=2");
  part.size_bytes = 32;
  Ready(0, 0, {.tensors = {part}});
  EXPECT_EQ(
      Turn().at(0).status.message(),
      "key=9 round=1 partition=2: worker 0 has float32 of 32 bytes, worker 1 has float32 of 64 "
      "bytes");
}

TEST_F(LeaderTest, ATensorThatIsCodedElsewhereFailsAllWhicheverComesFirst) {
  ReadyTensor coded = Tensor(7, 64);
  coded.coded = "compressed to bf16";
  for (const bool coded_first : {false, true}) {
    Make({}, 2);
    Ready(1, 0, {.tensors = {coded_first ? coded : Tensor(7, 64)}});
    EXPECT_TRUE(Turn().empty());
    Ready(0, 0, {.tensors = {coded_first ? Tensor(7, 64) : coded}});
    const std::vector<Response> responses = Turn();
    ASSERT_EQ(responses.size(), 2U);
    for (const Response& response : responses) {
      EXPECT_EQ(response.status.code(), StatusCode::kInvalidArgument);
      const std::string text = coded_first ? "worker 0 is not compressed, worker 1 is"
                                           : "worker 1 is not compressed, worker 0 is";
      EXPECT_EQ(response.status.message(),
                "key=7 round=1: " + text +
                    " compressed to bf16; set gradient compression alike on all workers");
    }
  }
}

// All stop to compress in the same round, and one rank's request of an earlier round comes late.
TEST_F(LeaderTest, CodedRoundsOfOtherNumbersConcernNoPlainRound) {
  Make({}, 2);
  ReadyTensor coded = Tensor(7, 64);
  coded.coded = "compressed to bf16";
  const ReadyTensor late = coded;
  Ready(0, 0, {.tensors = {coded}});
  coded.round = 2;
  for (const int32_t rank : {0, 1}) Ready(rank, 1, {.tensors = {coded}});
  ReadyTensor plain = Tensor(7, 64);
  plain.round = 3;
  Ready(0, 2, {.tensors = {plain}});
  Ready(1, 2, {.tensors = {plain}});
  Ready(1, 0, {.tensors = {late}});
  for (const Response& response : Turn()) EXPECT_TRUE(response.status.ok());
  EXPECT_EQ(leader_->num_operations(), 1U);
}

TEST_F(LeaderTest, AKeyThatWasCodedAndGivenBackMayBePlain) {
  Make({}, 2);
  ReadyTensor tensor = Tensor(7, 64);
  uint64_t number = 0;
  for (const bool is_coded : {true, false}) {
    tensor.coded = is_coded ? "compressed to bf16" : "";
    for (tensor.round = 1; tensor.round < 4; ++tensor.round, ++number) {
      for (const int32_t rank : {0, 1}) Ready(rank, number, {.tensors = {tensor}});
      for (const Response& response : Turn()) EXPECT_TRUE(response.status.ok());
    }
  }
  EXPECT_GT(leader_->num_operations(), 0U);
}

TEST_F(LeaderTest, ALateRequestOfACodedRoundHidesNoLaterRound) {
  Make({}, 2);
  ReadyTensor coded = Tensor(7, 64);
  coded.coded = "compressed to bf16";
  const ReadyTensor first = coded;
  coded.round = 2;
  Ready(1, 1, {.tensors = {coded}});
  Ready(1, 0, {.tensors = {first}});
  ReadyTensor plain = Tensor(7, 64);
  plain.round = 2;
  Ready(0, 0, {.tensors = {plain}});
  EXPECT_EQ(Turn().back().status.code(), StatusCode::kInvalidArgument);
}

// The servers name a worker that does not come, so the leader does not.
TEST_F(LeaderTest, ACodedTensorAwaitsNoWorker) {
  Make({.straggler_timeout = std::chrono::seconds(40)}, 2);
  ReadyTensor coded = Tensor(7, 64);
  coded.coded = "compressed to bf16";
  Ready(0, 0, {.tensors = {coded}});
  clock_.RunUntil(clock_.Now() + std::chrono::seconds(100));
  EXPECT_TRUE(Turn().empty());
  leader_->OnWorkerGone(1, Status::Unavailable("worker 1 left"));
  EXPECT_TRUE(Turn().empty());
}

TEST_F(LeaderTest, AWorkerThatIsGoneFailsOnlyTensorsThatNeedIt) {
  Ready(0, 0, {.tensors = {Tensor(7, 64)}});
  Ready(1, 0, {.tensors = {Tensor(7, 64)}});
  EXPECT_EQ(Turn().size(), 2U);
  leader_->OnWorkerGone(1, Status::Unavailable("worker 1 left"));
  Ready(0, 1, {.received = 1, .finished = 1});
  EXPECT_TRUE(Turn().empty());
  Ready(0, 2, {.tensors = {Tensor(8, 64)}});
  const std::vector<Response> responses = Turn();
  ASSERT_EQ(responses.size(), 2U);
  EXPECT_EQ(responses[0].status.message(), "worker 1 left");
}

// It would need terabytes for its partitions.
TEST_F(LeaderTest, ATensorBeyondAllMemoryHasLargePartitions) {
  const ReadyTensor huge = Tensor(7, uint64_t{1} << 62U);
  Ready(0, 0, {.tensors = {huge}});
  Ready(1, 0, {.tensors = {huge}});
  const std::vector<Response> responses = Turn();
  EXPECT_GE(responses.at(0).grants.operations.at(0).at(0).size_bytes, uint64_t{1} << 42U);
}

TEST_F(LeaderTest, RefusesRequestsThatMakeNoSense) {
  Ready(0, 0, {.finished = 1});
  EXPECT_EQ(Turn().at(0).status.code(), StatusCode::kInternal);
  Make({}, 2);
  Ready(1, Leader::kMostAhead, {});
  EXPECT_EQ(Turn().at(0).status.code(), StatusCode::kInvalidArgument);
  protocol::Call call = MakeCall({.op = ps::Op::kReady, .rank = 1, .key = 0});
  call.request.ready = "\x0a\xff";
  leader_->Ready(std::move(call));
  EXPECT_EQ(Turn().at(0).status.code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace bs::server
