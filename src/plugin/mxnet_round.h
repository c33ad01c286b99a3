// Round: one push-pull of one key, as what two proxies in MXNet and two callbacks of the engine
// share.
//
// Each proxy arrives once: it ran, or MXNet skipped it and only its deleter came.  The second to
// arrive starts the transfer, or gives the round up.  Thread-safe without a lock: MXNet may run
// deleters inside a completion.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bytescheduler/c_api.h"
#include "plugin/mxnet.h"
#include "plugin/mxnet_abi.h"

namespace bs::mxnet {

using ThreadId = decltype(std::this_thread::get_id());

// Values of bs::StatusCode.
constexpr int kCancelled = 3, kResourceExhausted = 9, kInternal = 10;

// Owners: the handle, and every round.
struct Plugin {
  Plugin(bs_worker* w, PushAsyncNd push, GetData data, LastError error)
      : worker(w), push_async_nd(push), get_data(data), last_error(error) {}

  bs_worker* const worker;
  const PushAsyncNd push_async_nd;
  const GetData get_data;
  const LastError last_error;
  // Done when `uses` reaches 0.
  const std::unique_ptr<bs_waiter, void (*)(bs_waiter*)> drained{bs_waiter_new(1), bs_waiter_free};
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
  void* array;
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
  Round(std::shared_ptr<Plugin> owner, const bs_mxnet_round& request)
      : plugin(std::move(owner)),
        key(request.key),
        name(request.name),
        priority(request.priority),
        size_bytes(request.size_bytes),
        threshold(request.threshold),
        push{this, "push", request.send_stage},
        pull{this, "pull", request.recv_stage} {}

  const std::shared_ptr<Plugin> plugin;
  const uint64_t key;
  const std::string name;  // of the key, in errors
  const int priority;
  const uint64_t size_bytes;
  const float threshold;
  const ThreadId caller = std::this_thread::get_id();
  bool calling = true;  // on the caller's thread: it has not returned yet
  Proxy push, pull;
  std::atomic<int> owners{3};  // two deleters and the caller; for a while functions and callbacks
  std::atomic<int> arrived{0};
  // NaiveEngine: operations run inside the call that pushes them, and errors of theirs are lost.
  bool inside_call = false;
  // Below: the second to arrive, then the engine's thread.
  int callbacks_to_come = 2;
  int failure_code = 0;
  std::string failure;

  void Release() {
    if (--owners == 0) delete this;
  }
  void FailWith(int code, const std::string& why);
  // Without an error: a push writes no array that could carry one.
  void CompletePush() const {
    if (!inside_call) push.Complete(nullptr);
  }
  void CompletePull() const {
    const dmlc::Error error(failure);
    pull.Complete(failure_code == 0 ? nullptr : &error);
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
