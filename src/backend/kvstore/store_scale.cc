// Times pulls from a stock server.
#include "backend/kvstore/store_scale.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/types.h"

namespace bs::backend {
namespace {

// From all servers together.  Enough that some find the processors free, and 0.14 s at 1 Gbit/s.
constexpr int kPulls = 16;
// A link this slow should not be kept busy, so kLeastPulls are enough.
constexpr Duration kLong = std::chrono::milliseconds(30);
constexpr int kLeastPulls = 3;
constexpr Duration kVeryLong = 10 * kLong;  // one is enough
constexpr double kUsualBytesPerSecond = 125e6;
// Times kUsualBytesPerSecond, from where on credit is half of the usual, and the usual.
constexpr double kHalf = 0.3;
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
  for (uint32_t scale = kUsualScale / (rate < kHalf ? 8 : 2); scale < kUsualScale; scale *= 2) {
    if (static_cast<double>(CreditFor(kFirstCreditBytes, scale)) >= in_flight) return scale;
  }
  return kUsualScale;
}

StoreScale::StoreScale(StoreFn begin, std::function<TimePoint()> now)
    : begin_(std::move(begin)), now_(std::move(now)) {}

void StoreScale::Measure(std::vector<Keys> servers, uint64_t size_bytes, Done done) {
  BS_CHECK(!done_ && !servers.empty());
  BS_CHECK(size_bytes >= kLeastSampleBytes && size_bytes % sizeof(float) == 0);
  done_ = std::move(done);
  servers_ = std::move(servers);
  size_bytes_ = size_bytes;
  most_ = std::max(kPulls / static_cast<int>(servers_.size()), kLeastPulls);
  Sample(0);
}

void StoreScale::Sample(size_t server) {
  if (server == servers_.size()) {
    return std::exchange(done_, {})(ScaleFor(size_bytes_, slowest_, latency_));
  }
  const std::vector<std::byte> zeros(size_bytes_);
  StoreRequest large{.what = StoreRequest::What::kPush,
                     .store_key = servers_[server].large,
                     .size_bytes = size_bytes_,
                     .in = zeros};
  begin_(large, [this, large, server](const Status& status, std::span<const std::byte>) mutable {
    if (!status.ok()) return std::exchange(done_, {})(status);
    large.what = StoreRequest::What::kPull;
    large.in = {};
    PullBoth(large, server);
  });
}

void StoreScale::PullBoth(const StoreRequest& large, size_t server) {
  StoreRequest tiny = large;
  tiny.store_key = servers_[server].tiny;
  tiny.size_bytes = sizeof(float);
  Pull(tiny, {.most = most_}, [this, large, server](Duration latency) {
    Pull(large, {.most = most_}, [this, latency, server](Duration took) {
      if (took > slowest_) latency_ = latency;
      slowest_ = std::max(slowest_, took);
      Sample(server + 1);
    });
  });
}

void StoreScale::Pull(StoreRequest request, Pulls pulls, UniqueFunction<void(Duration)> then) {
  begin_(request, [this, request, pulls, then = std::move(then), began = now_()](
                      const Status& status, std::span<const std::byte>) mutable {
    if (!status.ok()) return std::exchange(done_, {})(status);
    pulls.quickest = std::min(pulls.quickest, now_() - began);
    ++pulls.made;
    const bool enough = pulls.made == pulls.most ||
                        (pulls.quickest >= kLong && pulls.made >= kLeastPulls) ||
                        pulls.quickest >= kVeryLong;
    if (enough) return then(pulls.quickest);
    Pull(request, pulls, std::move(then));
  });
}

}  // namespace bs::backend
