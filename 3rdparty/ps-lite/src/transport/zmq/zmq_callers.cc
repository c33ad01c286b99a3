// Joins the events of a listener's connections and warns with the peers' addresses.
#include "transport/zmq/zmq_callers.h"

#include <utility>

#include "ps/text.h"
#include "transport/tcp_socket.h"

namespace ps {

void ZmqCallers::OnEvent(int event, int value) {
  if (event == ZMQ_EVENT_ACCEPTED) {
    std::string address = DescribePeer(value);
    if (address == kGoneAlready) address = "a peer that closed before its address was known";
    callers_[value] = {std::move(address), executor_->Now()};
  } else if (event == ZMQ_EVENT_DISCONNECTED) {
    OnEnd(value);
  } else {
    failed_ = event;
  }
}

void ZmqCallers::OnEnd(int fd) {
  const auto caller = callers_.extract(fd);
  const int failed = std::exchange(failed_, 0);
  if (!caller || failed == 0) return;
  const auto& [address, since] = caller.mapped();
  if (failed == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) {
    return unknown_peers_.Tell("hung up on", address, "no ZMTP that libzmq speaks");
  }
  // A peer that closes by itself, and so sooner, may only probe the port: no warning.
  if (executor_->Now() - since < patience_ / 2) return unknown_peers_.CameAndWent(address);
  unknown_peers_.Tell("hung up on", address,
                      "it has not introduced itself in " + TextOf(patience_));
}

void ZmqCallers::TellDropped(const ZmqMessage& part, const std::string& why) {
  const auto caller = callers_.find(part.descriptor());
  unknown_peers_.Tell("dropped bytes from",
                      caller == callers_.end() ? part.host() : caller->second.address, why);
}

}  // namespace ps
