// Finds the address to listen on, and says in words why it cannot be had.
#include "transport/zmq/zmq_endpoint.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <utility>

#include "transport/connection_listener.h"

namespace ps {
namespace {

constexpr int32_t kFirstIpcPort = 10000;
constexpr int32_t kIpcPorts = 50000;
constexpr int kIpcTries = 1000;

TcpSocket OpenUnix() {
  return TcpSocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::string IpcPath(int32_t port) { return "/tmp/" + std::to_string(port); }

// Returns the first address of `host`, or `host` itself if it has none: libzmq then takes it
// for the name of an interface.
std::string ResolveLocal(const std::string& host) {
  if (IsNumeric(host)) return host;
  const auto found = ResolveTcp({host, 0});
  return found.ok() ? found.value().host() : host;
}

bool IsIpv6(const std::string& host) {
  const auto address = SocketAddress::Parse(host);
  return address && address->is_ipv6();
}

// The endpoint that libzmq bound.
std::string BoundEndpoint(const ZmqSocket& router) {
  std::array<char, 256> endpoint{};
  size_t size = endpoint.size();
  BS_CHECK(zmq_getsockopt(router.get(), ZMQ_LAST_ENDPOINT, endpoint.data(), &size) == 0);
  return endpoint.data();
}

// The number after the last colon.
int32_t PortOf(const std::string& endpoint) {
  int32_t port = 0;
  std::from_chars(endpoint.data() + endpoint.rfind(':') + 1, endpoint.data() + endpoint.size(),
                  port);
  return port;
}

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// A path, or a name that begins with a zero byte, all of whose bytes count.
int BindUnix(const TcpSocket& socket, const std::string& path) {
  const sockaddr_un address = UnixAddress(path);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  return ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size);
}

// A name without a file, which the kernel gives up with the process that has it.
std::string ClaimName(int32_t port) { return '\0' + ("bytescheduler" + IpcPath(port)); }

// True for a socket file that a dead process left behind.
bool IsAbandoned(const std::string& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  const sockaddr_un address = UnixAddress(path);
  const TcpSocket probe = OpenUnix();
  return probe &&
         ::connect(probe.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

bs::Result<std::string> RemoteEndpoint(const Address& address, bool ipc) {
  if (bs::Status wrong = CheckRemotePort(address); !wrong.ok()) return wrong;
  return ipc ? "ipc://" + IpcPath(address.port) : TcpEndpoint(address);
}

bs::Result<std::unique_ptr<ZmqListener>> ZmqListener::Open(const ZmqContext& context,
                                                           const Address& address,
                                                           const ZmqOptions& options) {
  if (bs::Status wrong = CheckLocalPort(address); !wrong.ok()) return wrong;
  auto router = ZmqSocket::Open(context, ZMQ_ROUTER);
  if (!router.ok()) return router.status();
  std::unique_ptr<ZmqListener> listener(new ZmqListener());
  listener->router_ = std::move(router.value());
  listener->router_->SetLinger(bs::Duration::zero());
  listener->router_->SetIdentity(kOurIdentity);
  // A restarted peer comes back under its old identity; its dead connection must give way.
  listener->router_->Set(ZMQ_ROUTER_HANDOVER, 1);
  listener->router_->Set(ZMQ_BACKLOG, kBacklog);
  listener->router_->Set(ZMQ_MAXMSGSIZE, static_cast<int64_t>(options.max_frame_bytes));
  listener->router_->Set(
      ZMQ_HANDSHAKE_IVL,
      static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(options.patience).count()));
  // Without a domain libzmq takes any bytes for ZMTP 1.0, which needs no introduction.  No handler
  // answers for the domain, so libzmq admits every peer that speaks a later version.
  if (!options.curve) listener->router_->Set(ZMQ_ZAP_DOMAIN, "bytescheduler");
  if (options.curve) ListenWith(*options.curve, listener->router_.get());
  bs::Status bound;
  if (!options.ipc) {
    bound = listener->BindTcp(address);
  } else {
    bound = address.port == 0 ? listener->BindAnyIpc() : listener->BindIpc(address.port);
  }
  if (!bound.ok()) return bound;
  return listener;
}

ZmqListener::~ZmqListener() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

bs::Status ZmqListener::BindTcp(const Address& address) {
  const std::string local = ResolveLocal(address.host);
  const std::string endpoint = TcpEndpoint({local, address.port});
  if (IsIpv6(local)) router_->Set(ZMQ_IPV6, 1);
  if (zmq_bind(router_->get(), endpoint.c_str()) != 0) {
    return BindError(TcpEndpoint(address), zmq_errno());
  }
  const std::string bound = BoundEndpoint(*router_);
  port_ = PortOf(bound);
  loopback_ = bound.starts_with("tcp://127.") || bound.starts_with("tcp://[::1]");
  return bs::Status::Ok();
}

bs::Status ZmqListener::BindIpc(int32_t port) {
  // We bind and hand the socket to libzmq, because its own bind removes the file of a running
  // listener.
  const std::string path = IpcPath(port);
  const std::string endpoint = "ipc://" + path;
  // A file looks abandoned until its owner listens, so only the owner of the claim may replace it.
  TcpSocket claim = OpenUnix();
  if (!claim) return NoSocket(errno);
  if (BindUnix(claim, ClaimName(port)) != 0) return BindError(endpoint, errno);
  TcpSocket listening = OpenUnix();
  if (!listening) return NoSocket(errno);
  if (BindUnix(listening, path) != 0) {
    if (errno != EADDRINUSE || !IsAbandoned(path)) return BindError(endpoint, errno);
    ::unlink(path.c_str());
    if (BindUnix(listening, path) != 0) return BindError(endpoint, errno);
  }
  claim_ = std::move(claim);
  path_ = path;
  if (::listen(listening.fd(), kBacklog) != 0) return BindError(endpoint, errno);
  router_->Set(ZMQ_USE_FD, listening.fd());
  if (zmq_bind(router_->get(), endpoint.c_str()) != 0) return BindError(endpoint, zmq_errno());
  static_cast<void>(listening.Release());  // libzmq closes it
  port_ = port;
  return bs::Status::Ok();
}

bs::Status ZmqListener::BindAnyIpc() {
  // Processes with neighbouring ids start far apart, so that they rarely try the same number.
  const int32_t start = ::getpid() * 61 % kIpcPorts;
  for (int i = 0; i < kIpcTries; ++i) {
    bs::Status bound = BindIpc(kFirstIpcPort + (start + i) % kIpcPorts);
    if (bound.code() != bs::StatusCode::kAlreadyExists) return bound;
  }
  return bs::Status::ResourceExhausted("ipc:///tmp: no free port number found");
}

}  // namespace ps
