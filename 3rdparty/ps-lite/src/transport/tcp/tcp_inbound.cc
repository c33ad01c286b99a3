// Greets, and reads messages.
#include "transport/tcp/tcp_inbound.h"

#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/descriptors.h"
#include "ps/text.h"
#include "transport/connection_listener.h"
#include "wire/wire.h"

namespace ps {
namespace {

// Reads in a turn of the loop; then other sockets get their turn.
constexpr int kReadsPerTurn = 16;

// A peer that knows the job before we do waits two seconds for its answer.
constexpr bs::Duration kKnownWithin = std::chrono::milliseconds(1500);
constexpr bs::Duration kLookAgain = std::chrono::milliseconds(10);
constexpr bs::Duration kProvedWithin = std::chrono::seconds(4);

bs::Status Closed(const std::string& why) { return bs::Status::Unavailable(why); }
bs::Status Strange(const std::string& why) { return bs::Status::FailedPrecondition(why); }

}  // namespace

TcpInbound::TcpInbound(bs::LoopThread* loop, TcpSocket socket, ZmtpInput::Shared shared,
                       bs::Duration patience, Takes takes, Listener listener)
    : loop_(loop),
      socket_(std::move(socket)),
      address_(DescribePeer(socket_.fd())),
      listener_(std::move(listener)),
      blocks_(shared.blocks),
      input_(
          std::move(shared),
          {.on_greeting =
               [this] {
                 greeted_ = true;
                 takes_memory_ = takes_.memory && WithinHost(socket_.fd());
                 Put(ZmtpReady("ROUTER", kOurIdentity,
                               {.memory = takes_memory_, .rdma = takes_.nic != nullptr}));
               },
           .on_ready =
               [this](std::string_view identity) {
                 introduced_ = true;
                 identity_ = identity;
                 peer_ = IdOfIdentity(identity);
                 listener_.on_ready(identity_);
               },
           .on_memory =
               [this](std::string_view offer) {
                 if (std::exchange(takes_memory_, false)) TakeMemory(offer);
               },
           .on_rdma =
               [this](std::string_view offer) {
                 if (takes_.nic == nullptr || std::exchange(rdma_offered_, true)) return;
                 TakeRdma(std::string(offer), loop_->Now() + kKnownWithin);
               },
           .on_message =
               [this](bs::Result<Message> message) {
                 listener_.on_message(peer_, std::move(message));
               },
           .place = [this](
                        const Meta& meta,
                        uint64_t size_bytes) { return listener_.place(peer_, meta, size_bytes); },
           .known = [this] { return listener_.knows(peer_); },
           .most_bytes = [this](const Meta& meta) { return listener_.most_bytes(peer_, meta); }}),
      takes_(takes),
      patience_(patience) {
  socket_.Set(IPPROTO_TCP, TCP_NODELAY, 1);
  WaitFor(patience_);
  Put(ZmtpGreeting());
  loop_->WatchReadable(socket_.fd(), [this] { OnReadable(); });
}

TcpInbound::~TcpInbound() {
  loop_->Cancel(timer_);
  if (rdma_timer_ != 0) loop_->Cancel(rdma_timer_);
  loop_->Unwatch(socket_.fd());
}

bool TcpInbound::torn() const {
  int unread_bytes = 0;
  return (rdma_ && rdma_->unfinished()) || input_.unfinished() || input_.waiting() ||
         (::ioctl(socket_.fd(), FIONREAD, &unread_bytes) == 0 && unread_bytes > 0);
}

bs::Carrier TcpInbound::carrier() const {
  if (rdma_ && rdma_->proved()) return bs::Carrier::kRdma;
  return shares_ ? bs::Carrier::kSharedMemory : bs::Carrier::kTcp;
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
    if (got < 0) return Gone(bs::SystemError(errno));
    if (got == 0) return Gone("the other end has closed it");
    heard_ = true;
    taken = input_.Filled(static_cast<size_t>(got));
    // More bytes, if there are any, make the descriptor readable again.
    if (static_cast<size_t>(got) < rooms[0].iov_len + rooms[1].iov_len) break;
  }
  if (!taken.ok()) return taken;
  if (input_.num_messages() > messages_ + kMostMessages && stranger()) {
    return Strange("it is not in the job, and has sent more than " + std::to_string(kMostMessages) +
                   " messages in " + TextOf(patience_));
  }
  if (input_.waiting()) loop_->Revisit(socket_.fd());
  return broken_;
}

// Silent for nodes of the job, which the log names where they are missed, and for probes of the
// port.
bs::Status TcpInbound::Gone(const std::string& how) const {
  if (heard_ && !greeted_) return Strange("no ZMTP, and " + how);
  if (stranger() && input_.unfinished()) return Strange(how + " in the middle of a message");
  return Closed(how);
}

// The bytes are few and the first on a fresh connection, so the socket has room for them.
void TcpInbound::Put(const std::string& bytes) {
  const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(bytes.size())) broken_ = Closed("it takes no greeting");
}

void TcpInbound::TakeMemory(std::string_view offer) {
  auto inbox = SharedInbox::Open(offer);
  if (inbox.ok()) {
    input_.Share(std::move(inbox.value()));
    shares_ = true;
  } else {
    listener_.on_memory_refused(inbox.status().message());
  }
  Put(ZmtpMemoryAnswer(inbox.ok()));
}

void TcpInbound::TakeRdma(const std::string& offer, bs::TimePoint deadline) {
  if (stranger()) {
    if (loop_->Now() >= deadline) return RefuseRdma("it is not in the job");
    rdma_timer_ = loop_->PostAt(loop_->Now() + kLookAgain, [=, this] {
      rdma_timer_ = 0;
      TakeRdma(offer, deadline);
    });
    return;
  }
  if (bs::Status trust = takes_.nic->Trusts(DescribeId(peer_)); !trust.ok()) {
    return RefuseRdma(trust.message());
  }
  RdmaInbound::Listener listener{
      .on_message =
          [this](bs::Result<Message> message) { listener_.on_message(peer_, std::move(message)); },
      .place = [this](const Meta& meta,
                      uint64_t size_bytes) { return listener_.place(peer_, meta, size_bytes); },
      .known = [this] { return listener_.knows(peer_); },
      .most_bytes = [this](const Meta& meta) { return listener_.most_bytes(peer_, meta); },
      .on_broken = [this](const bs::Status& why) { OnRdmaBroken(why); }};
  const auto new_frame = [blocks = blocks_](size_t size_bytes, std::span<std::byte>* memory) {
    return blocks->New(size_bytes, memory);
  };
  auto taken = RdmaInbound::Take(takes_.nic, offer, new_frame, std::move(listener));
  if (!taken.ok()) return RefuseRdma(taken.status().message());
  rdma_ = std::move(taken.value());
  Put(ZmtpRdmaAnswer(true, rdma_->answer()));
  rdma_timer_ = loop_->PostAt(loop_->Now() + kProvedWithin, [this] {
    rdma_timer_ = 0;
    if (!rdma_->proved()) rdma_.reset();  // the peer goes on without
  });
}

void TcpInbound::RefuseRdma(const std::string& why) {
  listener_.on_rdma_refused(DescribeId(peer_), why);
  Put(ZmtpRdmaAnswer(false, why));
}

void TcpInbound::OnRdmaBroken(const bs::Status& why) {
  if (rdma_timer_ != 0) loop_->Cancel(std::exchange(rdma_timer_, 0));
  // A peer that sends nonsense is named.
  const bool nonsense = why.code() == bs::StatusCode::kInvalidArgument;
  // Nothing has come by RDMA: the peer may not know that it could, and goes on by TCP.  If it does
  // know, its own end breaks and it connects anew.
  if (!nonsense && !rdma_->used()) return rdma_.reset();
  takes_.nic->NoteBreak(DescribeId(peer_), why, rdma_->failure());
  const bs::Status over = nonsense ? Strange("RDMA: " + why.message()) : Closed(why.message());
  rdma_.reset();  // which may own `why`
  listener_.on_closed(over);
}

void TcpInbound::WaitFor(bs::Duration patience) {
  timer_ = loop_->PostAt(loop_->Now() + patience, [this] { LookAtProgress(); });
}

void TcpInbound::LookAtProgress() {
  const std::string time = TextOf(patience_);
  if (!introduced_) return listener_.on_closed(Strange("it has not introduced itself in " + time));
  const bool same = input_.num_messages() == messages_;
  if (stalled_ && same && stranger()) {
    return listener_.on_closed(Strange("it has not ended its message in " + time));
  }
  messages_ = input_.num_messages();
  stalled_ = input_.unfinished();
  WaitFor(patience_);
}

}  // namespace ps
