// Plain sockets that are connected to a node, as hostile peers would have them.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ps/transport.h"
#include "transport/tcp/zmtp.h"
#include "transport/unknown_peer_log.h"

namespace ps::test {

inline int ConnectTo(const Address& address, int fd) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, address.host.c_str(), &where.sin_addr), 1) << address.host;
  where.sin_port = htons(static_cast<uint16_t>(address.port));
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof(where));
}

class RawPeer {
 public:
  explicit RawPeer(const Address& address) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(ConnectTo(address, fd_), 0);
  }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() { ::close(fd_); }

  void Send(const std::string& bytes) const {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // False if the other end has hung up.
  bool TrySend(const std::string& bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // No more comes, but it would still listen.
  void CloseSending() const { EXPECT_EQ(::shutdown(fd_, SHUT_WR), 0); }
  // The same, or the other end has hung up.
  void TryCloseSending() const { ::shutdown(fd_, SHUT_WR); }
  // Its greeting and the beginning of READY: libzmq takes no message before.  False if it hangs up.
  bool AwaitGreeting() const {
    std::string bytes(ZmtpGreeting().size() + 1, '\0');
    return ::recv(fd_, bytes.data(), bytes.size(), MSG_WAITALL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Until the other end hangs up.
  void AwaitEnd() const {
    char byte = 0;
    errno = 0;
    while (::recv(fd_, &byte, 1, 0) == 1) {
    }
    EXPECT_TRUE(errno != EAGAIN) << "it does not hang up";
  }

 private:
  const int fd_;
};

// Connects, if that needs no waiting, and hangs up.
inline void ComeAndGo(const Address& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  ConnectTo(address, fd);
  ::close(fd);
}

inline std::string FrameOf(const std::string& body, bool more) {
  std::string frame;
  AppendFrameHeader(body.size(), more, &frame);
  return frame + body;
}

// More often than strangers may within a minute without being named, though libzmq does not see the
// address of all.
inline void ComeAndGoTooOften(const Address& address) {
  for (uint64_t i = 0; i < 2 * UnknownPeerLog::kManyVisits + 100; ++i) const RawPeer peer(address);
}

// Does something again and again on threads of its own, until it is over: at its end.
class Attack {
 public:
  explicit Attack(int num_threads, const std::function<void(const std::atomic<bool>& over)>& does) {
    for (int i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this, does] {
        for (; !over_; ++times_) does(over_);
      });
    }
  }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;
  int times() const { return times_; }
  ~Attack() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<int> times_ = 0;
  std::vector<std::thread> threads_;
};

// Sends `bytes` behind `hello` more often than buffers hold, until the other end hangs up or it is
// over.
inline void Flood(const Address& address, const std::string& hello, const std::string& bytes,
                  const std::atomic<bool>& over) {
  const RawPeer peer(address);
  bool taken = peer.TrySend(hello) && peer.AwaitGreeting();
  for (int i = 0; i < 200 && taken && !over; ++i) taken = peer.TrySend(bytes);
}

}  // namespace ps::test
