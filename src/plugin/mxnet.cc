// The MXNet plug-in: dependency proxies that end when the engine says so.
#include "plugin/mxnet.h"

#include <exception>
#include <string>

#include "plugin/mxnet_round.h"

using bs::mxnet::DeleteProxy;
using bs::mxnet::kCancelled;
using bs::mxnet::kCpu;
using bs::mxnet::kCpuPrioritized;
using bs::mxnet::kInternal;
using bs::mxnet::kResourceExhausted;
using bs::mxnet::Plugin;
using bs::mxnet::Round;
using bs::mxnet::RunProxy;

namespace {

int Return(int code, const std::string& message, bs_error* error) {
  if (error != nullptr) {
    const size_t size = message.copy(error->message, sizeof(error->message) - 1);
    error->message[size] = '\0';
    error->code = code;
  }
  return code;
}

}  // namespace

struct bs_mxnet {
  std::shared_ptr<Plugin> plugin;
};

int bs_mxnet_open(bs_worker* worker, const bs_mxnet_functions* functions, bs_mxnet** plugin,
                  bs_error* error) try {
  *plugin = new bs_mxnet{std::shared_ptr<Plugin>(new Plugin{
      .worker = worker,
      .push_async_nd = reinterpret_cast<bs::mxnet::PushAsyncNd>(functions->push_async_nd),
      .get_data = reinterpret_cast<bs::mxnet::GetData>(functions->get_data),
      .last_error = reinterpret_cast<bs::mxnet::LastError>(functions->last_error)})};
  return Return(0, "", error);
} catch (const std::exception& e) {
  return Return(kResourceExhausted, e.what(), error);
}

int bs_mxnet_push_pull(bs_mxnet* plugin, uint64_t key, const char* name, int priority,
                       void* send_stage, void* recv_stage, uint64_t size_bytes,
                       bs_error* error) try {
  Plugin& p = *plugin->plugin;
  if (p.draining) return Return(kCancelled, "the store was closed", error);
  auto* const round = new Round(plugin->plugin, key, name, priority, size_bytes);
  round->push.array = send_stage;
  round->pull.array = recv_stage;
  p.uses += 2;
  // From the call on the engine owns the proxy: whatever happens, it calls the deleter once.
  int code = p.push_async_nd(RunProxy, &round->push, DeleteProxy, &kCpu, &round->push.array, 1,
                             nullptr, 0, &kCpuPrioritized, priority, "bytescheduler push", false);
  if (code != 0) DeleteProxy(&round->pull);
  if (code == 0) {
    code =
        p.push_async_nd(RunProxy, &round->pull, DeleteProxy, &kCpu, nullptr, 0, &round->pull.array,
                        1, &kCpuPrioritized, priority, "bytescheduler pull", false);
  }
  if (code != 0) {
    code = Return(kInternal, std::string("MXNet's engine: ") + p.last_error(), error);
  } else {
    code = round->inside_call ? Return(round->failure_code, round->failure, error)
                              : Return(0, "", error);
  }
  round->calling = false;
  round->Release();
  return code;
} catch (const std::exception& e) {
  return Return(kResourceExhausted, e.what(), error);
}

int64_t bs_mxnet_pending(const bs_mxnet* plugin) {
  return plugin->plugin->uses - (plugin->plugin->draining ? 0 : 1);
}

int bs_mxnet_drain(bs_mxnet* plugin, int timeout_ms) {
  if (!plugin->plugin->draining.exchange(true)) plugin->plugin->Release();
  return bs_waiter_wait(plugin->plugin->drained.get(), timeout_ms, nullptr);
}

int bs_mxnet_close(bs_mxnet* plugin) {
  delete plugin;
  return 0;
}
