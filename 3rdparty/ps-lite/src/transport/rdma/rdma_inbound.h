// RdmaInbound: the receiver's half of a link by RDMA, beside the TCP connection that a peer opened.
//
// Short messages come in slots.  Longer messages are adverts: the data is read when it is the
// message's turn, the most urgent first, and only a window of it is under way.  Messages of equal
// priority are handed up in the order of Send.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ps/message.h"
#include "ps/transport.h"
#include "transport/rdma/rdma_channel.h"
#include "transport/rdma/rdma_nic.h"
#include "transport/rdma/rdma_window.h"

namespace ps {

// Belongs to the executor of its RdmaNic.
class RdmaInbound final : public RdmaEnd {
 public:
  // READs are cut at pages of the sender.
  static constexpr uint64_t kPageBytes = RdmaMemory::kPageBytes;

  struct Listener {
    // A message, or its fault; without its peer.
    std::function<void(bs::Result<Message> message)> on_message;
    // See Transport::Handler; about the other end.
    std::function<std::shared_ptr<Landing>(const Meta& meta, uint64_t size_bytes)> place;
    std::function<bool()> known;
    std::function<uint64_t(const Meta& meta)> most_bytes;
    // Called once; may destroy the RdmaInbound.
    std::function<void(const bs::Status& why)> on_broken;
  };

  // Returns a frame of a size, not filled, and where to write in `memory`; empty if there is none.
  using NewFrame = std::function<Frame(size_t size_bytes, std::span<std::byte>* memory)>;
  // Takes the offer of the other end.  `new_frame`: for data that cannot lie in registered memory.
  static bs::Result<std::unique_ptr<RdmaInbound>> Take(RdmaNic* nic, std::string_view offer,
                                                       NewFrame new_frame, Listener listener);
  // Used by Take.
  RdmaInbound(RdmaNic* nic, NewFrame new_frame, Listener listener);
  RdmaInbound(const RdmaInbound&) = delete;
  RdmaInbound& operator=(const RdmaInbound&) = delete;
  ~RdmaInbound() override;

  // The line that answers the offer.
  std::string answer() const;
  bool proved() const { return proved_; }
  // The peer has sent something besides its proof.
  bool used() const { return used_; }
  Completion::Result failure() const { return channel_->failure(); }
  // A message has begun and is not whole.
  bool unfinished() const { return !arrivals_.empty(); }

  bs::Status OnCompletion(const Completion& completion) override {
    return channel_->OnCompletion(completion);
  }
  void OnTurnOver() override;
  void OnBroken(const bs::Status& why) override { listener_.on_broken(why); }

 private:
  // A data frame that is coming.
  struct Part {
    RdmaFrame from{};
    std::span<std::byte> memory{};
    Frame frame{};           // owns `memory`, unless that is a landing
    uint32_t local_key = 0;  // valid if `region` or `registered`
    std::shared_ptr<const RdmaRegion> region{};
    bool registered = false;  // else it is read into blocks and copied
  };
  // A message that is coming.
  struct Arrival {
    bool advert = false;
    uint32_t id = 0;  // of the advert
    size_t meta_bytes = 0;
    std::string meta_text{};
    Meta meta{};
    bs::Status wrong{};  // only the message is refused
    std::vector<Part> parts{};
    std::shared_ptr<Landing> landing{};
    bool placed = false;  // memory is taken
    bool whole = false;
    // The next byte to read or to receive.
    size_t part = 0;
    uint64_t offset = 0;
    uint32_t reads = 0;  // under way
  };
  using Arrivals = std::list<Arrival>;
  // Most urgent first, then in the order of Send.
  using Place = std::pair<int64_t, uint64_t>;
  // A READ under way.
  struct Reading {
    Arrival* arrival = nullptr;  // null: this index is free
    size_t part = 0;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
    RdmaMemory::Block block{};  // to copy from; empty: it goes where it belongs
    bs::TimePoint posted{};
    uint64_t carried_bytes = 0;  // by all READs before
  };

  bs::Status OnPacket(const RdmaPacket& packet);
  bs::Status OnProof(const RdmaPacket& packet);
  bs::Status OnBegin(const RdmaPacket& packet);
  // Takes bytes of the message that has begun from the front of `bytes`.
  bs::Status OnBytes(std::span<const std::byte> bytes);
  bs::Status OnMeta(Arrival* arrival);
  bs::Status OnData(Arrival* arrival, std::span<const std::byte>* bytes);
  void CheckData(Arrival* arrival) const;
  // Takes memory for the data.
  bs::Status PlaceData(Arrival* arrival);
  // False if there is no memory.
  bool PlacePart(Part* part) const;
  // Copies the bytes to there; false if there is no memory.
  bool Fill(Part* part, uint64_t offset, std::span<const std::byte> bytes) const;
  // All bytes that are to come have come.
  void EndStream();
  bs::Status OnRead(uint32_t index);
  void Copy(const Reading& reading);
  // Posts the READs that may be under way.
  bs::Status PostReads();
  bs::Status PostRead(uint32_t index, Arrival* arrival, bool* posted);
  static bool IsRevoked(const Arrival& arrival) {
    return arrival.landing && arrival.landing->revoked;
  }
  // No READ into a landing is under way or will be: its owner may give the memory away.
  static void ForgetRegions(Arrival* arrival);
  // The arrival needs no READ any more.
  void Finish(Arrival* arrival);
  void TakeApartFused(Arrival* arrival);
  // Hands up the messages of this priority that have come, in order.
  void HandUp(int32_t priority);
  Message TakeMessage(Arrival* arrival);
  bs::Status TellSender();
  // Makes the counts show a window of `bytes`.
  void CountWindow(uint64_t bytes);

  RdmaNic* const nic_;
  const NewFrame new_frame_;
  const Listener listener_;
  RdmaOffer offer_{};
  uint32_t most_reads_ = 0;
  bool proved_ = false;
  bool used_ = false;
  std::unique_ptr<RdmaChannel> channel_;

  Arrivals arrivals_;             // in the order of Send
  Arrival* streaming_ = nullptr;  // has begun, and its bytes come in slots
  std::map<int32_t, std::deque<Arrival*>> by_priority_;
  uint64_t next_place_ = 0;
  std::map<Place, Arrival*> to_read_;  // adverts with bytes that no READ is posted for
  std::vector<Reading> readings_;
  uint64_t reading_bytes_ = 0;
  uint64_t carried_bytes_ = 0;  // by READs that have ended
  RdmaWindow window_;
  uint64_t counted_window_bytes_ = 0;
  std::vector<uint32_t> released_;
  size_t adverts_ = 0;  // that came, and that the sender does not know to be released
};

}  // namespace ps
