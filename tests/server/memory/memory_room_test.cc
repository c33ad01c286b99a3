#include "server/memory/memory_room.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "base/snapshot.h"

namespace bs::server {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20U;

TEST(MemoryRoomTest, MemoryThatIsPromisedAndNotUsedIsTaken) {
  uint64_t available = 4 * kMiB;
  MemoryRoom room([&] { return available; });
  std::optional<Result<MemoryRoom::Promise>> first = room.Ask(3 * kMiB);
  ASSERT_TRUE(first->ok());
  const Result<MemoryRoom::Promise> second = room.Ask(2 * kMiB);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_SNAPSHOT(second.status().message(),
                  "2097152 bytes do not fit into memory, of which 1048576 are left here: use more "
                  "servers, or larger ones");
  EXPECT_TRUE(room.Ask(kMiB).ok());
  first->value().Used(2 * kMiB);
  available -= 2 * kMiB;
  EXPECT_FALSE(room.Ask(2 * kMiB).ok());
  first.reset();  // given up
  EXPECT_TRUE(room.Ask(2 * kMiB).ok());
}

TEST(MemoryRoomTest, TheKernelIsAskedOnceForManySmallPieces) {
  int asked = 0;
  MemoryRoom room([&] {
    ++asked;
    return kMiB;
  });
  for (int i = 0; i < 4096; ++i) EXPECT_TRUE(room.Ask(1024).ok());
  EXPECT_EQ(asked, 4);
  EXPECT_TRUE(room.Ask(0).ok());
  EXPECT_EQ(asked, 4);
}

TEST(MemoryRoomTest, OnceThereIsNoneLeftSmallPiecesAreRefusedToo) {
  MemoryRoom room([] { return uint64_t{1000}; });
  EXPECT_FALSE(room.Ask(kMiB).ok());
  EXPECT_FALSE(room.Ask(1024).ok());
  EXPECT_TRUE(room.Ask(1000).ok());
}

TEST(MemoryRoomTest, OfThreadsThatAskAtOnceNoMoreGetItThanItIs) {
  MemoryRoom room([] { return 4 * kMiB; });
  std::atomic<int> got = 0;
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Result<MemoryRoom::Promise> promise = room.Ask(2 * kMiB);
      got += promise.ok() ? 1 : 0;
      ++done;
      while (done < 8) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(got, 2);
}

TEST(MemoryRoomTest, TheMemoryOfTheSystemIsEnoughForAPage) {
  EXPECT_TRUE(MemoryRoom().Ask(2 * kMiB).ok());
}

}  // namespace
}  // namespace bs::server
