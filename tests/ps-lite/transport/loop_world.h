// A world of nodes that speak over sockets.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/loop_thread.h"
#include "base/notification.h"
#include "ps-lite/transport/transport_node.h"
#include "transport/tcp_socket.h"

namespace ps::test {

// Nodes at loopback, each on a loop of its own.
class LoopWorld final : public TransportWorld {
 public:
  // The transport of the node with this number, counted from 1.
  using Make = std::function<std::unique_ptr<Transport>(bs::LoopThread* loop, size_t number)>;

  explicit LoopWorld(Make make) : make_(std::move(make)) {}
  bs::Executor* NewExecutor() override {
    loops_.push_back(std::make_unique<bs::LoopThread>("bs-io"));
    return loops_.back().get();
  }
  std::unique_ptr<Transport> NewTransport(bs::Executor* executor) override {
    return make_(static_cast<bs::LoopThread*>(executor), loops_.size());
  }
  bool WaitFor(const bs::Notification& notification) override {
    return notification.WaitFor(std::chrono::seconds(60));
  }
  Address AnyAddress() override { return {"127.0.0.1", 0}; }
  // Kept from other programs, and from connections that would otherwise leave from it; a listener
  // shares it with what is only bound.
  Address FreeAddress() override {
    TcpSocket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socket.Set(SOL_SOCKET, SO_REUSEADDR, 1);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0);
    const Address address{"127.0.0.1", LocalAddress(socket).port()};
    kept_.push_back(std::move(socket));
    return address;
  }

 private:
  const Make make_;
  std::vector<TcpSocket> kept_;
  std::vector<std::unique_ptr<bs::LoopThread>> loops_;
};

}  // namespace ps::test
