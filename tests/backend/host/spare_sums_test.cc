// Memory of sums that are over serves later sums, and there is a bound.
#include "backend/host/spare_sums.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace bs::backend {
namespace {

constexpr uint64_t kSumBytes = uint64_t{1} << 16U;

TEST(SpareSums, MemoryServesAgainForSumsOfItsSize) {
  SpareSums spares(2);
  server::SumRef sum = spares.Take(kSumBytes);
  const std::byte* const memory = sum->data();
  spares.Keep(std::move(sum), kSumBytes);
  EXPECT_EQ(spares.size_bytes(), kSumBytes);
  EXPECT_TRUE(spares.Has(kSumBytes));
  EXPECT_FALSE(spares.Has(2 * kSumBytes));
  EXPECT_NE(spares.Take(2 * kSumBytes)->data(), memory);
  EXPECT_EQ(spares.Take(kSumBytes)->data(), memory);
  EXPECT_EQ(spares.size_bytes(), 0U);
  EXPECT_FALSE(spares.Has(kSumBytes));
}

TEST(SpareSums, MemoryThatAnAnswerShowsIsNotKept) {
  SpareSums spares(2);
  server::SumRef sum = spares.Take(kSumBytes);
  const ps::Frame shown = server::SumBuffer::MakeFrame(sum, 1);
  spares.Keep(std::move(sum), kSumBytes);
  EXPECT_EQ(spares.size_bytes(), 0U);
}

TEST(SpareSums, NoMoreThanTheBoundIsKept) {
  SpareSums spares(2);
  std::vector<server::SumRef> sums;
  for (uint64_t bytes = 0; bytes <= SpareSums::kMostBytes; bytes += 8 * kSumBytes) {
    sums.push_back(spares.Take(8 * kSumBytes));
  }
  for (server::SumRef& sum : sums) spares.Keep(std::move(sum), 8 * kSumBytes);
  EXPECT_EQ(spares.size_bytes(), SpareSums::kMostBytes);
  spares.Keep(server::SumRef(), kSumBytes);  // of a round without a contribution
}

}  // namespace
}  // namespace bs::backend
