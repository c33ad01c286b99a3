// Collects a worker's metrics on its thread.
#include "node/node_metrics.h"

namespace bs::api {

void AddSent(const ps::SentCounts& sent, Metrics* metrics) {
  metrics->Add("sent_messages_total", static_cast<double>(sent.messages.load()));
  metrics->Add("sent_fused_total", static_cast<double>(sent.fused.load()));
}

Result<Metrics> MetricsOfWorker(Executor* executor, const std::unique_ptr<Worker>& worker,
                                const Outcome& failure, const ps::SentCounts* sent,
                                Duration timeout) {
  return Await<Metrics>(timeout, [&](GiveMetrics give) {
    executor->Post([&worker, &failure, sent, give = std::move(give)] {
      if (!worker) return;
      Metrics metrics;
      worker->Measure(&metrics);
      if (sent != nullptr) AddSent(*sent, &metrics);
      metrics.Add("failed", failure.Get() ? 1 : 0);
      give(metrics);
    });
  });
}

Result<std::vector<StepTime>> StepsOfWorker(Executor* executor,
                                            const std::unique_ptr<Worker>& worker,
                                            Duration timeout) {
  using Steps = std::vector<StepTime>;
  return Await<Steps>(timeout, [&](Give<Steps> give) {
    executor->Post([&worker, give = std::move(give)] {
      if (worker) give(worker->Steps());
    });
  });
}

}  // namespace bs::api
