// KeptMessages: a transport that sends nothing, and keeps the messages and connections.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ps/transport.h"

namespace ps::test {

class KeptMessages final : public Transport {
 public:
  void Start(Handler) override {}
  void Bind(const Address&, BindDone) override {}
  void Connect(int32_t peer, const Address& address, int32_t) override {
    connected.insert(peer);
    addresses[peer] = address;
  }
  void Disconnect(int32_t peer, bs::Duration) override { connected.erase(peer); }
  void Send(Message message) override { sent.push_back(std::move(message)); }
  void Close(bs::Duration) override {}

  // How many messages with this operation the peer was sent.
  int64_t Count(int32_t peer, Op op) const {
    return std::ranges::count_if(sent, [&](const Message& message) {
      return message.peer == peer && message.meta.extension.op == op;
    });
  }
  // The latest peer that was at this port; kEmpty if there was none.
  int32_t PeerOf(int32_t port) const {
    int32_t latest = kEmpty;
    for (const auto& [peer, address] : addresses) {
      if (address.port == port) latest = peer;
    }
    return latest;
  }

  std::set<int32_t> connected;
  std::map<int32_t, Address> addresses;
  std::vector<Message> sent;
};

}  // namespace ps::test
