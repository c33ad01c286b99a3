// Greets, and reads messages.
#include "tcp_inbound.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "wire.h"

namespace ps {
namespace {

// So many reads in one turn of the loop, then others get theirs.
constexpr int kReadsPerTurn = 16;

bs::Status Closed(const std::string& why) { return bs::Status::Unavailable(why); }

}  // namespace

TcpInbound::TcpInbound(bs::LoopThread* loop, TcpSocket socket, ZmtpInput::Shared shared,
                       bs::Duration patience, Listener listener)
    : loop_(loop),
      socket_(std::move(socket)),
      listener_(std::move(listener)),
      input_(
          std::move(shared),
          {.on_greeting = [this] { Put(ZmtpReady("ROUTER", "")); },
           .on_ready =
               [this](std::string_view identity) {
                 StopWaiting();
                 identity_ = identity;
                 peer_ = IdOfIdentity(identity);
                 listener_.on_ready(identity_);
               },
           .on_message =
               [this](bs::Result<Message> message) {
                 listener_.on_message(peer_, std::move(message));
               },
           .place = [this](
                        const Meta& meta,
                        uint64_t size_bytes) { return listener_.place(peer_, meta, size_bytes); },
           .known = [this] { return listener_.knows(peer_); },
           .most_bytes = [this](const Meta& meta) { return listener_.most_bytes(peer_, meta); }}) {
  socket_.Set(IPPROTO_TCP, TCP_NODELAY, 1);
  patience_ = loop_->PostAt(loop_->Now() + patience, [this] {
    patience_ = 0;
    listener_.on_closed(Closed("it has not introduced itself"));
  });
  Put(ZmtpGreeting());
  loop_->WatchReadable(socket_.fd(), [this] { OnReadable(); });
}

TcpInbound::~TcpInbound() {
  StopWaiting();
  loop_->Unwatch(socket_.fd());
}

void TcpInbound::OnReadable() {
  const bs::Status over = Read();
  if (!over.ok()) listener_.on_closed(over);
}

bs::Status TcpInbound::Read() {
  input_.BeginTurn();
  bs::Status taken = input_.Continue();
  for (int i = 0; i < kReadsPerTurn && taken.ok() && broken_.ok() && !input_.turn_over(); ++i) {
    const ZmtpInput::Rooms rooms = input_.MakeRooms();
    const ssize_t got = ::readv(socket_.fd(), rooms.data(), rooms.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got < 0) return Closed(std::system_category().message(errno));
    if (got == 0) return Closed("the other end has closed it");
    taken = input_.Filled(static_cast<size_t>(got));
    // The rest, if there is any, makes the descriptor readable again.
    if (static_cast<size_t>(got) < rooms[0].iov_len + rooms[1].iov_len) break;
  }
  if (!taken.ok()) return taken;
  if (input_.waiting()) loop_->Revisit(socket_.fd());
  return broken_;
}

// Little, and first on a fresh connection: there is room for it.
void TcpInbound::Put(const std::string& bytes) {
  const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(bytes.size())) broken_ = Closed("it takes no greeting");
}

void TcpInbound::StopWaiting() {
  if (patience_ != 0) loop_->Cancel(patience_);
  patience_ = 0;
}

}  // namespace ps
