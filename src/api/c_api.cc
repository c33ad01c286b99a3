// The C API: checks arguments, turns Status into codes, lets nothing thrown pass.
#include "bytescheduler/c_api.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>

#include "api/carry.h"
#include "api/node.h"
#include "bytescheduler/config.h"

using bs::Status;

struct bs_worker {
  const pid_t owner;  // a forked child has the memory and none of the threads
  std::variant<std::unique_ptr<bs::api::WorkerNode>, std::unique_ptr<bs::api::CarriedNode>> node;

  template <typename F>
  auto Visit(F f) const {
    return std::visit([&](const auto& pointer) { return f(*pointer); }, node);
  }
  const bs::api::Outcome& joined() const {
    return std::visit([](const auto& n) -> const bs::api::Outcome& { return n->joined(); }, node);
  }
};

struct bs_node {
  std::variant<std::unique_ptr<bs::api::SchedulerNode>, std::unique_ptr<bs::api::ServerNode>> node;

  template <typename F>
  auto Visit(F f) const {
    return std::visit([&](const auto& pointer) { return f(*pointer); }, node);
  }
};

struct bs_waiter {
  explicit bs_waiter(size_t count) : left(count) {
    if (count == 0) all.Notify();
  }
  std::atomic<size_t> left;
  bs::api::Outcome first_error;
  bs::Notification all;
};

namespace {

using bs::Config;
using bs::Result;

int Return(const Status& status, bs_error* error) {
  if (error != nullptr) {
    const size_t size = std::min(status.message().size(), sizeof(error->message) - 1);
    error->code = static_cast<int>(status.code());
    std::memcpy(error->message, status.message().data(), size);
    error->message[size] = '\0';
  }
  return static_cast<int>(status.code());
}

// `body` returns a Status; what it throws (memory, threads, descriptors run out) becomes one.
template <typename F>
Status Guarded(F body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::ResourceExhausted("no memory");
  } catch (const std::exception& e) {
    return Status::ResourceExhausted(e.what());
  }
}

std::map<std::string, std::string> Overrides(const bs_setting* settings, size_t num_settings) {
  std::map<std::string, std::string> overrides;
  for (size_t i = 0; i < num_settings; ++i) overrides[settings[i].name] = settings[i].value;
  return overrides;
}

Status CheckProcess(const bs_worker* worker) {
  if (worker->owner == getpid()) return Status::Ok();
  return Status::FailedPrecondition(
      "the store was created before fork; a forked process cannot use it, create one of its own");
}

Status CheckUsable(const bs_worker* worker) {
  if (Status forked = CheckProcess(worker); !forked.ok()) return forked;
  const std::optional<Status> joined = worker->joined().Get();
  if (!joined) return Status::FailedPrecondition("the worker has not joined the job yet");
  return *joined;
}

bs::api::WorkerNode::Done Calling(bs_done done, void* context) {
  return [done, context](const Status& status) {
    done(context, static_cast<int>(status.code()), status.message().c_str());
  };
}

Status Start(const Config& config, bs_node* out) {
  if (config.role == "scheduler") {
    auto node = bs::api::SchedulerNode::Start(config);
    if (!node.ok()) return node.status();
    out->node = std::move(node.value());
    return Status::Ok();
  }
  if (config.role == "server") {
    auto node = bs::api::ServerNode::Start(config);
    if (!node.ok()) return node.status();
    out->node = std::move(node.value());
    return Status::Ok();
  }
  return Status::InvalidArgument("DMLC_ROLE=" + config.role +
                                 ": want scheduler or server; a worker runs the training script");
}

void TellRow(const bs::SettingInfo& info, bs_setting_row row, void* context) {
  const std::string name(info.name);
  const std::string kind(info.kind);
  const std::string unit(info.unit);
  const std::string fallback(info.fallback);
  const std::string scope(info.scope);
  const std::string sentence(info.sentence);
  row(context, name.c_str(), kind.c_str(), unit.c_str(), fallback.c_str(), scope.c_str(),
      sentence.c_str());
}

}  // namespace

// ---- worker ------------------------------------------------------------------------------------

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
                                         std::to_string(config.value().num_workers) + " workers");
        }
        auto node = bs::api::WorkerNode::Start(config.value(), wanted_rank);
        if (!node.ok()) return node.status();
        *worker = new bs_worker{getpid(), std::move(node.value())};
        return Status::Ok();
      }),
      error);
}

// NOLINTNEXTLINE(readability-function-size): C has no better way to pass seven values.
int bs_worker_start_carried(const bs_setting* settings, size_t num_settings, int rank,
                            bs_carry_fn carry, void* context, bs_worker** worker, bs_error* error) {
  return Return(Guarded([&] {
                  const Result<Config> config =
                      bs::ConfigFromProcess(Overrides(settings, num_settings));
                  if (!config.ok()) return config.status();
                  auto started = std::make_unique<bs_worker>(bs_worker{getpid(), {}});
                  auto node = bs::api::CarriedNode::Start(
                      config.value(), rank, bs::api::CarryThrough(carry, context, started.get()));
                  if (!node.ok()) return node.status();
                  bs::api::CarriedNode* const carried = node.value().get();
                  started->node = std::move(node.value());
                  *worker = started.release();
                  carried->Join();
                  return Status::Ok();
                }),
                error);
}

void bs_carried_done(bs_worker* worker, uint64_t token, int code, const char* message,
                     const void* value) {
  const auto status_code = static_cast<bs::StatusCode>(code);
  std::get<1>(worker->node)
      ->Carried(token, code == 0 ? Status::Ok() : Status(status_code, message),
                static_cast<const std::byte*>(value));
}

int bs_worker_ready(const bs_worker* worker, int timeout_ms, bs_error* error) {
  if (const Status forked = CheckProcess(worker); !forked.ok()) {
    Return(forked, error);
    return 1;
  }
  if (!worker->joined().WaitFor(std::chrono::milliseconds(timeout_ms))) return 0;
  Return(worker->joined().Get().value_or(Status::Ok()), error);
  return 1;
}

int bs_worker_open(const bs_setting* settings, size_t num_settings, int wanted_rank,
                   bs_worker** worker, bs_error* error) {
  bs_worker* started = nullptr;
  const int code = bs_worker_start(settings, num_settings, wanted_rank, &started, error);
  if (code != 0) return code;
  const auto close_now = [](bs_worker* w) { bs_worker_close(w, 0, nullptr); };
  std::unique_ptr<bs_worker, decltype(close_now)> owner(started, close_now);
  constexpr int kForLong = 1'000'000;
  bs_error joined{};
  // Ends by the membership's own deadline.
  while (bs_worker_ready(owner.get(), kForLong, &joined) == 0) {
  }
  if (error != nullptr) *error = joined;
  if (joined.code == 0) *worker = owner.release();
  return joined.code;
}

int bs_worker_rank(const bs_worker* worker) {
  return worker->Visit([](const auto& n) { return n.rank(); });
}
int bs_worker_num_workers(const bs_worker* worker) {
  return worker->Visit([](const auto& n) { return n.num_workers(); });
}
int bs_worker_num_servers(const bs_worker* worker) {
  return worker->Visit([](const auto& n) { return n.num_servers(); });
}

// NOLINTNEXTLINE(readability-function-size): C has no better way to pass seven values.
int bs_worker_broadcast(bs_worker* worker, uint64_t key, int dtype, void* value,
                        uint64_t size_bytes, bs_done done, void* context, bs_error* error) {
  return Return(Guarded([&] {
                  if (Status unusable = CheckUsable(worker); !unusable.ok()) return unusable;
                  const auto known = bs::DTypeFromCode(static_cast<uint32_t>(dtype));
                  if (!known) {
                    return Status::InvalidArgument("key " + std::to_string(key) + ": dtype code " +
                                                   std::to_string(dtype) + " cannot be summed");
                  }
                  worker->Visit([&](auto& n) {
                    n.Broadcast(key, *known, {static_cast<std::byte*>(value), size_bytes},
                                Calling(done, context));
                  });
                  return Status::Ok();
                }),
                error);
}

int bs_worker_push_pull(bs_worker* worker, const bs_push_pull* request, bs_error* error) {
  return Return(Guarded([&] {
                  if (Status unusable = CheckUsable(worker); !unusable.ok()) return unusable;
                  worker->Visit([&](auto& n) {
                    n.PushPull(request->key, request->priority,
                               {static_cast<const std::byte*>(request->in), request->size_bytes},
                               {static_cast<std::byte*>(request->out), request->size_bytes},
                               Calling(request->pushed, request->context),
                               Calling(request->pulled, request->context));
                  });
                  return Status::Ok();
                }),
                error);
}

int bs_worker_barrier_start(bs_worker* worker, bs_done done, void* context, bs_error* error) {
  return Return(Guarded([&] {
                  if (Status unusable = CheckUsable(worker); !unusable.ok()) return unusable;
                  worker->Visit([&](auto& n) { n.Barrier(Calling(done, context)); });
                  return Status::Ok();
                }),
                error);
}

int bs_worker_barrier(bs_worker* worker, bs_error* error) {
  const std::unique_ptr<bs_waiter> waiter(bs_waiter_new(1));
  if (waiter == nullptr) return Return(Status::ResourceExhausted("no memory"), error);
  const int code = bs_worker_barrier_start(worker, bs_waiter_done, waiter.get(), error);
  if (code != 0) return code;
  waiter->all.Wait();
  return Return(waiter->first_error.Get().value_or(Status::Ok()), error);
}

int bs_worker_fail(bs_worker* worker, const char* why) {
  return Return(Guarded([&] {
                  if (Status unusable = CheckUsable(worker); !unusable.ok()) return unusable;
                  worker->Visit([&](auto& n) { n.Fail(why); });
                  return Status::Ok();
                }),
                nullptr);
}

int bs_worker_status(const bs_worker* worker, bs_error* error) {
  if (const Status forked = CheckProcess(worker); !forked.ok()) return Return(forked, error);
  return Return(
      worker->Visit([](const auto& n) { return n.failure().Get(); }).value_or(Status::Ok()), error);
}

int bs_worker_close(bs_worker* worker, int drain_ms, bs_error* error) {
  if (!CheckProcess(worker).ok()) return Return(Status::Ok(), error);
  return Return(Guarded([&] {
                  const auto drain = std::chrono::milliseconds(std::max(drain_ms, 0));
                  worker->Visit([&](auto& n) { n.Close(drain); });
                  const auto* const carried = std::get_if<1>(&worker->node);
                  if (carried != nullptr && (*carried)->busy()) {
                    return Status::Unavailable("operations on the wrapped store have not ended");
                  }
                  delete worker;
                  return Status::Ok();
                }),
                error);
}

// ---- waiting for completions -------------------------------------------------------------------

bs_waiter* bs_waiter_new(size_t count) { return new (std::nothrow) bs_waiter(count); }

void bs_waiter_done(void* waiter, int code, const char* message) {
  auto* const self = static_cast<bs_waiter*>(waiter);
  if (code != 0) self->first_error.Set({static_cast<bs::StatusCode>(code), message});
  if (--self->left == 0) self->all.Notify();
}

int bs_waiter_wait(const bs_waiter* waiter, int timeout_ms, bs_error* error) {
  if (!waiter->all.WaitFor(std::chrono::milliseconds(timeout_ms))) return 0;
  Return(waiter->first_error.Get().value_or(Status::Ok()), error);
  return 1;
}

void bs_waiter_free(bs_waiter* waiter) { delete waiter; }

// ---- scheduler node and servers ----------------------------------------------------------------

int bs_node_start(const bs_setting* settings, size_t num_settings, bs_node** node,
                  bs_error* error) {
  return Return(Guarded([&] {
                  const Result<Config> config =
                      bs::ConfigFromProcess(Overrides(settings, num_settings));
                  if (!config.ok()) return config.status();
                  auto started = std::make_unique<bs_node>();
                  if (Status status = Start(config.value(), started.get()); !status.ok())
                    return status;
                  *node = started.release();
                  return Status::Ok();
                }),
                error);
}

int bs_node_wait(bs_node* node, int timeout_ms, bs_error* error) {
  return node->Visit([&](const auto& n) {
    if (!n.outcome().WaitFor(std::chrono::milliseconds(timeout_ms))) return 0;
    Return(n.outcome().Get().value_or(Status::Ok()), error);
    return 1;
  });
}

int bs_node_port(const bs_node* node) {
  return node->Visit([](const auto& n) { return n.port(); });
}

int bs_node_close(bs_node* node, const char* why) {
  const std::unique_ptr<bs_node> owner(node);
  return Return(Guarded([&] {
                  owner->Visit([&](auto& n) { n.Close(why); });
                  return Status::Ok();
                }),
                nullptr);
}

// ---- settings ----------------------------------------------------------------------------------

void bs_settings_all(bs_setting_row row, void* context) {
  static_cast<void>(Guarded([&] {
    for (const bs::SettingInfo& info : bs::AllSettings()) TellRow(info, row, context);
    return Status::Ok();
  }));
}

void bs_settings_values(const bs_setting* settings, size_t num_settings, bs_value_row row,
                        void* context) {
  static_cast<void>(Guarded([&] {
    for (const bs::SettingValue& value : bs::DescribeConfig(Overrides(settings, num_settings))) {
      row(context, value.name.c_str(), value.value.c_str(), value.origin.c_str());
    }
    return Status::Ok();
  }));
}

int bs_settings_check(const bs_setting* settings, size_t num_settings, bs_error* error) {
  return Return(
      Guarded([&] { return bs::ConfigFromProcess(Overrides(settings, num_settings)).status(); }),
      error);
}

const char* bs_version(void) { return BS_VERSION; }

void bs_fail_exit(void) {
  const auto turn = [](int status, void*) {
    if (status != 0) return;
    static_cast<void>(std::fflush(nullptr));
    _exit(1);
  };
  static_cast<void>(on_exit(turn, nullptr));
}
