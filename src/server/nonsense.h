// Tells a server's owner of native messages that make no sense: it judges who sends too many.
//
// Thread-safe functions; never fail, never block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/executor.h"
#include "bytescheduler/server_options.h"
#include "bytescheduler/status.h"

namespace bs::server {

using Tell = std::function<void(int32_t peer, const std::string& what)>;

// Posts it to `front`, which outlives it; nothing if there is nobody to tell.
inline Tell ToldOn(Executor* front, Tell on_nonsense) {
  if (!on_nonsense) return [](int32_t, const std::string&) {};
  return [front, on_nonsense = std::move(on_nonsense)](int32_t peer, const std::string& what) {
    front->Post([on_nonsense, peer, what] { on_nonsense(peer, what); });
  };
}

// `send`, which tells of requests that are refused because no correct worker makes them.  Not of
// those that come too early, too late or again, or find no memory: correct ones may.
inline SendFn SendAndTell(SendFn send, Tell tell) {
  return [send = std::move(send), tell = std::move(tell)](ps::Message message) {
    const auto code = static_cast<StatusCode>(message.meta.extension.status);
    if (code == StatusCode::kInvalidArgument || code == StatusCode::kPermissionDenied) {
      tell(message.peer, message.meta.extension.text);
    }
    send(std::move(message));
  };
}

}  // namespace bs::server
