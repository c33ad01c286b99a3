// Sends messages and adverts.
#include "transport/rdma/rdma_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "wire/fusion.h"

namespace ps {
namespace {

// The receiver only sends credits and ids of adverts here.
constexpr RdmaChannel::Size kSize{
    .slots = kRdmaReturnSlots, .slot_bytes = kRdmaReturnSlotBytes, .reads = 0};
// A bound of the bytes that a message has in the meta of a fused message, besides its text and
// body.
constexpr size_t kMetaBytes = 256;

size_t FusedBytes(const Message& message) {
  const Extension& extension = message.meta.extension;
  return kMetaBytes + message.meta.body.size() + extension.text.size() + extension.body.memory() +
         DataBytes(message);
}

std::vector<RdmaFrame> SizesOf(const std::vector<Message>& messages) {
  std::vector<RdmaFrame> frames;
  if (messages.size() == 1) {
    for (const Frame& frame : messages.front().data) frames.push_back({.size_bytes = frame.size()});
    return frames;
  }
  uint64_t bytes = 0;
  for (const Message& message : messages) bytes += DataBytes(message);
  if (bytes > 0) frames.push_back({.size_bytes = bytes});
  return frames;
}

}  // namespace

RdmaLink::RdmaLink(RdmaNic* nic, Options options, Listener listener)
    : nic_(nic), options_(std::move(options)), listener_(std::move(listener)) {}

// The NIC is done with the memory before it is given back.
RdmaLink::~RdmaLink() {
  channel_.reset();
  const bool bounced = std::ranges::any_of(
      adverts_, [](const auto& advert) { return !advert.second.bounces.empty(); });
  adverts_.clear();
  if (bounced) nic_->RoomFreed();
}

bs::Result<std::unique_ptr<RdmaLink>> RdmaLink::Create(RdmaNic* nic, Options options,
                                                       Listener listener) {
  auto link = std::make_unique<RdmaLink>(nic, std::move(options), std::move(listener));
  const bs::Result<RdmaToken> token = NewRdmaToken();
  if (!token.ok()) return token.status();
  link->token_ = token.value();
  auto channel = RdmaChannel::Create(
      nic, link.get(), kSize,
      {.on_packet = [at = link.get()](const RdmaPacket& packet) { return at->OnPacket(packet); }});
  if (!channel.ok()) return channel.status();
  link->channel_ = std::move(channel.value());
  return link;
}

std::string RdmaLink::offer() const {
  RdmaOffer offer = channel_->offer();
  offer.reads = std::min(nic_->device()->facts().most_answered_reads, kMostRdmaReads);
  offer.token = token_;
  return TextOf(offer);
}

bs::Status RdmaLink::OnTaken(std::string_view answer) {
  const bs::Result<RdmaOffer> peer = ParseRdmaOffer(answer);
  if (!peer.ok()) return peer.status();
  if (channel_->joined()) return bs::Status::InvalidArgument("the peer takes an offer twice");
  bs::Status joined = channel_->Join(peer.value(), 1, peer.value().reads);
  if (!joined.ok()) return joined;
  room_bytes_ = channel_->Room().size();
  std::ranges::copy(token_, channel_->Room().begin());
  return channel_->Send({.kind = RdmaHeader::Kind::kProof}, token_.size(), true);
}

bs::Status RdmaLink::OnPacket(const RdmaPacket& packet) {
  if (packet.header.kind == RdmaHeader::Kind::kProof) {
    if (proved_ || !std::ranges::equal(packet.rest, token_)) {
      return bs::Status::InvalidArgument("the peer sends another token than it got");
    }
    proved_ = true;
    return bs::Status::Ok();
  }
  if (packet.header.kind != RdmaHeader::Kind::kControl) {
    return bs::Status::InvalidArgument("the receiving end of a link sends messages");
  }
  for (size_t i = 0; i < packet.header.count; ++i) {
    bs::Status released = Release(packet.IdAt(i));
    if (!released.ok()) return released;
  }
  return bs::Status::Ok();
}

bs::Status RdmaLink::Release(uint32_t id) {
  const auto found = adverts_.find(id);
  if (found == adverts_.end()) {
    return bs::Status::InvalidArgument("the peer releases advert " + std::to_string(id) +
                                       ", which it has not got");
  }
  waiting_bytes_ -= found->second.waiting_bytes;
  const bool bounced = !found->second.bounces.empty();
  adverts_.erase(found);
  if (bounced) nic_->RoomFreed();
  return bs::Status::Ok();
}

bs::Status RdmaLink::Pump(SendQueue* queue) {
  BS_CHECK(proved_);
  blocked_ = false;
  while (channel_->CanSend() && !blocked_ && (stream_ || !queue->empty())) {
    bs::Status sent = stream_ ? GoOn(queue->empty()) : SendNext(queue);
    if (!sent.ok()) return sent;
  }
  if (!channel_->owes_much() || !channel_->CanSend()) return bs::Status::Ok();
  return channel_->Send({.kind = RdmaHeader::Kind::kControl}, 0, true);
}

std::vector<Message> RdmaLink::TakeFused(SendQueue* queue) const {
  std::vector<Message> taken;
  size_t bytes = RdmaFrame::kBytes + kMetaBytes;
  uint64_t data_bytes = 0;
  const auto joins = [&] {
    if (queue->empty() || !CanFuse(*queue->first())) return false;
    bytes += FusedBytes(*queue->first());
    data_bytes += DataBytes(*queue->first());
    return bytes <= room_bytes_ && data_bytes <= options_.fusion_bytes && taken.size() < kMostFused;
  };
  while (options_.fusion_bytes > 0 && joins()) taken.push_back(queue->Take());
  if (taken.empty()) taken.push_back(queue->Take());
  return taken;
}

bs::Status RdmaLink::SendNext(SendQueue* queue) {
  const Message& first = *queue->first();
  const uint64_t data_bytes = DataBytes(first);
  std::string meta = EncodeMeta(first.meta);
  const size_t frames_bytes = first.data.size() * RdmaFrame::kBytes;
  if (data_bytes == 0 || frames_bytes + meta.size() + data_bytes <= room_bytes_) {
    std::vector<Message> messages = TakeFused(queue);
    if (messages.size() > 1) meta = EncodeMeta(FusedMeta(messages));
    if (options_.sent) options_.sent->fused += messages.size() - 1;
    return SendMessages(std::move(messages), std::move(meta), queue->empty());
  }
  blocked_ = adverts_.size() == kMostRdmaAdverts;  // a release goes on
  if (blocked_) return bs::Status::Ok();
  Advert advert;
  std::vector<RdmaFrame> frames;
  const Where where = Show(first, &advert, &frames);
  blocked_ = where == Where::kNoRoom;
  if (blocked_) {
    nic_->AwaitRoom(channel_->number());
    return bs::Status::Ok();
  }
  Message message = queue->Take();
  if (where == Where::kShown) {
    return SendAdvert(std::move(message), std::move(meta), std::move(advert), frames,
                      queue->empty());
  }
  std::vector<Message> alone;
  alone.push_back(std::move(message));
  return SendMessages(std::move(alone), std::move(meta), queue->empty());
}

RdmaLink::Where RdmaLink::Show(const Message& message, Advert* advert,
                               std::vector<RdmaFrame>* frames) {
  RdmaMemory* const memory = nic_->memory().get();
  uint64_t copied_bytes = 0;
  for (const Frame& frame : message.data) {
    RdmaFrame& shown = frames->emplace_back();
    shown.size_bytes = frame.size();
    advert->regions.push_back(memory->Find(frame.bytes(), VerbsDevice::Access::kLend));
    if (const auto& region = advert->regions.back()) {
      shown.address = reinterpret_cast<uintptr_t>(frame.bytes().data());
      shown.key = region->remote_key();
    } else {
      copied_bytes += frame.size();
    }
  }
  if (copied_bytes == 0) return Where::kShown;
  // Each copy begins with a page.
  if (!memory->BouncesEver(copied_bytes + message.data.size() * RdmaMemory::kPageBytes)) {
    return Where::kNowhere;
  }
  for (size_t i = 0; i < frames->size(); ++i) {
    const std::span<const std::byte> bytes = message.data[i].bytes();
    if (bytes.empty() || advert->regions[i]) continue;
    RdmaMemory::Block block = memory->TakeBounce(bytes.size());
    if (!block) return Where::kNoRoom;
    (*frames)[i].address = reinterpret_cast<uintptr_t>(block.bytes().data());
    (*frames)[i].key = block.remote_key();
    advert->bounces.push_back(std::move(block));
  }
  size_t next = 0;
  for (size_t i = 0; i < frames->size(); ++i) {
    const std::span<const std::byte> bytes = message.data[i].bytes();
    if (bytes.empty() || advert->regions[i]) continue;
    std::memcpy(advert->bounces[next++].bytes().data(), bytes.data(), bytes.size());
  }
  if (nic_->counts() != nullptr) nic_->counts()->bounced_bytes += copied_bytes;
  return Where::kShown;
}

bs::Status RdmaLink::SendMessages(std::vector<Message> messages, std::string meta, bool last) {
  const std::vector<RdmaFrame> frames = SizesOf(messages);
  auto stream = std::make_unique<Stream>();
  stream->messages = std::move(messages);
  stream->meta = std::move(meta);
  stream->pieces.push_back(std::as_bytes(std::span(stream->meta)));
  uint64_t data_bytes = 0;
  for (const Message& message : stream->messages) {
    for (const Frame& frame : message.data) stream->pieces.push_back(frame.bytes());
    data_bytes += DataBytes(message);
  }
  if (nic_->counts() != nullptr) nic_->counts()->sent_bytes += data_bytes;
  RdmaHeader header{.kind = RdmaHeader::Kind::kMessage};
  header.meta_bytes = static_cast<uint32_t>(stream->meta.size());
  return Begin(header, frames, std::move(stream), last);
}

bs::Status RdmaLink::SendAdvert(Message message, std::string meta, Advert advert,
                                const std::vector<RdmaFrame>& frames, bool last) {
  if (nic_->counts() != nullptr) nic_->counts()->sent_bytes += DataBytes(message);
  auto stream = std::make_unique<Stream>();
  stream->meta = std::move(meta);
  stream->pieces.push_back(std::as_bytes(std::span(stream->meta)));
  RdmaHeader header{.kind = RdmaHeader::Kind::kAdvert, .id = next_id_++};
  header.meta_bytes = static_cast<uint32_t>(stream->meta.size());
  advert.waiting_bytes = SendQueue::BytesOf(message);
  waiting_bytes_ += advert.waiting_bytes;
  advert.message = std::move(message);
  adverts_.emplace(header.id, std::move(advert));
  return Begin(header, frames, std::move(stream), last);
}

bs::Status RdmaLink::Begin(const RdmaHeader& header, const std::vector<RdmaFrame>& frames,
                           std::unique_ptr<Stream> stream, bool last) {
  RdmaHeader begins = header;
  begins.frames = static_cast<uint8_t>(frames.size());
  const std::span<std::byte> room = channel_->Room();
  size_t at = 0;
  for (const RdmaFrame& frame : frames) {
    WriteRdmaFrame(frame, room.subspan(at));
    at += RdmaFrame::kBytes;
  }
  at += stream->Fill(room.subspan(at));
  if (!stream->over()) stream_ = std::move(stream);
  return channel_->Send(begins, at, last && !stream_);
}

bs::Status RdmaLink::GoOn(bool last) {
  const size_t bytes = stream_->Fill(channel_->Room());
  if (stream_->over()) stream_.reset();
  return channel_->Send({.kind = RdmaHeader::Kind::kMore}, bytes, last && !stream_);
}

size_t RdmaLink::Stream::Fill(std::span<std::byte> out) {
  size_t filled = 0;
  while (next < pieces.size()) {
    std::span<const std::byte>& piece = pieces[next];
    const size_t size = std::min(piece.size(), out.size() - filled);
    std::copy_n(piece.begin(), size, out.begin() + static_cast<ptrdiff_t>(filled));
    filled += size;
    piece = piece.subspan(size);
    if (!piece.empty()) break;
    ++next;
  }
  return filled;
}

}  // namespace ps
