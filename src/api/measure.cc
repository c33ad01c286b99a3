// Asks a worker on its thread.
#include "api/measure.h"

namespace bs::api {

Result<Figures> MeasureWorker(Executor* executor, const std::unique_ptr<Worker>& worker,
                              const Outcome& failure, Duration timeout) {
  return Await<Figures>(timeout, [&](GiveFigures give) {
    executor->Post([&worker, &failure, give = std::move(give)] {
      if (!worker) return;
      Figures figures;
      worker->Measure(&figures);
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
