// RdmaLink: the sender's half of a link by RDMA, beside the TCP connection that made it.
//
// Short messages are sent whole.  A longer message is sent as an advert: the receiver READs the
// data, then releases the advert.  So only adverts are ahead of an urgent message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "ps/message.h"
#include "ps/transport.h"
#include "transport/rdma/rdma_channel.h"
#include "transport/rdma/rdma_nic.h"
#include "transport/send_queue.h"

namespace ps {

// Belongs to the executor of its RdmaNic.
class RdmaLink final : public RdmaEnd {
 public:
  struct Options {
    uint64_t fusion_bytes = 0;           // see TcpOptions
    std::shared_ptr<SentCounts> sent{};  // may be null
  };
  struct Listener {
    std::function<void()> on_turn;  // Pump may do more, or `proved` has changed
    // Called once; may destroy the link.
    std::function<void(const bs::Status& why)> on_broken;
  };

  // Makes the queue pair that `offer` tells of.
  static bs::Result<std::unique_ptr<RdmaLink>> Create(RdmaNic* nic, Options options,
                                                      Listener listener);
  // Used by Create.
  RdmaLink(RdmaNic* nic, Options options, Listener listener);
  RdmaLink(const RdmaLink&) = delete;
  RdmaLink& operator=(const RdmaLink&) = delete;
  // Drops the messages under way.
  ~RdmaLink() override;

  std::string offer() const;
  // The other end has taken the offer; the proof is sent.  Not ok: there is no link.
  bs::Status OnTaken(std::string_view answer);
  // Both ends have seen that packets pass.
  bool proved() const { return proved_; }
  Completion::Result failure() const { return channel_->failure(); }
  // Sends the messages that may go now, most urgent first.  REQUIRES: proved.  Not ok: the link is
  // broken.
  bs::Status Pump(SendQueue* queue);
  // Nothing is under way.
  bool idle() const { return !stream_ && adverts_.empty() && channel_->all_sent(); }
  // Like SendQueue::waiting_bytes, of adverts that are not released.
  uint64_t waiting_bytes() const { return waiting_bytes_; }

  bs::Status OnCompletion(const Completion& completion) override {
    return channel_->OnCompletion(completion);
  }
  void OnTurnOver() override { listener_.on_turn(); }
  void OnBroken(const bs::Status& why) override { listener_.on_broken(why); }

 private:
  // Bytes that are sent in order, in as many SENDs as they take.
  struct Stream {
    std::vector<Message> messages;  // which `pieces` show
    std::string meta;
    std::vector<std::span<const std::byte>> pieces;
    size_t next = 0;

    // Moves bytes to `out`; returns how many.
    size_t Fill(std::span<std::byte> out);
    bool over() const { return next == pieces.size(); }
  };
  // A message whose data the peer has not released.
  struct Advert {
    Message message;
    uint64_t waiting_bytes = 0;
    std::vector<std::shared_ptr<const RdmaRegion>> regions;
    std::vector<RdmaMemory::Block> bounces;
  };

  bs::Status OnPacket(const RdmaPacket& packet);
  bs::Status Release(uint32_t id);
  // Takes messages that fit into a slot together, or a single message.
  std::vector<Message> TakeFused(SendQueue* queue) const;
  bs::Status SendNext(SendQueue* queue);
  bs::Status SendMessages(std::vector<Message> messages, std::string meta, bool last);
  bs::Status SendAdvert(Message message, std::string meta, Advert advert,
                        const std::vector<RdmaFrame>& frames, bool last);
  bs::Status Begin(const RdmaHeader& header, const std::vector<RdmaFrame>& frames,
                   std::unique_ptr<Stream> stream, bool last);
  bs::Status GoOn(bool last);
  enum class Where { kShown, kNoRoom, kNowhere };
  // Shows the data of `message` to the peer: where it lies, or copied.
  Where Show(const Message& message, Advert* advert, std::vector<RdmaFrame>* frames);

  RdmaNic* const nic_;
  const Options options_;
  const Listener listener_;
  RdmaToken token_{};
  bool proved_ = false;
  size_t room_bytes_ = 0;  // of a SEND, behind its header
  std::unique_ptr<RdmaChannel> channel_;
  std::unique_ptr<Stream> stream_;  // a message that has begun and is not over
  uint32_t next_id_ = 1;
  uint64_t waiting_bytes_ = 0;
  bool blocked_ = false;  // the next message waits for a release or for bounce memory
  std::unordered_map<uint32_t, Advert> adverts_;  // by id
};

}  // namespace ps
