// The other end of a connection of the TCP transport.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ps-lite/transport/transport_node.h"
#include "transport/shm/shared_memory.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp_socket.h"

namespace ps::test {

inline constexpr timeval kPatience{.tv_sec = 60, .tv_usec = 0};
inline constexpr int kMostDescriptors = 1024;  // of a test

// How the other end of a connection takes memory.
enum class Takes { kIt, kNoneWhenOffered, kNone };

// The other end of a connection.
class ConnectionPeer {
 public:
  ConnectionPeer(const TcpSocket& listener, Takes takes)
      : socket_(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)),
        input_({scratch_, std::make_shared<BlockPool>()},
               {.on_greeting =
                    [this, takes] {
                      Send(ZmtpGreeting() +
                           ZmtpReady("ROUTER", "", {.memory = takes != Takes::kNone}));
                    },
                .on_ready = {},
                .on_memory =
                    [this, takes](std::string_view offer) {
                      offered_ = true;
                      if (takes == Takes::kIt) input_.Share(SharedInbox::Open(offer).value());
                      Send(ZmtpMemoryAnswer(takes == Takes::kIt));
                    },
                .on_message =
                    [this](bs::Result<Message> message) {
                      messages_.push_back(std::move(message.value()));
                    }}) {
    EXPECT_TRUE(socket_) << "nobody connects";
    EXPECT_EQ(::setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience)),
              0);
  }

  int fd() const { return socket_.fd(); }
  // The descriptor of the connection, which is of this process; -1 if there is none.
  int FindConnection() const {
    sockaddr_in wanted{};
    socklen_t size_bytes = sizeof(wanted);
    EXPECT_EQ(::getpeername(fd(), reinterpret_cast<sockaddr*>(&wanted), &size_bytes), 0);
    for (int other = 0; other < kMostDescriptors; ++other) {
      sockaddr_in own{};
      size_bytes = sizeof(own);
      if (::getsockname(other, reinterpret_cast<sockaddr*>(&own), &size_bytes) == 0 &&
          own.sin_family == AF_INET && own.sin_port == wanted.sin_port) {
        return other;
      }
    }
    return -1;
  }
  bool offered() const { return offered_; }
  const std::vector<Message>& messages() const { return messages_; }
  size_t read_bytes() const { return read_bytes_; }
  size_t num_messages() const { return messages_.size(); }
  // Reads until there are so many.
  std::vector<Message>& Await(size_t messages) {
    AwaitFor([&] { return messages_.size() >= messages; });
    EXPECT_EQ(messages_.size(), messages);
    return messages_;
  }
  // Reads until `enough`.
  std::vector<Message>& AwaitFor(const std::function<bool()>& enough) {
    while (!enough()) {
      input_.BeginTurn();
      if (input_.waiting()) {
        EXPECT_TRUE(input_.Continue().ok());
        continue;
      }
      const ZmtpInput::Rooms rooms = input_.MakeRooms();
      const ssize_t got = ::readv(socket_.fd(), rooms.data(), rooms.size());
      if (got <= 0) {
        ADD_FAILURE() << (got < 0 ? std::system_category().message(errno) : "the end");
        break;
      }
      const bs::Status taken = input_.Filled(static_cast<size_t>(got));
      EXPECT_TRUE(taken.ok()) << taken.ToString();
      if (!taken.ok()) break;
      read_bytes_ += static_cast<size_t>(got);
    }
    return messages_;
  }

 private:
  void Send(const std::string& bytes) const {
    EXPECT_EQ(::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  const TcpSocket socket_;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(ZmtpInput::kScratchBytes);
  ZmtpInput input_;
  bool offered_ = false;
  size_t read_bytes_ = 0;
  std::vector<Message> messages_;
};

// Listens for the node's connection to node 8, with a kernel buffer of `buffer_bytes`.  accept()
// there waits for the connection.
inline TcpSocket ListenFor(TransportNode* node, int buffer_bytes) {
  TcpSocket listener = std::move(ListenTcp({"127.0.0.1", 0}).value());
  EXPECT_EQ(::fcntl(listener.fd(), F_SETFL, 0), 0);
  EXPECT_EQ(::setsockopt(listener.fd(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience)), 0);
  listener.Set(SOL_SOCKET, SO_RCVBUF, buffer_bytes);  // of what it accepts
  node->Connect(8, {"127.0.0.1", LocalAddress(listener).port()}, 9);
  return listener;
}

}  // namespace ps::test
