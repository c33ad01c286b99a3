// Collects the metrics of a node on the thread that owns them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/metrics.h"
#include "base/notification.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"
#include "node/outcome.h"
#include "ps/transport.h"
#include "worker/worker.h"

// See transport/rdma/rdma_options.h.
namespace ps {
struct RdmaCounts;
}  // namespace ps

namespace bs::node {

template <typename T>
using Give = UniqueFunction<void(const T&)>;
using GiveMetrics = Give<Metrics>;

// Calls `begin` once, with a function that may be called once, at any time and on any thread, and
// waits for that call.  kDeadlineExceeded if it has not come after `timeout`: the owning thread is
// busy, or ends.
template <typename T>
Result<T> Await(Duration timeout, const std::function<void(Give<T>)>& begin) {
  struct Answer {
    T told;  // written before, read after `given`
    Notification given;
  };
  // Owners: this call and the function it gives.
  const auto answer = std::make_shared<Answer>();
  begin([answer](const T& told) {
    answer->told = told;
    answer->given.Notify();
  });
  if (answer->given.WaitFor(timeout)) return answer->told;
  return Status::DeadlineExceeded("the engine has not given its metrics in time: it is busy");
}

void AddSent(const ps::SentCounts& sent, Metrics* metrics);
void AddRdma(const ps::RdmaCounts& counts, Metrics* metrics);
// Collects from a worker, which is made and ended on `executor`; errors are Await's, also while
// there is no worker.  All arguments outlive the tasks there.
Result<Metrics> MetricsOfWorker(Executor* executor, const std::unique_ptr<Worker>& worker,
                                const Outcome& failure, Duration timeout);
Result<std::vector<StepTime>> StepsOfWorker(Executor* executor,
                                            const std::unique_ptr<Worker>& worker,
                                            Duration timeout);

}  // namespace bs::node
