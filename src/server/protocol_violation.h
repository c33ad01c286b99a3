// Reports native messages that violate the protocol to the server's owner, which judges how many
// are too many.
//
// Thread-safe functions; never fail, never block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/executor.h"
#include "base/status.h"
#include "ps/message.h"
#include "server/state/server_options.h"

namespace bs::server {

using ViolationFn = std::function<void(int32_t peer, const std::string& what)>;

// Returns a function that posts violations to `dispatcher`, which outlives it.  It does nothing if
// `on_violation` is empty.
inline ViolationFn ReportOn(Executor* dispatcher, ViolationFn on_violation) {
  if (!on_violation) return [](int32_t, const std::string&) {};
  return
      [dispatcher, on_violation = std::move(on_violation)](int32_t peer, const std::string& what) {
        dispatcher->Post([on_violation, peer, what] { on_violation(peer, what); });
      };
}

// Returns `send` that also reports requests refused because no correct worker makes them.  Requests
// that come too early, too late or again, or find no memory, are no violations.
inline SendFn SendAndReport(SendFn send, ViolationFn report) {
  return [send = std::move(send), report = std::move(report)](ps::Message message) {
    const auto code = static_cast<StatusCode>(message.meta.extension.status);
    const bool is_wrong =
        code == StatusCode::kInvalidArgument || code == StatusCode::kPermissionDenied;
    if (is_wrong) report(message.peer, message.meta.extension.text);
    send(std::move(message));
  };
}

}  // namespace bs::server
