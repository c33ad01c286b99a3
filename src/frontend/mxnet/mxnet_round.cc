// Rounds: two proxies arrive, the engine transfers, two completions end them.
#include "frontend/mxnet/mxnet_round.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "frontend/mxnet/answer.h"
#include "frontend/mxnet/round_operation.h"

namespace bs::mxnet {
namespace {

// A round that begins so soon after its call did not wait for its tensor.  It waited only for
// threads and for a copy, at 8 bytes a nanosecond.  A copy that may take longer says nothing.
bool WasThere(const Round& round, std::chrono::nanoseconds waited) {
  constexpr std::chrono::nanoseconds kThreads = std::chrono::milliseconds(1);
  constexpr std::chrono::nanoseconds kMostCopy = std::chrono::milliseconds(3);
  const std::chrono::nanoseconds copy(static_cast<int64_t>(round.size_bytes / 8));
  return waited < kThreads + std::min(copy, kMostCopy);
}

void OnPushed(void* context, int code, const char* message) {
  auto* const round = static_cast<Round*>(context);
  round->push.use.reset();
  if (code != 0) round->FailWith(code, message);
  round->CompletePush();
  // A push without a proxy, or that ended inside its call, has its array in use: the pull stands
  // for both.
  if (--round->callbacks_to_come == 0 && round->ends_at_once()) round->CompletePull();
  round->Release();
}

void OnPulled(void* context, int code, const char* message) {
  auto* const round = static_cast<Round*>(context);
  round->pull.use.reset();
  if (code != 0) round->FailWith(code, message);
  if (--round->callbacks_to_come == 0 || !round->ends_at_once()) round->CompletePull();
  round->Release();
}

// Puts `round` in front of a list; returns the former head.
Round* Add(std::atomic<Round*>* list, Round* round) {
  Round* first = list->load();
  do {
    round->next = first;
  } while (!list->compare_exchange_weak(first, round));
  return first;
}

// REQUIRES: runs on the worker's thread, or the worker takes no visits.
void BeginNow(Round* round) {
  const bs_operation operation =
      OperationOf(round, WasThere(*round, round->waited), OnPushed, OnPulled);
  bs_error error{};
  round->owners += round->num_callbacks();
  const int code = bs_worker_start_operation(round->plugin->worker, &operation, &error);
  if (code == 0) return;
  round->owners -= round->num_callbacks();
  round->GiveUp(error.code, error.message);
}

// Begins the ready rounds in the order of their arrival.
void BeginReady(void* plugin) {
  Round* latest = static_cast<Plugin*>(plugin)->ready.exchange(nullptr);
  Round* earliest = nullptr;
  while (latest != nullptr) latest = std::exchange(latest->next, std::exchange(earliest, latest));
  while (earliest != nullptr) {
    Round* const round = std::exchange(earliest, earliest->next);
    BeginNow(round);
    round->Release();
  }
}

// Rounds that become ready while other rounds wait for the worker's thread begin with them.  That
// saves wake-ups, and no thread gives back memory that another thread took.
void BeginSoon(Round* round) {
  Plugin* const plugin = round->plugin.get();
  ++round->owners;
  if (Add(&plugin->ready, round) != nullptr) return;
  if (bs_worker_visit(plugin->worker, BeginReady, plugin, nullptr) != 0) BeginReady(plugin);
}

// Called by each proxy once.  REQUIRES: the caller owns the round.
void Arrive(Round* round) {
  if (round->arrived.fetch_add(1) + 1 < round->num_to_begin()) return;
  if (round->copied && round->push.ran && !round->has_copied) round->Copy();
  for (const Proxy* proxy : {&round->push, &round->pull}) {
    if (!proxy->problem.empty()) return round->GiveUp(kInternal, proxy->problem);
  }
  round->waited = Clock::now() - round->begin;
  BeginSoon(round);
}

// Runs in the proxy's function: only there the arrays are ours, so that no other operation changes
// their layout meanwhile.
void Locate(Proxy* proxy) {
  Round* const round = proxy->round;
  if (round->copied && proxy == &round->push) return;
  for (Proxy* each : {&round->push, &round->pull}) {
    if ((each != proxy && !round->joined) || each->Locate()) continue;
    proxy->problem = std::string("cannot ") + each->what + ": " + round->plugin->mxnet.last_error();
  }
}

}  // namespace

void Plugin::FreeEnded() {
  Round* round = ended.exchange(nullptr);
  while (round != nullptr) {
    const std::unique_ptr<Round> freed(round);
    round = round->next;
    ended_bytes -= freed->bytes();
    if (freed->copy) blocks.Give(std::move(freed->copy), freed->size_bytes);
  }
}

void Round::End() {
  value.reset();
  out.reset();
  const std::shared_ptr<Plugin> owner = std::move(plugin);
  if (copy) owner->copied_bytes -= size_bytes;
  if (owner->ended_bytes >= kMostEnded) {
    delete this;
    return;
  }
  owner->ended_bytes += bytes();
  Add(&owner->ended, this);
}

void Round::FailWith(int code, const std::string& why) {
  if (failure_code != 0) return;
  failure_code = code;
  failure = "bytescheduler: " + why;
  if (why.find("key") == std::string::npos) {
    failure += " (key " + name + ")";
    return;
  }
  const std::string number = "key=" + std::to_string(key);
  const size_t at = failure.find(number);
  if (at != std::string::npos) failure.replace(at, number.size(), "key=" + name);
}

void RunProxy(void* /*run_context*/, void* on_complete, void* param) {
  auto* const proxy = static_cast<Proxy*>(param);
  Round* const round = proxy->round;
  ++round->owners;  // both deleters may come inside a completion below
  std::memcpy(&proxy->on_complete, on_complete, sizeof(OnComplete));
  proxy->ran = true;
  if (proxy != &round->copy_out) Locate(proxy);
  if (!proxy->problem.empty()) round->FailJob(*proxy);
  if (proxy == &round->copy_out) {
    round->RunOut();
    return round->Release();
  }
  if (round->copied) {
    if (proxy == &round->push && (round->copy || round->arrived > 0)) round->Copy();
    Arrive(round);
    return round->Release();
  }
  const bool inside_call = std::this_thread::get_id() == round->caller && round->calling;
  // The pull that comes stands for both.
  const bool ends_here = inside_call && proxy == &round->push && round->pull.wanted;
  if (ends_here || (inside_call && round->joined)) round->inside_call = true;
  Arrive(round);
  if (ends_here) proxy->Complete(nullptr);
  round->Release();
}

void DeleteProxy(void* param) {
  auto* const proxy = static_cast<Proxy*>(param);
  Round* const round = proxy->round;
  if (!proxy->ran && proxy == &round->copy_out) {
    round->out_state = Round::Out::kSkipped;  // MXNet has given the array an error
  } else if (!proxy->ran) {
    proxy->problem = std::string("MXNet skipped the ") + proxy->what + " of key " + round->name +
                     " because its input carries an error; waiting for that array tells which";
    round->FailJob(*proxy);
    Arrive(round);
  }
  round->plugin->Release();
  round->Release();
}

}  // namespace bs::mxnet
