// Asks a worker on its thread.
#include "node/measure.h"

namespace bs::api {

void AddSent(const ps::SentCounts& sent, Figures* figures) {
  figures->Add("sent_messages_total", static_cast<double>(sent.messages.load()));
  figures->Add("sent_fused_total", static_cast<double>(sent.fused.load()));
}

Result<Figures> MeasureWorker(Executor* executor, const std::unique_ptr<Worker>& worker,
                              const Outcome& failure, const ps::SentCounts* sent,
                              Duration timeout) {
  return Await<Figures>(timeout, [&](GiveFigures give) {
    executor->Post([&worker, &failure, sent, give = std::move(give)] {
      if (!worker) return;
      Figures figures;
      worker->Measure(&figures);
      if (sent != nullptr) AddSent(*sent, &figures);
      figures.Add("failed", failure.Get() ? 1 : 0);
      give(figures);
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
