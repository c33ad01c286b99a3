// Opens, connects and closes sockets.
#include "transport/tcp_socket.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/descriptors.h"
#include "transport/tcp_queue.h"
#include "wire/control.h"

namespace ps {
namespace {

constexpr int32_t kMaxPort = 65535;
constexpr int kRtoMaxMs = 44;               // TCP_RTO_MAX_MS, which C libraries do not name yet
constexpr int kLongestRetransmitMs = 1000;  // the least that the kernel takes
constexpr int kGiveUpMs = 24 * 24 * 60 * 60 * 1000;  // 24 days, close to the most there can be

constexpr int kMostProbes = 127;  // that the kernel takes
constexpr int64_t kMostProbeSeconds = 60;

TcpSocket OpenTcp(int family) {
  return TcpSocket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
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

}  // namespace

bs::Status NoSocket(int error) {
  return bs::Status::ResourceExhausted("no socket: " + bs::SystemError(error));
}

void TcpSocket::Set(int level, int option, int value) const {
  // Fails on a broken connection, which other calls find out.
  static_cast<void>(SetOption(fd(), level, option, value));
}

bool IsNumeric(const std::string& host) { return SocketAddress::Parse(host).has_value(); }

bs::Result<SocketAddress> ResolveTcp(const Address& address) {
  HostAddresses addresses = LookUp(address.host);
  if (addresses.found.empty()) {
    return bs::Status::InvalidArgument(TcpEndpoint(address) + ": " + addresses.why);
  }
  std::vector<SocketAddress>& found = addresses.found;
  auto best = found.begin();
  if (found.size() > 1) {
    best = std::find_if(found.begin(), found.end(),
                        [](const SocketAddress& one) { return SourceFor(one).has_value(); });
    if (best == found.end()) best = found.begin();
  }
  best->set_port(address.port);
  return *best;
}

bs::Status CheckRemotePort(const Address& address) { return CheckPort(address, 1); }
bs::Status CheckLocalPort(const Address& address) { return CheckPort(address, 0); }

bs::Result<TcpSocket> ConnectTcp(const SocketAddress& address) {
  TcpSocket socket = OpenTcp(address.family());
  if (!socket) return NoSocket(errno);
  socket.Set(IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(socket.fd(), address.raw(), address.size()) == 0 || errno == EINPROGRESS) {
    return socket;
  }
  return bs::Status::Unavailable(bs::SystemError(errno));
}

void TuneSending(int fd, int unsent_bytes) {
  if (unsent_bytes > 0) SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_bytes);
  // The kernel gives up after a number of retransmissions, which now pass in seconds.  Heartbeats
  // decide about losses, so it gets a time instead, longer than any job.  A shorter time is not
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
  // The kernel sends no probes while something is unacknowledged.
  if (!AsksOften(fd) && HeldBytes(fd) > 0) return {};
  return std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

std::string TcpEndpoint(const Address& address) { return "tcp://" + TextOf(address); }

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
  const bs::Result<SocketAddress> local = ResolveTcp(address);
  if (!local.ok()) return BindError(TcpEndpoint(address), EADDRNOTAVAIL);
  TcpSocket socket = OpenTcp(local.value().family());
  if (!socket) return NoSocket(errno);
  // "::" takes connections of IPv4 too, whatever the system's default is.
  if (local.value().is_ipv6()) socket.Set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // Connections of an earlier process that linger do not keep the port.
  socket.Set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.fd(), local.value().raw(), local.value().size()) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    return BindError(TcpEndpoint(address), errno);
  }
  return socket;
}

SocketAddress LocalAddress(const TcpSocket& socket) {
  const std::optional<SocketAddress> address = SocketAddress::LocalOf(socket.fd());
  BS_CHECK(address);
  return *address;
}

bool WithinHost(int fd) {
  const std::optional<SocketAddress> here = SocketAddress::LocalOf(fd);
  const std::optional<SocketAddress> there = SocketAddress::PeerOf(fd);
  if (!here || !there) return false;
  return here->SameHost(*there) || (here->is_loopback() && there->is_loopback());
}

std::string DescribePeer(int fd) {
  sockaddr_storage raw{};
  socklen_t size = sizeof(raw);
  const auto* const any = reinterpret_cast<const sockaddr*>(&raw);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&raw), &size) != 0) {
    return std::string(kGoneAlready);
  }
  const std::optional<SocketAddress> address = SocketAddress::FromRaw(any);
  return address ? TextOf({address->host(), address->port()}) : "on this host";
}

}  // namespace ps
