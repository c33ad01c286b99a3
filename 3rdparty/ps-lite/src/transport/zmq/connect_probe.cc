// Connects, and reads the error from the socket.
#include "transport/zmq/connect_probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/descriptors.h"

namespace ps {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kIpc = "ipc://";

// "10.0.0.1:4711" or "[fd00::1]:4711".
std::optional<SocketAddress> ParseWhere(std::string_view where) {
  const size_t colon = where.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  int port = 0;
  std::from_chars(where.data() + colon + 1, where.data() + where.size(), port);
  std::string_view host = where.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  std::optional<SocketAddress> address = SocketAddress::Parse(std::string(host));
  if (address) address->set_port(port);
  return address;
}

}  // namespace

ConnectProbe::ConnectProbe(bs::LoopThread* loop, const std::string& endpoint, Tell tell)
    : loop_(loop), tell_(std::move(tell)) {
  if (endpoint.starts_with(kTcp)) {
    where_ = endpoint.substr(kTcp.size());
    address_ = ParseWhere(where_);
  } else if (endpoint.starts_with(kIpc)) {
    where_ = file_ = endpoint.substr(kIpc.size());
  }
}

void ConnectProbe::TellSilence() {
  if (address_) tell_(where_ + " does not answer");
}

void ConnectProbe::Begin() {
  if (socket_) return;
  if (!file_.empty()) return ConnectToFile();
  if (!address_) return;
  auto socket = ConnectTcp(*address_);
  if (!socket.ok()) return tell_(where_ + ": " + socket.status().message());
  socket_ = std::move(socket.value());
  loop_->WatchChanges(socket_.fd(), [this] { OnChange(); });
}

void ConnectProbe::End() {
  if (!socket_) return;
  loop_->Unwatch(socket_.fd());
  socket_ = TcpSocket();
}

void ConnectProbe::OnChange() {
  pollfd state{socket_.fd(), POLLOUT, 0};
  if (::poll(&state, 1, 0) == 0) return;
  int error = 0;
  socklen_t size = sizeof(error);
  static_cast<void>(::getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &size));
  End();
  if (error != 0) tell_(where_ + ": " + bs::SystemError(error));
}

void ConnectProbe::ConnectToFile() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (file_.size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, file_.c_str(), file_.size() + 1);
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return;
  if (::connect(probe.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    tell_(where_ + ": " + bs::SystemError(errno));
  }
}

}  // namespace ps
