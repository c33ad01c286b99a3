// What is measured on a stock store, and what follows from it.
#include "worker/store_scale.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/sim_executor.h"

namespace bs::worker {
namespace {

using std::chrono::microseconds;

constexpr int32_t kStoreKey = 65536;

TEST(ScaleFor, AGigabitHasTheUsualPiecesAndTwiceTheSpeedTwiceTheBytes) {
  constexpr uint64_t kBytes = 1'000'000;                           // 8 ms at 1 Gbit/s
  EXPECT_EQ(ScaleFor(kBytes, microseconds(13'300)), kUsualScale);  // 0.6 Gbit/s
  EXPECT_EQ(ScaleFor(kBytes, microseconds(8'000)), kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(4'001)), kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(4'000)), 2 * kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(2'000)), 4 * kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(501)), 8 * kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(500)), kLargestScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(0)), kLargestScale);
}

TEST(ScaleFor, SlowerLinksHaveSmallerPieces) {
  constexpr uint64_t kBytes = 1'000'000;
  EXPECT_EQ(ScaleFor(kBytes, microseconds(13'400)), kUsualScale / 4);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(16'000)), kUsualScale / 4);  // 500 Mbit/s
  EXPECT_EQ(ScaleFor(kBytes, microseconds(40'000)), kUsualScale / 4);  // 200
  EXPECT_EQ(ScaleFor(kBytes, microseconds(40'001)), kUsualScale / 8);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(80'000)), kUsualScale / 8);
  EXPECT_EQ(ScaleFor(kBytes, std::chrono::hours(1)), 1U);
}

class StoreScaleTest : public testing::Test {
 protected:
  // A store whose pulls take these times, one after another.
  void Measure(std::vector<Duration> pulls) {
    scale_ = std::make_unique<StoreScale>(
        [this, pulls](const StoreRequest& request, Carried done) {
          requests_.push_back(request);
          const bool first = requests_.size() == 1;
          const Duration takes = first ? std::chrono::seconds(1) : pulls.at(requests_.size() - 2);
          executor_.PostAt(clock_.Now() + takes,
                           [this, done = std::move(done)] { done(fails_, {}); });
        },
        [this] { return clock_.Now(); });
    executor_.Post([this] {
      scale_->Measure(kStoreKey, kSampleBytes, [this](const Result<uint32_t>& scale) {
        measured_ = scale;
        scale_.reset();  // as the header allows
      });
    });
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(10));
  }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  Status fails_;
  std::vector<StoreRequest> requests_;
  std::optional<Result<uint32_t>> measured_;
  std::unique_ptr<StoreScale> scale_;
};

TEST_F(StoreScaleTest, TheQuickestPullCountsAndNotTheFirstPush) {
  std::vector<Duration> pulls(16, microseconds(9'000));
  pulls[0] = microseconds(20'000);
  pulls[14] = microseconds(2'000);
  Measure(pulls);
  ASSERT_TRUE(measured_ && measured_->ok());
  EXPECT_EQ(measured_->value(), 4 * kUsualScale);
  ASSERT_EQ(requests_.size(), 1 + pulls.size());
  for (const StoreRequest& request : requests_) {
    EXPECT_EQ(request.store_key, kStoreKey);
    EXPECT_EQ(request.size_bytes, kSampleBytes);
    const bool first = &request == &requests_.front();
    EXPECT_EQ(request.what, first ? StoreRequest::What::kPush : StoreRequest::What::kPull);
  }
}

TEST_F(StoreScaleTest, ASlowLinkIsAskedOnce) {
  Measure({microseconds(80'000)});
  ASSERT_TRUE(measured_ && measured_->ok());
  EXPECT_EQ(measured_->value(), kUsualScale / 8);
  EXPECT_EQ(requests_.size(), 2U);
}

TEST_F(StoreScaleTest, WhatFailsIsToldOnce) {
  fails_ = Status::Internal("the store is full");
  Measure({});
  ASSERT_TRUE(measured_);
  EXPECT_EQ(measured_->status().message(), "the store is full");
  EXPECT_EQ(requests_.size(), 1U);
}

}  // namespace
}  // namespace bs::worker
