// Counts pushes, pulls and rounds by worker.
#include "server/state/counters.h"

namespace bs::server {
namespace {

double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void Counters::Contributed(int32_t rank, bool opens) {
  if (opens) ++rounds_begun_;
  ++of(rank).contributions;
}

void Counters::Pushed(int32_t rank, uint64_t size_bytes) {
  ++of(rank).pushes;
  of(rank).pushed_bytes += size_bytes;
}

void Counters::Pulled(int32_t rank, uint64_t size_bytes) {
  ++of(rank).pulls;
  of(rank).pulled_bytes += size_bytes;
}

void Counters::Summed(const RoundTimes& times) {
  ++rounds_;
  OfWorker& last = of(times.last_rank);
  ++last.last;
  last.waited += times.last_push - times.first_push;
  sum_time_ += times.summed - times.last_push;
}

void Counters::Measure(Metrics* metrics) const {
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    const OfWorker& worker = workers_[rank];
    const auto add = [&](const char* name, double value) {
      metrics->Add(name, static_cast<int32_t>(rank), value);
    };
    add("pushes_total", static_cast<double>(worker.pushes));
    add("pushed_bytes_total", static_cast<double>(worker.pushed_bytes));
    add("pulls_total", static_cast<double>(worker.pulls));
    add("pulled_bytes_total", static_cast<double>(worker.pulled_bytes));
    add("came_last_total", static_cast<double>(worker.last));
    add("waited_seconds_total", Seconds(worker.waited));
    // Every round that is over has a contribution of each worker.
    add("awaited_rounds", static_cast<double>(rounds_begun_ - worker.contributions));
  }
  metrics->Add("rounds_total", static_cast<double>(rounds_));
  metrics->Add("open_rounds", static_cast<double>(rounds_begun_ - rounds_));
  metrics->Add("sum_seconds_total", Seconds(sum_time_));
  metrics->Add("coding_seconds_total", Seconds(coding_time_));
  metrics->Add("refused_total", static_cast<double>(refused_));
  metrics->Add("value_bytes", static_cast<double>(kept_bytes_));
}

}  // namespace bs::server
