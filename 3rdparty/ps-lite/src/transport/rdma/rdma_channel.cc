// Posts slots, SENDs and READs, and keeps the accounts.
#include "transport/rdma/rdma_channel.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/check.h"

namespace ps {
namespace {

// SENDs that may be under way.
constexpr uint32_t kMostSends = 64;
constexpr uint32_t kInlineBytes = 220;
// The lower half of an id: the kind of the post, and its number.
constexpr uint32_t kIndexBits = 24;
constexpr uint32_t kIndexMask = (1U << kIndexBits) - 1;

// `why` is the status of the memory, which names the limit if there is one.
bs::Status NoMemory(const std::string& what, uint64_t size_bytes, const bs::Status& why) {
  return bs::Status::ResourceExhausted("the card gets no memory for " + what + " (" +
                                       std::to_string(size_bytes) + " bytes): " + why.message());
}

}  // namespace

RdmaChannel::RdmaChannel(RdmaNic* nic, const Size& size, Listener listener)
    : nic_(nic), size_(size), listener_(std::move(listener)) {}

bs::Result<std::unique_ptr<RdmaChannel>> RdmaChannel::Create(RdmaNic* nic, RdmaEnd* end,
                                                             const Size& size, Listener listener) {
  auto channel = std::make_unique<RdmaChannel>(nic, size, std::move(listener));
  const uint64_t slots_bytes = uint64_t{size.slots} * size.slot_bytes;
  bs::Status why;
  channel->slots_ = nic->memory()->Take(slots_bytes, &why);
  if (!channel->slots_) return NoMemory("the slots of a peer", slots_bytes, why);
  auto queue_pair = nic->device()->Create(
      nic->options().path,
      {.sends = kMostSends + size.reads, .receives = size.slots, .inline_bytes = kInlineBytes});
  if (!queue_pair.ok()) return queue_pair.status();
  channel->queue_pair_ = std::move(queue_pair.value());
  if (!nic->Add(end, size.slots + kMostSends + size.reads, &channel->number_)) {
    return bs::Status::ResourceExhausted(nic->options().device +
                                         " has no completions for one more link: set "
                                         "BYTESCHEDULER_RDMA_SLOTS to fewer");
  }
  for (uint32_t slot = 0; slot < size.slots; ++slot) {
    bs::Status posted = channel->PostSlot(slot);
    if (!posted.ok()) return posted;
  }
  return channel;
}

RdmaChannel::~RdmaChannel() {
  queue_pair_.reset();
  if (number_ != 0) nic_->Remove(number_);
}

RdmaOffer RdmaChannel::offer() const {
  return {.address = queue_pair_->address(),
          .mtu_bytes = nic_->port().mtu_bytes,
          .slots = size_.slots,
          .slot_bytes = size_.slot_bytes};
}

bs::Status RdmaChannel::Join(const RdmaOffer& peer, uint32_t reads, uint32_t answered_reads) {
  BS_CHECK(!joined_);
  if (peer.address.layer != queue_pair_->address().layer) {
    return bs::Status::FailedPrecondition(
        "one end is on InfiniBand, the other on Ethernet: name devices of one network with "
        "BYTESCHEDULER_RDMA_DEVICE");
  }
  most_sends_ = std::min(kMostSends, peer.slots);
  send_bytes_ = std::min(peer.slot_bytes, nic_->options().slot_bytes);
  const uint64_t ring_bytes = uint64_t{std::min(kRdmaRingSends, peer.slots)} * send_bytes_;
  ring_ = RdmaRing(ring_bytes, send_bytes_);
  bs::Status why;
  sends_ = nic_->memory()->Take(ring_bytes, &why);
  if (!sends_) return NoMemory("what is sent to a peer", ring_bytes, why);
  const QueuePairTerms terms{.mtu_bytes = std::min(peer.mtu_bytes, nic_->port().mtu_bytes),
                             .reads = reads,
                             .answered_reads = answered_reads};
  bs::Status joined = queue_pair_->Receive(peer.address, terms);
  if (joined.ok()) joined = queue_pair_->Activate();
  if (!joined.ok()) return joined;
  credits_ = peer_slots_ = peer.slots;
  joined_ = true;
  return joined;
}

uint64_t RdmaChannel::IdOf(What what, uint32_t index) const {
  return uint64_t{number_} << 32U | static_cast<uint32_t>(what) << kIndexBits |
         (index & kIndexMask);
}

bs::Status RdmaChannel::PostSlot(uint32_t slot) {
  const auto memory = slots_.bytes().subspan(size_t{slot} * size_.slot_bytes, size_.slot_bytes);
  return queue_pair_->PostReceive(
      IdOf(What::kReceive, slot),
      {.data = memory.data(), .size_bytes = size_.slot_bytes, .local_key = slots_.local_key()});
}

bool RdmaChannel::CanSend() const {
  const bool has_credit = credits_ > 1 || (credits_ == 1 && owed_ > 0);
  return joined_ && has_credit && sent_ - done_ < most_sends_ && ring_.has_room();
}

std::span<std::byte> RdmaChannel::Room() {
  BS_CHECK(CanSend());
  return sends_.bytes().subspan(ring_.offset(), send_bytes_).subspan(RdmaHeader::kBytes);
}

bs::Status RdmaChannel::Send(RdmaHeader header, size_t size_bytes, bool last) {
  std::byte* const begin = Room().data() - RdmaHeader::kBytes;
  const uint32_t gives = std::min<uint32_t>(owed_, UINT16_MAX);
  header.credits = static_cast<uint16_t>(gives);
  WriteRdmaHeader(header, {begin, RdmaHeader::kBytes});
  const std::array piece = {
      RdmaPiece{.data = begin,
                .size_bytes = static_cast<uint32_t>(RdmaHeader::kBytes + size_bytes),
                .local_key = sends_.local_key()}};
  const bool in_line = piece[0].size_bytes <= queue_pair_->inline_bytes();
  const size_t ring_bytes = in_line ? 0 : piece[0].size_bytes;
  ring_.Push(ring_bytes);
  quiet_bytes_ += ring_bytes;
  // The completion of a SEND completes all SENDs before it.
  const bool signalled = last || ++quiet_sends_ >= most_sends_ / 4 ||
                         quiet_bytes_ >= sends_.bytes().size() / 4 || !ring_.has_room();
  bs::Status sent = queue_pair_->PostSend({.id = IdOf(What::kSend, static_cast<uint32_t>(sent_)),
                                           .pieces = piece,
                                           .in_line = in_line,
                                           .signalled = signalled});
  if (!sent.ok()) return sent;
  if (signalled) quiet_bytes_ = quiet_sends_ = 0;
  ++sent_;
  --credits_;
  owed_ -= gives;
  return sent;
}

bs::Status RdmaChannel::Read(uint32_t index, const RdmaPiece& memory, uint64_t address,
                             uint32_t key) {
  return queue_pair_->PostRead(IdOf(What::kRead, index), memory, address, key);
}

bs::Status RdmaChannel::OnCompletion(const Completion& completion) {
  if (!completion.ok()) {
    if (failure_ == Completion::Result::kOk) failure_ = completion.result;
    return bs::Status::Unavailable(TextOfFailure(completion));
  }
  const auto low = static_cast<uint32_t>(completion.id);
  const uint32_t index = low & kIndexMask;
  switch (static_cast<What>(low >> kIndexBits)) {
    case What::kReceive:
      return OnReceived(index, completion.size_bytes);
    case What::kSend:
      // Fewer than 2^24 are under way.
      for (uint32_t over = ((index - static_cast<uint32_t>(done_)) & kIndexMask) + 1; over > 0;
           --over) {
        ring_.Pop();
        ++done_;
      }
      return bs::Status::Ok();
    case What::kRead:
      return listener_.on_read(index);
  }
  return bs::Status::Ok();
}

bs::Status RdmaChannel::OnReceived(uint32_t slot, uint32_t size_bytes) {
  const auto memory = slots_.bytes().subspan(size_t{slot} * size_.slot_bytes, size_.slot_bytes);
  const bs::Result<RdmaPacket> packet =
      ParseRdmaPacket(memory.first(std::min<size_t>(size_bytes, memory.size())));
  if (!packet.ok()) return packet.status();
  if (packet.value().header.credits > peer_slots_ - credits_) {
    return bs::Status::InvalidArgument("the peer gives back more credits than it got");
  }
  credits_ += packet.value().header.credits;
  bs::Status taken = listener_.on_packet(packet.value());
  if (!taken.ok()) return taken;
  taken = PostSlot(slot);
  if (taken.ok()) ++owed_;
  return taken;
}

}  // namespace ps
