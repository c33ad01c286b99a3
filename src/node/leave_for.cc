// Sends a message that no node of this process sends.
#include "node/leave_for.h"

#include <utility>

#include "membership/goodbye.h"
#include "node/network.h"
#include "ps/transport.h"

namespace bs::node {
namespace {

// `sender`: the id of the node for which it speaks, or kEmpty.
void SendOnce(const Config& config, int32_t sender, ps::Message message) {
  Network network(config, MakeLogger(config));
  ps::Transport* const transport = network.transport();
  transport->Start({.on_message = [](const ps::Message&) {},
                    .on_garbage = [](int32_t, const Status&) {},
                    .on_connected = [](int32_t) {},
                    .on_disconnected = [](int32_t) {}});
  transport->Connect(ps::kSchedulerId, {config.root_uri, config.root_port}, sender);
  transport->Send(std::move(message));
  transport->Close(kLinger);
}

}  // namespace

Status LeaveFor(const Config& config, const std::string& place, const std::string& reason) {
  Result<ps::Goodbye> goodbye = ps::Goodbye::From(place, reason);
  if (!goodbye.ok()) return goodbye.status();
  SendOnce(config, goodbye.value().id, std::move(goodbye.value().message));
  return Status::Ok();
}

void VouchFor(const Config& config, int32_t workers, uint64_t token) {
  SendOnce(config, ps::kEmpty, ps::Vouch(workers, token));
}

}  // namespace bs::node
