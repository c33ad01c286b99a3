// Times pulls from a stock server.
#include "worker/store_scale.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace bs::worker {
namespace {

// Enough that one of them finds the processors free, and 0.14 s at 1 Gbit/s.
constexpr int kPulls = 16;
// A link this slow should not be kept busy, and what other processes take is little of the time.
constexpr Duration kLong = std::chrono::milliseconds(30);
constexpr double kUsualBytesPerSecond = 125e6;
// Times that, from where on pieces are a quarter of the usual ones, and from where on the usual.
constexpr double kSlow = 0.2;
constexpr double kUsual = 0.6;

}  // namespace

uint32_t ScaleFor(uint64_t bytes, Duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  const auto is_at_least = [&](double rate) {
    return static_cast<double>(bytes) >= rate * kUsualBytesPerSecond * seconds;
  };
  if (!is_at_least(kSlow)) return kUsualScale / 8;
  if (!is_at_least(kUsual)) return kUsualScale / 4;
  uint32_t scale = kUsualScale;
  while (scale < kLargestScale && is_at_least(2.0 * scale / kUsualScale)) scale *= 2;
  return scale;
}

StoreScale::StoreScale(Carry carry, std::function<TimePoint()> now)
    : carry_(std::move(carry)), now_(std::move(now)) {}

void StoreScale::Measure(int32_t store_key, uint64_t size_bytes, Done done) {
  BS_CHECK(!done_ && size_bytes >= kLeastSampleBytes && size_bytes % sizeof(float) == 0);
  done_ = std::move(done);
  const std::vector<std::byte> zeros(size_bytes);
  StoreRequest request{.what = StoreRequest::What::kPush,
                       .store_key = store_key,
                       .size_bytes = size_bytes,
                       .in = zeros};
  carry_(request, [this, store_key, size_bytes](const Status& status, std::span<const std::byte>) {
    if (!status.ok()) return std::exchange(done_, {})(status);
    Pull({.what = StoreRequest::What::kPull, .store_key = store_key, .size_bytes = size_bytes},
         kPulls);
  });
}

void StoreScale::Pull(StoreRequest request, int left) {
  carry_(request,
         [this, request, left, began = now_()](const Status& status, std::span<const std::byte>) {
           if (!status.ok()) return std::exchange(done_, {})(status);
           quickest_ = std::min(quickest_, now_() - began);
           if (left > 1 && quickest_ < kLong) return Pull(request, left - 1);
           std::exchange(done_, {})(ScaleFor(request.size_bytes, quickest_));
         });
}

}  // namespace bs::worker
