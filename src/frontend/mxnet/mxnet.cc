// The MXNet plug-in: dependency proxies that end when the engine says so.
#include "frontend/mxnet/mxnet.h"

#include <array>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "frontend/mxnet/answer.h"
#include "frontend/mxnet/mxnet_round.h"

using bs::mxnet::Answer;
using bs::mxnet::ChunkOf;
using bs::mxnet::DeleteProxy;
using bs::mxnet::Functions;
using bs::mxnet::kAsync;
using bs::mxnet::kCancelled;
using bs::mxnet::kCpu;
using bs::mxnet::kCpuPrioritized;
using bs::mxnet::kInternal;
using bs::mxnet::kResourceExhausted;
using bs::mxnet::Plugin;
using bs::mxnet::Proxy;
using bs::mxnet::Round;
using bs::mxnet::RunProxy;

namespace {

// From the call on the engine owns the proxy: whatever happens, it calls the deleter once.
int Register(const Plugin& plugin, Proxy* proxy) {
  return plugin.mxnet.push_async_nd(RunProxy, proxy, DeleteProxy, &kCpu, &proxy->reads,
                                    proxy->reads == nullptr ? 0 : 1, &proxy->writes,
                                    proxy->writes == nullptr ? 0 : 1,
                                    proxy->round->copied ? &kAsync : &kCpuPrioritized,
                                    proxy->round->priority, proxy->operation, false);
}

int Begin(Plugin* plugin, Round* round, bs_error* error) {
  plugin->uses += round->num_proxies();
  int code = 0;
  // A value is copied at once if the sum has a place by then.
  Proxy* const first = round->copied ? &round->pull : &round->push;
  Proxy* const second = round->copied ? &round->push : &round->pull;
  for (Proxy* proxy : {first, second, &round->copy_out}) {
    if (!proxy->wanted) continue;
    if (code == 0) {
      code = Register(*plugin, proxy);
    } else {
      DeleteProxy(proxy);
    }
  }
  if (code != 0) {
    code = Answer(kInternal, std::string("MXNet's engine: ") + plugin->mxnet.last_error(), error);
  } else if (round->inside_call) {
    code = Answer(round->failure_code, round->failure, error);
  } else {
    Answer(0, "", error);
  }
  round->calling = false;
  round->Release();
  return code;
}

// Sets `shared` to a handle of our own of an array, if there is an array.
int Share(const Plugin& plugin, void* array, Functions::Owned* shared, bs_error* error) {
  if (array == nullptr) return 0;
  void* handle = nullptr;
  if (plugin.mxnet.share_array(array, &handle) != 0) {
    return Answer(kInternal, std::string("MXNet's array: ") + plugin.mxnet.last_error(), error);
  }
  shared->reset(handle);
  return 0;
}

// True if an array begins with the address of its memory.
bool SeesMemory(const Functions& mxnet) {
  constexpr uint32_t kOne = 1;
  constexpr int kFloat32 = 0;
  std::array<Functions::Owned, 3> arrays{Functions::Owned(nullptr, mxnet.free_array),
                                         Functions::Owned(nullptr, mxnet.free_array),
                                         Functions::Owned(nullptr, mxnet.free_array)};
  for (Functions::Owned& array : arrays) {
    void* handle = nullptr;
    const int code =
        &array == &arrays.back()
            ? mxnet.share_array(arrays.front().get(), &handle)
            : mxnet.create_array(&kOne, 1, kCpu.dev_type, kCpu.dev_id, 0, kFloat32, &handle);
    if (code != 0) return false;
    array.reset(handle);
  }
  const void* const one = ChunkOf(arrays[0].get());
  const void* const other = ChunkOf(arrays[1].get());
  return one != nullptr && other != nullptr && one != other && one == ChunkOf(arrays[2].get());
}

}  // namespace

struct bs_mxnet {
  std::shared_ptr<Plugin> plugin;
};

int bs_mxnet_open(bs_worker* worker, const bs_mxnet_functions* functions, bs_mxnet** plugin,
                  bs_error* error) try {
  *plugin = new bs_mxnet{std::make_shared<Plugin>(worker, *functions)};
  return Answer(0, "", error);
} catch (const std::exception& e) {
  return Answer(kResourceExhausted, e.what(), error);
}

int bs_mxnet_copies(const bs_mxnet* plugin) {
  const Functions& mxnet = plugin->plugin->mxnet;
  const bool shown =
      mxnet.plain_copy != nullptr && mxnet.is_blocked != nullptr && mxnet.make_default != nullptr;
  return shown && SeesMemory(mxnet) ? 1 : 0;
}

int bs_mxnet_push_pull(bs_mxnet* plugin, const bs_mxnet_round* request, bs_error* error) try {
  Plugin& p = *plugin->plugin;
  if (p.draining) return Answer(kCancelled, "the store was closed", error);
  p.FreeEnded();
  Functions::Owned value(nullptr, p.mxnet.free_array), out(nullptr, p.mxnet.free_array);
  if (const int code = Share(p, request->value, &value, error); code != 0) return code;
  if (const int code = Share(p, request->out, &out, error); code != 0) return code;
  if (value && request->copied == 0) p.mxnet.make_plain(value.get());
  const bs_mxnet_update_request both{.round = *request, .pushes = 1, .pulls = 1};
  auto round =
      std::make_unique<Round>(plugin->plugin, both, false, std::move(value), std::move(out));
  if (round->copied) round->TakeRoom();
  return Begin(&p, round.release(), error);
} catch (const std::exception& e) {
  return Answer(kResourceExhausted, e.what(), error);
}

int bs_mxnet_update(bs_mxnet* plugin, const bs_mxnet_update_request* request, bs_error* error) try {
  Plugin& p = *plugin->plugin;
  if (p.draining) return Answer(kCancelled, "the store was closed", error);
  if (request->pushes == 0 && request->pulls == 0) {
    return Answer(kInternal, "an update that neither pushes nor pulls", error);
  }
  p.FreeEnded();
  return Begin(&p, new Round(plugin->plugin, *request, true), error);
} catch (const std::exception& e) {
  return Answer(kResourceExhausted, e.what(), error);
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
