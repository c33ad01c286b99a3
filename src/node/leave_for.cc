// Sends one message as the worker that has ended.
#include "node/leave_for.h"

#include <limits>
#include <sstream>
#include <utility>

#include "membership/control_body.h"
#include "node/network.h"
#include "ps/transport.h"
#include "wire/control.h"

namespace bs::api {

std::string PlaceOf(const ps::View& view) {
  return std::to_string(view.own_id) + " " + std::to_string(view.job) + " " +
         std::to_string(view.incarnation);
}

Status LeaveFor(const Config& config, const std::string& place) {
  std::istringstream words(place);
  int32_t id = ps::kEmpty;
  ps::MemberBody body;
  if (!(words >> id >> body.job >> body.incarnation)) {
    return Status::InvalidArgument("no place in a job: " + place);
  }
  const Logger log = MakeLogger(config);
  Network network(config, log);
  ps::Transport* const transport = network.transport();
  transport->Start({.on_message = [](const ps::Message&) {},
                    .on_garbage = [](int32_t, const Status&) {},
                    .on_connected = [](int32_t) {},
                    .on_disconnected = [](int32_t) {}});
  transport->Connect(ps::kSchedulerId, {config.root_uri, config.root_port}, id);
  // Behind all numbers of the worker's own, so that it is no repeat.
  constexpr uint64_t kLast = std::numeric_limits<uint32_t>::max();
  ps::Message goodbye{.peer = ps::kSchedulerId,
                      .meta = ps::NativeControl(ps::Command::kNone, ps::Op::kLeave, kLast)};
  goodbye.meta.extension.body = ps::Encode(body);
  transport->Send(std::move(goodbye));
  transport->Close(kLinger);
  return Status::Ok();
}

}  // namespace bs::api
