// NcclCollective: sums of several ranks of this process, and how they fail.
#include "backend/collective/nccl/nccl_collective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/collective/nccl/fake_gpu_world.h"
#include "base/loop_thread.h"
#include "base/notification.h"
#include "base/run_on.h"

// The process keeps the memory of copies whose end nothing tells, and no pointer leads to it.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:NcclSums::~NcclSums"; }

namespace bs::backend::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The end of a call.
struct Outcome {
  Notification ended;
  Status status;
  int times = 0;

  Status Wait() const {
    EXPECT_TRUE(ended.WaitFor(seconds(60)));
    EXPECT_EQ(times, 1);
    return status;
  }
};

class NcclCollectiveTest : public testing::Test {
 protected:
  void Make(int32_t size, NcclOptions options = {}) {
    options.size = size;
    cards_.resize(static_cast<size_t>(size));
    RunOn(&loop_, [&] {
      for (options.rank = 0; options.rank < size; ++options.rank) {
        options.introduce = [this, rank = options.rank](const std::string& card, auto done) {
          Introduce(rank, card, std::move(done));
        };
        ranks_.push_back(
            std::make_unique<NcclCollective>(&loop_, std::move(LoadFakeNccl("whole").value()),
                                             std::move(LoadFakeDriver("whole").value()), options));
      }
    });
  }
  void SetUp() override {
    for (int rank = 0; rank < 4; ++rank) world_.SetFault(rank, kFakeNone);
  }
  void TearDown() override { End(); }
  void End() {
    RunOn(&loop_, [&] { ranks_.clear(); });
  }

  // Memory of a rank's GPU.
  std::vector<float>* Memory(size_t rank, std::vector<float> values) {
    memory_.push_back(std::make_unique<std::vector<float>>(std::move(values)));
    world_.Own(*memory_.back(), static_cast<int>(rank));
    return memory_.back().get();
  }
  std::shared_ptr<Outcome> Sum(size_t rank, uint64_t sequence, std::vector<Piece> pieces,
                               DType dtype = DType::kFloat32) {
    auto outcome = std::make_shared<Outcome>();
    RunOn(&loop_, [&] {
      ranks_[rank]->Begin(std::move(pieces), dtype, sequence,
                          [this, outcome](const Status& status) {
                            EXPECT_TRUE(loop_.IsCurrent());
                            ++outcome->times;
                            outcome->status = status;
                            outcome->ended.Notify();
                          });
      EXPECT_EQ(outcome->times, 0) << "never inside the call";
    });
    return outcome;
  }
  std::shared_ptr<Outcome> Sum(size_t rank, uint64_t sequence, std::vector<float>* in_place) {
    return Sum(rank, sequence,
               {{.in = std::as_bytes(std::span(*in_place)),
                 .out = std::as_writable_bytes(std::span(*in_place))}});
  }
  // An operation on arrays of all ranks, of which each rank owns `count` elements.
  std::vector<std::shared_ptr<Outcome>> OperateByOwners(
      PieceKind kind, uint64_t sequence, const std::vector<std::vector<float>*>& ins,
      const std::vector<std::vector<float>*>& outs, size_t count) {
    std::vector<std::shared_ptr<Outcome>> outcomes;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      std::vector<Piece> pieces;
      for (size_t root = 0; root < ranks_.size(); ++root) {
        const auto part = [&](std::vector<float>* of) {
          return std::span(*of).subspan(root * count, count);
        };
        pieces.push_back({.in = std::as_bytes(part(ins[rank])),
                          .out = std::as_writable_bytes(part(outs[rank])),
                          .kind = kind,
                          .root = static_cast<int32_t>(root)});
      }
      outcomes.push_back(Sum(rank, sequence, std::move(pieces)));
    }
    return outcomes;
  }
  std::shared_ptr<Outcome> Copy(size_t rank, std::span<const float> in, std::span<float> out,
                                const HostMemory& host = {}) {
    auto outcome = std::make_shared<Outcome>();
    RunOn(&loop_, [&] {
      ranks_[rank]->Copy({.in = std::as_bytes(in), .out = std::as_writable_bytes(out)}, host,
                         [outcome](const Status& status) {
                           ++outcome->times;
                           outcome->status = status;
                           outcome->ended.Notify();
                         });
    });
    return outcome;
  }
  // One sum of all ranks, each with an array of 1000 elements.
  std::vector<std::shared_ptr<Outcome>> SumAll(uint64_t sequence = 0) {
    std::vector<std::shared_ptr<Outcome>> outcomes;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      outcomes.push_back(Sum(rank, sequence, Memory(rank, std::vector<float>(1000, 1))));
    }
    return outcomes;
  }
  // The same; returns when every rank has called NCCL for its sum.
  std::vector<std::shared_ptr<Outcome>> BeginAll() {
    const int wanted = world_.groups() + static_cast<int>(ranks_.size());
    std::vector<std::shared_ptr<Outcome>> outcomes = SumAll();
    Await([&] { return world_.groups() >= wanted; });
    return outcomes;
  }
  // Returns when so many communicators of this process have been ended by an abort.
  void AwaitAborts(int number) {
    Await([&] { return world_.aborts() >= number; });
  }
  static void Await(const std::function<bool()>& condition) {
    for (int i = 0; i < 20000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(condition());
  }
  struct Told {
    Notification come;
    uint64_t num_begun = 0;
  };
  std::shared_ptr<Told> AskBegun(size_t rank) {
    auto told = std::make_shared<Told>();
    RunOn(&loop_, [&] {
      ranks_[rank]->TellBegun([told](uint64_t num_begun) {
        told->num_begun = num_begun;
        told->come.Notify();
      });
    });
    return told;
  }
  uint64_t Begun(size_t rank) {
    const auto told = AskBegun(rank);
    EXPECT_TRUE(told->come.WaitFor(seconds(20)));
    return told->num_begun;
  }
  void Abort(size_t rank, const std::string& text) {
    RunOn(&loop_, [&] { ranks_[rank]->Abort(Status::Unavailable(text)); });
  }
  void Close() {
    RunOn(&loop_, [&] {
      for (const auto& rank : ranks_) rank->Abort(Status::Cancelled("the worker was closed"));
    });
    End();
  }

  FakeGpuWorld world_;
  LoopThread loop_{"test"};
  std::vector<std::unique_ptr<NcclCollective>> ranks_;

 private:
  void Introduce(int32_t rank, const std::string& card,
                 UniqueFunction<void(const Result<Cards>&)> done) {
    EXPECT_TRUE(loop_.IsCurrent());
    cards_[static_cast<size_t>(rank)] = card;
    introduced_.push_back(std::move(done));
    if (introduced_.size() < cards_.size()) return;
    for (const auto& each : introduced_) each(cards_);
  }

  Cards cards_;
  std::vector<UniqueFunction<void(const Result<Cards>&)>> introduced_;
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
};

TEST_F(NcclCollectiveTest, SumsInARow) {
  Make(3, {.spin = std::chrono::microseconds(100)});
  std::vector<std::vector<float>*> memory;
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (uint64_t sequence = 0; sequence < 40; ++sequence) {
    for (size_t rank = 0; rank < 3; ++rank) {
      memory.push_back(Memory(rank, {1, static_cast<float>(rank), static_cast<float>(sequence)}));
      outcomes.push_back(Sum(rank, sequence, memory.back()));
    }
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    ASSERT_TRUE(outcomes[i]->Wait().ok()) << outcomes[i]->status.message();
    EXPECT_EQ(*memory[i], (std::vector<float>{3, 3, static_cast<float>(i / 3) * 3}));
  }
}

TEST_F(NcclCollectiveTest, SumsSeveralPiecesByOneCall) {
  Make(2);
  const int before = world_.groups();
  std::vector<std::vector<float>*> outs;
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (size_t rank = 0; rank < 2; ++rank) {
    std::vector<Piece> pieces;
    for (size_t piece = 0; piece < 3; ++piece) {
      const std::vector<float>* const in =
          Memory(rank, std::vector<float>(50000 * (piece + 1), static_cast<float>(piece)));
      outs.push_back(Memory(rank, std::vector<float>(in->size(), NAN)));
      pieces.push_back({.in = std::as_bytes(std::span(*in)),
                        .out = std::as_writable_bytes(std::span(*outs.back()))});
    }
    outcomes.push_back(Sum(rank, 0, std::move(pieces)));
  }
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome->Wait().ok());
  EXPECT_EQ(world_.groups() - before, 2) << "one for each rank";
  for (size_t i = 0; i < outs.size(); ++i) {
    EXPECT_EQ(*outs[i], std::vector<float>(outs[i]->size(), static_cast<float>(i % 3) * 2));
  }
}

TEST_F(NcclCollectiveTest, SumsEachDtypeThatItTells) {
  Make(2);
  uint64_t sequence = 0;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    EXPECT_TRUE(ranks_[0]->Sums(dtype));
    std::vector<std::shared_ptr<Outcome>> outcomes;
    std::vector<std::vector<float>*> memory;
    for (size_t rank = 0; rank < 2; ++rank) {
      memory.push_back(Memory(rank, std::vector<float>(64)));
      // A value that each of these dtypes has.
      const double value = 1.5;
      const uint16_t half = dtype == DType::kFloat16 ? 0x3e00 : 0x3fc0;
      auto* const bytes = reinterpret_cast<std::byte*>(memory.back()->data());
      for (size_t at = 0; at < 256; at += SizeOf(dtype)) {
        const float single = 1.5F;
        const void* const from = dtype == DType::kFloat64   ? static_cast<const void*>(&value)
                                 : dtype == DType::kFloat32 ? static_cast<const void*>(&single)
                                                            : static_cast<const void*>(&half);
        std::memcpy(bytes + at, from, SizeOf(dtype));
      }
      outcomes.push_back(Sum(rank, sequence, {{.in = {bytes, 256}, .out = {bytes, 256}}}, dtype));
    }
    ++sequence;
    for (const auto& outcome : outcomes) ASSERT_TRUE(outcome->Wait().ok());
    const double value = 3;
    const float single = 3;
    const uint16_t half = dtype == DType::kFloat16 ? 0x4200 : 0x4040;
    const void* const wanted = dtype == DType::kFloat64   ? static_cast<const void*>(&value)
                               : dtype == DType::kFloat32 ? static_cast<const void*>(&single)
                                                          : static_cast<const void*>(&half);
    for (const std::vector<float>* const sums : memory) {
      EXPECT_EQ(std::memcmp(reinterpret_cast<const std::byte*>(sums->data()) + 256 - SizeOf(dtype),
                            wanted, SizeOf(dtype)),
                0)
          << NameOf(dtype);
    }
  }
  EXPECT_FALSE(ranks_[0]->Sums(DType::kInt32));
}

// As within a host: each part of an array has an owner, which gets its sum, copies it to the host
// and back, and gives it to the others.
TEST_F(NcclCollectiveTest, OwnersGetSumsAndGiveThemToAllRanks) {
  constexpr size_t kCount = 40000;  // more than a chunk of the library
  Make(3);
  std::vector<std::vector<float>*> ins;
  std::vector<std::vector<float>*> outs;
  for (size_t rank = 0; rank < 3; ++rank) {
    ins.push_back(Memory(rank, std::vector<float>(3 * kCount, static_cast<float>(rank + 1))));
    outs.push_back(Memory(rank, std::vector<float>(3 * kCount, -1)));
  }
  for (const auto& outcome : OperateByOwners(PieceKind::kReduce, 0, ins, outs, kCount)) {
    ASSERT_TRUE(outcome->Wait().ok()) << outcome->status.message();
  }
  const size_t copied_before = world_.copied_bytes();
  for (size_t rank = 0; rank < 3; ++rank) {
    const std::span<float> own = std::span(*outs[rank]).subspan(rank * kCount, kCount);
    EXPECT_EQ((*outs[rank])[(rank + 1) % 3 * kCount], -1) << "another rank owns it";
    std::vector<float> on_host(kCount);
    ASSERT_TRUE(Copy(rank, own, on_host)->Wait().ok());
    EXPECT_EQ(on_host, std::vector<float>(kCount, 6));
    std::ranges::fill(on_host, 12.0F);
    ASSERT_TRUE(Copy(rank, on_host, own)->Wait().ok());
  }
  EXPECT_EQ(world_.copied_bytes() - copied_before, 3 * 2 * kCount * sizeof(float));
  for (const auto& outcome : OperateByOwners(PieceKind::kBroadcast, 1, outs, outs, kCount)) {
    ASSERT_TRUE(outcome->Wait().ok());
  }
  for (const std::vector<float>* const out : outs) {
    EXPECT_EQ(*out, std::vector<float>(3 * kCount, 12));
  }
}

TEST_F(NcclCollectiveTest, AnotherRootOnAnotherRankFails) {
  Make(2, {.blame = milliseconds(10)});
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (size_t rank = 0; rank < 2; ++rank) {
    std::vector<float>* const memory = Memory(rank, {1, 2});
    outcomes.push_back(Sum(rank, 0,
                           {{.in = std::as_bytes(std::span(*memory)),
                             .out = std::as_writable_bytes(std::span(*memory)),
                             .kind = PieceKind::kReduce,
                             .root = static_cast<int32_t>(rank)}}));
  }
  for (const auto& outcome : outcomes) EXPECT_FALSE(outcome->Wait().ok());
}

TEST_F(NcclCollectiveTest, ATensorOfTheCpuFailsAndLaterCallsToo) {
  Make(1);
  std::vector<float> on_cpu(4);
  world_.Own(on_cpu, -1);
  const std::string text = Sum(0, 0, &on_cpu)->Wait().message();
  EXPECT_TRUE(text.starts_with("NCCL sums tensors of GPUs, and this tensor is on the CPU")) << text;
  EXPECT_EQ(Sum(0, 1, Memory(0, {1}))->Wait().message(), text);
}

TEST_F(NcclCollectiveTest, TwoRanksOnOneGpuFailAlike) {
  Make(2);
  const auto first = Sum(0, 0, Memory(5, {1}));
  const auto second = Sum(1, 0, Memory(5, {1}));
  EXPECT_EQ(first->Wait().message(), second->Wait().message());
  EXPECT_TRUE(first->status.message().starts_with("worker 0 and worker 1 have tensors on one GPU"));
}

TEST_F(NcclCollectiveTest, ARefusedConnectionIsTheStatus) {
  world_.SetFault(1, kFakeRefusesToConnect);
  Make(2, {.blame = milliseconds(10)});
  const auto outcomes = SumAll();
  EXPECT_EQ(outcomes[1]->Wait().message(), "ncclCommInitRankConfig: unhandled system error");
  Abort(0, "worker 1 has failed");
  EXPECT_EQ(outcomes[0]->Wait().message(), "worker 1 has failed");
}

TEST_F(NcclCollectiveTest, OtherSumsOnAnotherRankFail) {
  world_.SetFault(0, kFakeOtherSum, 1);
  Make(2, {.blame = milliseconds(10)});
  for (const auto& outcome : SumAll(0)) EXPECT_TRUE(outcome->Wait().ok());
  for (const auto& outcome : SumAll(1)) {
    EXPECT_NE(outcome->Wait().message().find("NCCL failed: "), std::string::npos)
        << outcome->status.message();
  }
}

TEST_F(NcclCollectiveTest, AnErrorOfNcclWaitsForTheNameOfTheLostRank) {
  world_.SetFault(0, kFakeFails);
  Make(2, {.blame = seconds(60)});
  const auto outcomes = SumAll();
  EXPECT_FALSE(outcomes[0]->ended.WaitFor(milliseconds(100)));
  for (size_t rank = 0; rank < 2; ++rank) {
    Abort(rank, "worker 1 was lost");
    EXPECT_EQ(outcomes[rank]->Wait().message(), "worker 1 was lost");
  }
}

TEST_F(NcclCollectiveTest, AnErrorOfNcclWithoutAnotherReasonIsTheStatus) {
  world_.SetFault(0, kFakeFails);
  Make(2, {.blame = milliseconds(10)});
  const auto outcomes = SumAll();
  EXPECT_EQ(outcomes[0]->Wait().message(),
            "NCCL failed: remote process exited or there was a network error (a cable was cut)");
  EXPECT_FALSE(outcomes[1]->Wait().ok());
}

TEST_F(NcclCollectiveTest, AbortEndsSumsUnderWay) {
  world_.SetFault(1, kFakeHangs, 1);
  Make(2);
  for (const auto& outcome : SumAll(0)) ASSERT_TRUE(outcome->Wait().ok());
  const auto outcomes = SumAll(1);
  EXPECT_FALSE(outcomes[1]->ended.WaitFor(milliseconds(30)));
  for (size_t rank = 0; rank < 2; ++rank) {
    Abort(rank, "worker 1 was lost");
    EXPECT_EQ(outcomes[rank]->Wait().message(), "worker 1 was lost");
    EXPECT_EQ(Sum(rank, 2, Memory(rank, {1}))->Wait().message(), "worker 1 was lost");
  }
}

TEST_F(NcclCollectiveTest, AbortEndsConnecting) {
  world_.SetFault(1, kFakeConnects);
  Make(2);
  const auto outcomes = SumAll();
  EXPECT_FALSE(outcomes[0]->ended.WaitFor(milliseconds(30)));
  for (size_t rank = 0; rank < 2; ++rank) {
    Abort(rank, "worker 1 was lost");
    EXPECT_EQ(outcomes[rank]->Wait().message(), "worker 1 was lost");
  }
}

TEST_F(NcclCollectiveTest, NothingIsWaitedForBeyondTheDeadline) {
  world_.SetFault(1, kFakeHangs);
  Make(2, {.deadline = milliseconds(200), .blame = milliseconds(10)});
  int late = 0;
  for (const auto& outcome : SumAll()) {
    // The abort of the first rank may reach the second rank before its own deadline.
    if (outcome->Wait().code() != StatusCode::kDeadlineExceeded) continue;
    EXPECT_TRUE(outcome->status.message().starts_with("NCCL has ended no sum in 0 s"));
    ++late;
  }
  EXPECT_GE(late, 1);
}

TEST_F(NcclCollectiveTest, TheThreadIsLeftBehindInACallThatBlocks) {
  world_.SetFault(0, kFakeBlocks);
  Make(1, {.patience = milliseconds(50)});
  const int before = world_.aborts();
  const auto outcomes = BeginAll();
  End();
  EXPECT_EQ(outcomes[0]->times, 0);
  EXPECT_EQ(world_.aborts(), before) << "it is under way";
  world_.SetFault(0, kFakeNone);
  AwaitAborts(before + 1);  // it touches nothing of ours
}

TEST_F(NcclCollectiveTest, ACloseWithoutSumsUnderWayAbortsNothing) {
  Make(2);
  const int before = world_.aborts();
  for (const auto& outcome : SumAll()) ASSERT_TRUE(outcome->Wait().ok());
  Close();
  EXPECT_EQ(world_.aborts(), before);
}

TEST_F(NcclCollectiveTest, ACloseWithSumsUnderWayAbortsThem) {
  world_.SetFault(1, kFakeHangs);
  Make(2, {.patience = seconds(60)});
  const int before = world_.aborts();
  const auto outcomes = BeginAll();
  Close();
  EXPECT_EQ(world_.aborts() - before, 2);
}

TEST_F(NcclCollectiveTest, AnAbortThatBlocksHoldsNoErrorBack) {
  world_.SetFault(0, kFakeBlocks);
  Make(1, {.deadline = seconds(1), .patience = milliseconds(50)});
  const int before = world_.aborts();
  const auto outcomes = BeginAll();
  EXPECT_TRUE(outcomes[0]->Wait().message().starts_with("NCCL has ended no sum in 1 s"));
  EXPECT_EQ(world_.aborts(), before) << "it is under way";
  End();
  world_.SetFault(0, kFakeNone);
  AwaitAborts(before + 1);
}

TEST_F(NcclCollectiveTest, ACallThatBlocksHoldsNoErrorBack) {
  world_.SetFault(0, kFakeKeeps);
  Make(1, {.deadline = seconds(1), .patience = milliseconds(50)});
  const int before = world_.aborts();
  const auto outcomes = BeginAll();
  EXPECT_TRUE(outcomes[0]->Wait().message().starts_with(
      "NCCL has kept the thread bs-nccl in a call for 2 s"));
  End();
  world_.SetFault(0, kFakeNone);
  AwaitAborts(before + 1);
}

TEST_F(NcclCollectiveTest, CountsItsSumsUnlessACallBlocks) {
  world_.SetFault(0, kFakeKeeps);
  Make(1);
  const auto outcomes = BeginAll();
  const auto told = AskBegun(0);
  EXPECT_FALSE(told->come.WaitFor(milliseconds(50)));
  world_.SetFault(0, kFakeNone);
  EXPECT_TRUE(told->come.WaitFor(seconds(20)));
  EXPECT_TRUE(outcomes[0]->Wait().ok());
  EXPECT_EQ(Begun(0), 1U);
}

TEST_F(NcclCollectiveTest, ASumThatNcclHasNotTakenHasNotBegun) {
  world_.SetFault(0, kFakeStays);
  Make(1);
  const auto outcomes = SumAll();
  EXPECT_FALSE(outcomes[0]->ended.WaitFor(milliseconds(50)));
  EXPECT_EQ(Begun(0), 0U) << "its group call is in progress";
  world_.SetFault(0, kFakeNone);
  EXPECT_TRUE(outcomes[0]->Wait().ok());
  EXPECT_EQ(Begun(0), 1U);
}

TEST_F(NcclCollectiveTest, WithoutAConnectionNoSumHasBegun) {
  world_.SetFault(1, kFakeConnects);
  Make(2);
  const auto outcomes = SumAll();
  EXPECT_FALSE(outcomes[0]->ended.WaitFor(milliseconds(50)));
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Begun(rank), 0U);
    EXPECT_TRUE(ranks_[rank]->hint().starts_with("NCCL_DEBUG=INFO shows the networks"));
  }
}

// The GPU may write there until its stream comes to the end.
TEST_F(NcclCollectiveTest, MemoryOfTheHostStaysUntilItsCopyHasEnded) {
  Make(1, {.patience = seconds(20)});
  ASSERT_TRUE(SumAll().front()->Wait().ok());
  const std::vector<float>* const on_gpu = Memory(0, {1, 2});
  auto owner = std::make_shared<std::vector<float>>(2);
  const std::weak_ptr<std::vector<float>> weak = owner;
  world_.Hold(true);
  const auto outcome = Copy(0, *on_gpu, *owner, {.owner = owner});
  owner.reset();
  Abort(0, "worker 1 was lost");
  EXPECT_FALSE(outcome->ended.WaitFor(milliseconds(50)));
  EXPECT_FALSE(weak.expired());
  world_.Hold(false);
  EXPECT_EQ(outcome->Wait().message(), "worker 1 was lost");
  End();
  EXPECT_TRUE(weak.expired());
}

TEST_F(NcclCollectiveTest, MemoryThatLastsIsPageLockedUntilTheEnd) {
  Make(1);
  ASSERT_TRUE(SumAll().front()->Wait().ok());
  const std::vector<float>* const on_gpu = Memory(0, {1, 2});
  const HostMemory once{.owner = std::make_shared<std::vector<float>>(2)};
  auto owner = std::make_shared<std::vector<float>>(2);
  const HostMemory lasting{.owner = owner, .lasting = std::as_writable_bytes(std::span(*owner))};
  std::vector<float> other(2);
  ASSERT_TRUE(Copy(0, *on_gpu, other, once)->Wait().ok());
  EXPECT_EQ(world_.locked_bytes(), 0U);
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(Copy(0, *on_gpu, *owner, lasting)->Wait().ok());
    EXPECT_EQ(world_.locked_bytes(), lasting.lasting.size());
  }
  EXPECT_EQ(*owner, *on_gpu);
  End();
  EXPECT_EQ(world_.locked_bytes(), 0U);
  EXPECT_EQ(owner.use_count(), 2) << "this test and its piece of memory";
}

TEST_F(NcclCollectiveTest, MemoryThatTheGpuMayUseStaysPageLocked) {
  Make(1, {.patience = milliseconds(500)});
  ASSERT_TRUE(SumAll().front()->Wait().ok());
  // The GPU may read it until the process ends.
  static const auto* const on_gpu = new std::vector<float>{1, 2};
  auto owner = std::make_shared<std::vector<float>>(2);
  const size_t size_bytes = 2 * sizeof(float);
  world_.Hold(true);
  const auto outcome = Copy(0, *on_gpu, *owner,
                            {.owner = owner, .lasting = std::as_writable_bytes(std::span(*owner))});
  Abort(0, "worker 1 was lost");
  EXPECT_EQ(outcome->Wait().message(), "worker 1 was lost");
  End();
  EXPECT_EQ(world_.locked_bytes(), size_bytes);
  EXPECT_GT(owner.use_count(), 1) << "the process keeps it";
  world_.Hold(false);
  world_.ForgetLocked();
}

TEST_F(NcclCollectiveTest, ADriverThatPageLocksNothingCopiesToo) {
  Make(1);
  ASSERT_TRUE(SumAll().front()->Wait().ok());
  const std::vector<float>* const on_gpu = Memory(0, {1, 2});
  auto owner = std::make_shared<std::vector<float>>(2);
  world_.Locks(false);
  const auto outcome = Copy(0, *on_gpu, *owner,
                            {.owner = owner, .lasting = std::as_writable_bytes(std::span(*owner))});
  EXPECT_TRUE(outcome->Wait().ok());
  world_.Locks(true);
  EXPECT_EQ(*owner, *on_gpu);
  EXPECT_EQ(world_.locked_bytes(), 0U);
}

TEST_F(NcclCollectiveTest, AnErrorOfTheDriverIsNoEndOfASum) {
  world_.SetFault(0, kFakeFaults);
  Make(1, {.patience = seconds(2)});
  const auto outcomes = BeginAll();
  Abort(0, "worker 1 was lost");
  EXPECT_FALSE(outcomes[0]->ended.WaitFor(milliseconds(50)));
  EXPECT_EQ(outcomes[0]->Wait().message(), "worker 1 was lost");
}

TEST_F(NcclCollectiveTest, AGraphThatIsCapturedStopsNoSum) {
  Make(2);
  world_.Capture(true);
  for (const auto& outcome : SumAll()) EXPECT_TRUE(outcome->Wait().ok());
  world_.Capture(false);
}

TEST_F(NcclCollectiveTest, NoCallbackRunsAfterItsEnd) {
  world_.SetFault(1, kFakeHangs);
  Make(2);
  const auto outcomes = SumAll();
  End();
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome->times, 0);
}

}  // namespace
}  // namespace bs::backend::collective
