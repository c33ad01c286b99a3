// The metrics of a worker.
#include <chrono>

#include "worker/worker.h"
#include "worker/worker_impl.h"

namespace bs {

uint64_t Worker::in_flight_bytes(uint32_t server) const {
  return impl_->core().in_flight_bytes(server);
}

void Worker::Measure(Metrics* metrics) const { impl_->Measure(metrics); }

void Worker::Impl::Measure(Metrics* metrics) const {
  backend_->Measure(metrics);
  for (uint32_t i = 0; i < backend_->num_destinations(); ++i) {
    const auto server = static_cast<int32_t>(i);
    metrics->Add("queued_partitions", server, static_cast<double>(core_.queued(i)));
    metrics->Add("queued_bytes", server, static_cast<double>(core_.queued_bytes(i)));
    metrics->Add("in_flight_bytes", server, static_cast<double>(core_.in_flight_bytes(i)));
  }
  const backend::PartitionAndCredit sizes = partition_and_credit();
  metrics->Add("partition_bytes", static_cast<double>(sizes.partition_bytes));
  metrics->Add("credit_bytes", static_cast<double>(sizes.credit_bytes));
  metrics->Add("tensors_total", static_cast<double>(steps_.tensors()));
  metrics->Add("steps_total", static_cast<double>(steps_.count()));
  metrics->Add("step_seconds", std::chrono::duration<double>(steps_.latest()).count());
}

std::vector<StepTime> Worker::Steps() const { return impl_->steps().kept(); }

}  // namespace bs
