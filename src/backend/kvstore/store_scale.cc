// Times pulls from a stock server.
#include "backend/kvstore/store_scale.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace bs::worker {
namespace {

// Enough that one of them finds the processors free, and 0.14 s at 1 Gbit/s.
constexpr int kPulls = 16;
// A link this slow should not be kept busy; so many are enough of it.
constexpr Duration kLong = std::chrono::milliseconds(30);
constexpr int kLeastPulls = 3;
constexpr Duration kVeryLong = 10 * kLong;  // one is enough
constexpr double kUsualBytesPerSecond = 125e6;
constexpr double kUsualCreditBytes = 512.0 * 1024;
// Times kUsualBytesPerSecond, from where on partitions are a quarter of the usual ones, and the
// usual.
constexpr double kSlow = 0.2;
constexpr double kUsual = 0.6;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

uint32_t LargeScaleFor(double of_usual) {
  uint32_t scale = kUsualScale;
  while (scale < kLargestScale && of_usual >= 2.0 * scale / kUsualScale) scale *= 2;
  return scale;
}

}  // namespace

uint32_t ScaleFor(uint64_t bytes, Duration took, Duration latency) {
  const auto of_usual = [&](Duration time) {
    return static_cast<double>(bytes) / kUsualBytesPerSecond / std::max(Seconds(time), 1e-9);
  };
  if (of_usual(took) >= kUsual) return LargeScaleFor(of_usual(took));
  const double rate = of_usual(took - std::min(took, latency));
  if (rate >= kUsual) return kUsualScale;
  const double in_flight = 2 * rate * kUsualBytesPerSecond * Seconds(latency);
  for (uint32_t scale = rate < kSlow ? 1 : 2; scale < kUsualScale; scale *= 2) {
    if (kUsualCreditBytes * scale / kUsualScale >= in_flight) return scale;
  }
  return kUsualScale;
}

StoreScale::StoreScale(StoreFn begin, std::function<TimePoint()> now)
    : begin_(std::move(begin)), now_(std::move(now)) {}

void StoreScale::Measure(int32_t store_key, uint64_t size_bytes, int32_t tiny_key, Done done) {
  BS_CHECK(!done_ && size_bytes >= kLeastSampleBytes && size_bytes % sizeof(float) == 0);
  done_ = std::move(done);
  const std::vector<std::byte> zeros(size_bytes);
  StoreRequest push{.what = StoreRequest::What::kPush,
                    .store_key = store_key,
                    .size_bytes = size_bytes,
                    .in = zeros};
  begin_(push,
         [this, store_key, size_bytes, tiny_key](const Status& status, std::span<const std::byte>) {
           if (!status.ok()) return std::exchange(done_, {})(status);
           const auto what = StoreRequest::What::kPull;
           PullBoth({.what = what, .store_key = tiny_key, .size_bytes = sizeof(float)},
                    {.what = what, .store_key = store_key, .size_bytes = size_bytes});
         });
}

void StoreScale::PullBoth(const StoreRequest& tiny, const StoreRequest& large) {
  Pull(tiny, kPulls, Duration::max(), [this, large](Duration latency) {
    Pull(large, kPulls, Duration::max(), [this, large, latency](Duration took) {
      std::exchange(done_, {})(ScaleFor(large.size_bytes, took, latency));
    });
  });
}

void StoreScale::Pull(StoreRequest request, int left, Duration quickest,
                      UniqueFunction<void(Duration)> then) {
  begin_(request, [this, request, left, quickest, then = std::move(then), began = now_()](
                      const Status& status, std::span<const std::byte>) mutable {
    if (!status.ok()) return std::exchange(done_, {})(status);
    const Duration least = std::min(quickest, now_() - began);
    const int done = kPulls - left + 1;
    const bool enough =
        done == kPulls || (least >= kLong && done >= kLeastPulls) || least >= kVeryLong;
    if (enough) return then(least);
    Pull(request, left - 1, least, std::move(then));
  });
}

}  // namespace bs::worker
