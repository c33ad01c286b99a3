// Times acknowledgements while partitions are under way.
#include "backend/ps/bandwidth_estimator.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace bs::backend {
namespace {

// A sample of the rate: several acknowledgements may come at the same moment.  The median of
// kSamples is not that of a moment in which another process had the processors.
constexpr uint64_t kSampleBytes = uint64_t{512} << 10U;
constexpr Duration kSampleTime = std::chrono::milliseconds(2);
constexpr size_t kSamples = 8;
// The first partition has none ahead of it.  Among fewer that follow each other it takes too much
// of the time;
constexpr size_t kLeastPartitions = 8;
// unless even the quickest take this many times as long as an idle network takes to respond.  The
// bytes are not too few, because some networks let a few pass at once after a pause.
constexpr int kTimesIdle = 10;
constexpr uint64_t kLeastShortBytes = uint64_t{256} << 10U;

constexpr double kPartitionSeconds = 0.00055;
constexpr double kLeastSeconds = 0.00005;  // less is shorter than the network's delay
constexpr double kTimesOfHosts = 2;        // where the workers of a host add up
constexpr uint64_t kLeastBytes = uint64_t{32} << 10U;
// A sum waits for a partition from each worker, and a tensor's partitions must suffice for all
// servers.  So with more servers than a few, partitions shrink as the number grows;
constexpr uint32_t kFewServers = 3;
// on a slow link below the usual least, too, to the bytes that it carries in this time, so that
// messages are few a second;
constexpr double kSlowLinkSeconds = 0.0004;
constexpr uint64_t kLeastBytesOfSlowLink = uint64_t{8} << 10U;
// and on any link with more servers than these.
constexpr uint32_t kManyServers = 16;
constexpr uint64_t kLeastBytesOfMany = uint64_t{16} << 10U;
constexpr uint64_t kLeastCreditBytes = uint64_t{64} << 10U;
constexpr uint64_t kLeastCreditPartitions = 4;  // if they are less
constexpr uint64_t kMostBytes = uint64_t{256} << 10U;
// In flight to a server: a partition that the network carries, and the next partition.
constexpr uint64_t kInFlight = 2;
constexpr uint64_t kInFlightShared = 4;  // nothing waits in a socket
// Whatever was measured.
constexpr double kMostCreditBytes = 64.0 * 1024 * 1024;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

uint64_t NearestPower(double bytes, uint64_t least_bytes, uint64_t most_bytes) {
  uint64_t power = least_bytes;
  while (power < most_bytes && bytes > static_cast<double>(power) * std::sqrt(2.0)) power *= 2;
  return power;
}

uint64_t LeastBytes(double bytes_per_second, uint32_t num_servers) {
  if (num_servers <= kFewServers) return kLeastBytes;
  return NearestPower(kSlowLinkSeconds * bytes_per_second, kLeastBytesOfSlowLink,
                      num_servers > kManyServers ? kLeastBytesOfMany : kLeastBytes);
}

}  // namespace

PartitionAndCredit PartitionAndCreditFor(const Bandwidth& bandwidth, uint32_t num_servers) {
  const double shrunk = kPartitionSeconds * kFewServers / std::max(num_servers, kFewServers);
  const double seconds =
      std::max(shrunk, kLeastSeconds) * (bandwidth.adds_up ? kTimesOfHosts : 1.0);
  const uint64_t partition =
      NearestPower(seconds * bandwidth.bytes_per_second,
                   LeastBytes(bandwidth.bytes_per_second, num_servers), kMostBytes);
  const double each = bandwidth.bytes_per_second / num_servers;
  const auto partitions = [&](double bytes) {
    return static_cast<uint64_t>(
        std::ceil(std::min(bytes, kMostCreditBytes) / static_cast<double>(partition)));
  };
  const uint64_t usual = bandwidth.shares_memory ? kInFlightShared : kInFlight;
  const uint64_t in_flight = std::max(usual, partitions(2 * Seconds(bandwidth.round_trip) * each));
  return {.partition_bytes = partition,
          .credit_bytes = std::max(std::min(kLeastCreditBytes, kLeastCreditPartitions * partition),
                                   in_flight * partition)};
}

void BandwidthEstimator::ResponseCame(uint32_t server, TimePoint sent) {
  const Duration took = clock_->Now() - sent;
  const auto [known, is_first] = idle_.try_emplace(server, took);
  if (!is_first) known->second = std::min(known->second, took);
}

void BandwidthEstimator::PartitionSent(uint64_t size_bytes) {
  if (stopped_ || in_flight_++ > 0) return;
  acknowledged_ = 0;
  busy_ = {.begin = clock_->Now()};
  first_bytes_ = size_bytes;
}

void BandwidthEstimator::PartitionAcknowledged(uint64_t size_bytes) {
  if (stopped_ || in_flight_ == 0) return;
  const TimePoint now = clock_->Now();
  acknowledged_bytes_ += size_bytes;
  // Another server's may be quicker, but then its partition had nothing before it either.
  if (acknowledged_ == 0 && now - busy_.begin < quickest_) {
    quickest_ = now - busy_.begin;
    quickest_bytes_ = first_bytes_;
  }
  busy_.bytes += size_bytes;
  const bool over = --in_flight_ == 0;
  if (++acknowledged_ < kLeastPartitions) {
    if (over) AddShort(busy_.bytes, now - busy_.begin);
    return;
  }
  if (over || (busy_.bytes >= kSampleBytes && now - busy_.begin >= kSampleTime)) AddToSample(now);
}

void BandwidthEstimator::AddToSample(TimePoint now) {
  sample_bytes_ += busy_.bytes;
  sample_took_ += now - busy_.begin;
  busy_ = {.begin = now};
  if (sample_bytes_ < kSampleBytes || sample_took_ < kSampleTime) return;
  if (rates_.size() < kSamples) {
    rates_.push_back(static_cast<double>(sample_bytes_) / Seconds(sample_took_));
  }
  sample_bytes_ = 0;
  sample_took_ = {};
}

void BandwidthEstimator::AddShort(uint64_t bytes, Duration took) {
  if (bytes < kLeastShortBytes) return;
  short_bytes_ += bytes;
  const auto of = [](uint64_t some) { return static_cast<double>(some); };
  if (best_bytes_ > 0 && of(bytes) * Seconds(best_took_) <= of(best_bytes_) * Seconds(took)) return;
  best_bytes_ = bytes;
  best_took_ = took;
}

// By the quickest: a moment in which another process had the processors makes no network slow.
std::optional<Bandwidth> BandwidthEstimator::MeasuredByShort() const {
  if (short_bytes_ < kSamples * kSampleBytes || idle_.size() < num_servers_) return std::nullopt;
  Duration idle{};
  for (const auto& [server, took] : idle_) idle = std::max(idle, took);
  if (best_took_ / kTimesIdle < idle || best_took_ <= idle) return std::nullopt;
  return Bandwidth{
      .bytes_per_second = static_cast<double>(best_bytes_) / Seconds(best_took_ - idle),
      .round_trip = idle};
}

std::optional<Bandwidth> BandwidthEstimator::measured() const {
  if (rates_.size() < kSamples || quickest_ == Duration::max()) return MeasuredByShort();
  std::vector<double> ranked = rates_;
  std::sort(ranked.begin(), ranked.end());
  const double rate = (ranked[kSamples / 2 - 1] + ranked[kSamples / 2]) / 2;
  const std::chrono::duration<double> carried(static_cast<double>(quickest_bytes_) / rate);
  return Bandwidth{
      .bytes_per_second = rate,
      .round_trip =
          std::max(Duration::zero(), quickest_ - std::chrono::duration_cast<Duration>(carried))};
}

}  // namespace bs::backend
