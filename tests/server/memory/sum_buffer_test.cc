#include "server/memory/sum_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "server/memory/sum_ref.h"

namespace bs::server {
namespace {

std::shared_ptr<SumBuffer> MakeShared(uint64_t size_bytes, int32_t num_workers) {
  return std::make_shared<SumBuffer>(size_bytes, 0, num_workers);
}

bool LiesInside(SumBuffer& buffer) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&buffer);
  const std::less<const std::byte*> before;
  return !before(buffer.data(), begin) && before(buffer.data(), begin + sizeof(buffer));
}

TEST(SumBufferTest, AFrameShowsTheMemoryWithoutACopyWhateverTheSize) {
  for (const size_t size_bytes : {0U, 1U, 4U, 15U, 16U, 17U, 100U, 255U, 256U, 260U, 20000U}) {
    const auto buffer = MakeShared(size_bytes, 2);
    const ps::Frame frame = SumBuffer::MakeFrame(buffer, 0);
    EXPECT_EQ(frame.bytes().data(), buffer->data());
    EXPECT_EQ(frame.size(), size_bytes);
  }
}

TEST(SumBufferTest, IsZeroedAndHasAllItsBytesToItself) {
  for (const size_t size_bytes : {1U, 4U, 14U, 15U, 16U, 17U, 64U, 20000U}) {
    const auto buffer = MakeShared(size_bytes, 2);
    const ps::Frame frame = SumBuffer::MakeFrame(buffer, 1);
    const auto bytes = frame.bytes();
    EXPECT_EQ(std::ranges::count(bytes, std::byte{0}), size_bytes);
    std::fill_n(buffer->data(), size_bytes, std::byte{0xff});
    EXPECT_EQ(frame.size(), size_bytes);
    EXPECT_FALSE(buffer->InFlightTo(0)) << "written over, with " << size_bytes << " bytes";
    EXPECT_TRUE(buffer->InFlightTo(1));
    const ps::Frame other = SumBuffer::MakeFrame(buffer, 0);
    EXPECT_EQ(std::ranges::count(bytes, std::byte{0xff}), size_bytes);
  }
}

TEST(SumBufferTest, WholePagesAreLentAsLongAsAnythingShowsThem) {
  std::weak_ptr<void> loan;
  std::span<std::byte> lent;
  const LendPagesFn lend = [&](std::span<std::byte> pages) {
    lent = pages;
    const auto made = std::make_shared<int>(0);
    loan = made;
    return made;
  };
  auto buffer = std::make_shared<SumBuffer>(20000, 0, 1, lend);
  EXPECT_EQ(lent.data(), buffer->data());
  EXPECT_EQ(lent.size(), 20480U);
  ps::Frame frame = SumBuffer::MakeFrame(buffer, 0);
  EXPECT_EQ(frame.bytes().data(), lent.data());
  EXPECT_EQ(frame.size(), 20000U);
  buffer.reset();
  EXPECT_FALSE(loan.expired());
  frame = ps::Frame();
  EXPECT_TRUE(loan.expired());
}

TEST(SumBufferTest, OfTheHeapOrRefusedItIsNotLentAndHasItsMemoryAllTheSame) {
  int calls = 0;
  const LendPagesFn refuse = [&](std::span<std::byte>) {
    ++calls;
    return nullptr;
  };
  for (const size_t size_bytes : {4U, 255U, 20000U}) {
    SumBuffer buffer(size_bytes, 0, 1, refuse);
    std::fill_n(buffer.data(), size_bytes, std::byte{1});
  }
  EXPECT_EQ(calls, 1);
}

TEST(SumBufferTest, BeginsInTheMemoryOfAContribution) {
  for (const size_t size_bytes : {1U, 100U, 20000U}) {
    bool released = false;
    std::vector<std::byte> bytes(size_bytes, std::byte{5});
    {
      SumRef sum = SumRef::Adopt(ps::Frame::Own(bytes, [&released] { released = true; }), 3);
      EXPECT_EQ(sum->data(), bytes.data());
      sum->data()[0] = std::byte{6};
      const ps::Frame answer = SumBuffer::MakeFrame(sum, 2);
      EXPECT_EQ(answer.bytes().data(), bytes.data());
      EXPECT_EQ(answer.size(), size_bytes);
      EXPECT_TRUE(answer.writable().empty()) << "others may read it";
      EXPECT_TRUE(sum->InFlightTo(2));
      sum = SumRef();
      EXPECT_FALSE(released) << "the answer shows it";
      EXPECT_EQ(answer.bytes()[0], std::byte{6});
    }
    EXPECT_TRUE(released);
  }
}

TEST(SumBufferTest, AFewBytesForFewWorkersNeedNoMemoryBesides) {
  EXPECT_LE(sizeof(SumBuffer), 40u) << "a server keeps two for each partition";
  for (const size_t size_bytes : {0U, 4U, 8U, 12U, 15U}) {
    EXPECT_TRUE(LiesInside(*MakeShared(size_bytes, 1))) << size_bytes;
  }
  for (const size_t size_bytes : {16U, 100U, 20000U}) {
    EXPECT_FALSE(LiesInside(*MakeShared(size_bytes, 1))) << size_bytes;
  }
}

TEST(SumBufferTest, CountsTheFramesOfEachOfManyWorkers) {
  for (const int32_t num_workers : {1, 2, 3, 4, 100}) {
    const auto buffer = MakeShared(100, num_workers);
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      const ps::Frame frame = SumBuffer::MakeFrame(buffer, rank);
      EXPECT_TRUE(buffer->InFlight());
      for (int32_t other = 0; other < num_workers; ++other) {
        EXPECT_EQ(buffer->InFlightTo(other), other == rank) << rank << " of " << num_workers;
      }
    }
    EXPECT_FALSE(buffer->InFlight());
  }
}

TEST(SumBufferTest, CountsFramesOfAllWorkersAtOnce) {
  for (const int32_t num_workers : {1, 2, 3, 100}) {
    const auto buffer = MakeShared(4, num_workers);
    std::vector<ps::Frame> frames;
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      for (int i = 0; i < 300; ++i) frames.push_back(SumBuffer::MakeFrame(buffer, rank));
    }
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      EXPECT_TRUE(buffer->InFlightTo(rank));
      frames.erase(frames.begin(), frames.begin() + 300);
      EXPECT_FALSE(buffer->InFlightTo(rank));
      EXPECT_EQ(buffer->InFlight(), rank + 1 < num_workers);
    }
  }
}

TEST(SumBufferTest, KnowsWhetherFramesAreUnderWay) {
  const auto buffer = MakeShared(100, 2);
  EXPECT_FALSE(buffer->InFlight());
  std::optional<ps::Frame> one = SumBuffer::MakeFrame(buffer, 0);
  std::optional<ps::Frame> two = SumBuffer::MakeFrame(buffer, 1);
  one.reset();
  EXPECT_TRUE(buffer->InFlight());
  EXPECT_FALSE(buffer->InFlightTo(0));
  EXPECT_TRUE(buffer->InFlightTo(1));
  two.reset();
  EXPECT_FALSE(buffer->InFlight());
  EXPECT_FALSE(buffer->InFlightTo(1));
}

TEST(SumBufferTest, AFrameKeepsTheMemoryAfterItsSlotLetGo) {
  for (const size_t size_bytes : {8U, 100U}) {
    auto buffer = MakeShared(size_bytes, 2);
    const std::weak_ptr<SumBuffer> watcher = buffer;
    buffer->data()[3] = std::byte{42};
    std::optional<ps::Frame> frame = SumBuffer::MakeFrame(buffer, 0);
    buffer.reset();
    EXPECT_FALSE(watcher.expired());
    EXPECT_EQ(frame->bytes()[3], std::byte{42});
    frame.reset();
    EXPECT_TRUE(watcher.expired()) << "nobody needs it any more";
  }
}

// The thread sanitizer sees it if not.
TEST(SumBufferTest, ReadsOfFramesHappenBeforeTheFramesAreSeenToBeGone) {
  for (const int32_t num_workers : {2, 3}) {
    for (const size_t size_bytes : {4U, 100U}) {
      const SumRef sum = SumRef::Make(size_bytes, 0, num_workers);
      for (int round = 0; round < 200; ++round) {
        *sum->data() = static_cast<std::byte>(round);
        std::vector<std::thread> readers;
        for (int32_t rank = 0; rank < num_workers; ++rank) {
          readers.emplace_back([frame = SumBuffer::MakeFrame(sum, rank), round]() mutable {
            EXPECT_EQ(frame.bytes()[0], static_cast<std::byte>(round));
            const ps::Frame gone = std::move(frame);
          });
        }
        while (sum->InFlight()) std::this_thread::yield();
        *sum->data() = std::byte{0};  // before the threads are joined, which would order it too
        for (std::thread& reader : readers) reader.join();
      }
    }
  }
}

}  // namespace
}  // namespace bs::server
