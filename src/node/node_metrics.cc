// Collects a worker's metrics on its thread.
#include "node/node_metrics.h"

#include "transport/rdma/rdma_options.h"

namespace bs::node {

void AddSent(const ps::SentCounts& sent, Metrics* metrics) {
  metrics->Add("sent_messages_total", static_cast<double>(sent.messages.load()));
  metrics->Add("sent_fused_total", static_cast<double>(sent.fused.load()));
  metrics->Add("sent_tcp_bytes_total", static_cast<double>(sent.tcp_bytes.load()));
  metrics->Add("sent_shared_bytes_total", static_cast<double>(sent.shared_bytes.load()));
}

void AddRdma(const ps::RdmaCounts& counts, Metrics* metrics) {
  const auto add = [&](const char* name, const std::atomic<uint64_t>& count) {
    metrics->Add(name, static_cast<double>(count.load()));
  };
  add("rdma_links", counts.links);
  add("rdma_sent_bytes_total", counts.sent_bytes);
  add("rdma_received_bytes_total", counts.received_bytes);
  add("rdma_reads_total", counts.reads);
  add("rdma_bounced_bytes_total", counts.bounced_bytes);
  add("rdma_moved_bytes_total", counts.moved_bytes);
  add("rdma_pinned_bytes", counts.pinned_bytes);
  add("rdma_window_bytes", counts.window_bytes);
  for (size_t result = 0; result < counts.breaks.size(); ++result) {
    const uint64_t count = counts.breaks.at(result).load();
    if (count == 0 && result > 0) continue;
    metrics->Add("rdma_breaks_total", static_cast<int32_t>(result), static_cast<double>(count));
  }
}

Result<Metrics> MetricsOfWorker(Executor* executor, const std::unique_ptr<Worker>& worker,
                                const Outcome& failure, Duration timeout) {
  return Await<Metrics>(timeout, [&](GiveMetrics give) {
    executor->Post([&worker, &failure, give = std::move(give)] {
      if (!worker) return;
      Metrics metrics;
      worker->Measure(&metrics);
      // A back end with a library, or with codes, has added its own.
      metrics.Add("coding_seconds_total", 0);
      metrics.Add("library_operations_total", 0);
      metrics.Add("library_bytes_total", 0);
      metrics.Add("library_copied_bytes_total", 0);
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

}  // namespace bs::node
