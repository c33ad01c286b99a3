// The C API's predictions: checks numbers, turns seconds into durations.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "backend/ps/bandwidth_estimator.h"
#include "bytescheduler/c_api.h"
#include "capi/c_api_guard.h"
#include "predict/predict.h"

using bs::Duration;
using bs::Guarded;
using bs::Result;
using bs::Status;
using bs::capi::Return;
using bs::predict::Options;
using bs::predict::Policy;
using bs::predict::Prediction;

namespace {

// A simulation of a longer time would take too long for a user.
constexpr double kMostSeconds = 1e5;
constexpr double kMostCodingSeconds = 1e-3;
constexpr int kMostNodes = 1 << 16;
constexpr int kMostSteps = 10'000;

bool IsTime(double seconds) { return seconds >= 0 && seconds <= kMostSeconds; }  // not NaN

Duration DurationOf(double seconds) {
  return Duration(static_cast<int64_t>(std::llround(seconds * 1e9)));
}

bool Fits(int count, int most) { return count >= 1 && count <= most; }

Status CheckCounts(const bs_job_to_predict& job) {
  if (!Fits(job.num_workers, kMostNodes) || !Fits(job.num_servers, kMostNodes) ||
      !Fits(job.most_workers, kMostNodes)) {
    return Status::InvalidArgument("want 1 to 65536 workers and servers");
  }
  if (!Fits(job.steps, kMostSteps)) return Status::InvalidArgument("want 1 to 10000 steps");
  if (job.policy < 0 || job.policy > static_cast<int>(Policy::kDistSync)) {
    return Status::InvalidArgument("no policy has the number " + std::to_string(job.policy));
  }
  if (!std::isfinite(job.bytes_per_second) || !IsTime(job.latency_s)) {
    return Status::InvalidArgument("want a rate of the links and a latency of up to 100000 s");
  }
  return Status::Ok();
}

Status ReadCoding(const bs_job_to_predict& job, Options* options) {
  const std::span<const double> costs(job.coding_s);
  const auto is_cost = [](double seconds) { return seconds >= 0 && seconds <= kMostCodingSeconds; };
  if (!std::ranges::all_of(costs, is_cost)) {
    return Status::InvalidArgument("want 0 to 0.001 s of coding for each byte that travels");
  }
  options->coding = {.encode_ns = 1e9 * costs[0],
                     .add_ns = 1e9 * costs[1],
                     .encode_sum_ns = 1e9 * costs[2],
                     .decode_ns = 1e9 * costs[3]};
  return Status::Ok();
}

Status Place(const bs_job_to_predict& job, Options* options) {
  for (int node = 0; node < job.num_workers + job.num_servers; ++node) {
    const bs_place& place = job.places[node];
    if (!std::isfinite(place.bytes_per_second)) {
      return Status::InvalidArgument("want a rate of each host's link");
    }
    auto& hosts = node < job.num_workers ? options->worker_hosts : options->server_hosts;
    hosts.push_back(place.host);
    options->host_rates[place.host] = place.bytes_per_second;
  }
  return Status::Ok();
}

Result<Options> OptionsOf(const bs_job_to_predict& job) {
  if (Status wrong = CheckCounts(job); !wrong.ok()) return wrong;
  Options options;
  options.num_workers = job.num_workers;
  options.num_servers = job.num_servers;
  options.policy = static_cast<Policy>(job.policy);
  options.bytes_per_second = job.bytes_per_second;
  options.latency = DurationOf(job.latency_s);
  options.partition_bytes = job.partition_bytes;
  options.credit_bytes = job.credit_bytes;
  options.steps = static_cast<uint32_t>(job.steps);
  options.most_workers = job.most_workers;
  if (Status wrong = ReadCoding(job, &options); !wrong.ok()) return wrong;
  if (job.places != nullptr) {
    if (Status wrong = Place(job, &options); !wrong.ok()) return wrong;
  }
  options.layers.reserve(job.num_layers);
  for (size_t i = 0; i < job.num_layers; ++i) {
    const bs_layer& layer = job.layers[i];
    if (!IsTime(layer.forward_s) || !IsTime(layer.backward_s)) {
      return Status::InvalidArgument("layer " + std::to_string(i) +
                                     ": want times of 0 to 100000 s");
    }
    options.layers.push_back(
        {layer.size_bytes, DurationOf(layer.forward_s), DurationOf(layer.backward_s)});
  }
  return options;
}

Status Predict(const bs_job_to_predict& job, bs_prediction* prediction) {
  const Result<Options> options = OptionsOf(job);
  if (!options.ok()) return options.status();
  const Result<Prediction> found = bs::predict::Predict(options.value());
  if (!found.ok()) return found.status();
  const Prediction& of = found.value();
  *prediction = {.step_s = std::chrono::duration<double>(of.step).count(),
                 .simulated_workers = of.simulated_workers,
                 .partitions = of.partitions,
                 .messages = of.messages,
                 .most_waiting = of.most_waiting,
                 .server_waiting = of.server_waiting,
                 .worker_busy = of.worker_busy,
                 .server_busy = of.server_busy};
  return Status::Ok();
}

Result<bs::backend::PartitionAndCredit> PartitionAndCreditFor(const bs_links& links) {
  const bool is_rate = std::isfinite(links.bytes_per_second) && links.bytes_per_second > 0;
  if (!is_rate || !IsTime(links.round_trip_s) || !Fits(links.num_servers, kMostNodes)) {
    return Status::InvalidArgument("want a rate, a time of up to 100000 s, and 1 to 65536 servers");
  }
  const bs::backend::Bandwidth bandwidth{.bytes_per_second = links.bytes_per_second,
                                         .round_trip = DurationOf(links.round_trip_s),
                                         .adds_up = links.adds_up != 0};
  return bs::backend::PartitionAndCreditFor(bandwidth, static_cast<uint32_t>(links.num_servers));
}

}  // namespace

int bs_partition_and_credit(const bs_links* links, uint64_t* partition_bytes,
                            uint64_t* credit_bytes, bs_error* error) {
  const Result<bs::backend::PartitionAndCredit> found = PartitionAndCreditFor(*links);
  if (found.ok()) {
    *partition_bytes = found.value().partition_bytes;
    *credit_bytes = found.value().credit_bytes;
  }
  return Return(found.status(), error);
}

int bs_predict(const bs_job_to_predict* job, bs_prediction* prediction, bs_error* error) {
  return Return(Guarded([&] { return Predict(*job, prediction); }), error);
}
