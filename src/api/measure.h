// Measure: figures of a node, asked for on the thread that owns them.
#pragma once

#include <functional>
#include <memory>

#include "api/outcome.h"
#include "base/executor.h"
#include "base/figures.h"
#include "base/unique_function.h"
#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "bytescheduler/worker.h"

namespace bs::api {

using GiveFigures = UniqueFunction<void(const Figures&)>;

// Calls `begin` once, with a function that may be called once, at any time and on any thread, and
// waits for that call.  kDeadlineExceeded if it has not come after `timeout`: the thread that owns
// the figures is busy, or ends.
Result<Figures> AwaitFigures(Duration timeout, const std::function<void(GiveFigures)>& begin);

// Those of a worker, which is made and ended on `executor`; errors as above, also while there is
// none.  All three outlive what runs there.
Result<Figures> MeasureWorker(Executor* executor, const std::unique_ptr<Worker>& worker,
                              const Outcome& failure, Duration timeout);

}  // namespace bs::api
