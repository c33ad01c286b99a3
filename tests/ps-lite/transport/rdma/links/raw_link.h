// RawLink: one end of a link by RDMA that sends what a test likes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/links/rdma_pair.h"
#include "transport/rdma/rdma_offer.h"
#include "transport/rdma/rdma_packet.h"

namespace ps::test {

class RawLink {
 public:
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kSlotBytes = 2048;
  static constexpr uint32_t kSends = 384;  // ever

  // `nic` outlives it.
  explicit RawLink(RdmaNic* nic)
      : device_(nic->device()),
        memory_((kSlots + kSends) * kSlotBytes),
        region_(std::move(device_->Register(memory_, VerbsDevice::Access::kBoth).value())),
        queue_pair_(std::move(
            device_->Create({.gid_index = 1}, {.sends = kSends, .receives = kSlots}).value())) {
    for (uint32_t i = 0; i < kSlots; ++i) {
      EXPECT_TRUE(queue_pair_->PostReceive(0, Piece(kSends + i, kSlotBytes)).ok());
    }
  }

  RdmaOffer offer() const {
    return {.address = queue_pair_->address(),
            .mtu_bytes = 1024,
            .reads = 4,
            .slots = kSlots,
            .slot_bytes = kSlotBytes,
            .token = token_};
  }
  // Connects to the end that has made `line`: an answer to the offer, or an offer.
  void Join(std::string_view line) {
    const RdmaOffer peer = ParseRdmaOffer(line).value();
    const QueuePairTerms terms{.mtu_bytes = 1024, .reads = 1, .answered_reads = peer.reads};
    EXPECT_TRUE(queue_pair_->Receive(peer.address, terms).ok());
    EXPECT_TRUE(queue_pair_->Activate().ok());
  }
  // One SEND; false if the queue pair takes none any more.
  bool Send(const RdmaHeader& header, const std::vector<RdmaFrame>& frames = {},
            std::string_view rest = {}) {
    std::vector<std::byte> bytes(RdmaHeader::kBytes + frames.size() * RdmaFrame::kBytes);
    WriteRdmaHeader(header, bytes);
    for (size_t i = 0; i < frames.size(); ++i) {
      WriteRdmaFrame(frames[i],
                     std::span(bytes).subspan(RdmaHeader::kBytes + i * RdmaFrame::kBytes));
    }
    const auto tail = std::as_bytes(std::span(rest));
    bytes.insert(bytes.end(), tail.begin(), tail.end());
    return Send(bytes);
  }
  bool Send(std::span<const std::byte> bytes) {
    if (sent_ == kSends) return false;
    const auto size_bytes = static_cast<uint32_t>(std::min<size_t>(bytes.size(), kSlotBytes));
    const std::array piece = {Piece(sent_++, size_bytes)};
    std::copy_n(bytes.begin(), size_bytes, piece[0].data);
    return queue_pair_->PostSend({.id = 0, .pieces = piece}).ok();
  }
  bool SendProof() { return SendProof(token_); }
  bool SendProof(const RdmaToken& token) {
    return Send({.kind = RdmaHeader::Kind::kProof}, {},
                {reinterpret_cast<const char*>(token.data()), token.size()});
  }
  // Says that these adverts are read.
  bool SendReleases(const std::vector<uint32_t>& ids) {
    std::string rest(ids.size() * kRdmaIdBytes, '\0');
    for (size_t i = 0; i < ids.size(); ++i) {
      WriteRdmaId(ids[i], std::as_writable_bytes(std::span(rest)).subspan(i * kRdmaIdBytes));
    }
    return Send({.kind = RdmaHeader::Kind::kControl, .count = static_cast<uint32_t>(ids.size())},
                {}, rest);
  }
  // The state of errors.
  void Abandon() { queue_pair_->Abandon(); }

 private:
  RdmaPiece Piece(size_t slot, uint32_t size_bytes) {
    return {.data = memory_.data() + slot * kSlotBytes,
            .size_bytes = size_bytes,
            .local_key = region_->local_key()};
  }

  VerbsDevice* const device_;
  const RdmaToken token_ = {std::byte{1}, std::byte{2}};
  uint32_t sent_ = 0;
  std::vector<std::byte> memory_;
  const std::unique_ptr<RdmaRegion> region_;
  const std::unique_ptr<QueuePair> queue_pair_;
};

}  // namespace ps::test
