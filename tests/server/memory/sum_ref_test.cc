#include "server/memory/sum_ref.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

// That memory goes with its last owner, and not before, is the address sanitizer's to see.
namespace bs::server {
namespace {

TEST(SumRefTest, IsEmptyOrOwnsABuffer) {
  EXPECT_FALSE(SumRef());
  const SumRef sum = SumRef::Make(4, 0, 1);
  ASSERT_TRUE(sum);
  EXPECT_EQ(&*sum, sum.operator->());
  EXPECT_FALSE(sum->InFlight());
  EXPECT_EQ(sizeof(SumRef), sizeof(void*)) << "a slot has two";
}

TEST(SumRefTest, CopiesShareTheBufferAndMovesHandItOver) {
  for (const size_t size_bytes : {4U, 100U}) {
    SumRef first = SumRef::Make(size_bytes, 0, 3);
    SumBuffer* const buffer = &*first;
    SumRef copy =
        first;  // NOLINT(performance-unnecessary-copy-initialization): it outlives the first
    SumRef moved = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): empty is what is promised
    EXPECT_EQ(&*copy, buffer);
    EXPECT_EQ(&*moved, buffer);
    moved = SumRef();
    copy->data()[size_bytes - 1] = std::byte{9};  // still there
    first = copy;
    copy = SumRef();
    EXPECT_EQ(first->data()[size_bytes - 1], std::byte{9});
  }
}

TEST(SumRefTest, IsAssignedOverAnotherAndOverItself) {
  SumRef one = SumRef::Make(4, 0, 1);
  SumRef two = SumRef::Make(4, 0, 1);
  SumBuffer* const kept = &*two;
  one = two;
  EXPECT_EQ(&*one, kept);
  SumRef& itself = one;
  one = itself;
  EXPECT_EQ(&*one, kept);
  one = std::move(itself);
  EXPECT_EQ(&*one, kept);
  two = SumRef();
  EXPECT_FALSE(one->InFlight());
}

TEST(SumRefTest, AFrameOwnsItsBufferAfterTheSlotLetGo) {
  for (const size_t size_bytes : {4U, 100U}) {
    SumRef sum = SumRef::Make(size_bytes, 0, 2);
    sum->data()[3] = std::byte{42};
    std::optional<ps::Frame> one = SumBuffer::MakeFrame(sum, 0);
    std::optional<ps::Frame> two = SumBuffer::MakeFrame(sum, 1);
    sum = SumRef::Make(size_bytes, 0, 2);
    EXPECT_FALSE(sum->InFlight()) << "those are of the one before";
    one.reset();
    EXPECT_EQ(two->bytes()[3], std::byte{42});
  }
}

// The last owner destroys what others have just used: a matter of the thread sanitizer too.
TEST(SumRefTest, OwnersMayGoOnAnyThread) {
  for (int round = 0; round < 200; ++round) {
    std::vector<std::thread> threads;
    {
      const SumRef sum = SumRef::Make(round % 2 == 0 ? 4 : 100, 0, 4);
      for (int32_t rank = 0; rank < 4; ++rank) {
        threads.emplace_back(
            [owner = sum, frame = SumBuffer::MakeFrame(sum, rank), rank]() mutable {
              const SumRef copy = owner;
              owner = SumRef();
              copy->data()[rank % 4] = static_cast<std::byte>(rank);
              const ps::Frame gone = std::move(frame);
            });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace bs::server
