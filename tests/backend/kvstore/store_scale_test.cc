// The measurement of a stock store, and the scale that follows from it.
#include "backend/kvstore/store_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/sim_executor.h"

namespace bs::backend {
namespace {

using std::chrono::microseconds;

constexpr int32_t kStoreKey = 65536;
constexpr int32_t kTinyKey = 65538;
// On another server.
constexpr int32_t kOtherKey = 65537;
constexpr int32_t kOtherTinyKey = 65539;

TEST(ScaleFor, AGigabitHasTheUsualPartitionsAndTwiceTheSpeedTwiceTheBytes) {
  constexpr uint64_t kBytes = 1'000'000;  // 8 ms at 1 Gbit/s
  EXPECT_EQ(ScaleFor(kBytes, microseconds(13'300), Duration::zero()), kUsualScale);  // 0.6 Gbit/s
  EXPECT_EQ(ScaleFor(kBytes, microseconds(8'000), Duration::zero()), kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(4'001), Duration::zero()), kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(4'000), Duration::zero()), 2 * kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(2'000), Duration::zero()), 4 * kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(501), Duration::zero()), 8 * kUsualScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(500), Duration::zero()), kLargestScale);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(0), Duration::zero()), kLargestScale);
}

TEST(ScaleFor, SlowerLinksHaveSmallerPartitions) {
  constexpr uint64_t kBytes = 1'000'000;
  EXPECT_EQ(ScaleFor(kBytes, microseconds(13'400), Duration::zero()), kUsualScale / 2);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(16'000), Duration::zero()),
            kUsualScale / 2);  // 500 Mbit/s
  EXPECT_EQ(ScaleFor(kBytes, microseconds(26'600), Duration::zero()), kUsualScale / 2);  // 300
  EXPECT_EQ(ScaleFor(kBytes, microseconds(26'700), Duration::zero()), kUsualScale / 8);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(80'000), Duration::zero()), kUsualScale / 8);
  EXPECT_EQ(ScaleFor(kBytes, std::chrono::hours(1), Duration::zero()), 1U);
}

TEST(PartitionFor, CreditHoldsTwoOnSlowLinksAndFourFromTheUsualSpeedOn) {
  constexpr uint64_t kCredit = uint64_t{512} << 10U;
  constexpr uint64_t kPartition = kCredit / 4;
  EXPECT_EQ(CreditFor(kCredit, 1), uint64_t{64} << 10U);
  EXPECT_EQ(PartitionFor(kPartition, 1), uint64_t{32} << 10U);
  EXPECT_EQ(CreditFor(kCredit, kUsualScale / 2), kCredit / 2);
  EXPECT_EQ(PartitionFor(kPartition, kUsualScale / 2), kPartition);
  EXPECT_EQ(CreditFor(kCredit, kUsualScale), kCredit);
  EXPECT_EQ(PartitionFor(kPartition, kUsualScale), kPartition);
  EXPECT_EQ(CreditFor(kCredit, kLargestScale), 16 * kCredit);
  EXPECT_EQ(PartitionFor(kPartition, kLargestScale), 16 * kPartition);
}

TEST(ScaleFor, TimeThatNoBytesTakeMakesNoLinkSlow) {
  constexpr uint64_t kBytes = 1'000'000;
  // 1 Gbit/s, and 40 ms there and back: 512 KiB are too little already.
  EXPECT_EQ(ScaleFor(kBytes, microseconds(48'000), microseconds(40'000)), kUsualScale);
  // A small sample of such a link: 65 KB take 0.5 ms.
  EXPECT_EQ(ScaleFor(65'000, microseconds(1'500), microseconds(1'000)), kUsualScale);
  // At 100 Mbit/s 64 KiB are enough for a latency of 2.6 ms, 128 KiB for one of 5.2.
  EXPECT_EQ(ScaleFor(kBytes, microseconds(82'600), microseconds(2'600)), kUsualScale / 8);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(82'700), microseconds(2'700)), kUsualScale / 4);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(90'000), microseconds(10'000)), kUsualScale / 2);
  EXPECT_EQ(ScaleFor(kBytes, microseconds(110'000), microseconds(30'000)), kUsualScale);
}

class StoreScaleTest : public testing::Test {
 protected:
  // A store whose pulls of the large key take these times, one after another, and of the tiny one
  // `latency`.
  void Measure(const std::vector<Duration>& pulls, Duration latency = {}) {
    scale_ = std::make_unique<StoreScale>(
        [this, pulls, latency](const StoreRequest& request, StoreDone done) {
          Duration takes = latency;
          if (request.what == StoreRequest::What::kPush) takes = std::chrono::seconds(1);
          if (IsLargePull(request)) takes = pulls.at(Count(kStoreKey) - 1);
          if (request.store_key == kOtherKey) takes = other_takes_;
          if (request.store_key == kOtherTinyKey) takes = other_latency_;
          requests_.push_back(request);
          executor_.PostAt(clock_.Now() + takes,
                           [this, done = std::move(done), number = requests_.size()] {
                             done(number < first_failure_ ? Status::Ok() : fails_, {});
                           });
        },
        [this] { return clock_.Now(); });
    executor_.Post([this] {
      scale_->Measure(servers_, kSampleBytes, [this](const Result<uint32_t>& scale) {
        measured_ = scale;
        scale_.reset();  // as the header allows
      });
    });
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(10));
  }

  static bool IsLargePull(const StoreRequest& request) {
    return request.store_key == kStoreKey && request.what == StoreRequest::What::kPull;
  }
  size_t Count(int32_t key) const {
    return static_cast<size_t>(std::ranges::count(requests_, key, &StoreRequest::store_key));
  }

  sim::SimClock clock_{1};
  sim::SimExecutor executor_{&clock_};
  std::vector<StoreScale::Keys> servers_ = {{kStoreKey, kTinyKey}};
  Duration other_takes_{};
  Duration other_latency_{};
  Status fails_;
  size_t first_failure_ = 1;  // the number of the request from which on they fail
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
  ASSERT_EQ(Count(kStoreKey), 1 + pulls.size());
  for (const StoreRequest& request : requests_) {
    const bool tiny = request.store_key == kTinyKey;
    EXPECT_EQ(request.size_bytes, tiny ? sizeof(float) : kSampleBytes);
    const bool first = &request == &requests_.front();
    EXPECT_EQ(request.what, first ? StoreRequest::What::kPush : StoreRequest::What::kPull);
  }
}

TEST_F(StoreScaleTest, TheSlowestServerCountsWhateverItsPlace) {
  for (const bool first : {true, false}) {
    requests_.clear();
    servers_ = {{kStoreKey, kTinyKey}};
    servers_.insert(first ? servers_.begin() : servers_.end(), {kOtherKey, kOtherTinyKey});
    other_takes_ = microseconds(9'000);
    Measure(std::vector<Duration>(8, microseconds(100)));  // on this host
    ASSERT_TRUE(measured_ && measured_->ok());
    EXPECT_EQ(measured_->value(), kUsualScale);
    // Both together are asked as often as one alone.
    EXPECT_EQ(Count(kStoreKey), 1U + 8U);
    EXPECT_EQ(Count(kOtherKey), 1U + 8U);
  }
}

TEST_F(StoreScaleTest, TheLatencyOfTheSlowestServerCounts) {
  servers_.push_back({kOtherKey, kOtherTinyKey});
  other_takes_ = microseconds(48'000);
  other_latency_ = microseconds(40'000);
  Measure(std::vector<Duration>(8, microseconds(100)));
  ASSERT_TRUE(measured_ && measured_->ok());
  EXPECT_EQ(measured_->value(), kUsualScale) << "the link would be idle for most of the time";
}

TEST_F(StoreScaleTest, ASlowLinkIsAskedThreeTimes) {
  Measure({microseconds(85'000), microseconds(80'000), microseconds(90'000)});
  ASSERT_TRUE(measured_ && measured_->ok());
  EXPECT_EQ(measured_->value(), kUsualScale / 8);
  EXPECT_EQ(Count(kStoreKey), 1U + 3U);
}

TEST_F(StoreScaleTest, APullThatIsDisturbedMakesNoLinkSlow) {
  std::vector<Duration> pulls(16, microseconds(9'000));
  pulls[0] = microseconds(80'000);
  Measure(pulls);
  ASSERT_TRUE(measured_ && measured_->ok());
  EXPECT_EQ(measured_->value(), kUsualScale);
  EXPECT_EQ(Count(kStoreKey), 1 + pulls.size());
}

TEST_F(StoreScaleTest, ALinkWithALongDelayKeepsTheUsualScale) {
  Measure({microseconds(48'000), microseconds(48'000), microseconds(48'000)}, microseconds(40'000));
  ASSERT_TRUE(measured_ && measured_->ok());
  EXPECT_EQ(measured_->value(), kUsualScale);
}

// The push, the first and a later pull of the tiny key, the first and a later one of the large.
class StoreScaleFailure : public StoreScaleTest, public testing::WithParamInterface<size_t> {};

INSTANTIATE_TEST_SUITE_P(Requests, StoreScaleFailure, testing::Values(1, 2, 9, 18, 20));

TEST_P(StoreScaleFailure, IsToldOnceAndNothingMoreIsAsked) {
  fails_ = Status::Internal("the store is full");
  first_failure_ = GetParam();
  Measure(std::vector<Duration>(16, microseconds(9'000)));
  ASSERT_TRUE(measured_);
  EXPECT_EQ(measured_->status().message(), "the store is full");
  EXPECT_EQ(requests_.size(), GetParam());
}

}  // namespace
}  // namespace bs::backend
