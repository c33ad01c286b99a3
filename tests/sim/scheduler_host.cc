// The scheduler node of a simulated cluster.
#include "sim/scheduler_host.h"

#include <chrono>
#include <utility>

namespace bs::sim {

SchedulerHost::SchedulerHost(Job* job, const Logger& log)
    : job_(job),
      executor_(job->clock),
      transport_(job->network->MakeTransport(&executor_)),
      coordinator_(std::make_unique<ps::Coordinator>(job->membership, transport_.get(), &executor_,
                                                     log, job->peers)) {}

void SchedulerHost::Start(Duration delay) {
  ps::Coordinator::Handler handler;
  handler.on_listening = [](int32_t) {};
  handler.on_finished = [this](const Status& status) {
    finished_ = status;
    job_->finished = status.ok();
    job_->journal->Progress();
    job_->journal->Note("scheduler node", [&] { return "finishes: " + status.ToString(); });
    coordinator_->Close(std::chrono::seconds(1));
  };
  executor_.PostAt(job_->clock->Now() + delay, [this, handler] { coordinator_->Start(handler); });
}

void SchedulerHost::Kill() {
  killed_ = true;
  job_->network->Kill(transport_.get());
}

void SchedulerHost::Destroy() {
  coordinator_.reset();
  transport_.reset();
}

}  // namespace bs::sim
