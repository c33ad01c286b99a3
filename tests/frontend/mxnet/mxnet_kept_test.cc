// Arrays that stay registered between rounds: with the engine's table of them, over a simulated
// NIC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "capi/memory_request.h"
#include "frontend/mxnet/mxnet_fixture.h"
#include "node/kept_memory.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "transport/rdma/rdma_memory.h"

namespace {

using bs::node::KeptMemory;

constexpr size_t kElements = 1000;
constexpr uint64_t kBytes = kElements * sizeof(float);

std::vector<float> Ones() { return std::vector<float>(kElements, 1); }

class KeptTest : public MxnetTest {
 protected:
  KeptTest() {
    worker_.least_kept_bytes = kBytes;
    worker_.use_memory = [this](const bs_kept_memory& memory) { return Use(memory); };
    Open(mxnet_.functions_for_copies());
    LimitTo(UINT64_MAX);
  }
  ~KeptTest() override {
    kept_->DropAll();
    EXPECT_EQ(fabric_.Counts().regions, 0U);
    EXPECT_EQ(owners_, 0U);
    for (const FakeMxnet::Array* array : {&value_, &other_, &sum_, &other_sum_}) {
      EXPECT_EQ(array->num_shared, 0) << "MXNet has its memory back";
    }
    EXPECT_THAT(fabric_.Violations(), testing::IsEmpty());
  }

  void Open(const bs_mxnet_functions& functions) {
    bs_mxnet* opened = nullptr;
    EXPECT_EQ(bs_mxnet_open(&worker_, &functions, &opened, &error_), 0);
    std::swap(opened, plugin_);
    bs_mxnet_drain(opened, 0);
    bs_mxnet_close(opened);
  }
  // Takes another NIC's memory, with room for as much.
  void LimitTo(uint64_t bytes) {
    memory_ = std::make_shared<ps::RdmaMemory>(
        std::shared_ptr<ps::VerbsDevice>(std::move(nic_->Open("sim0", 16).value())), 0, nullptr,
        ps::RdmaLoanRules{.most_bytes = bytes});
    kept_ = std::make_unique<KeptMemory>([this](std::span<std::byte> memory, ps::Lending use) {
      return memory_->Keep(memory, AccessFor(use));
    });
  }
  static ps::VerbsDevice::Access AccessFor(ps::Lending use) {
    return use == ps::Lending::kSent ? ps::VerbsDevice::Access::kLend
                                     : ps::VerbsDevice::Access::kFill;
  }
  std::shared_ptr<void> Use(const bs_kept_memory& memory) {
    return kept_->Use(bs::capi::MemoryOf(memory), [this, &memory] {
      ++owners_;
      std::shared_ptr<void> owner = bs::capi::OwnOf(memory)();
      void* const address = owner.get();
      return std::shared_ptr<void>(address, [this, owner = std::move(owner)](void*) {
        --owners_;
        EXPECT_LE(fabric_.Counts().regions, owners_) << "the card knows memory that is given back";
      });
    });
  }

  void Begin(uint64_t key, FakeMxnet::Array* value, FakeMxnet::Array* sum,
             const bs_coding& coding = {}) {
    const size_t first = mxnet_.operations.size();
    const size_t before = worker_.requests.size();
    const bs_mxnet_round round{key,    name_, 0,     nullptr, sum,     kBytes,
                               coding, 0,     value, 0,       nullptr, nullptr};
    ASSERT_EQ(bs_mxnet_push_pull(plugin_, &round, &error_), 0);
    mxnet_.Run(first + kPush);
    mxnet_.Run(first + kPull);
    ASSERT_EQ(worker_.requests.size(), before + 1);
  }
  // The latest round sends and receives.
  void Push() { worker_.Push(worker_.requests.size() - 1); }
  void Pull() { worker_.Pull(worker_.requests.size() - 1); }
  void End() {
    Push();
    Pull();
  }
  void Round(uint64_t key, FakeMxnet::Array* value, FakeMxnet::Array* sum) {
    Begin(key, value, sum);
    End();
  }
  bool IsFound(const FakeMxnet::Array& array, ps::Lending use) const {
    return memory_->Find(std::as_bytes(std::span(array.values)), AccessFor(use)) != nullptr;
  }
  bool IsSent(const FakeMxnet::Array& array) const { return IsFound(array, ps::Lending::kSent); }
  uint64_t registrations() const { return fabric_.Counts().registrations; }
  uint64_t regions() const { return fabric_.Counts().regions; }

  ps::test::SimulatedFabric fabric_{{.threaded = false}};
  const std::shared_ptr<ps::test::SimulatedNic> nic_ = fabric_.Add("sim0");
  std::shared_ptr<ps::RdmaMemory> memory_;
  std::unique_ptr<KeptMemory> kept_;
  uint64_t owners_ = 0;
  FakeMxnet::Array value_{Ones()}, other_{Ones()}, sum_{std::vector<float>(kElements)},
      other_sum_{std::vector<float>(kElements)};
};

TEST_F(KeptTest, ManyRoundsRegisterOnce) {
  for (int i = 0; i < 10; ++i) {
    Begin(7, &value_, &sum_);
    EXPECT_TRUE(IsSent(value_));
    EXPECT_TRUE(IsFound(sum_, ps::Lending::kFilled));
    Push();
    EXPECT_FALSE(IsSent(value_)) << "MXNet may do with it what it likes";
    EXPECT_TRUE(IsFound(sum_, ps::Lending::kFilled));
    Pull();
    EXPECT_FALSE(IsFound(sum_, ps::Lending::kFilled));
  }
  EXPECT_EQ(registrations(), 2U) << "the gradient and the sum";
  EXPECT_EQ(value_.num_shared, 1) << "so MXNet does not free it";
  EXPECT_EQ(sum_.num_shared, 1);
}

TEST_F(KeptTest, AnotherArrayTakesThePlaceOfTheFirst) {
  Round(7, &value_, &sum_);
  Round(7, &other_, &sum_);
  EXPECT_EQ(registrations(), 3U);
  EXPECT_EQ(regions(), 2U);
  EXPECT_EQ(value_.num_shared, 0);
  Round(8, &value_, &sum_);
  EXPECT_EQ(registrations(), 5U) << "another key has its own";
}

TEST_F(KeptTest, AnArrayThatARoundUsesEndsWithIt) {
  Begin(7, &value_, &sum_);
  worker_.Pull(0);
  Begin(7, &other_, &sum_);
  EXPECT_EQ(regions(), 3U);
  EXPECT_TRUE(IsSent(value_));
  worker_.Push(0);
  EXPECT_EQ(regions(), 2U);
  EXPECT_EQ(value_.num_shared, 0);
  End();
}

// Another layout may need more memory.  The new one may even begin where the old one did.
TEST_F(KeptTest, MemoryThatMxnetHasReplacedIsRegisteredAgain) {
  Round(7, &value_, &sum_);
  value_.own_memory.size_bytes += 64;
  Round(7, &value_, &sum_);
  EXPECT_EQ(registrations(), 3U);
  EXPECT_EQ(regions(), 2U);
  const std::vector<float> old = std::exchange(value_.values, Ones());
  EXPECT_FALSE(memory_->Find(std::as_bytes(std::span(old)), ps::VerbsDevice::Access::kLend))
      << "it may be another array's by now";
  Round(7, &value_, &sum_);
  EXPECT_EQ(registrations(), 4U);
}

TEST_F(KeptTest, TheLeastRecentlyUsedMakesRoom) {
  LimitTo(4 * kBytes);
  Round(1, &value_, &sum_);
  Round(2, &other_, &other_sum_);
  Round(1, &value_, &sum_);
  FakeMxnet::Array third(Ones()), third_sum(Ones());
  Round(3, &third, &third_sum);
  EXPECT_EQ(regions(), 4U);
  EXPECT_EQ(other_.num_shared + other_sum_.num_shared, 0) << "key 2 was used before key 1";
  EXPECT_EQ(registrations(), 6U);
  Round(1, &value_, &sum_);
  EXPECT_EQ(registrations(), 6U);
  kept_->DropAll();
}

TEST_F(KeptTest, MemoryInUseMakesNoRoom) {
  LimitTo(2 * kBytes);
  Begin(1, &value_, &sum_);
  Begin(2, &other_, &other_sum_);
  EXPECT_FALSE(IsSent(other_)) << "its bytes are copied";
  EXPECT_TRUE(IsSent(value_));
  EXPECT_EQ(registrations(), 2U);
  End();
  EXPECT_EQ(other_sum_.values, other_.values) << "the round works as well";
  worker_.Push(0);
  worker_.Pull(0);
  Round(2, &other_, &other_sum_);
  EXPECT_EQ(regions(), 2U);
  EXPECT_EQ(value_.num_shared, 0);
}

TEST_F(KeptTest, AnArrayThatNeverFitsDropsNothing) {
  LimitTo(kBytes - 1);
  Round(1, &value_, &sum_);
  EXPECT_EQ(registrations(), 0U);
  EXPECT_EQ(value_.num_shared, 0);
}

TEST_F(KeptTest, CodesLieElsewhere) {
  bs_coding coding{};
  coding.codec = 1;
  Begin(7, &value_, &sum_, coding);
  End();
  EXPECT_EQ(registrations(), 1U) << "the sum";
  EXPECT_EQ(value_.num_shared, 0);
}

TEST_F(KeptTest, ARoundThatFailsUsesNothing) {
  worker_.refusal = "lost server 0";
  const bs_mxnet_round round{7,  name_, 0,       nullptr, &sum_,   kBytes,
                             {}, 0,     &value_, 0,       nullptr, nullptr};
  ASSERT_EQ(bs_mxnet_push_pull(plugin_, &round, &error_), 0);
  mxnet_.Run(kPush);
  mxnet_.Run(kPull);
  EXPECT_EQ(registrations(), 2U);
  EXPECT_FALSE(IsSent(value_));
  EXPECT_FALSE(IsFound(sum_, ps::Lending::kFilled));
}

TEST_F(KeptTest, SmallArraysAreNotAskedFor) {
  worker_.least_kept_bytes = kBytes + 1;
  Open(mxnet_.functions_for_copies());
  Round(7, &value_, &sum_);
  EXPECT_EQ(registrations(), 0U);
}

// It could not tell that MXNet has replaced an array's memory.
TEST_F(KeptTest, WithoutASightOfTheirMemoryNoArrayIsKept) {
  bs_mxnet_functions functions = mxnet_.functions_for_copies();
  functions.create_array =
      reinterpret_cast<void*>(+[](const uint32_t* shape, uint32_t, int, int, int, int, void** out) {
        auto* const array = new FakeMxnet::Array(std::vector<float>(shape[0]));
        array->own_memory.size_bytes = 1;
        *out = array;
        return 0;
      });
  Open(functions);
  Round(7, &value_, &sum_);
  EXPECT_EQ(registrations(), 0U);
}

TEST_F(KeptTest, AtTheEndNothingIsLeft) {
  Round(7, &value_, &sum_);
  EXPECT_EQ(regions(), 2U);
  kept_->DropAll();
  EXPECT_EQ(regions(), 0U);
  EXPECT_EQ(value_.num_shared, 0);
  Round(7, &value_, &sum_);
  EXPECT_EQ(regions(), 0U);
}

}  // namespace
