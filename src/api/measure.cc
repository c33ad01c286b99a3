// Waits for figures, and lets them come too late.
#include "api/measure.h"

#include <memory>
#include <utility>

#include "base/notification.h"

namespace bs::api {

Result<Figures> AwaitFigures(Duration timeout, const std::function<void(GiveFigures)>& begin) {
  struct Answer {
    Figures figures;  // written before, read after `given`
    Notification given;
  };
  // Owners: this call and the function it gives.
  const auto answer = std::make_shared<Answer>();
  begin([answer](const Figures& figures) {
    answer->figures = figures;
    answer->given.Notify();
  });
  if (answer->given.WaitFor(timeout)) return answer->figures;
  return Status::DeadlineExceeded("the engine has not told its figures in time: it is busy");
}

Result<Figures> MeasureWorker(Executor* executor, const std::unique_ptr<Worker>& worker,
                              const Outcome& failure, Duration timeout) {
  return AwaitFigures(timeout, [&](GiveFigures give) {
    executor->Post([&worker, &failure, give = std::move(give)] {
      if (!worker) return;
      Figures figures;
      worker->Measure(&figures);
      figures.Add("failed", failure.Get() ? 1 : 0);
      give(figures);
    });
  });
}

}  // namespace bs::api
