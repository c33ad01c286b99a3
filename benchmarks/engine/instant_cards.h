// InstantVerbs: RDMA cards that cost next to nothing, so that a benchmark times the code above
// them.
//
// A SEND is there at once.  Of a READ only the front is copied, as a card copies without the
// processor.  Nothing is checked: tests have cards that check.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/rdma/verbs.h"

namespace bench {

class InstantPair;

// The two ends find each other by number.
struct InstantNetwork {
  uint32_t next_number = 1;
  std::map<uint32_t, InstantPair*> pairs;
};

struct InstantQueue {
  std::deque<ps::Completion> completions;
};

class InstantRegion final : public ps::RdmaRegion {
 public:
  uint32_t local_key() const override { return 1; }
  uint32_t remote_key() const override { return 1; }
};

class InstantPair final : public ps::QueuePair {
 public:
  InstantPair(InstantNetwork* network, InstantQueue* queue) : network_(network), queue_(queue) {
    address_.number = network->next_number++;
    address_.layer = ps::RdmaLayer::kEthernet;
    network_->pairs[address_.number] = this;
  }
  ~InstantPair() override { network_->pairs.erase(address_.number); }

  const ps::QueuePairAddress& address() const override { return address_; }
  uint32_t inline_bytes() const override { return 220; }
  bs::Status Receive(const ps::QueuePairAddress& peer, const ps::QueuePairTerms&) override {
    peer_ = network_->pairs.at(peer.number);
    return {};
  }
  bs::Status Activate() override { return {}; }
  void Abandon() override {}
  bs::Status PostReceive(uint64_t id, const ps::RdmaPiece& memory) override {
    receives_.emplace_back(id, memory);
    return {};
  }
  bs::Status PostSend(const Send& send) override {
    const auto [id, memory] = peer_->receives_.front();
    peer_->receives_.pop_front();
    uint32_t size = 0;
    for (const ps::RdmaPiece& piece : send.pieces) {
      std::memcpy(memory.data + size, piece.data, piece.size_bytes);
      size += piece.size_bytes;
    }
    peer_->queue_->completions.push_back({.id = id,
                                          .kind = ps::Completion::Kind::kReceive,
                                          .size_bytes = size,
                                          .queue_pair = peer_->address_.number});
    if (send.signalled) Complete(send.id, ps::Completion::Kind::kSend);
    return {};
  }
  bs::Status PostRead(uint64_t id, const ps::RdmaPiece& memory, uint64_t remote_address,
                      uint32_t) override {
    std::memcpy(memory.data, reinterpret_cast<const void*>(remote_address),
                std::min(memory.size_bytes, 64U));
    Complete(id, ps::Completion::Kind::kRead);
    return {};
  }

 private:
  void Complete(uint64_t id, ps::Completion::Kind kind) {
    queue_->completions.push_back({.id = id, .kind = kind, .queue_pair = address_.number});
  }

  InstantNetwork* const network_;
  InstantQueue* const queue_;
  ps::QueuePairAddress address_;
  InstantPair* peer_ = nullptr;
  std::deque<std::pair<uint64_t, ps::RdmaPiece>> receives_;
};

class InstantDevice final : public ps::VerbsDevice {
 public:
  InstantDevice(InstantNetwork* network, ps::RdmaDevice facts)
      : network_(network), facts_(std::move(facts)) {}
  const ps::RdmaDevice& facts() const override { return facts_; }
  bs::Result<std::unique_ptr<ps::RdmaRegion>> Register(std::span<std::byte>, Access) override {
    return std::unique_ptr<ps::RdmaRegion>(std::make_unique<InstantRegion>());
  }
  bs::Result<std::unique_ptr<ps::QueuePair>> Create(const ps::RdmaPath&,
                                                    const ps::QueuePairLimits&) override {
    return std::unique_ptr<ps::QueuePair>(std::make_unique<InstantPair>(network_, &queue_));
  }
  int completion_fd() const override { return -1; }
  bs::Status Rearm() override { return {}; }
  bs::Result<size_t> Poll(std::span<ps::Completion> completions) override {
    size_t count = 0;
    for (; count < completions.size() && !queue_.completions.empty(); ++count) {
      completions[count] = queue_.completions.front();
      queue_.completions.pop_front();
    }
    return count;
  }
  int event_fd() const override { return -1; }
  std::optional<ps::RdmaEvent> TakeEvent() override { return std::nullopt; }

 private:
  InstantNetwork* const network_;
  const ps::RdmaDevice facts_;
  InstantQueue queue_;
};

class InstantVerbs final : public ps::Verbs {
 public:
  explicit InstantVerbs(InstantNetwork* network) : network_(network) {}
  bs::Result<std::vector<ps::RdmaDevice>> Devices() override { return std::vector{Facts()}; }
  ps::RdmaFork fork() override { return ps::RdmaFork::kHarmless; }
  bs::Result<std::unique_ptr<ps::VerbsDevice>> Open(const std::string&, uint32_t) override {
    return std::unique_ptr<ps::VerbsDevice>(std::make_unique<InstantDevice>(network_, Facts()));
  }

 private:
  static ps::RdmaDevice Facts() {
    ps::RdmaPort port{.layer = ps::RdmaLayer::kEthernet, .active = true, .state = "ACTIVE"};
    port.mtu_bytes = 4096;
    port.gids = {{.index = 0, .bytes = {std::byte{1}}, .type = ps::RdmaGid::Type::kRoceV2}};
    return {.name = "instant0",
            .ports = {port},
            .most_reads = 16,
            .most_answered_reads = 16,
            .most_completions = 1U << 15U,
            .most_queue_entries = 4096,
            .most_region_bytes = ~uint64_t{0}};
  }

  InstantNetwork* const network_;
};

}  // namespace bench
