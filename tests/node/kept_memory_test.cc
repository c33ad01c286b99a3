// The table of what stays registered: what goes when, and from many threads at once.
#include "node/kept_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace bs::node {
namespace {

constexpr size_t kBytes = 100;

class KeptMemoryTest : public ::testing::Test {
 protected:
  // A device without memory of its own: counts bytes.
  struct Device {
    uint64_t most_bytes = UINT64_MAX;
    StatusCode refusal = StatusCode::kResourceExhausted;
    std::atomic<uint64_t> bytes = 0;
    std::atomic<uint64_t> registrations = 0;
    std::atomic<uint64_t> loans = 0;
    std::atomic<bool> refuses_loans = false;
  };
  class OneOfDevice final : public ps::Registration {
   public:
    OneOfDevice(Device* device, uint64_t bytes) : device_(device), bytes_(bytes) {}
    ~OneOfDevice() override { device_->bytes -= bytes_; }
    std::shared_ptr<void> Use() override {
      if (device_->refuses_loans) return nullptr;
      ++device_->loans;
      return {this, [device = device_](void*) { --device->loans; }};
    }

   private:
    Device* const device_;
    const uint64_t bytes_;
  };

  Result<std::shared_ptr<ps::Registration>> Register(std::span<std::byte> memory) {
    if (device_.bytes.fetch_add(memory.size()) + memory.size() > device_.most_bytes) {
      device_.bytes -= memory.size();
      return Status(device_.refusal, "no room");
    }
    ++device_.registrations;
    return std::shared_ptr<ps::Registration>(
        std::make_shared<OneOfDevice>(&device_, memory.size()));
  }
  std::shared_ptr<void> Use(Key key, size_t bytes = kBytes, ps::Lending use = ps::Lending::kSent) {
    return kept_.Use({.key = key, .use = use, .bytes = std::span(memory_).first(bytes)},
                     [this] { return owner_; });
  }

  Device device_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(10 * kBytes);
  std::shared_ptr<void> owner_ = std::make_shared<int>();
  KeptMemory kept_{[this](std::span<std::byte> memory, ps::Lending) { return Register(memory); }};
};

TEST_F(KeptMemoryTest, EachUseOfAKeyHasItsOwn) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Use(1));
    EXPECT_TRUE(Use(1, kBytes, ps::Lending::kFilled));
    EXPECT_TRUE(Use(2));
  }
  EXPECT_EQ(device_.registrations, 3U);
  EXPECT_EQ(owner_.use_count(), 4);
  EXPECT_EQ(device_.loans, 0U);
}

TEST_F(KeptMemoryTest, OtherMemoryOfTheKeyReplacesIt) {
  EXPECT_TRUE(Use(1));
  EXPECT_TRUE(Use(1, 2 * kBytes)) << "another size";
  const auto own = [this] { return owner_; };
  const KeptMemory::Memory other{.key = 1,
                                 .use = ps::Lending::kSent,
                                 .bytes = std::span(memory_).first(2 * kBytes),
                                 .storage = {7, 8}};
  EXPECT_TRUE(kept_.Use(other, own)) << "another storage";
  EXPECT_EQ(device_.registrations, 3U);
  EXPECT_EQ(device_.bytes, 2 * kBytes);
  EXPECT_EQ(owner_.use_count(), 2);
}

TEST_F(KeptMemoryTest, NoMoreIsDroppedThanWouldHelp) {
  device_.most_bytes = 5 * kBytes;
  for (Key key = 1; key <= 5; ++key) EXPECT_TRUE(Use(key));
  EXPECT_TRUE(Use(1)) << "so key 2 is the least recently used";
  EXPECT_TRUE(Use(6, 2 * kBytes));
  EXPECT_EQ(device_.registrations, 6U);
  EXPECT_TRUE(Use(1) && Use(4) && Use(5));
  EXPECT_EQ(device_.registrations, 6U) << "keys 2 and 3 went";
  device_.most_bytes = 3 * kBytes;
  EXPECT_FALSE(Use(7, kBytes)) << "there is less room than is kept";
  EXPECT_EQ(device_.bytes, 3 * kBytes) << "one went, that of two blocks";
}

TEST_F(KeptMemoryTest, AnotherRefusalDropsNothing) {
  EXPECT_TRUE(Use(1));
  device_.most_bytes = kBytes;
  device_.refusal = StatusCode::kFailedPrecondition;
  EXPECT_FALSE(Use(2));
  EXPECT_EQ(device_.bytes, kBytes);
}

TEST_F(KeptMemoryTest, WithoutOwnerOrLoanTheOperationCopies) {
  owner_.reset();
  EXPECT_FALSE(Use(1));
  EXPECT_EQ(device_.bytes, 0U) << "it may be freed at any time";
  owner_ = std::make_shared<int>();
  device_.refuses_loans = true;
  EXPECT_FALSE(Use(1));
  device_.refuses_loans = false;
  EXPECT_TRUE(Use(1));
  EXPECT_EQ(device_.registrations, 2U);
}

TEST_F(KeptMemoryTest, MemoryInUseOutlivesTheTable) {
  std::shared_ptr<void> use = Use(1);
  EXPECT_TRUE(Use(2));
  kept_.DropAll();
  EXPECT_EQ(device_.bytes, kBytes);
  EXPECT_EQ(owner_.use_count(), 2);
  EXPECT_TRUE(Use(2)) << "for this operation only";
  EXPECT_EQ(device_.bytes, kBytes);
  use.reset();
  EXPECT_EQ(device_.bytes, 0U);
  EXPECT_EQ(owner_.use_count(), 1);
}

TEST_F(KeptMemoryTest, ManyThreadsShareTheRoom) {
  device_.most_bytes = 4 * kBytes;
  constexpr int kThreads = 4;
  std::atomic<int> used{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread, &used] {
      for (int i = 0; i < 2000; ++i) {
        const std::shared_ptr<void> use = Use(static_cast<Key>((i * (thread + 1)) % 7));
        if (use) ++used;
        if (i % 5 == 0) Use(3, 2 * kBytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device_.loans, 0U);
  EXPECT_GT(used, 0);
  kept_.DropAll();
  EXPECT_EQ(device_.bytes, 0U);
  EXPECT_EQ(owner_.use_count(), 1);
}

}  // namespace
}  // namespace bs::node
