// Connects, greets, and writes waiting messages, most urgent first.
#include "transport/tcp/tcp_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/descriptors.h"
#include "wire/control.h"
#include "wire/fusion.h"
#include "wire/wire.h"

namespace ps {
namespace {

constexpr bs::Duration kRetryInterval = std::chrono::milliseconds(100);
// A vanished host must not come back before every node knows: messages on their way are lost.
constexpr bs::Duration kRetryVanished = std::chrono::seconds(10);
constexpr int kProbesInTimeout = 4;
// The kernel probes once a second at most.
constexpr bs::Duration kLeastHostTimeout = std::chrono::seconds(5);
// Bytes taken out of the queue at a time: enough that a call sends many small messages.
constexpr uint64_t kAheadBytes = 16U << 10U;
constexpr size_t kPartsPerCall = 128;
// Reads in a turn of the loop; peers send little on this connection.
constexpr int kReadsOfAnswersPerTurn = 16;
// Messages up to this size do not wait for the link, unless a larger message is begun:
// acknowledgements and heartbeats.
constexpr uint64_t kSmallBytes = 1U << 10U;
// How long data waits for the proof that RDMA works.
constexpr bs::Duration kRdmaPatience = std::chrono::seconds(2);
// Bytes that go out in a turn of the loop; then other sockets get their turn.
constexpr uint64_t kBytesPerTurn = 4U << 20U;

iovec PartOf(const void* data, size_t size_bytes) {
  // The kernel takes void* but does not write.
  return {const_cast<void*>(data), size_bytes};
}

}  // namespace

TcpConnection::Outgoing::Outgoing(std::vector<Message> m, SharedOutbox* outbox)
    : messages(std::move(m)) {
  messages.size() > 1 ? WriteFused() : Write(outbox);
  for (const iovec& part : parts) left_bytes += part.iov_len;
}

void TcpConnection::Outgoing::WriteFused() {
  const std::string meta = EncodeMeta(FusedMeta(messages));
  uint64_t data_bytes = 0;
  for (const Message& message : messages) data_bytes += DataBytes(message);
  AppendFrameHeader(meta.size(), data_bytes > 0, &heads);
  heads += meta;
  if (data_bytes > 0) AppendFrameHeader(data_bytes, false, &heads);
  parts.push_back(PartOf(heads.data(), heads.size()));
  for (const Message& message : messages) {
    for (const Frame& frame : message.data) {
      if (frame.size() > 0) parts.push_back(PartOf(frame.bytes().data(), frame.size()));
    }
  }
}

void TcpConnection::Outgoing::Write(SharedOutbox* outbox) {
  const Message& message = messages.front();
  const std::string meta = EncodeMeta(message.meta);
  std::vector<size_t> cuts;  // the end of the heads before each frame
  AppendFrameHeader(meta.size(), !message.data.empty(), &heads);
  heads += meta;
  std::vector<bool> elsewhere(message.data.size());
  for (size_t i = 0; i < message.data.size(); ++i) {
    const auto bytes = message.data[i].bytes();
    const bool more = i + 1 < message.data.size();
    std::optional<uint64_t> offset;
    if (outbox != nullptr && bytes.size() >= SharedOutbox::kLeastFrameBytes) {
      offset = outbox->Put(bytes);
    }
    if (offset) {
      AppendReference(*offset, bytes.size(), more, &heads);
      shared_bytes += bytes.size();
      elsewhere[i] = true;
    } else {
      AppendFrameHeader(bytes.size(), more, &heads);
    }
    cuts.push_back(heads.size());
  }
  size_t begin = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    parts.push_back(PartOf(heads.data() + begin, cuts[i] - begin));
    const auto bytes = message.data[i].bytes();
    if (!bytes.empty() && !elsewhere[i]) parts.push_back(PartOf(bytes.data(), bytes.size()));
    begin = cuts[i];
  }
  if (begin < heads.size()) parts.push_back(PartOf(heads.data() + begin, heads.size() - begin));
}

TcpConnection::TcpConnection(const Shared* shared, Address address, std::string identity,
                             ConnectionListener listener, bool apart)
    : shared_(shared),
      loop_(shared->loop),
      address_(std::move(address)),
      identity_(std::move(identity)),
      apart_(apart),
      listener_(std::move(listener)) {}

TcpConnection::~TcpConnection() {
  if (retry_ != 0) loop_->Cancel(retry_);
  if (look_ != 0) loop_->Cancel(look_);
  if (rdma_timer_ != 0) loop_->Cancel(rdma_timer_);
  if (socket_) loop_->Unwatch(socket_.fd());
}

void TcpConnection::Open() {
  if (IsNumeric(address_.host)) {
    return OnResolved(ResolveTcp(address_));
  }
  // Used once: the host may have another address by the next time, and then connecting fails.
  if (resolved_) {
    const auto again = *resolved_;
    resolved_.reset();
    return Connect(again);
  }
  bs::Executor* const lookup = shared_->lookup(apart_);
  if (lookup == nullptr) return ConnectLater(kRetryInterval);
  lookup->Post([weak = weak_from_this(), loop = loop_, address = address_] {
    if (weak.expired()) return;
    loop->Post([weak, resolved = ResolveTcp(address)] {
      const auto self = weak.lock();
      if (self) self->OnResolved(resolved);
    });
  });
}

void TcpConnection::OnResolved(const bs::Result<SocketAddress>& resolved) {
  if (resolved.ok()) return Connect(resolved.value());
  TellAttempt("the name cannot be resolved: " + resolved.status().message());
  ConnectLater(kRetryInterval);
}

void TcpConnection::TellAttempt(const std::string& what) {
  if (listener_.on_attempt) listener_.on_attempt(what);
}

void TcpConnection::Connect(const SocketAddress& address) {
  auto socket = ConnectTcp(address);
  where_ = TextOf({address.host(), address.port()});
  if (!socket.ok()) {
    if (socket.status().code() == bs::StatusCode::kResourceExhausted) {
      shared_->on_no_socket(socket.status());
    }
    TellAttempt(where_ + ": " + socket.status().message());
    return ConnectLater(kRetryInterval);
  }
  error_ = 0;
  TellAttempt(where_ + " does not answer");
  socket_ = std::move(socket.value());
  TuneSending(socket_.fd(), shared_->options.unsent_bytes);
  if (shared_->options.host_timeout > bs::Duration(0)) {
    ProbeHost(socket_.fd(), host_timeout() / kProbesInTimeout);
    LookAtHost();
  }
  greeted_ = ready_ = refused_ = takes_rdma_ = false;
  input_ = std::make_unique<ZmtpInput>(
      shared_->input,
      ZmtpInput::Listener{
          .on_greeting = [this] { refused_ = !Put(ZmtpReady("DEALER", identity_)); },
          .on_ready =
              [this, address](std::string_view identity) {
                ready_ = true;
                foreign_ = identity != kOurIdentity;
                resolved_ = address;
              },
          .on_takes_memory = [this] { OfferMemory(); },
          .on_memory_answer = [this](bool taken) { OnMemoryAnswer(taken); },
          .on_takes_rdma =
              [this] {
                takes_rdma_ = true;
                OfferRdma();
              },
          .on_rdma_answer = [this](bool taken,
                                   std::string_view text) { OnRdmaAnswer(taken, text); },
          .on_message = {},  // peers respond on their own connection
          .known = [] { return false; }});
  loop_->WatchChanges(socket_.fd(), [this] { OnChange(); });
}

void TcpConnection::ConnectLater(bs::Duration delay) {
  retry_ = loop_->PostAt(loop_->Now() + delay, [this] {
    retry_ = 0;
    Open();
  });
}

bs::Duration TcpConnection::host_timeout() const {
  return std::max(shared_->options.host_timeout, kLeastHostTimeout);
}

void TcpConnection::LookAtHost() {
  const bs::Duration timeout = host_timeout();
  look_ = loop_->PostAt(loop_->Now() + timeout / kProbesInTimeout, [this, timeout] {
    look_ = 0;
    const auto self = shared_from_this();  // the listener may drop the connection
    SinceAcknowledged(socket_.fd()) > timeout ? Break(kRetryVanished) : LookAtHost();
  });
}

void TcpConnection::OnChange() {
  const auto self = shared_from_this();  // the listener may drop the connection
  if (!Greet() || !Read()) return Break(kRetryInterval);
  if (ready_ && !std::exchange(connected_, true)) {
    if (foreign_ && listener_.on_foreign) listener_.on_foreign();
    const bool lacks_rdma = shared_->nic != nullptr && !takes_rdma_ && !outbox_ && !foreign_;
    if (lacks_rdma && listener_.on_no_rdma) std::exchange(listener_.on_no_rdma, {})();
    ShareLink();
    if (listener_.on_connected) listener_.on_connected();
  }
  Pump();
}

void TcpConnection::ShareLink() {
  if (shared_->budget == nullptr || WithinHost(socket_.fd())) return;
  share_ = std::make_unique<LinkBudget::Member>(shared_->budget, socket_.fd(), [this] { Pump(); });
}

bool TcpConnection::Greet() {
  if (greeted_) return true;
  const std::string greeting = ZmtpGreeting();
  const ssize_t sent = ::send(socket_.fd(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;  // not connected yet
  error_ = sent < 0 ? errno : 0;
  greeted_ = sent == static_cast<ssize_t>(greeting.size());
  return greeted_;
}

void TcpConnection::OfferMemory() {
  const uint64_t size_bytes = shared_->options.shared_bytes;
  if (size_bytes == 0 || !WithinHost(socket_.fd())) return;
  auto outbox = SharedOutbox::Create(size_bytes);
  if (!outbox.ok()) return shared_->on_no_memory(outbox.status());
  outbox_ = std::move(outbox.value());
  refused_ = !Put(ZmtpMemory(outbox_->offer()));
}

void TcpConnection::OnMemoryAnswer(bool taken) {
  if (!outbox_ || shares_) return;
  shares_ = taken;
  if (taken) {
    outbox_->Taken();
  } else {
    outbox_.reset();
  }
  if (listener_.on_sharing) listener_.on_sharing(taken);
}

// Memory that both share is better.
void TcpConnection::OfferRdma() {
  RdmaNic* const nic = shared_->nic;
  if (nic == nullptr || outbox_ || rdma_ || !nic->Trusts(where_).ok()) return;
  auto link = RdmaLink::Create(
      nic, {.fusion_bytes = shared_->options.fusion_bytes, .sent = shared_->options.sent},
      {.on_turn = [this] { OnRdmaTurn(); },
       .on_broken = [this](const bs::Status& why) { BreakRdma(why); }});
  if (!link.ok()) return shared_->on_rdma("no RDMA to " + where_ + ": " + link.status().message());
  rdma_ = std::move(link.value());
  refused_ = !Put(ZmtpRdma(rdma_->offer()));
  rdma_timer_ = loop_->PostAt(loop_->Now() + kRdmaPatience, [this] {
    rdma_timer_ = 0;
    rdma_.reset();
    shared_->nic->NoteBreak(  // which logs it
        where_, bs::Status::DeadlineExceeded("its proof has not come in time: " +
                                             std::string(kLetRdmaPass)));
    Pump();
  });
}

void TcpConnection::OnRdmaAnswer(bool taken, std::string_view text) {
  if (!rdma_ || rdma_->proved()) return;
  if (!taken) return GiveUpRdma("it refuses: " + std::string(text));
  const bs::Status joined = rdma_->OnTaken(text);
  if (!joined.ok()) GiveUpRdma(joined.message());
}

void TcpConnection::GiveUpRdma(const std::string& why) {
  if (rdma_timer_ != 0) loop_->Cancel(std::exchange(rdma_timer_, 0));
  rdma_.reset();
  shared_->on_rdma("no RDMA to " + where_ + ": " + why);
}

void TcpConnection::OnRdmaTurn() {
  const auto self = shared_from_this();  // the listener may drop the connection
  if (rdma_->proved() && rdma_timer_ != 0) {
    loop_->Cancel(std::exchange(rdma_timer_, 0));
    if (listener_.on_rdma) listener_.on_rdma();
  }
  Pump();
}

void TcpConnection::BreakRdma(const bs::Status& why) {
  const auto self = shared_from_this();  // the listener may drop the connection
  shared_->nic->NoteBreak(where_, why, rdma_->failure());
  Break(kRetryInterval);
}

bool TcpConnection::Put(const std::string& bytes) const {
  return ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

bool TcpConnection::Read() {
  input_->BeginTurn();
  bs::Status taken = input_->Continue();
  for (int i = 0; taken.ok() && !refused_; ++i) {
    if (i == kReadsOfAnswersPerTurn || input_->turn_over()) {
      loop_->Revisit(socket_.fd());  // the kernel reports only changes
      return true;
    }
    const ZmtpInput::Rooms rooms = input_->MakeRooms();
    const ssize_t got = ::readv(socket_.fd(), rooms.data(), rooms.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error_ = errno;
    if (got < 0) return error_ == EAGAIN || error_ == EWOULDBLOCK;
    if (got == 0) return false;
    taken = input_->Filled(static_cast<size_t>(got));
  }
  if (!taken.ok()) TellRefused(taken.message());
  return false;
}

void TcpConnection::TellRefused(const std::string& what) {
  if (listener_.on_refused) std::exchange(listener_.on_refused, {})(what);
}

void TcpConnection::Break(bs::Duration retry_after) {
  if (look_ != 0) loop_->Cancel(std::exchange(look_, 0));
  loop_->Unwatch(socket_.fd());
  share_.reset();
  socket_ = TcpSocket();
  // On another connection the rest of a cut message has no meaning, and neither have offsets in
  // this connection's memory.
  if (!out_.empty() && out_.front().begun) out_.pop_front();
  outbox_.reset();
  shares_ = false;
  if (rdma_timer_ != 0) loop_->Cancel(std::exchange(rdma_timer_, 0));
  rdma_.reset();
  out_bytes_ = 0;
  for (Outgoing& out : std::exchange(out_, {})) {
    out_bytes_ += out_.emplace_back(std::move(out.messages), nullptr).left_bytes;
  }
  ConnectLater(retry_after);
  if (!connected_) {
    TellAttempt(where_ + ": " + (greeted_ ? "it hung up" : bs::SystemError(error_)));
  }
  // A peer that requires authentication may give no other reason than this.
  if (greeted_ && !ready_) TellRefused("it hung up");
  if (std::exchange(connected_, false) && listener_.on_disconnected) listener_.on_disconnected();
}

void TcpConnection::Send(Message message) {
  queue_.Add(std::move(message));
  PumpLater();  // a call sends all messages of a turn
}

bs::Carrier TcpConnection::carrier() const {
  if (!connected_) return bs::Carrier::kUnknown;
  if (rdma_ && rdma_->proved()) return bs::Carrier::kRdma;
  return shares_ ? bs::Carrier::kSharedMemory : bs::Carrier::kTcp;
}

void TcpConnection::Drain(bs::TimePoint /*deadline*/, bs::Task on_drained) {
  listener_ = {};
  on_drained_ = std::move(on_drained);
  PumpLater();
}

void TcpConnection::PumpLater() {
  if (std::exchange(pump_posted_, true)) return;
  loop_->Post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->pump_posted_ = false;
    self->Pump();
  });
}

// Nothing has left over TCP since the link came up, so the order stays.
void TcpConnection::PumpRdma() {
  if (!connected_ || !rdma_->proved()) return;
  for (; !out_.empty(); out_.pop_back()) {
    std::vector<Message>& messages = out_.back().messages;
    for (; !messages.empty(); messages.pop_back()) queue_.PutBack(std::move(messages.back()));
  }
  out_bytes_ = 0;
  const bs::Status sent = rdma_->Pump(&queue_);
  if (!sent.ok()) return BreakRdma(sent);
  if (queue_.empty() && rdma_->idle() && on_drained_) loop_->Post(std::exchange(on_drained_, {}));
}

void TcpConnection::Pump() {
  if (rdma_) return PumpRdma();
  uint64_t sent_bytes = 0;
  while (connected_ && !(queue_.empty() && out_.empty())) {
    const uint64_t room = TakeWithin(&sent_bytes);
    if (room == 0) return;  // the budget calls again
    if (sent_bytes > kBytesPerTurn) return PumpLater();
    std::array<iovec, kPartsPerCall> parts{};
    msghdr what{};
    what.msg_iov = parts.data();
    what.msg_iovlen = Gather(parts, room);
    const ssize_t sent = ::sendmsg(socket_.fd(), &what, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;  // OnChange goes on
    if (sent < 0) return Break(kRetryInterval);
    if (share_) share_->Sent(static_cast<uint64_t>(sent));
    Leave(static_cast<uint64_t>(sent));
    sent_bytes += static_cast<uint64_t>(sent);
  }
  if (queue_.empty() && out_.empty() && on_drained_) loop_->Post(std::exchange(on_drained_, {}));
}

uint64_t TcpConnection::TakeWithin(uint64_t* taken_bytes) {
  const uint64_t room = share_ ? share_->Room(out_bytes_) : kBytesPerTurn;
  if (room > 0) {
    *taken_bytes += TakeFromQueue(std::min(room, kAheadBytes));
    return room;
  }
  if (!out_.empty() || DataBytes(*queue_.first()) > kSmallBytes) return 0;
  out_.emplace_back(TakeFused({.messages = kMostFused, .bytes = kSmallBytes}), nullptr);
  out_bytes_ += out_.back().left_bytes;
  return out_.back().left_bytes;
}

uint64_t TcpConnection::TakeFromQueue(uint64_t most_bytes) {
  uint64_t shared_bytes = 0;
  // Copied bytes cannot be overtaken any more, so only one message is copied at a time.
  if (!out_.empty() && out_.back().shared_bytes > 0) return 0;
  while (!queue_.empty()) {
    const Room room = RoomAhead(most_bytes);
    if (room.messages == 0 || room.bytes == 0) break;
    out_.emplace_back(TakeFused(room), shares_ ? outbox_.get() : nullptr);
    out_bytes_ += out_.back().left_bytes;
    shared_bytes += out_.back().shared_bytes;
    if (shared_bytes == 0) continue;
    if (shared_->options.sent) shared_->options.sent->shared_bytes += shared_bytes;
    break;
  }
  if (shares_ && !outbox_->memory().ok()) shared_->on_no_memory(outbox_->memory());
  return shared_bytes;
}

TcpConnection::Room TcpConnection::RoomAhead(uint64_t most_bytes) const {
  const auto most = static_cast<size_t>(shared_->options.ahead_messages);
  if (most == 0) {
    return {.messages = kMostFused, .bytes = most_bytes - std::min(most_bytes, out_bytes_)};
  }
  size_t messages = 0;
  for (const Outgoing& out : out_) messages += out.messages.size();
  return {.messages = most - std::min(most, messages), .bytes = kMostFusedBytes};
}

std::vector<Message> TcpConnection::TakeFused(const Room& room) {
  std::vector<Message> taken;
  const uint64_t most = shared_->options.fusion_bytes;
  uint64_t bytes = 0;
  const auto joins = [&] {
    if (queue_.empty() || !CanFuse(*queue_.first())) return false;
    const uint64_t more = DataBytes(*queue_.first());
    bytes += more;
    // Long frames go through shared memory, if there is some.
    return bytes <= std::min(most, room.bytes) &&
           !(shares_ && more >= SharedOutbox::kLeastFrameBytes) &&
           taken.size() < std::min(kMostFused, room.messages);
  };
  while (most > 0 && joins()) taken.push_back(queue_.Take());
  if (taken.empty()) taken.push_back(queue_.Take());
  if (shared_->options.sent) shared_->options.sent->fused += taken.size() - 1;
  return taken;
}

size_t TcpConnection::Gather(std::span<iovec> parts, uint64_t most_bytes) const {
  size_t count = 0;
  for (const Outgoing& out : out_) {
    for (size_t i = out.next; i < out.parts.size() && count < parts.size() && most_bytes > 0; ++i) {
      const uint64_t size_bytes = std::min<uint64_t>(out.parts[i].iov_len, most_bytes);
      parts[count++] = {out.parts[i].iov_base, size_bytes};
      most_bytes -= size_bytes;
    }
  }
  return count;
}

void TcpConnection::Leave(uint64_t size_bytes) {
  if (shared_->options.sent) shared_->options.sent->tcp_bytes += size_bytes;
  out_bytes_ -= size_bytes;
  while (size_bytes > 0) {
    Outgoing& first = out_.front();
    iovec& part = first.parts[first.next];
    const uint64_t gone = std::min<uint64_t>(size_bytes, part.iov_len);
    first.begun = true;
    first.left_bytes -= gone;
    size_bytes -= gone;
    part = PartOf(static_cast<const char*>(part.iov_base) + gone, part.iov_len - gone);
    if (part.iov_len == 0) ++first.next;
    if (first.left_bytes == 0) out_.pop_front();
  }
}

}  // namespace ps
