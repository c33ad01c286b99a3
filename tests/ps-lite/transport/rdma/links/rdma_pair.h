// RdmaPair: the two halves of a link over simulated NICs, in one thread and simulated time.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/links/simulated_loop.h"
#include "transport/rdma/rdma_inbound.h"
#include "transport/rdma/rdma_link.h"
#include "transport/send_queue.h"
#include "transport/tcp/block_pool.h"

namespace ps::test {

class RdmaPair {
 public:
  struct Options {
    uint64_t seed = 1;
    RdmaOptions rdma{};  // of both; device and verbs are filled in
    uint64_t fusion_bytes = 16U << 10U;
    NicOptions nic{};
  };

  explicit RdmaPair(const Options& options) : options_(options), loop_(options.seed) {
    for (const char* const name : {"sim0", "sim1"}) {
      nics_.push_back(loop_.AddNode(name, options.rdma, options.nic, &verbs_.emplace_back()));
    }
  }
  RdmaPair(const RdmaPair&) = delete;
  RdmaPair& operator=(const RdmaPair&) = delete;
  ~RdmaPair() { Break(); }

  // Makes a link; what the receiver hears goes to `receiver`, but for on_broken.  Not ok: one of
  // both does not want it.
  bs::Status Connect(RdmaInbound::Listener receiver) {
    broken_ = bs::Status::Ok();
    const auto break_later = [this](const bs::Status& why) {
      if (broken_.ok()) broken_ = why;
    };
    auto link = RdmaLink::Create(sender_nic(), {.fusion_bytes = options_.fusion_bytes},
                                 {.on_turn = [this] { Pump(); }, .on_broken = break_later});
    if (!link.ok()) return link.status();
    receiver.on_broken = break_later;
    auto inbound = RdmaInbound::Take(
        receiver_nic(), link.value()->offer(),
        [blocks = blocks_](size_t size, std::span<std::byte>* memory) {
          return blocks->New(size, memory);
        },
        std::move(receiver));
    if (!inbound.ok()) return inbound.status();
    bs::Status taken = link.value()->OnTaken(inbound.value()->answer());
    if (!taken.ok()) return taken;
    link_ = std::move(link.value());
    inbound_ = std::move(inbound.value());
    return taken;
  }
  // Destroys both ends, as a broken TCP connection does.
  void Break() {
    link_.reset();
    inbound_.reset();
  }

  void Send(Message message) {
    queue_.Add(std::move(message));
    Pump();
  }
  // Does one thing; false if there is nothing to do.
  bool Step() { return loop_.Step(); }
  // Steps until `over`; false if that does not come, or the link breaks.
  bool Await(const std::function<bool()>& over) {
    for (int i = 0; i < 1'000'000 && broken_.ok(); ++i) {
      if (over()) return true;
      if (!Step()) return over();
    }
    return false;
  }

  // Why the link is broken.
  const bs::Status& broken() const { return broken_; }
  RdmaLink* link() { return link_.get(); }
  RdmaInbound* inbound() { return inbound_.get(); }
  RdmaNic* sender_nic() { return nics_.at(0).get(); }
  RdmaNic* receiver_nic() { return nics_.at(1).get(); }
  SimulatedNic* verbs(size_t i) { return verbs_.at(i).get(); }
  SimulatedFabric& fabric() { return loop_.fabric(); }
  SendQueue& queue() { return queue_; }
  bs::sim::SimClock& clock() { return loop_.clock(); }

 private:
  void Pump() {
    if (!link_ || !link_->proved() || !broken_.ok()) return;
    const bs::Status pumped = link_->Pump(&queue_);
    if (!pumped.ok() && broken_.ok()) broken_ = pumped;
  }

  const Options options_;
  SimulatedLoop loop_;
  std::vector<std::shared_ptr<SimulatedNic>> verbs_;
  std::vector<std::shared_ptr<RdmaNic>> nics_;
  const std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>();
  bs::Status broken_;
  SendQueue queue_;
  std::unique_ptr<RdmaLink> link_;
  std::unique_ptr<RdmaInbound> inbound_;
};

}  // namespace ps::test
