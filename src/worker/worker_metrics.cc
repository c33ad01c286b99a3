// The metrics of a worker.
#include "backend/ps/requests.h"
#include "bytescheduler/worker.h"
#include "worker/worker_impl.h"

namespace bs {
namespace {

double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

void Add(Metrics* metrics, int32_t server, const ps::KvTraffic& traffic) {
  const auto direction = [&](const std::string& name, const ps::KvTraffic::Direction& counted) {
    metrics->Add(name + "ed_partitions_total", server, static_cast<double>(counted.count));
    metrics->Add(name + "ed_bytes_total", server, static_cast<double>(counted.bytes));
    metrics->Add(name + "_seconds_total", server, Seconds(counted.time));
  };
  direction("push", traffic.pushed);
  direction("pull", traffic.pulled);
  metrics->Add("repeats_total", server, static_cast<double>(traffic.repeats));
}

}  // namespace

uint64_t Worker::in_flight_bytes(uint32_t server) const {
  return link().core->in_flight_bytes(server);
}

void Worker::Measure(Metrics* metrics) const {
  const worker::Link& all = link();
  for (uint32_t i = 0; i < all.num_servers; ++i) {
    const auto server = static_cast<int32_t>(i);
    const auto& traffic = all.requests->traffic();
    Add(metrics, server, i < traffic.size() ? traffic[i] : ps::KvTraffic());
    metrics->Add("queued_partitions", server, static_cast<double>(all.core->queued(i)));
    metrics->Add("queued_bytes", server, static_cast<double>(all.core->queued_bytes(i)));
    metrics->Add("in_flight_bytes", server, static_cast<double>(all.core->in_flight_bytes(i)));
  }
  const worker::Pieces pieces = impl_->pieces();
  metrics->Add("partition_bytes", static_cast<double>(pieces.partition_bytes));
  metrics->Add("credit_bytes", static_cast<double>(pieces.credit_bytes));
  metrics->Add("pending_requests", static_cast<double>(all.requests->pending()));
  const worker::Steps& steps = all.spans.steps();
  metrics->Add("tensors_total", static_cast<double>(steps.tensors()));
  metrics->Add("steps_total", static_cast<double>(steps.count()));
  metrics->Add("step_seconds", Seconds(steps.latest()));
}

std::vector<StepTime> Worker::Steps() const { return link().spans.steps().kept(); }

}  // namespace bs
