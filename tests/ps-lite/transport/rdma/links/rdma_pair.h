// RdmaPair: the two halves of a link over simulated NICs, in one thread and simulated time.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "sim/sim_executor.h"
#include "transport/rdma/rdma_inbound.h"
#include "transport/rdma/rdma_link.h"
#include "transport/rdma/rdma_nic.h"
#include "transport/send_queue.h"
#include "transport/tcp/block_pool.h"

namespace ps::testing {

class RdmaPair {
 public:
  struct Options {
    uint64_t seed = 1;
    RdmaOptions rdma{};  // of both; device and verbs are filled in
    uint64_t fusion_bytes = 16U << 10U;
    NicOptions nic{};
  };

  explicit RdmaPair(const Options& options)
      : options_(options),
        clock_(options.seed),
        executor_(&clock_),
        fabric_({.seed = options.seed, .threaded = false}) {
    for (const char* const name : {"sim0", "sim1"}) {
      verbs_.push_back(fabric_.Add(name, options.nic));
      RdmaOptions own = options.rdma;
      own.verbs = verbs_.back();
      own.device = name;
      own.path.gid_index = 1;
      own.counts = std::make_shared<RdmaCounts>();
      const RdmaNic::Loop loop{.executor = &executor_,
                               .watch = [this](int fd, const std::function<void()>& on_readable) {
                                 watched_.erase(fd);
                                 if (on_readable) watched_.emplace(fd, on_readable);
                               }};
      auto nic = RdmaNic::Open(loop, own, bs::Logger("", bs::LogLevel::kOff));
      EXPECT_TRUE(nic.ok()) << nic.status().ToString();
      nics_.push_back(std::move(nic.value()));
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
  bool Step() {
    bool moved = fabric_.Step();
    std::vector<pollfd> fds;
    for (const auto& [fd, on_readable] : watched_) fds.push_back({fd, POLLIN, 0});
    if (::poll(fds.data(), fds.size(), 0) > 0) {
      for (const pollfd& one : fds) {
        const auto watch = watched_.find(one.fd);
        if (one.revents == 0 || watch == watched_.end()) continue;
        const auto on_readable = watch->second;
        on_readable();
        moved = true;
      }
    }
    return clock_.RunUntil(clock_.Now() + std::chrono::microseconds(1)) > 0 || moved;
  }
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
  SimulatedFabric& fabric() { return fabric_; }
  SendQueue& queue() { return queue_; }
  bs::sim::SimClock& clock() { return clock_; }

 private:
  void Pump() {
    if (!link_ || !link_->proved() || !broken_.ok()) return;
    const bs::Status pumped = link_->Pump(&queue_);
    if (!pumped.ok() && broken_.ok()) broken_ = pumped;
  }

  const Options options_;
  bs::sim::SimClock clock_;
  bs::sim::SimExecutor executor_;
  SimulatedFabric fabric_;
  std::vector<std::shared_ptr<SimulatedNic>> verbs_;
  std::map<int, std::function<void()>> watched_;
  std::vector<std::unique_ptr<RdmaNic>> nics_;
  const std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>();
  bs::Status broken_;
  SendQueue queue_;
  std::unique_ptr<RdmaLink> link_;
  std::unique_ptr<RdmaInbound> inbound_;
};

}  // namespace ps::testing
