// The worker's part of the C API.
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/count_of.h"
#include "bytescheduler/c_api.h"
#include "capi/c_api_guard.h"
#include "capi/deferred_rounds.h"
#include "capi/memory_request.h"
#include "capi/operation_fields.h"
#include "capi/operations.h"
#include "capi/store_function.h"
#include "config/config.h"
#include "node/leave_for.h"
#include "node/worker/ps_worker.h"
#include "node/worker/store_worker.h"

using bs::Status;

struct bs_worker {
  const pid_t owner;  // a forked child has the memory and none of the threads
  std::unique_ptr<bs::node::WorkerNode> node;
  bs::node::WrappedStore* store = nullptr;  // of the node; bs_store_done reports to it
  const std::shared_ptr<bs::capi::DeferredRounds> deferred =
      std::make_shared<bs::capi::DeferredRounds>();
};

struct bs_memory_use {
  std::shared_ptr<void> use;
};

namespace {

using bs::Config;
using bs::Guarded;
using bs::Result;
using bs::capi::Overrides;
using bs::capi::Return;
using bs::capi::Tell;

constexpr int kForLong = 1'000'000;  // milliseconds

Status CheckProcess(const bs_worker* worker) {
  if (worker->owner == getpid()) return Status::Ok();
  return Status::FailedPrecondition(
      "the store was created before fork; a forked process cannot use it, create one of its own");
}

Status CheckJoined(const bs_worker* worker) {
  const std::optional<Status> joined = worker->node->joined().Get();
  if (!joined) return Status::FailedPrecondition("the worker has not joined the job yet");
  return *joined;
}

Status CheckUsable(const bs_worker* worker) {
  Status forked = CheckProcess(worker);
  return forked.ok() ? CheckJoined(worker) : forked;
}

// Calls `f`, which returns a Status, if the worker can be used.
template <typename F>
int IfUsable(const bs_worker* worker, bs_error* error, F f) {
  return Return(Guarded([&] {
                  Status unusable = CheckUsable(worker);
                  return unusable.ok() ? f() : unusable;
                }),
                error);
}

// Empty for null.
bs::node::WorkerNode::Done Calling(bs_done done, void* context) {
  if (done == nullptr) return {};
  return [done, context](const Status& status) {
    done(context, static_cast<int>(status.code()), status.message().c_str());
  };
}

}  // namespace

int bs_worker_start(const bs_setting* settings, size_t num_settings, int wanted_rank,
                    bs_worker** worker, bs_error* error) {
  return Return(
      Guarded([&] {
        const Result<Config> config = bs::ConfigFromProcess(Overrides(settings, num_settings));
        if (!config.ok()) return config.status();
        if (config.value().role != "worker") {
          return Status::InvalidArgument("DMLC_ROLE=" + config.value().role + ": want worker here");
        }
        if (wanted_rank >= config.value().num_workers) {
          return Status::InvalidArgument("rank " + std::to_string(wanted_rank) + " of only " +
                                         bs::CountOf(config.value().num_workers, "worker"));
        }
        auto node = bs::node::StartPsWorker(config.value(), wanted_rank);
        if (!node.ok()) return node.status();
        *worker = new bs_worker{getpid(), std::move(node.value())};
        return Status::Ok();
      }),
      error);
}

// NOLINTNEXTLINE(readability-function-size): C has no better way to pass eight values.
int bs_worker_start_kvstore(const bs_setting* settings, size_t num_settings, int rank, int blocks,
                            bs_store_fn begin, void* context, bs_worker** worker, bs_error* error) {
  return Return(Guarded([&] {
                  const Result<Config> config =
                      bs::ConfigFromProcess(Overrides(settings, num_settings));
                  if (!config.ok()) return config.status();
                  auto started = std::make_unique<bs_worker>(bs_worker{getpid(), {}});
                  auto made = bs::node::MakeStoreWorker(
                      config.value(), rank,
                      bs::capi::CallStoreFunction(begin, context, started.get()), blocks != 0);
                  if (!made.ok()) return made.status();
                  started->node = std::move(made.value().node);
                  started->store = made.value().store;
                  *worker = started.release();
                  (*worker)->node->Join();
                  return Status::Ok();
                }),
                error);
}

void bs_store_done(bs_worker* worker, uint64_t token, int code, const char* message,
                   const void* value) {
  const auto status_code = static_cast<bs::StatusCode>(code);
  worker->store->OnDone(token, code == 0 ? Status::Ok() : Status(status_code, message),
                        static_cast<const std::byte*>(value));
}

int bs_worker_ready(const bs_worker* worker, int timeout_ms, bs_error* error) {
  if (const Status forked = CheckProcess(worker); !forked.ok()) {
    Return(forked, error);
    return 1;
  }
  if (!worker->node->joined().WaitFor(std::chrono::milliseconds(timeout_ms))) return 0;
  Return(worker->node->joined().Get().value_or(Status::Ok()), error);
  return 1;
}

int bs_worker_open(const bs_setting* settings, size_t num_settings, int wanted_rank,
                   bs_worker** worker, bs_error* error) {
  bs_worker* started = nullptr;
  const int code = bs_worker_start(settings, num_settings, wanted_rank, &started, error);
  if (code != 0) return code;
  const auto close_now = [](bs_worker* w) { bs_worker_close(w, 0, nullptr); };
  std::unique_ptr<bs_worker, decltype(close_now)> owner(started, close_now);
  bs_error joined{};
  // Ends by the membership's own deadline.
  while (bs_worker_ready(owner.get(), kForLong, &joined) == 0) {
  }
  if (error != nullptr) *error = joined;
  if (joined.code == 0) *worker = owner.release();
  return joined.code;
}

void bs_worker_place(const bs_worker* worker, char* place, size_t size) {
  std::snprintf(place, size, "%s", worker->node->place().c_str());
}

int bs_worker_view(const bs_worker* worker, bs_view* view, int* hosts, size_t count,
                   bs_error* error) {
  return Return(Guarded([&] {
                  if (Status unjoined = CheckJoined(worker); !unjoined.ok()) return unjoined;
                  if (view->size < sizeof(view->size)) {
                    return Status::InvalidArgument(
                        "bs_view: the field size is not set; want sizeof(bs_view)");
                  }
                  const bs::job::SharedView known = worker->node->view();
                  const bs_view whole{.size = view->size,
                                      .epoch = known->epoch,
                                      .rank = known->own.rank,
                                      .num_workers = known->num_workers(),
                                      .num_servers = known->num_servers()};
                  std::memcpy(view, &whole, std::min(view->size, sizeof(whole)));
                  for (size_t rank = 0; rank < std::min(count, known->workers.size()); ++rank) {
                    hosts[rank] = known->HostOf(known->workers[rank]).value_or(-1);
                  }
                  return Status::Ok();
                }),
                error);
}

int bs_leave_for(const bs_setting* settings, size_t num_settings, const char* place,
                 const char* reason, bs_error* error) {
  return Return(Guarded([&] {
                  const auto config = bs::ConfigFromProcess(Overrides(settings, num_settings));
                  return config.ok() ? bs::node::LeaveFor(config.value(), place, reason)
                                     : config.status();
                }),
                error);
}

int bs_vouch_for(const bs_setting* settings, size_t num_settings, int workers, uint64_t token,
                 bs_error* error) {
  return Return(Guarded([&] {
                  const auto config = bs::ConfigFromProcess(Overrides(settings, num_settings));
                  if (!config.ok()) return config.status();
                  bs::node::VouchFor(config.value(), workers, token);
                  return Status::Ok();
                }),
                error);
}

int bs_worker_start_operation(bs_worker* worker, const bs_operation* operation, bs_error* error) {
  return IfUsable(worker, error, [&] {
    bs_operation room;
    const Result<const bs_operation*> known = bs::capi::OperationOf(operation, &room);
    if (!known.ok()) return known.status();
    if (Status wrong = bs::capi::CheckOperation(*known.value()); !wrong.ok()) return wrong;
    if (known.value()->deferred != nullptr) {
      *known.value()->deferred = worker->deferred->Defer(worker, *known.value());
      return Status::Ok();
    }
    return bs::capi::StartOperation(*known.value(), worker->node.get());
  });
}

void bs_deferred_start(void* deferred) {
  bs::capi::DeferredRounds::Start(static_cast<bs_deferred*>(deferred));
}

int bs_worker_visit(bs_worker* worker, void (*visit)(void* context), void* context,
                    bs_error* error) {
  const auto visits = [visit, context] { visit(context); };
  return IfUsable(worker, error, [&] {
    worker->node->Visit(visits);
    return Status::Ok();
  });
}

uint64_t bs_worker_least_kept_bytes(const bs_worker* worker) {
  return CheckUsable(worker).ok() ? worker->node->LeastKeptBytes() : UINT64_MAX;
}

int bs_worker_use_memory(bs_worker* worker, const bs_kept_memory* memory, bs_memory_use** use,
                         bs_error* error) {
  *use = nullptr;
  return IfUsable(worker, error, [&] {
    std::shared_ptr<void> found =
        worker->node->UseMemory(bs::capi::MemoryOf(*memory), bs::capi::OwnOf(*memory));
    if (found) *use = new bs_memory_use{std::move(found)};
    return Status::Ok();
  });
}

void bs_memory_use_end(bs_memory_use* use) { delete use; }

int bs_worker_barrier_start(bs_worker* worker, bs_done done, void* context, bs_error* error) {
  return IfUsable(worker, error, [&] {
    worker->node->Barrier(Calling(done, context));
    return Status::Ok();
  });
}

int bs_worker_barrier(bs_worker* worker, bs_error* error) {
  const std::unique_ptr<bs_waiter, decltype(&bs_waiter_free)> waiter(bs_waiter_new(1),
                                                                     &bs_waiter_free);
  if (waiter == nullptr) return Return(Status::ResourceExhausted("no memory"), error);
  const int code = bs_worker_barrier_start(worker, bs_waiter_done, waiter.get(), error);
  if (code != 0) return code;
  bs_error outcome{};
  // Ends by the membership's own deadline.
  while (bs_waiter_wait(waiter.get(), kForLong, &outcome) == 0) {
  }
  if (error != nullptr) *error = outcome;
  return outcome.code;
}

int bs_worker_fail(bs_worker* worker, const char* why) {
  return IfUsable(worker, nullptr, [&] {
    worker->node->Fail(why);
    return Status::Ok();
  });
}

int bs_worker_explain(bs_worker* worker, const char* reason) {
  return IfUsable(worker, nullptr, [&] {
    worker->node->Explain(reason);
    return Status::Ok();
  });
}

int bs_worker_status(const bs_worker* worker, bs_error* error) {
  if (const Status forked = CheckProcess(worker); !forked.ok()) return Return(forked, error);
  return Return(worker->node->failure().Get().value_or(Status::Ok()), error);
}

int bs_worker_measure(const bs_worker* worker, int timeout_ms, bs_metric_row row, void* context,
                      bs_error* error) {
  const std::chrono::milliseconds timeout(timeout_ms);
  return IfUsable(worker, error,
                  [&] { return Tell(worker->node->Measure(timeout), row, context); });
}

int bs_worker_name_key(bs_worker* worker, uint64_t key, const char* name, bs_error* error) {
  return IfUsable(worker, error, [&] {
    worker->node->NameKey(key, name);
    return Status::Ok();
  });
}

int bs_worker_name_framework(bs_worker* worker, const char* name, bs_error* error) {
  return IfUsable(worker, error, [&] {
    worker->node->NameFramework(name);
    return Status::Ok();
  });
}

int bs_worker_steps(const bs_worker* worker, int timeout_ms, bs_step_row row, void* context,
                    bs_error* error) {
  const std::chrono::milliseconds timeout(timeout_ms);
  return IfUsable(worker, error, [&] {
    const auto steps = worker->node->Steps(timeout);
    if (!steps.ok()) return steps.status();
    for (const bs::StepTime& step : steps.value()) {
      row(context, step.number, std::chrono::duration<double>(step.length).count());
    }
    return Status::Ok();
  });
}

int bs_worker_close(bs_worker* worker, int drain_ms, bs_error* error) {
  if (!CheckProcess(worker).ok()) return Return(Status::Ok(), error);
  return Return(Guarded([&] {
                  worker->deferred->Close();
                  const auto drain = std::chrono::milliseconds(std::max(drain_ms, 0));
                  if (Status busy = worker->node->Close(drain); !busy.ok()) return busy;
                  delete worker;
                  return Status::Ok();
                }),
                error);
}
