// Rounds: two proxies arrive, the engine transfers, two completions end them.
#include "plugin/mxnet_round.h"

#include <cstring>

namespace bs::mxnet {
namespace {

void OnPushed(void* context, int code, const char* message) {
  auto* const round = static_cast<Round*>(context);
  if (code != 0) round->FailWith(code, message);
  round->CompletePush();
  // A push that ended inside its call left its array in use: the pull stands for both.
  if (--round->callbacks_to_come == 0 && round->inside_call) round->CompletePull();
  round->Release();
}

void OnPulled(void* context, int code, const char* message) {
  auto* const round = static_cast<Round*>(context);
  if (code != 0) round->FailWith(code, message);
  if (--round->callbacks_to_come == 0 || !round->inside_call) round->CompletePull();
  round->Release();
}

// Called by each proxy once.  REQUIRES: the caller owns the round.
void Arrive(Round* round) {
  if (round->arrived.fetch_add(1) + 1 < round->num_halves) return;
  for (const Proxy* proxy : {&round->push, &round->pull}) {
    if (!proxy->problem.empty()) return round->GiveUp(kInternal, proxy->problem);
  }
  const bs_push_pull request{
      .key = round->key,
      .priority = round->priority,
      .in = round->push.data,
      .out = round->pull.data,
      .size_bytes = round->size_bytes,
      .pushed = round->push.wanted ? OnPushed : nullptr,
      .pulled = round->pull.wanted ? OnPulled : nullptr,
      .context = round,
      .threshold = round->threshold,
  };
  bs_error error{};
  round->owners += round->num_halves;
  const int code = round->asynchronous
                       ? bs_worker_update(round->plugin->worker, &request,
                                          round->has_rates ? &round->rates : nullptr, &error)
                       : bs_worker_push_pull(round->plugin->worker, &request, &error);
  if (code == 0) return;
  round->owners -= round->num_halves;
  round->GiveUp(error.code, error.message);
}

// The rest of the job would wait for a contribution that never comes.
void FailJob(const Proxy& proxy) {
  bs_worker_fail(proxy.round->plugin->worker, proxy.problem.c_str());
}

}  // namespace

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
  // Only here the array is ours, so that nobody changes its layout meanwhile.
  if (round->plugin->get_data(proxy->array, &proxy->data) != 0) {
    proxy->problem = std::string("cannot ") + proxy->what + ": " + round->plugin->last_error();
    FailJob(*proxy);
  }
  proxy->ran = true;
  // The pull that comes stands for both.
  const bool ends_here = proxy == &round->push && round->pull.wanted &&
                         std::this_thread::get_id() == round->caller && round->calling;
  if (ends_here) round->inside_call = true;
  Arrive(round);
  if (ends_here) proxy->Complete(nullptr);
  round->Release();
}

void DeleteProxy(void* param) {
  auto* const proxy = static_cast<Proxy*>(param);
  Round* const round = proxy->round;
  if (!proxy->ran) {
    proxy->problem = std::string("MXNet skipped the ") + proxy->what + " of key " + round->name +
                     " because its input carries an error; waiting for that array tells which";
    FailJob(*proxy);
    Arrive(round);
  }
  round->plugin->Release();
  round->Release();
}

}  // namespace bs::mxnet
