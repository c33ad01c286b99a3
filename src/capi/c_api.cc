// The C API but for workers: checks arguments, turns Status into codes, lets nothing thrown pass.
#include "bytescheduler/c_api.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "capi/c_api_guard.h"
#include "capi/completions.h"
#include "config/config.h"
#include "host/about_host.h"
#include "node/network.h"
#include "node/node.h"
#include "trace/critical_tensor.h"
#include "trace/timeline.h"

using bs::Status;

struct bs_node {
  const pid_t owner = getpid();  // a forked child has the memory and none of the threads
  std::variant<std::unique_ptr<bs::node::SchedulerNode>, std::unique_ptr<bs::node::ServerNode>>
      node;

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
  std::atomic<bool> pushed = false;
  bs::node::Outcome first_error;
  bs::Notification all;
  // Gets `token` behind `all`; may be null.  Owners: waiters and the bs_completions.
  std::shared_ptr<bs::capi::CompletionQueue> completions{};
  uint64_t token = 0;
};

// The header repeats the codes, as it needs no other file.
static_assert(BS_FIRST_BOOKKEEPING_KEY == bs::trace::kFirstBookkeepingKey);
static_assert(BS_OK == static_cast<int>(bs::StatusCode::kOk));
static_assert(BS_FAILED_PRECONDITION == static_cast<int>(bs::StatusCode::kFailedPrecondition));
static_assert(BS_INTERNAL == static_cast<int>(bs::StatusCode::kInternal));

namespace {

using bs::Config;
using bs::Guarded;
using bs::Result;
using bs::capi::Overrides;
using bs::capi::Return;
using bs::capi::Tell;

std::string TextOf(const bs_error& error) {
  return {error.message, strnlen(error.message, sizeof(error.message))};
}

const double* Pointer(const std::optional<double>& value) { return value ? &*value : nullptr; }

// The caller's functions as the engine calls them.
bs::ServerUpdater Wrap(const bs_server_updater& updater) {
  const auto status_of = [](int code, const bs_error& error) {
    return code == 0 ? Status::Ok() : Status(static_cast<bs::StatusCode>(code), TextOf(error));
  };
  bs::ServerUpdater functions;
  functions.set_optimizer = [updater, status_of](std::string_view pickle) {
    bs_error error{};
    const int code = updater.set_optimizer(updater.context, pickle.data(), pickle.size(), &error);
    return status_of(code, error);
  };
  functions.update = [updater, status_of](const bs::ServerUpdate& update) {
    const std::string about(update.about);
    const bs_server_update request{.key = update.key,
                                   .about = about.c_str(),
                                   .dtype = static_cast<int>(update.dtype),
                                   .size_bytes = update.weights.size(),
                                   .gradient = update.gradient.data(),
                                   .weights = update.weights.data(),
                                   .learning_rate = Pointer(update.rates.learning_rate),
                                   .weight_decay = Pointer(update.rates.weight_decay),
                                   .rescale_grad = Pointer(update.rates.rescale_grad)};
    bs_error error{};
    const int code = updater.update(updater.context, &request, &error);
    return status_of(code, error);
  };
  return functions;
}

Status Start(const Config& config, bs::ServerUpdater updater, bs_node* out) {
  if (config.role == "scheduler") {
    auto node = bs::node::SchedulerNode::Start(config);
    if (!node.ok()) return node.status();
    out->node = std::move(node.value());
    return Status::Ok();
  }
  if (config.role == "server") {
    auto node = bs::node::ServerNode::Start(config, std::move(updater));
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
      sentence.c_str(), info.for_experts ? 1 : 0);
}

}  // namespace

// ---- waiting for completions -------------------------------------------------------------------

bs_waiter* bs_waiter_new(size_t count) { return new (std::nothrow) bs_waiter(count); }

void bs_waiter_done(void* waiter, int code, const char* message) {
  auto* const self = static_cast<bs_waiter*>(waiter);
  if (code != 0) self->first_error.Set({static_cast<bs::StatusCode>(code), message});
  if (--self->left > 0) return;
  // The waiter may be gone when `all` is known.
  const auto completions = std::move(self->completions);
  const uint64_t token = self->token;
  self->all.Notify();
  if (completions) completions->Add(token);
}

void bs_waiter_pushed(void* waiter, int code, const char* message) {
  auto* const self = static_cast<bs_waiter*>(waiter);
  if (code != 0) self->first_error.Set({static_cast<bs::StatusCode>(code), message});
  self->pushed = true;
  bs_waiter_done(waiter, 0, "");
}

int bs_waiter_is_pushed(const bs_waiter* waiter, bs_error* error) {
  if (!waiter->pushed) return 0;
  Return(waiter->first_error.Get().value_or(Status::Ok()), error);
  return 1;
}

int bs_waiter_wait(const bs_waiter* waiter, int timeout_ms, bs_error* error) {
  if (!waiter->all.WaitFor(std::chrono::milliseconds(timeout_ms))) return 0;
  Return(waiter->first_error.Get().value_or(Status::Ok()), error);
  return 1;
}

void bs_waiter_free(bs_waiter* waiter) { delete waiter; }

void bs_waiter_report(bs_waiter* waiter, bs_completions* completions, uint64_t token) {
  waiter->completions = completions != nullptr ? completions->queue : nullptr;
  waiter->token = token;
}

bs_completions* bs_completions_new(void) { return new (std::nothrow) bs_completions; }

size_t bs_completions_wait(bs_completions* completions, int timeout_ms, uint64_t* tokens,
                           size_t most) {
  return completions->queue->Wait(std::chrono::milliseconds(timeout_ms), {tokens, most});
}

void bs_completions_wake(bs_completions* completions) { completions->queue->Wake(); }

void bs_completions_free(bs_completions* completions) { delete completions; }

// ---- scheduler node and servers ----------------------------------------------------------------

int bs_names_known(const bs_setting* settings, size_t num_settings, int waited_ms, int* known,
                   bs_error* error) {
  *known = 0;
  return Return(Guarded([&] {
                  const Result<Config> config =
                      bs::ConfigFromProcess(Overrides(settings, num_settings));
                  if (!config.ok()) return config.status();
                  const bs::Duration waited = std::chrono::milliseconds(waited_ms);
                  const Status unknown = bs::node::AwaitNames(config.value(), waited);
                  *known = unknown.ok() ? 1 : 0;
                  return unknown.code() == bs::StatusCode::kUnavailable ? Status::Ok() : unknown;
                }),
                error);
}

int bs_node_start(const bs_setting* settings, size_t num_settings, bs_node** node,
                  bs_error* error) {
  return bs_node_start_updating(settings, num_settings, nullptr, node, error);
}

int bs_node_start_updating(const bs_setting* settings, size_t num_settings,
                           const bs_server_updater* updater, bs_node** node, bs_error* error) {
  return Return(Guarded([&] {
                  const Result<Config> config =
                      bs::ConfigFromProcess(Overrides(settings, num_settings));
                  if (!config.ok()) return config.status();
                  auto started = std::make_unique<bs_node>();
                  bs::ServerUpdater functions;
                  if (updater != nullptr) functions = Wrap(*updater);
                  Status status = Start(config.value(), std::move(functions), started.get());
                  if (!status.ok()) return status;
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

int bs_node_measure(const bs_node* node, int timeout_ms, bs_metric_row row, void* context,
                    bs_error* error) {
  const std::chrono::milliseconds timeout(timeout_ms);
  return Return(Guarded([&] {
                  return Tell(node->Visit([&](const auto& n) { return n.Measure(timeout); }), row,
                              context);
                }),
                error);
}

int bs_node_close(bs_node* node, const char* why) {
  if (node->owner != getpid()) return 0;
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
  return Return(Guarded([&] {
                  const bs::Result<bs::Config> config =
                      bs::ConfigFromProcess(Overrides(settings, num_settings));
                  return config.ok() ? bs::trace::CheckTimeline(config.value()) : config.status();
                }),
                error);
}

int bs_host_about(const bs_setting* settings, size_t num_settings, bs_host_row row, void* context,
                  bs_error* error) {
  return Return(Guarded([&] {
                  const Result<Config> config =
                      bs::ConfigFromProcess(Overrides(settings, num_settings));
                  if (!config.ok()) return config.status();
                  for (const bs::host::HostFact& fact : bs::host::AboutHost(config.value())) {
                    row(context, fact.what.c_str(), fact.name.c_str(), fact.value.c_str());
                  }
                  return Status::Ok();
                }),
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
