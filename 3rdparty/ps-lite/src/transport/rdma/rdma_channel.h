// RdmaChannel: a queue pair with its slots and credits, for an end of a link.
//
// Each end has slots ready for SENDs of the other.  A SEND takes a credit; the credit comes back
// with a later SEND of the other end, once the slot is ready again.  The last credit is kept for a
// SEND that gives credits back: otherwise both ends could wait for ever.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/rdma/rdma_memory.h"
#include "transport/rdma/rdma_nic.h"
#include "transport/rdma/rdma_offer.h"
#include "transport/rdma/rdma_packet.h"
#include "transport/rdma/rdma_ring.h"
#include "transport/rdma/verbs.h"

namespace ps {

// Belongs to the executor of its RdmaNic.  After a call that is not ok the link is broken.
class RdmaChannel {
 public:
  struct Size {
    uint32_t slots = 0;
    uint32_t slot_bytes = 0;
    uint32_t reads = 0;  // that this end may have under way
  };
  struct Listener {
    std::function<bs::Status(const RdmaPacket& packet)> on_packet;
    // The READ with this index has ended.
    std::function<bs::Status(uint32_t index)> on_read{};
  };

  // Makes the queue pair, with its slots ready.  `end` gets the completions, and outlives this.
  static bs::Result<std::unique_ptr<RdmaChannel>> Create(RdmaNic* nic, RdmaEnd* end,
                                                         const Size& size, Listener listener);
  // Used by Create.
  RdmaChannel(RdmaNic* nic, const Size& size, Listener listener);
  RdmaChannel(const RdmaChannel&) = delete;
  RdmaChannel& operator=(const RdmaChannel&) = delete;
  // Afterwards the NIC touches no memory of this link.
  ~RdmaChannel();

  // The facts that the other end must know; without reads and token.
  RdmaOffer offer() const;
  // Connects to the queue pair of `peer`.  It answers up to `reads` READs at a time, and this end
  // answers up to `answered_reads` of its READs.
  bs::Status Join(const RdmaOffer& peer, uint32_t reads, uint32_t answered_reads);
  bool joined() const { return joined_; }

  // True if a SEND may go now.
  bool CanSend() const;
  // Where its bytes go, behind the room for the header.  REQUIRES: CanSend.
  std::span<std::byte> Room();
  // Sends the header and the first `size_bytes` of Room().  `last`: no other follows at once.
  bs::Status Send(RdmaHeader header, size_t size_bytes, bool last);
  // Every SEND is at the other end.
  bool all_sent() const { return sent_ == done_; }
  // Credits that a SEND would give back.
  uint32_t owed() const { return owed_; }
  // True if the other end may soon lack credits.
  bool owes_much() const { return owed_ >= size_.slots / 2; }

  // REQUIRES: fewer READs are under way than Join said.
  bs::Status Read(uint32_t index, const RdmaPiece& memory, uint64_t address, uint32_t key);

  bs::Status OnCompletion(const Completion& completion);
  uint32_t number() const { return number_; }
  // Result of the first completion that was not ok; kOk: all were.
  Completion::Result failure() const { return failure_; }
  // Breaks the posts under way, so that the other end hears of it too.
  void Abandon() { queue_pair_->Abandon(); }

 private:
  enum class What : uint32_t { kReceive, kSend, kRead };
  uint64_t IdOf(What what, uint32_t index) const;
  bs::Status PostSlot(uint32_t slot);
  bs::Status OnReceived(uint32_t slot, uint32_t size_bytes);
  RdmaNic* const nic_;
  const Size size_;
  const Listener listener_;
  uint32_t number_ = 0;  // 0: not yet with the nic
  RdmaMemory::Block slots_;
  RdmaMemory::Block sends_;  // memory of the SENDs under way
  RdmaRing ring_;            // which of it is in use
  std::unique_ptr<QueuePair> queue_pair_;
  bool joined_ = false;
  uint32_t most_sends_ = 0;   // under way
  uint32_t send_bytes_ = 0;   // the most that a SEND has
  size_t quiet_bytes_ = 0;    // of the ring, since a SEND was signalled
  uint32_t quiet_sends_ = 0;  // since then
  uint64_t sent_ = 0;
  uint64_t done_ = 0;     // of sent_, how many need their part of the ring no more
  uint32_t credits_ = 0;  // slots of the other end that are ready
  uint32_t peer_slots_ = 0;
  uint32_t owed_ = 0;
  Completion::Result failure_ = Completion::Result::kOk;
};

}  // namespace ps
