// Round: the state of a push-pull of a key, which two proxies in MXNet and two callbacks of the
// engine share.  An update of an asynchronous key may have only one of each; a joined round has one
// proxy, the pull, and two callbacks.  The push of a copied round ends with the copy.
//
// Each proxy arrives once: it ran, or MXNet skipped it and only its deleter came.  The last to
// arrive starts the transfer, or gives the round up.  Thread-safe without a lock: MXNet may run
// deleters inside a completion.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bytescheduler/c_api.h"
#include "frontend/mxnet/copy_blocks.h"
#include "frontend/mxnet/mxnet.h"
#include "frontend/mxnet/mxnet_abi.h"

namespace bs::mxnet {

using ThreadId = decltype(std::this_thread::get_id());
using Clock = std::chrono::steady_clock;

// The most memory that copies take before their rounds begin.  Further values wait for theirs.
constexpr uint64_t kMostCopiedEarly = uint64_t{16} << 20U;

// The most bytes that ended rounds keep.  Blocks for the copies of other rounds keep no more
// either.
constexpr uint64_t kMostEnded = uint64_t{256} << 10U;

struct Round;

// Owners: the handle, and every round that has not ended.
struct Plugin {
  Plugin(bs_worker* w, const bs_mxnet_functions& functions);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;
  ~Plugin() { FreeEnded(); }

  bs_worker* const worker;
  const Functions mxnet;
  const uint64_t least_kept_bytes;  // of arrays that a network device may use
  // Done when `uses` reaches 0.
  const std::unique_ptr<bs_waiter, void (*)(bs_waiter*)> drained{bs_waiter_new(1), bs_waiter_free};
  std::atomic<uint64_t> calls{0};
  std::atomic<int64_t> uses{1};  // operations, and a use of the handle until it drains
  std::atomic<bool> draining{false};
  std::atomic<uint64_t> copied_bytes{0};  // by all rounds
  // Rounds whose memory the next call frees.  The thread that allocated the memory frees it at less
  // cost than another thread, which waits for the allocator's lock.
  std::atomic<Round*> ended{nullptr};
  std::atomic<uint64_t> ended_bytes{0};

  void FreeEnded();
  CopyBlocks blocks{kMostEnded};
  // Rounds that are to begin, the latest first.  The first round visits the worker's thread.
  std::atomic<Round*> ready{nullptr};

  void Release() {
    if (--uses == 0) bs_waiter_done(drained.get(), 0, "");
  }
};

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
  // A network device's, of the memory at `data`; ends before MXNet may do something with that.
  std::unique_ptr<bs_memory_use, void (*)(bs_memory_use*)> use{nullptr, bs_memory_use_end};

  // Finds the array's memory, and lets a device use it.  Returns false if MXNet does not say where
  // it is.  The calling thread, MXNet's, waits where the device has not registered it yet; the
  // worker's thread would hold up all other messages.
  bool Locate();
  void LetDeviceUse();
  void Complete(const dmlc::Error* error) const {
    if (!ran) return;
    const OnComplete copy = on_complete;  // the proxy may be gone before the callback returns
    copy.callback(copy.engine, copy.param, error);
  }
};

// Is over with its last owner.
struct Round {
  // `its_value`: the array that is sent in place of the stage, if any.
  Round(std::shared_ptr<Plugin> owner, const bs_mxnet_update_request& request, bool updates,
        Functions::Owned its_value = {nullptr, nullptr},
        Functions::Owned its_out = {nullptr, nullptr})
      : plugin(std::move(owner)),
        value(std::move(its_value)),
        out(std::move(its_out)),
        key(request.round.key),
        name(request.round.name != nullptr ? request.round.name : std::to_string(key)),
        size_bytes(request.round.size_bytes),
        priority(request.round.priority),
        coding(request.round.coding),
        called(++plugin->calls),
        asynchronous(updates),
        has_rates(request.round.rates != nullptr),
        rates(has_rates ? *request.round.rates : bs_rates{}),
        pushes(request.pushes != 0),
        pulls(request.pulls != 0),
        joined(request.round.joined != 0 && pushes && pulls),
        copied(request.round.copied != 0),
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
             request.round.recv_stage},
        copy_out{this,    "copy",   "bytescheduler copy", static_cast<bool>(out), out.get(),
                 nullptr, out.get()} {}

  std::shared_ptr<Plugin> plugin;
  Functions::Owned value, out;
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
  const bool copied;         // the value, as soon as it can be read
  const ThreadId caller = std::this_thread::get_id();
  bool calling = true;  // on the caller's thread: it has not returned yet
  Proxy push, pull, copy_out;
  // The deleters and the caller; for a while functions and callbacks.
  std::atomic<int> owners{num_proxies() + 1};
  std::atomic<int> arrived{0};
  // NaiveEngine: operations run inside the call that pushes them, and errors of theirs are lost.
  bool inside_call = false;
  // A copied round's: the bytes to send; then the sum, if the proxy that copies it out has not run.
  CopyBlocks::Block copy;
  bool has_copied = false;  // set by the push's proxy before it arrives, or by the last
  enum class Out { kWaits, kRan, kSkipped, kSumIsThere };
  std::atomic<Out> out_state{Out::kWaits};
  std::chrono::nanoseconds waited{};
  Round* next = nullptr;  // in a list of the plug-in's
  // Below: the last to arrive, then the engine's thread.
  int callbacks_to_come = num_callbacks();
  int failure_code = 0;
  std::string failure;

  int num_proxies() const { return num_to_begin() + (copy_out.wanted ? 1 : 0); }
  // The number of proxies that must have arrived before the round can begin.
  int num_to_begin() const { return (push.wanted ? 1 : 0) + (pull.wanted ? 1 : 0); }
  int num_callbacks() const { return (pushes ? 1 : 0) + (pulls ? 1 : 0); }
  // True if the pull's proxy ends with the later of the two callbacks.
  bool ends_at_once() const { return joined || inside_call || copied; }
  void Release() {
    if (--owners == 0) End();
  }
  void End();
  uint64_t bytes() const { return sizeof(Round) + (copy ? size_bytes : 0); }
  // Gets room from the pool, unless other rounds that have not begun hold much of it.
  void TakeRoom() {
    if (plugin->copied_bytes < kMostCopiedEarly) copy = plugin->blocks.Take(size_bytes);
    if (copy) plugin->copied_bytes += size_bytes;
  }
  // Copies the value and ends the push's proxy, or says in its problem why it cannot.
  void Copy();
  void FailWith(int code, const std::string& why);
  // The rest of the job would wait for a contribution that never comes.
  void FailJob(const Proxy& proxy) const { bs_worker_fail(plugin->worker, proxy.problem.c_str()); }
  void CompletePush() const {
    if (!inside_call && !has_copied) Complete(push);
  }
  void CompletePull() {
    if (copy_out.wanted) EndOut();
    Complete(pull);
  }
  // The sum is in its stage, or the round has failed: ends the proxy that copies it out, or lets
  // that proxy do so when it runs.
  void EndOut();
  // The proxy that copies the sum out has run.
  void RunOut();
  void CopyOut(const void* sum) const {
    if (failure_code == 0) std::memcpy(copy_out.data, sum, size_bytes);
    Complete(copy_out);
  }
  // Without an error where no array is written that could carry it.
  void Complete(const Proxy& proxy) const {
    if (failure_code == 0 || proxy.writes == nullptr) return proxy.Complete(nullptr);
    const dmlc::Error error(failure);
    proxy.Complete(&error);
  }
  void GiveUp(int code, const std::string& why) {
    push.use.reset();
    pull.use.reset();
    FailWith(code, why);
    CompletePush();
    CompletePull();
  }
};

// The two functions that MXNet calls, with a Proxy.
void RunProxy(void* run_context, void* on_complete, void* proxy);
void DeleteProxy(void* proxy);

}  // namespace bs::mxnet
