// Round: one push-pull of one key, as what two proxies in MXNet and two callbacks of the engine
// share.  An update of an asynchronous key may have one of each only; a joined round has one proxy,
// the pull, and two callbacks.
//
// Each proxy arrives once: it ran, or MXNet skipped it and only its deleter came.  The last to
// arrive starts the transfer, or gives the round up.  Thread-safe without a lock: MXNet may run
// deleters inside a completion.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bytescheduler/c_api.h"
#include "frontend/mxnet/mxnet.h"
#include "frontend/mxnet/mxnet_abi.h"

namespace bs::mxnet {

using ThreadId = decltype(std::this_thread::get_id());
using Clock = std::chrono::steady_clock;

// Owners: the handle, and every round.
struct Plugin {
  Plugin(bs_worker* w, const bs_mxnet_functions& functions) : worker(w), mxnet(functions) {}

  bs_worker* const worker;
  const Functions mxnet;
  // Done when `uses` reaches 0.
  const std::unique_ptr<bs_waiter, void (*)(bs_waiter*)> drained{bs_waiter_new(1), bs_waiter_free};
  std::atomic<uint64_t> calls{0};
  std::atomic<int64_t> uses{1};  // operations, and one of the handle until it drains
  std::atomic<bool> draining{false};

  void Release() {
    if (--uses == 0) bs_waiter_done(drained.get(), 0, "");
  }
};

struct Round;

struct Proxy {
  Round* const round;
  const char* const what;
  const char* const operation;  // its name in MXNet's engine
  const bool wanted;
  void* array;   // whose memory it uses
  void* reads;   // null, or an array that it waits for
  void* writes;  // null, or an array that waits for it
  void* data = nullptr;
  OnComplete on_complete{};
  bool ran = false;
  std::string problem{};

  void Complete(const dmlc::Error* error) const {
    if (!ran) return;
    const OnComplete copy = on_complete;  // the proxy may be gone before the callback returns
    copy.callback(copy.engine, copy.param, error);
  }
};

// Deletes itself with its last owner.
struct Round {
  // `its_value`: the array that is sent in place of the stage, if any.
  Round(std::shared_ptr<Plugin> owner, const bs_mxnet_update_request& request, bool updates,
        Functions::Owned its_value = {nullptr, nullptr})
      : plugin(std::move(owner)),
        value(std::move(its_value)),
        key(request.round.key),
        name(request.round.name != nullptr ? request.round.name : std::to_string(key)),
        size_bytes(request.round.size_bytes),
        priority(request.round.priority),
        coding(request.round.coding),
        called(++plugin->calls),
        asynchronous(updates),
        has_rates(request.rates != nullptr),
        rates(has_rates ? *request.rates : bs_rates{}),
        pushes(request.pushes != 0),
        pulls(request.pulls != 0),
        joined(request.round.joined != 0 && pushes && pulls),
        push{this,
             "push",
             "bytescheduler push",
             pushes && !joined,
             value ? value.get() : request.round.send_stage,
             value ? value.get() : request.round.send_stage,
             pulls ? nullptr : request.round.recv_stage},
        pull{this,
             joined ? "push-pull" : "pull",
             joined ? "bytescheduler push-pull" : "bytescheduler pull",
             pulls,
             request.round.recv_stage,
             joined ? push.reads : nullptr,
             request.round.recv_stage} {}

  const std::shared_ptr<Plugin> plugin;
  const Functions::Owned value;
  const uint64_t key;
  const std::string name;  // of the key, in errors
  const uint64_t size_bytes;
  const int priority;
  const bs_coding coding;
  const uint64_t called;  // its number among all calls
  const Clock::time_point begin = Clock::now();
  const bool asynchronous;
  const bool has_rates;  // else the optimizer's own
  const bs_rates rates;
  const bool pushes, pulls;  // the wanted directions
  const bool joined;         // the pull's proxy stands for both
  const ThreadId caller = std::this_thread::get_id();
  bool calling = true;  // on the caller's thread: it has not returned yet
  Proxy push, pull;
  // The deleters and the caller; for a while functions and callbacks.
  std::atomic<int> owners{num_proxies() + 1};
  std::atomic<int> arrived{0};
  // NaiveEngine: operations run inside the call that pushes them, and errors of theirs are lost.
  bool inside_call = false;
  // Below: the last to arrive, then the engine's thread.
  int callbacks_to_come = num_callbacks();
  int failure_code = 0;
  std::string failure;

  int num_proxies() const { return (push.wanted ? 1 : 0) + (pull.wanted ? 1 : 0); }
  int num_callbacks() const { return (pushes ? 1 : 0) + (pulls ? 1 : 0); }
  // True if the pull's proxy ends with the later of the two callbacks.
  bool ends_at_once() const { return joined || inside_call; }
  void Release() {
    if (--owners == 0) delete this;
  }
  void FailWith(int code, const std::string& why);
  void CompletePush() const {
    if (!inside_call) Complete(push);
  }
  void CompletePull() const { Complete(pull); }
  // Without an error where no array is written that could carry one.
  void Complete(const Proxy& proxy) const {
    const dmlc::Error error(failure);
    proxy.Complete(failure_code == 0 || proxy.writes == nullptr ? nullptr : &error);
  }
  void GiveUp(int code, const std::string& why) {
    FailWith(code, why);
    CompletePush();
    CompletePull();
  }
};

// The two functions that MXNet calls, with a Proxy.
void RunProxy(void* run_context, void* on_complete, void* proxy);
void DeleteProxy(void* proxy);

}  // namespace bs::mxnet
