// Receives messages and adverts, and reads the data of adverts.
#include "transport/rdma/rdma_inbound.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/count_of.h"
#include "wire/fusion.h"

namespace ps {
namespace {

bs::Status Nonsense(const std::string& what) { return bs::Status::InvalidArgument(what); }

bs::Status NoMemory(uint64_t size_bytes) {
  return bs::Status::ResourceExhausted("no memory for a frame of " +
                                       bs::CountOf(size_bytes, "byte"));
}

// Ids of a control packet.
constexpr size_t kMostIds = 128;

}  // namespace

RdmaInbound::RdmaInbound(RdmaNic* nic, NewFrame new_frame, Listener listener)
    : nic_(nic),
      new_frame_(std::move(new_frame)),
      listener_(std::move(listener)),
      window_(nic->options().window_bytes) {}

// The NIC writes nothing more before the memory is given back.
RdmaInbound::~RdmaInbound() {
  CountWindow(0);
  channel_.reset();
  for (Arrival& arrival : arrivals_) {
    if (arrival.landing) arrival.landing->EndWrites(arrival.landing->writes);
  }
}

bs::Result<std::unique_ptr<RdmaInbound>> RdmaInbound::Take(RdmaNic* nic, std::string_view offer,
                                                           NewFrame new_frame, Listener listener) {
  const bs::Result<RdmaOffer> peer = ParseRdmaOffer(offer);
  if (!peer.ok()) return peer.status();
  auto inbound = std::make_unique<RdmaInbound>(nic, std::move(new_frame), std::move(listener));
  RdmaInbound* const at = inbound.get();
  const uint32_t reads =
      std::min({nic->device()->facts().most_reads, peer.value().reads, kMostRdmaReads});
  auto channel = RdmaChannel::Create(
      nic, at,
      {.slots = nic->options().slots, .slot_bytes = nic->options().slot_bytes, .reads = reads},
      {.on_packet = [at](const RdmaPacket& packet) { return at->OnPacket(packet); },
       .on_read = [at](uint32_t index) { return at->OnRead(index); }});
  if (!channel.ok()) return channel.status();
  bs::Status joined = channel.value()->Join(peer.value(), reads, 1);
  if (!joined.ok()) return joined;
  at->channel_ = std::move(channel.value());
  at->offer_ = peer.value();
  at->most_reads_ = reads;
  at->readings_.resize(reads);
  at->CountWindow(at->window_.bytes());
  return inbound;
}

std::string RdmaInbound::answer() const {
  RdmaOffer answer = channel_->offer();
  answer.reads = most_reads_;
  answer.token = offer_.token;
  return TextOf(answer);
}

bs::Status RdmaInbound::OnPacket(const RdmaPacket& packet) {
  using Kind = RdmaHeader::Kind;
  const Kind kind = packet.header.kind;
  if (kind == Kind::kProof) return OnProof(packet);
  if (!proved_) return Nonsense("the peer sends before its proof");
  used_ = true;
  if (kind == Kind::kControl && packet.header.count == 0) return bs::Status::Ok();  // credits
  if (kind == Kind::kControl) return Nonsense("the sending end of a link releases adverts");
  if ((kind == Kind::kMore) != (streaming_ != nullptr)) {
    return Nonsense(kind == Kind::kMore ? "more of no message" : "a message inside another");
  }
  return kind == Kind::kMore ? OnBytes(packet.rest) : OnBegin(packet);
}

bs::Status RdmaInbound::OnProof(const RdmaPacket& packet) {
  if (proved_ || !std::ranges::equal(packet.rest, offer_.token)) {
    return Nonsense("another token than the offer's");
  }
  proved_ = true;
  if (!channel_->CanSend()) return Nonsense("no credit for the answer to the proof");
  std::ranges::copy(offer_.token, channel_->Room().begin());
  return channel_->Send({.kind = RdmaHeader::Kind::kProof}, offer_.token.size(), true);
}

bs::Status RdmaInbound::OnBegin(const RdmaPacket& packet) {
  const RdmaHeader& header = packet.header;
  const size_t most = listener_.known() ? kMaxMetaBytes : kMaxStrangerBytes;
  if (header.meta_bytes == 0 || header.meta_bytes > most) {
    return Nonsense("meta of " + bs::CountOf(header.meta_bytes, "byte"));
  }
  const bool advert = header.kind == RdmaHeader::Kind::kAdvert;
  if (advert && adverts_ == kMostRdmaAdverts) {
    return Nonsense("more adverts at a time than " + std::to_string(kMostRdmaAdverts));
  }
  adverts_ += advert ? 1 : 0;
  Arrival& arrival = arrivals_.emplace_back();
  arrival.advert = advert;
  arrival.id = header.id;
  arrival.meta_bytes = header.meta_bytes;
  for (size_t i = 0; i < header.frames; ++i) {
    arrival.parts.emplace_back().from = packet.frames.at(i);
  }
  streaming_ = &arrival;
  return OnBytes(packet.rest);
}

bs::Status RdmaInbound::OnBytes(std::span<const std::byte> bytes) {
  Arrival* const arrival = streaming_;
  if (arrival->meta_text.size() < arrival->meta_bytes) {
    const size_t more = std::min(bytes.size(), arrival->meta_bytes - arrival->meta_text.size());
    arrival->meta_text.append(reinterpret_cast<const char*>(bytes.data()), more);
    bytes = bytes.subspan(more);
    if (arrival->meta_text.size() < arrival->meta_bytes) return bs::Status::Ok();
    bs::Status over = OnMeta(arrival);
    if (!over.ok()) return over;
  }
  if (!arrival->advert) {
    bs::Status over = OnData(arrival, &bytes);
    if (!over.ok()) return over;
  }
  if (!bytes.empty()) return Nonsense("bytes behind a message");
  const bool over = arrival->advert || arrival->part == arrival->parts.size();
  if (over) EndStream();
  return bs::Status::Ok();
}

bs::Status RdmaInbound::OnMeta(Arrival* arrival) {
  auto meta = ParseMeta(std::as_bytes(std::span(arrival->meta_text)));
  arrival->meta_text = {};
  arrival->meta_bytes = 0;
  if (meta.ok()) {
    arrival->meta = std::move(meta.value());
  } else {
    arrival->wrong = meta.status();
  }
  CheckData(arrival);
  if (!arrival->wrong.ok() || !IsFused(arrival->meta)) {
    by_priority_[arrival->meta.priority].push_back(arrival);
  }
  return arrival->advert ? bs::Status::Ok() : PlaceData(arrival);
}

void RdmaInbound::CheckData(Arrival* arrival) const {
  if (!arrival->wrong.ok()) return;
  uint64_t bytes = 0;
  for (const Part& part : arrival->parts) bytes += part.from.size_bytes;
  const bool known = listener_.known();
  const uint64_t most =
      std::min(known ? kMaxMessageBytes : kMaxStrangerBytes, listener_.most_bytes(arrival->meta));
  if (bytes <= most) return;
  arrival->wrong =
      Nonsense(bs::CountOf(bytes, "byte") + " of data, more than the " + std::to_string(most) +
               " that " + (known ? "such a message" : "one not in the job") + " may have");
}

bs::Status RdmaInbound::PlaceData(Arrival* arrival) {
  arrival->placed = true;
  if (!arrival->wrong.ok()) return bs::Status::Ok();
  std::vector<Part>& parts = arrival->parts;
  const bool one = parts.size() == 1 && parts[0].from.size_bytes > 0;
  if (one && listener_.place && !IsFused(arrival->meta)) {
    arrival->landing = listener_.place(arrival->meta, parts[0].from.size_bytes);
  }
  if (arrival->landing) {
    Part& part = parts[0];
    part.memory = arrival->landing->bytes;
    BS_CHECK(part.memory.size() == part.from.size_bytes);
    part.region = nic_->memory()->Find(part.memory, VerbsDevice::Access::kFill);
    part.registered = part.region != nullptr;
    if (part.registered) part.local_key = part.region->local_key();
    return bs::Status::Ok();
  }
  for (Part& part : parts) {
    // Data that comes in slots gets memory with its first bytes.
    if (part.from.size_bytes == 0 || !arrival->advert) continue;
    part.frame = nic_->memory()->New(part.from.size_bytes, &part.memory, &part.local_key);
    part.registered = part.frame.size() > 0;
    if (!part.registered && !PlacePart(&part)) return NoMemory(part.from.size_bytes);
  }
  return bs::Status::Ok();
}

bool RdmaInbound::PlacePart(Part* part) const {
  part->frame = new_frame_(part->from.size_bytes, &part->memory);
  return !part->memory.empty();
}

bool RdmaInbound::Fill(Part* part, uint64_t offset, std::span<const std::byte> bytes) const {
  if (part->memory.empty() && bytes.size() == part->from.size_bytes) {
    part->frame = Frame::Copy(bytes);
    return true;
  }
  if (part->memory.empty() && !PlacePart(part)) return false;
  std::memcpy(part->memory.data() + offset, bytes.data(), bytes.size());
  return true;
}

bs::Status RdmaInbound::OnData(Arrival* arrival, std::span<const std::byte>* bytes) {
  while (arrival->part < arrival->parts.size()) {
    Part& part = arrival->parts[arrival->part];
    const uint64_t left = part.from.size_bytes - arrival->offset;
    const size_t more = std::min<uint64_t>(left, bytes->size());
    if (more > 0 && arrival->wrong.ok() && !IsRevoked(*arrival) &&
        !Fill(&part, arrival->offset, bytes->first(more))) {
      return NoMemory(part.from.size_bytes);
    }
    arrival->offset += more;
    *bytes = bytes->subspan(more);
    if (more < left) break;
    ++arrival->part;
    arrival->offset = 0;
  }
  return bs::Status::Ok();
}

void RdmaInbound::EndStream() {
  Arrival* const arrival = std::exchange(streaming_, nullptr);
  if (!arrival->advert) return Finish(arrival);
  while (arrival->part < arrival->parts.size() &&
         arrival->parts[arrival->part].from.size_bytes == 0) {
    ++arrival->part;
  }
  if (!arrival->wrong.ok() || arrival->part == arrival->parts.size()) {
    arrival->part = arrival->parts.size();
    return Finish(arrival);
  }
  to_read_.emplace(Place{-int64_t{arrival->meta.priority}, next_place_++}, arrival);
}

bs::Status RdmaInbound::PostReads() {
  for (uint32_t index = 0; index < most_reads_ && !to_read_.empty(); ++index) {
    if (readings_[index].arrival != nullptr) continue;
    if (reading_bytes_ > 0 && reading_bytes_ + window_.read_bytes() > window_.bytes()) break;
    bool posted = false;
    bs::Status over = PostRead(index, to_read_.begin()->second, &posted);
    if (!over.ok()) return over;
    if (!posted) break;
  }
  return bs::Status::Ok();
}

bs::Status RdmaInbound::PostRead(uint32_t index, Arrival* arrival, bool* posted) {
  if (!arrival->placed) {
    bs::Status placed = PlaceData(arrival);
    if (!placed.ok()) return placed;
  }
  if (IsRevoked(*arrival)) {
    *posted = true;  // there may be other adverts to read
    arrival->part = arrival->parts.size();
    to_read_.erase(to_read_.begin());
    if (arrival->reads == 0) Finish(arrival);
    return bs::Status::Ok();
  }
  Part& part = arrival->parts[arrival->part];
  const uint64_t from = part.from.address + arrival->offset;
  const uint64_t to_page = window_.read_bytes() - from % kPageBytes;
  const uint64_t size = std::min(part.from.size_bytes - arrival->offset, to_page);
  Reading& reading = readings_[index];
  RdmaPiece piece{.data = part.memory.data() + arrival->offset,
                  .size_bytes = static_cast<uint32_t>(size),
                  .local_key = part.local_key};
  if (!part.registered) {
    bs::Status why;
    reading.block = nic_->memory()->Take(size, &why);
    if (!reading.block && reading_bytes_ == 0) {
      return bs::Status::ResourceExhausted("the card gets no memory to READ into: " +
                                           why.message());
    }
    if (!reading.block) return bs::Status::Ok();  // when a READ has ended
    piece.data = reading.block.bytes().data();
    piece.local_key = reading.block.local_key();
  }
  bs::Status read = channel_->Read(index, piece, from, part.from.key);
  if (!read.ok()) return read;
  *posted = true;
  reading.arrival = arrival;
  reading.part = arrival->part;
  reading.offset = arrival->offset;
  reading.size_bytes = size;
  reading.posted = nic_->executor()->Now();
  reading.carried_bytes = carried_bytes_;
  reading_bytes_ += size;
  ++arrival->reads;
  if (arrival->landing && part.registered) ++arrival->landing->writes;
  arrival->offset += size;
  while (arrival->part < arrival->parts.size() &&
         arrival->offset == arrival->parts[arrival->part].from.size_bytes) {
    ++arrival->part;
    arrival->offset = 0;
  }
  if (arrival->part == arrival->parts.size()) to_read_.erase(to_read_.begin());
  return bs::Status::Ok();
}

bs::Status RdmaInbound::OnRead(uint32_t index) {
  if (index >= readings_.size() || readings_[index].arrival == nullptr) return bs::Status::Ok();
  Reading reading = std::exchange(readings_[index], {});
  Arrival* const arrival = reading.arrival;
  reading_bytes_ -= reading.size_bytes;
  carried_bytes_ += reading.size_bytes;
  window_.Measure(reading.size_bytes, nic_->executor()->Now() - reading.posted,
                  carried_bytes_ - reading.carried_bytes);
  CountWindow(window_.bytes());
  if (nic_->counts() != nullptr) {
    ++nic_->counts()->reads;
    nic_->counts()->received_bytes += reading.size_bytes;
  }
  --arrival->reads;
  if (reading.block) {
    Copy(reading);
  } else if (arrival->landing) {
    arrival->landing->EndWrites(1);
  }
  if (arrival->reads == 0 && IsRevoked(*arrival)) ForgetRegions(arrival);
  const bool posted = arrival->part == arrival->parts.size();
  if (posted && arrival->reads == 0) Finish(arrival);
  return bs::Status::Ok();
}

void RdmaInbound::ForgetRegions(Arrival* arrival) {
  for (Part& part : arrival->parts) part.region.reset();
}

void RdmaInbound::CountWindow(uint64_t bytes) {
  const uint64_t more = bytes - std::exchange(counted_window_bytes_, bytes);  // modulo 2^64
  if (nic_->counts() != nullptr) nic_->counts()->window_bytes += more;
}

void RdmaInbound::Copy(const Reading& reading) {
  if (IsRevoked(*reading.arrival)) return;
  std::byte* const to = reading.arrival->parts[reading.part].memory.data() + reading.offset;
  std::memcpy(to, reading.block.bytes().data(), reading.size_bytes);
  if (nic_->counts() != nullptr) nic_->counts()->moved_bytes += reading.size_bytes;
}

void RdmaInbound::Finish(Arrival* arrival) {
  arrival->whole = true;
  ForgetRegions(arrival);
  if (arrival->advert) released_.push_back(arrival->id);
  if (arrival->wrong.ok() && IsFused(arrival->meta)) return TakeApartFused(arrival);
  HandUp(arrival->meta.priority);
}

// Each has a priority of its own.
void RdmaInbound::TakeApartFused(Arrival* arrival) {
  const auto take = [this](bs::Result<Message> one) {
    if (!one.ok()) return listener_.on_message(std::move(one));
    Arrival& apart = arrivals_.emplace_back();
    apart.meta = std::move(one.value().meta);
    for (Frame& frame : one.value().data) apart.parts.emplace_back().frame = std::move(frame);
    apart.whole = true;
    const int32_t priority = apart.meta.priority;
    by_priority_[priority].push_back(&apart);
    HandUp(priority);
  };
  HandOut(TakeMessage(arrival), listener_.known(), take);
}

void RdmaInbound::HandUp(int32_t priority) {
  // Messages before it may still be coming.
  std::deque<Arrival*>& same = by_priority_[priority];
  while (!same.empty() && same.front()->whole) {
    Arrival* const first = same.front();
    same.pop_front();
    const bs::Status wrong = first->wrong;
    const bool revoked = IsRevoked(*first);
    Message message = TakeMessage(first);
    if (!wrong.ok()) {
      listener_.on_message(wrong);
    } else if (!revoked) {
      listener_.on_message(std::move(message));
    }
  }
  if (same.empty()) by_priority_.erase(priority);
}

Message RdmaInbound::TakeMessage(Arrival* arrival) {
  Message message;
  message.meta = std::move(arrival->meta);
  for (Part& part : arrival->parts) {
    const bool placed = arrival->landing != nullptr;
    message.data.push_back(placed ? Frame::Borrow(part.memory, {}) : std::move(part.frame));
  }
  arrivals_.remove_if([&](const Arrival& one) { return &one == arrival; });
  return message;
}

void RdmaInbound::OnTurnOver() {
  bs::Status over = PostReads();
  if (over.ok()) over = TellSender();
  if (!over.ok()) listener_.on_broken(over);
}

bs::Status RdmaInbound::TellSender() {
  while (channel_->CanSend() && (!released_.empty() || channel_->owes_much())) {
    const std::span<std::byte> room = channel_->Room();
    const size_t count = std::min({released_.size(), kMostIds, room.size() / kRdmaIdBytes});
    for (size_t i = 0; i < count; ++i) WriteRdmaId(released_[i], room.subspan(i * kRdmaIdBytes));
    released_.erase(released_.begin(), released_.begin() + static_cast<ptrdiff_t>(count));
    adverts_ -= count;
    bs::Status sent =
        channel_->Send({.kind = RdmaHeader::Kind::kControl, .count = static_cast<uint32_t>(count)},
                       count * kRdmaIdBytes, true);
    if (!sent.ok()) return sent;
  }
  return bs::Status::Ok();
}

}  // namespace ps
