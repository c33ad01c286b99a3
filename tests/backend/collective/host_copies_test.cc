// HostCopies under CollectiveBackend: libraries within hosts, and servers over them.
#include "backend/collective/host_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/ranks.h"
#include "protocol/data_body.h"
#include "protocol/grants.h"

namespace {

// The host has memory for so many copies.
int copies_with_memory = 1 << 30;

}  // namespace

// Copies alone ask for memory in this way.
void* operator new[](size_t size_bytes, std::align_val_t align,
                     const std::nothrow_t& /*tag*/) noexcept {
  return copies_with_memory-- > 0 ? ::operator new[](size_bytes, align) : nullptr;
}

namespace bs::backend::collective {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kPartition = 4096;

// A tensor on each rank, and how its partitions end.
class HostTensor {
 public:
  HostTensor(Ranks* ranks, Key key, size_t count)
      : ranks_(ranks), key_(key), out_(static_cast<size_t>(ranks->size())) {
    for (int32_t rank = 0; rank < ranks->size(); ++rank) {
      in_.emplace_back(count);
      for (size_t i = 0; i < count; ++i) {
        in_.back()[i] = static_cast<float>(i % 97) + static_cast<float>(rank * 100);
      }
      out_[static_cast<size_t>(rank)].assign(count, -1);
    }
  }
  // Other values go in, and no sum is there.
  void Change(float by) {
    for (std::vector<float>& in : in_) {
      for (float& value : in) value += by;
    }
    for (std::vector<float>& out : out_) std::ranges::fill(out, -1.0F);
  }
  int num_partitions() const {
    return static_cast<int>((in_.front().size() * sizeof(float) + kPartition - 1) / kPartition);
  }
  void Start(int32_t rank, Round round = 1, Priority priority = 0) {
    const auto place = static_cast<size_t>(rank);
    ranks_->Start(rank,
                  {.key = key_,
                   .round = round,
                   .priority = priority,
                   .partition_bytes = kPartition,
                   .in = std::as_bytes(std::span(in_[place])),
                   .out = std::as_writable_bytes(std::span(out_[place]))},
                  [this](const Status& status) {
                    ++ended_;
                    if (!status.ok() && !error_) error_ = status;
                  });
  }
  void StartAll(Round round = 1) {
    for (int32_t rank = 0; rank < ranks_->size(); ++rank) Start(rank, round);
  }
  int ended() const { return ended_; }
  const std::optional<Status>& error() const { return error_; }
  void ExpectSums() const {
    const auto ranks = static_cast<size_t>(ranks_->size());
    for (size_t i = 0; i < in_.front().size(); ++i) {
      float sum = 0;
      for (const std::vector<float>& in : in_) sum += in[i];
      for (size_t rank = 0; rank < ranks; ++rank) ASSERT_EQ(out_[rank][i], sum) << rank << " " << i;
    }
  }

 private:
  Ranks* const ranks_;
  const Key key_;
  std::vector<std::vector<float>> in_;
  std::vector<std::vector<float>> out_;
  int ended_ = 0;
  std::optional<Status> error_;
};

double CopiedBy(Backend* backend) {
  Metrics metrics;
  backend->Measure(&metrics);
  return metrics.numbers().at({"library_copied_bytes_total", Metrics::kWhole});
}

TEST(HostCopies, OneCopyOfAHostCrossesAndEachWorkerCopiesItsShare) {
  Ranks ranks({.num_ranks = 4, .hosts = {0, 0, 1, 1}});
  constexpr size_t kCount = 8 * kPartition / sizeof(float);
  HostTensor tensor(&ranks, 3, kCount);
  tensor.StartAll();
  ranks.Run();
  EXPECT_EQ(tensor.ended(), 4 * 8);
  EXPECT_FALSE(tensor.error());
  tensor.ExpectSums();
  EXPECT_EQ(ranks.sums()->contributed_bytes(), 2 * 8 * kPartition) << "one copy for each host";
  for (int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(CopiedBy(ranks.backend(rank)), 2 * 8 * kPartition / 2) << "half of it, both ways";
  }
}

TEST(HostCopies, HostsHaveAnyNumberOfWorkers) {
  Ranks ranks({.num_ranks = 6, .hosts = {0, 0, 0, 1, 2, 2}, .one_way = milliseconds(1)});
  std::vector<std::unique_ptr<HostTensor>> tensors;
  for (const size_t count : {1U, 100U, 5000U, 20001U}) {
    tensors.push_back(std::make_unique<HostTensor>(&ranks, tensors.size(), count));
  }
  for (Round round = 1; round <= 3; ++round) {
    for (const auto& tensor : tensors) {
      tensor->Change(static_cast<float>(round));
      tensor->StartAll(round);
    }
    ranks.Run();
    for (const auto& tensor : tensors) {
      ASSERT_FALSE(tensor->error());
      ASSERT_EQ(tensor->ended(), 6 * tensor->num_partitions() * static_cast<int>(round));
      tensor->ExpectSums();
    }
  }
}

TEST(HostCopies, MemoryOfTheHostServesAgain) {
  Ranks ranks({.num_ranks = 2, .hosts = {0, 1}});
  HostTensor tensor(&ranks, 3, 5000);
  uint64_t lasting_bytes = 0;
  for (Round round = 1; round <= 3; ++round) {
    tensor.StartAll(round);
    ranks.Run();
    const uint64_t now = ranks.library()->counts().lasting_bytes;
    EXPECT_GE(now, 2 * kPartition);
    if (round > 1) {
      EXPECT_EQ(now, lasting_bytes);
    }
    lasting_bytes = now;
  }
  EXPECT_EQ(tensor.ended(), 2 * 5 * 3);
}

TEST(HostCopies, ACopyWithoutMemoryFailsAllWorkers) {
  // The first copy down, the first that waits for the sum of all hosts, and a later partition.
  for (const int copies : {0, 2, 5}) {
    Ranks ranks({.num_ranks = 2, .hosts = {0, 1}});
    HostTensor tensor(&ranks, 3, 8 * kPartition / sizeof(float));
    copies_with_memory = copies;
    tensor.StartAll();
    ranks.Run();
    copies_with_memory = 1 << 30;
    EXPECT_EQ(tensor.ended(), 2 * 8) << copies;
    ASSERT_TRUE(tensor.error()) << copies;
    EXPECT_EQ(tensor.error()->code(), StatusCode::kResourceExhausted);
    EXPECT_NE(tensor.error()->message().find(
                  "key=3 round=1: 4096 bytes for a copy in this host's memory are not free"),
              std::string::npos)
        << tensor.error()->message();
  }
}

TEST(HostCopies, MemoryThatLastsIsBounded) {
  constexpr uint64_t kLarge = uint64_t{40} << 20U;  // a power of two less than the bound
  Ranks ranks({.num_ranks = 2, .hosts = {0, 1}});
  const std::vector<float> in(kLarge / sizeof(float), 1);
  std::vector<std::vector<float>> outs(2, std::vector<float>(in.size()));
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.Start(rank,
                {.key = 3,
                 .partition_bytes = kLarge,
                 .in = std::as_bytes(std::span(in)),
                 .out = std::as_writable_bytes(std::span(outs[static_cast<size_t>(rank)]))},
                [](const Status& status) { EXPECT_TRUE(status.ok()); });
  }
  ranks.Run();
  EXPECT_EQ(ranks.library()->counts().lasting_bytes, HostCopies::kMostLastingBytes)
      << "the memory of one way";
  for (const std::vector<float>& out : outs) EXPECT_EQ(out.back(), 2);
}

TEST(HostCopies, AJobOfOneHostCopiesNothing) {
  Ranks ranks({.num_ranks = 3, .hosts = {0, 0, 0}});
  HostTensor tensor(&ranks, 3, 5000);
  tensor.StartAll();
  ranks.Run();
  EXPECT_EQ(tensor.ended(), 3 * 5);
  tensor.ExpectSums();
  EXPECT_EQ(ranks.sums()->num_contributions(), 0U);
  EXPECT_EQ(ranks.library()->counts().copied_bytes, 0U);
}

TEST(HostCopies, ASumWaitsForEachWorker) {
  Ranks ranks({.num_ranks = 4, .hosts = {0, 0, 1, 1}});
  HostTensor tensor(&ranks, 3, 5000);
  for (const int32_t rank : {0, 1, 3}) tensor.Start(rank);
  ranks.Run();
  EXPECT_EQ(tensor.ended(), 0);
  EXPECT_EQ(ranks.sums()->num_contributions(), 0U);
  tensor.Start(2);
  ranks.Run();
  EXPECT_EQ(tensor.ended(), 4 * 5);
  tensor.ExpectSums();
}

void FailAll(Ranks* ranks, const Status& why) {
  for (int32_t rank = 0; rank < ranks->size(); ++rank) ranks->backend(rank)->Fail(why);
  ranks->Run();
}

// What waits for servers holds up no other tensor.
TEST(HostCopies, AFailureEndsCopiesUnderWay) {
  Ranks ranks({.num_ranks = 4, .hosts = {0, 0, 1, 1}});
  ranks.sums()->Hold();
  // More than the credit, so that some copies have not left.
  HostTensor tensor(&ranks, 3, (size_t{4} << 20U) / sizeof(float));
  tensor.StartAll();
  ranks.Run();
  EXPECT_EQ(tensor.ended(), 0);
  FailAll(&ranks, Status::Unavailable("lost worker 1"));
  EXPECT_EQ(tensor.ended(), 4 * 1024);
  ASSERT_TRUE(tensor.error());
  EXPECT_EQ(tensor.error()->message(), "lost worker 1");
}

// The host's memory is bounded by the credit.
TEST(HostCopies, WithoutCreditNothingIsCopiedDown) {
  Ranks ranks({.num_ranks = 4, .hosts = {0, 0, 1, 1}});
  ranks.sums()->Hold();
  HostTensor tensor(&ranks, 3, (size_t{4} << 20U) / sizeof(float));
  tensor.StartAll();
  ranks.Run();
  // It owns 2 MiB.  The credit is 1 MiB, and has a reserve for small partitions.
  EXPECT_LT(CopiedBy(ranks.backend(0)), 1.25 * (1U << 20U));
  FailAll(&ranks, Status::Unavailable("lost worker 1"));
}

TEST(HostCopies, ASumThatHangsOnAHostNamesNoWorkerWhereItHasEnded) {
  Ranks ranks({.num_ranks = 4, .hosts = {0, 0, 1, 1}});
  ranks.library(1)->Stall(1);
  HostTensor tensor(&ranks, 3, 100);
  tensor.StartAll();
  ranks.Run(std::chrono::seconds(80));
  EXPECT_EQ(tensor.ended(), 4);
  ASSERT_TRUE(tensor.error());
  EXPECT_EQ(tensor.error()->message(),
            "sum 0 (key=3 round=1 bytes 0 to 400) has not ended for 60 s; missing there: worker 3");
}

TEST(HostCopies, AnErrorOfServersFailsAllWorkers) {
  Ranks ranks({.num_ranks = 4, .hosts = {0, 0, 1, 1}});
  ranks.sums()->Refuse(Status::Unavailable("lost server 1"));
  HostTensor tensor(&ranks, 3, 5000);
  tensor.StartAll();
  ranks.Run();
  EXPECT_EQ(tensor.ended(), 4 * 5);
  ASSERT_TRUE(tensor.error());
  EXPECT_EQ(tensor.error()->message(), "lost server 1");
}

// Gives each request of a single worker the next of these operations.
class ScriptedLeader {
 public:
  explicit ScriptedLeader(std::vector<protocol::GrantedOperation> operations)
      : operations_(std::move(operations)) {}

  void Answer(sim::SimExecutor* executor, ps::KvWorker::Done done) {
    if (next_ == operations_.size()) return open_.push_back(std::move(done));
    const std::vector<std::string> encoded = {protocol::Encode(operations_[next_])};
    protocol::DataResponse body;
    body.grants = protocol::EncodeGrants(next_++, encoded);
    executor->Post([done = std::move(done), body] {
      ps::Message response;
      response.meta.extension.body = protocol::Encode(ps::Op::kReady, body);
      done(Status::Ok(), std::move(response));
    });
  }

 private:
  const std::vector<protocol::GrantedOperation> operations_;
  size_t next_ = 0;
  std::vector<ps::KvWorker::Done> open_;
};

TEST(HostCopies, AGrantThatCutsAnElementIsRefused) {
  sim::SimClock clock(1);
  sim::SimExecutor executor(&clock);
  SummingServers servers(1);
  FakeWorld library({.num_ranks = 1});
  ScriptedLeader leader({{{.key = 3, .round = 1, .size_bytes = 400}},
                         {{.key = 3, .round = 1, .size_bytes = 398, .part = 1}}});
  CollectiveBackend backend(
      {.host = HostOptions{.plan = HostPlan(job::MakeView({}, 1, 1)), .crosses = false}}, &executor,
      servers.Join(&executor), library.Join(0, &executor),
      [&](const ps::KvRequest&, ps::KvWorker::Done done) {
        leader.Answer(&executor, std::move(done));
      });
  std::vector<float> values(100, 1);
  const Partition partition{.size_bytes = 400};
  Exchange exchange{.round = 1, .partition = partition};
  exchange.in = std::as_bytes(std::span(values));
  exchange.out = std::as_writable_bytes(std::span(values));
  exchange.released = [](const Status&) {};
  exchange.sent = [](const Status&) {};
  Status ended;
  exchange.summed = [&](const Status& status, const std::string&) { ended = status; };
  backend.Start({.key = 3, .size_bytes = 400, .partitions = {partition}}, std::move(exchange));
  clock.RunUntil(clock.Now() + std::chrono::seconds(1));
  EXPECT_EQ(ended.message(),
            "worker 0: server 0 granted key=3 round=1 bytes 0 to 398, and its sum is not there");
}

TEST(HostCopies, AnErrorOfALibraryFailsAllHosts) {
  Ranks ranks({.num_ranks = 4, .hosts = {0, 0, 1, 1}});
  ranks.library(1)->FailNext(0, Status::Unavailable("a cable was cut"));
  HostTensor tensor(&ranks, 3, 100);
  tensor.StartAll();
  ranks.Run();
  EXPECT_EQ(tensor.ended(), 4);
  ASSERT_TRUE(tensor.error());
  EXPECT_EQ(tensor.error()->message(),
            "worker 2: sum 0 (key=3 round=1 bytes 0 to 400): a cable was cut");
}

}  // namespace
}  // namespace bs::backend::collective
