// Sends a message as the worker that has ended.
#include "node/leave_for.h"

#include <utility>

#include "membership/goodbye.h"
#include "node/network.h"
#include "ps/transport.h"

namespace bs::node {

Status LeaveFor(const Config& config, const std::string& place) {
  Result<ps::Goodbye> goodbye = ps::Goodbye::From(place);
  if (!goodbye.ok()) return goodbye.status();
  const Logger log = MakeLogger(config);
  Network network(config, log);
  ps::Transport* const transport = network.transport();
  transport->Start({.on_message = [](const ps::Message&) {},
                    .on_garbage = [](int32_t, const Status&) {},
                    .on_connected = [](int32_t) {},
                    .on_disconnected = [](int32_t) {}});
  transport->Connect(ps::kSchedulerId, {config.root_uri, config.root_port}, goodbye.value().id);
  transport->Send(std::move(goodbye.value().message));
  transport->Close(kLinger);
  return Status::Ok();
}

}  // namespace bs::node
