// Opens, connects and closes sockets.
#include "transport/tcp_socket.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/descriptors.h"

namespace ps {
namespace {

constexpr int32_t kMaxPort = 65535;
constexpr int kRtoMaxMs = 44;               // TCP_RTO_MAX_MS, which C libraries do not name yet
constexpr int kLongestRetransmitMs = 1000;  // the least that the kernel takes
constexpr int kGiveUpMs = 24 * 24 * 60 * 60 * 1000;  // 24 days, close to the most there can be

constexpr int kMostProbes = 127;  // that the kernel takes
constexpr int64_t kMostProbeSeconds = 60;

const sockaddr* Raw(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

TcpSocket OpenTcp() {
  return TcpSocket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bs::Status CheckPort(const Address& address, int32_t smallest) {
  if (address.port >= smallest && address.port <= kMaxPort) return bs::Status::Ok();
  return bs::Status::InvalidArgument("port " + std::to_string(address.port) + " of " +
                                     address.host + ": want " + std::to_string(smallest) + " to " +
                                     std::to_string(kMaxPort));
}

bool SetOption(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// True if TuneSending has bounded the retransmission interval of `fd`.
bool AsksOften(int fd) {
  int most_ms = 0;
  socklen_t size = sizeof(most_ms);
  return ::getsockopt(fd, IPPROTO_TCP, kRtoMaxMs, &most_ms, &size) == 0 &&
         most_ms <= kLongestRetransmitMs;
}

// True if bytes are unsent or unacknowledged: the kernel sends no probes then.
bool HasUnacknowledged(int fd) {
  int size_bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &size_bytes) == 0 && size_bytes > 0;
}

}  // namespace

bs::Status NoSocket(int error) {
  return bs::Status::ResourceExhausted("no socket: " + bs::SystemError(error));
}

void TcpSocket::Set(int level, int option, int value) const {
  // Fails on a broken connection, which other calls find out.
  static_cast<void>(SetOption(fd(), level, option, value));
}

bool IsNumeric(const std::string& host) {
  in_addr ignored{};
  return host == "*" || inet_pton(AF_INET, host.c_str(), &ignored) == 1;
}

bs::Result<sockaddr_in> ResolveTcp(const Address& address) {
  sockaddr_in resolved{};
  resolved.sin_family = AF_INET;
  resolved.sin_port = htons(static_cast<uint16_t>(address.port));
  if (address.host == "*") return resolved;
  if (inet_pton(AF_INET, address.host.c_str(), &resolved.sin_addr) == 1) return resolved;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = address.host.empty()
                        ? EAI_NONAME
                        : getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return bs::Status::InvalidArgument(TcpEndpoint(address) + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  sockaddr_in first{};
  std::memcpy(&first, found->ai_addr, sizeof(first));
  resolved.sin_addr = first.sin_addr;
  return resolved;
}

bs::Status CheckRemotePort(const Address& address) { return CheckPort(address, 1); }
bs::Status CheckLocalPort(const Address& address) { return CheckPort(address, 0); }

bs::Result<TcpSocket> ConnectTcp(const sockaddr_in& address) {
  TcpSocket socket = OpenTcp();
  if (!socket) return NoSocket(errno);
  socket.Set(IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(socket.fd(), Raw(address), sizeof(address)) == 0 || errno == EINPROGRESS) {
    return socket;
  }
  return bs::Status::Unavailable(bs::SystemError(errno));
}

void TuneSending(int fd, int unsent_bytes) {
  if (unsent_bytes > 0) SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_bytes);
  // The kernel gives up after a number of retransmissions, which now pass in seconds.  Heartbeats
  // decide about losses, so it gets a time instead, longer than any job.  A shorter one is not
  // safe: Linux may count it from an old probe and end a healthy connection.  We saw that on 6.18,
  // with a full queue and a peer that was stopped for a second.
  if (SetOption(fd, IPPROTO_TCP, kRtoMaxMs, kLongestRetransmitMs)) {
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kGiveUpMs);
  }
}

void ProbeHost(int fd, bs::Duration interval) {
  const auto count = std::chrono::duration_cast<std::chrono::seconds>(interval).count();
  const int seconds = static_cast<int>(std::clamp<int64_t>(count, 1, kMostProbeSeconds));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  // The caller of SinceAcknowledged decides, not the kernel by its count of unanswered probes.
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kMostProbes);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

bs::Duration SinceAcknowledged(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  // Nothing is acknowledged yet: the kernel would count from its own start.
  if (info.tcpi_state == TCP_SYN_SENT) return {};
  if (!AsksOften(fd) && HasUnacknowledged(fd)) return {};
  return std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

std::string TcpEndpoint(const Address& address) {
  return "tcp://" + address.host + ":" + std::to_string(address.port);
}

bs::Status BindError(const std::string& endpoint, int error) {
  if (error == EADDRINUSE) return bs::Status::AlreadyExists(endpoint + ": the port is in use");
  if (error == EADDRNOTAVAIL || error == ENODEV || error == EINVAL) {
    return bs::Status::InvalidArgument(endpoint + ": no address of this host");
  }
  const std::string text = endpoint + ": " + bs::SystemError(error);
  if (error == EACCES || error == EPERM) return bs::Status::PermissionDenied(text);
  return bs::Status::ResourceExhausted(text);
}

bs::Result<TcpSocket> ListenTcp(const Address& address) {
  if (bs::Status wrong = CheckLocalPort(address); !wrong.ok()) return wrong;
  const bs::Result<sockaddr_in> local = ResolveTcp(address);
  if (!local.ok()) return BindError(TcpEndpoint(address), EADDRNOTAVAIL);
  TcpSocket socket = OpenTcp();
  if (!socket) return NoSocket(errno);
  // Connections of an earlier process that linger do not keep the port.
  socket.Set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.fd(), Raw(local.value()), sizeof(sockaddr_in)) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    return BindError(TcpEndpoint(address), errno);
  }
  return socket;
}

sockaddr_in LocalAddress(const TcpSocket& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  BS_CHECK(getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return address;
}

bool WithinHost(int fd) {
  sockaddr_in here{};
  sockaddr_in there{};
  socklen_t size = sizeof(here);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) return false;
  size = sizeof(there);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) return false;
  const auto loopback = [](const sockaddr_in& address) {
    return ntohl(address.sin_addr.s_addr) >> 24U == kLoopbackNet;
  };
  return here.sin_family == AF_INET &&
         (here.sin_addr.s_addr == there.sin_addr.s_addr || (loopback(here) && loopback(there)));
}

std::string DescribePeer(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return std::string(kGoneAlready);
  if (address.sin_family != AF_INET) return "on this host";
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return std::string(text.data()) + ":" + std::to_string(ntohs(address.sin_port));
}

}  // namespace ps
