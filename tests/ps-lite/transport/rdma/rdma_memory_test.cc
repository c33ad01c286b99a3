// Memory that a NIC may use: loans, blocks and bounce blocks.
#include "transport/rdma/rdma_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/numa.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"

namespace ps::test {
namespace {

using Access = VerbsDevice::Access;

class RdmaMemoryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBounceBytes = 64U << 10U;

  SimulatedFabric fabric_{{.threaded = false}};
  const std::shared_ptr<SimulatedNic> nic_ = fabric_.Add("sim0");
  const std::shared_ptr<RdmaCounts> counts_ = std::make_shared<RdmaCounts>();
  std::shared_ptr<RdmaMemory> memory_ = std::make_shared<RdmaMemory>(
      std::shared_ptr<VerbsDevice>(std::move(nic_->Open("sim0", 16).value())), kBounceBytes,
      counts_);
};

TEST_F(RdmaMemoryTest, ALoanIsFoundWhileItLastsAndOnlyForItsUse) {
  std::vector<std::byte> bytes(10'000);
  auto loan = memory_->Lend(bytes, Access::kLend);
  ASSERT_TRUE(loan.ok());
  const std::span<const std::byte> all = bytes;
  EXPECT_TRUE(memory_->Find(all, Access::kLend));
  EXPECT_TRUE(memory_->Find(all.subspan(100, 9'900), Access::kLend));
  EXPECT_FALSE(memory_->Find(all, Access::kFill)) << "the NIC must not write there";
  EXPECT_FALSE(memory_->Find({all.data() + 1, all.size()}, Access::kLend)) << "past the end";
  EXPECT_FALSE(memory_->Find(all.first(0), Access::kLend));
  EXPECT_EQ(counts_->pinned_bytes, bytes.size());
  const auto held = memory_->Find(all, Access::kLend);
  loan.value().reset();
  EXPECT_FALSE(memory_->Find(all, Access::kLend));
  EXPECT_EQ(fabric_.Counts().regions, 1U) << "it is under way still";
}

TEST_F(RdmaMemoryTest, ALoanThatIsRefusedSaysWhy) {
  nic_->LimitPinned(4096);
  std::vector<std::byte> bytes(100'000);
  const auto loan = memory_->Lend(bytes, Access::kLend);
  ASSERT_FALSE(loan.ok());
  EXPECT_EQ(loan.status().code(), bs::StatusCode::kResourceExhausted);
  EXPECT_EQ(counts_->pinned_bytes, 0U);
}

TEST_F(RdmaMemoryTest, BytesThatALoanCoversAreNotRegisteredAgain) {
  std::vector<std::byte> bytes(10'000);
  const std::span<std::byte> all = bytes;
  const auto loan = memory_->Lend(all, Access::kLend);
  ASSERT_TRUE(loan.ok());
  EXPECT_EQ(memory_->Lend(all.subspan(100, 1'000), Access::kLend).status().code(),
            bs::StatusCode::kAlreadyExists);
  EXPECT_TRUE(memory_->Lend(all.subspan(100, 1'000), Access::kFill).ok()) << "for another use";
}

TEST_F(RdmaMemoryTest, KeptMemoryIsFoundOnlyWhileItIsLent) {
  std::vector<std::byte> bytes(10'000);
  auto kept = memory_->Keep(bytes, Access::kLend);
  ASSERT_TRUE(kept.ok());
  EXPECT_FALSE(memory_->Find(bytes, Access::kLend)) << "other data may lie there by now";
  for (int i = 0; i < 3; ++i) {
    std::shared_ptr<void> first = kept.value()->Use();
    std::shared_ptr<void> second = kept.value()->Use();
    EXPECT_TRUE(memory_->Find(bytes, Access::kLend));
    EXPECT_FALSE(memory_->Find(bytes, Access::kFill));
    EXPECT_EQ(memory_->Lend(bytes, Access::kLend).status().code(), bs::StatusCode::kAlreadyExists)
        << "an operation's own loan";
    first.reset();
    EXPECT_TRUE(memory_->Find(bytes, Access::kLend)) << "two operations send the same";
    second.reset();
    EXPECT_FALSE(memory_->Find(bytes, Access::kLend));
  }
  EXPECT_EQ(fabric_.Counts().registrations, 1U);
  std::shared_ptr<void> last = kept.value()->Use();
  kept.value().reset();
  EXPECT_TRUE(memory_->Find(bytes, Access::kLend)) << "a loan keeps the registration";
  last.reset();
  EXPECT_EQ(fabric_.Counts().regions, 0U);
  EXPECT_EQ(counts_->pinned_bytes, 0U);
}

// Two keys may send one array, or one of them a part of it.
TEST_F(RdmaMemoryTest, LoansMayBeginAtOneAddress) {
  std::vector<std::byte> bytes(10'000);
  const std::span<std::byte> all = bytes;
  auto sent = memory_->Keep(all, Access::kLend);
  auto filled = memory_->Keep(all, Access::kFill);
  auto part = memory_->Keep(all.first(5'000), Access::kLend);
  ASSERT_TRUE(sent.ok() && filled.ok() && part.ok());
  std::shared_ptr<void> of_part = part.value()->Use();
  std::shared_ptr<void> of_sent = sent.value()->Use();
  std::shared_ptr<void> of_filled = filled.value()->Use();
  ASSERT_TRUE(of_part && of_sent && of_filled);
  const auto to_send = memory_->Find(all.subspan(5'000), Access::kLend);
  const auto to_fill = memory_->Find(all.subspan(5'000), Access::kFill);
  EXPECT_TRUE(to_send && to_fill);
  EXPECT_NE(to_send, to_fill) << "a peer must not read what is only filled";
  of_sent.reset();
  EXPECT_FALSE(memory_->Find(all, Access::kLend));
  EXPECT_TRUE(memory_->Find(all.first(5'000), Access::kLend));
  EXPECT_TRUE(memory_->Find(all, Access::kFill));
  of_part.reset();
  of_filled.reset();
  EXPECT_FALSE(memory_->Find(all.first(1), Access::kFill));
}

TEST_F(RdmaMemoryTest, LoansAreBounded) {
  const auto memory = std::make_shared<RdmaMemory>(
      std::shared_ptr<VerbsDevice>(std::move(nic_->Open("sim0", 16).value())), kBounceBytes,
      nullptr, RdmaLoanRules{.most_bytes = 10'000});
  std::vector<std::byte> bytes(10'001);
  const std::span<std::byte> all = bytes;
  nic_->LimitPinned(0);
  EXPECT_THAT(memory->Lend(all, Access::kLend).status().message(),
              ::testing::HasSubstr("than the limit allows"))
      << "it is registered before it is refused";
  nic_->LimitPinned(UINT64_MAX);
  auto first = memory->Lend(all.first(6'000), Access::kLend);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(memory->Lend(all.subspan(6'000), Access::kLend).ok());
  EXPECT_EQ(memory->Keep(all.first(4'001), Access::kFill).status().code(),
            bs::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory->Keep(all, Access::kFill).status().code(), bs::StatusCode::kFailedPrecondition)
      << "not even alone";
  first.value().reset();
  EXPECT_TRUE(memory->Lend(all.subspan(6'000), Access::kLend).ok()) << "there is room again";
  EXPECT_EQ(fabric_.Counts().regions, 0U);
}

TEST_F(RdmaMemoryTest, WhereAChildLosesPagesOnlyWholePagesAreLent) {
  const auto memory = std::make_shared<RdmaMemory>(
      std::shared_ptr<VerbsDevice>(std::move(nic_->Open("sim0", 16).value())), kBounceBytes,
      nullptr, RdmaLoanRules{.whole_pages = true});
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::unique_ptr<std::byte, decltype(&std::free)> pages(
      static_cast<std::byte*>(std::aligned_alloc(page, 2 * page)), std::free);
  const std::span<std::byte> all(pages.get(), 2 * page);
  EXPECT_TRUE(memory->Lend(all, Access::kLend).ok());
  EXPECT_EQ(memory->Lend(all.subspan(64), Access::kLend).status().code(),
            bs::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(memory->Lend(all.first(page + 64), Access::kLend).ok());
}

TEST_F(RdmaMemoryTest, BlocksAreWholePagesAndServeAgain) {
  RdmaMemory::Block first = memory_->Take(5'000);
  RdmaMemory::Block second = memory_->Take(5'000);
  ASSERT_TRUE(first && second);
  const auto page = reinterpret_cast<uintptr_t>(first.bytes().data());
  EXPECT_EQ(page % RdmaMemory::kPageBytes, 0U);
  EXPECT_NE(first.bytes().data(), second.bytes().data());
  EXPECT_EQ(first.local_key(), second.local_key()) << "one region for both";
  std::byte* const begin = first.bytes().data();
  first = RdmaMemory::Block();
  EXPECT_EQ(memory_->Take(8'000).bytes().data(), begin);
  // A block can be shown to a peer.
  EXPECT_TRUE(memory_->Find(second.bytes(), Access::kLend));
}

// Which NUMA node the memory at `address` prefers; -1 if none.
int NodePreferredAt(const void* address) {
  constexpr unsigned long kOfAddress = 2;  // MPOL_F_ADDR
  constexpr int kPreferred = 1;            // MPOL_PREFERRED
  int mode = -1;
  std::array<unsigned long, 16> nodes{};
  const long read =
      ::syscall(SYS_get_mempolicy, &mode, nodes.data(), 64 * nodes.size(), address, kOfAddress);
  return read == 0 && mode == kPreferred ? std::countr_zero(nodes[0]) : -1;
}

TEST_F(RdmaMemoryTest, BlocksPreferTheNodeOfTheDevice) {
  const RdmaMemory::Block anywhere = memory_->Take(5'000);
  EXPECT_EQ(NodePreferredAt(anywhere.bytes().data()), -1);
  if (!bs::CanPlaceOn(0)) GTEST_SKIP() << "this system does not let memory be placed";
  const auto near = std::make_shared<RdmaMemory>(
      std::shared_ptr<VerbsDevice>(std::move(nic_->Open("sim0", 16).value())), kBounceBytes,
      counts_, RdmaLoanRules{}, 0);
  for (const RdmaMemory::Block& block : {near->Take(5'000), near->Take(size_t{3} << 20U)}) {
    EXPECT_EQ(NodePreferredAt(block.bytes().data()), 0);
    EXPECT_EQ(NodePreferredAt(&block.bytes().back()), 0);
  }
  EXPECT_EQ(NodePreferredAt(near->TakeBounce(1).bytes().data()), 0);
}

TEST_F(RdmaMemoryTest, BlocksOfAllSizesShareRegions) {
  std::vector<RdmaMemory::Block> blocks;
  std::set<const std::byte*> begins;
  for (size_t bytes = 4096; bytes < RdmaMemory::kArenaBytes; bytes *= 2) {
    blocks.push_back(memory_->Take(bytes));
    std::ranges::fill(blocks.back().bytes(), std::byte{1});
    begins.insert(blocks.back().bytes().data());
  }
  EXPECT_EQ(begins.size(), blocks.size());
  EXPECT_EQ(counts_->pinned_bytes, RdmaMemory::kArenaBytes);
  blocks.clear();
  const RdmaMemory::Block whole = memory_->Take(RdmaMemory::kArenaBytes);
  ASSERT_TRUE(whole);
  EXPECT_EQ(counts_->pinned_bytes, RdmaMemory::kArenaBytes) << "its parts are joined again";
  EXPECT_NE(memory_->Take(1).bytes().data(), whole.bytes().data());
  EXPECT_EQ(counts_->pinned_bytes, 2 * RdmaMemory::kArenaBytes);
}

TEST_F(RdmaMemoryTest, LargeBlocksHaveARegionOfTheirOwnAndFewAreKept) {
  std::vector<RdmaMemory::Block> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(memory_->Take(size_t{10} << 20U));
  const uint64_t pinned = counts_->pinned_bytes;
  EXPECT_GE(pinned, uint64_t{100} << 20U);
  blocks.clear();
  EXPECT_LE(counts_->pinned_bytes, uint64_t{64} << 20U);
  EXPECT_GE(counts_->pinned_bytes, uint64_t{10} << 20U);
}

TEST_F(RdmaMemoryTest, FramesOutliveTheNode) {
  std::span<std::byte> bytes;
  uint32_t key = 0;
  Frame frame = memory_->New(3'000, &bytes, &key);
  ASSERT_EQ(frame.size(), 3'000U);
  memory_.reset();
  bytes.back() = std::byte{1};
  EXPECT_EQ(frame.bytes().back(), std::byte{1});
  frame = Frame();
  EXPECT_EQ(fabric_.Counts().regions, 0U);
}

TEST_F(RdmaMemoryTest, BounceBlocksAreBounded) {
  RdmaMemory::Block most = memory_->TakeBounce(kBounceBytes - 5'000);
  RdmaMemory::Block rest = memory_->TakeBounce(5'000 - 4096);
  ASSERT_TRUE(most && rest);
  EXPECT_FALSE(memory_->TakeBounce(1));
  EXPECT_TRUE(memory_->BouncesEver(kBounceBytes));
  EXPECT_FALSE(memory_->BouncesEver(kBounceBytes + 1));
  most = RdmaMemory::Block();
  EXPECT_TRUE(memory_->TakeBounce(1));
}

TEST_F(RdmaMemoryTest, WithoutLockedMemoryThereIsNone) {
  nic_->LimitPinned(0);
  EXPECT_FALSE(memory_->Take(1));
  EXPECT_FALSE(memory_->TakeBounce(1));
  EXPECT_FALSE(memory_->BouncesEver(1));
  std::span<std::byte> bytes;
  uint32_t key = 0;
  EXPECT_EQ(memory_->New(10, &bytes, &key).size(), 0U);
}

}  // namespace
}  // namespace ps::test
