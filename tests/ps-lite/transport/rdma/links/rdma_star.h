// RdmaStar: a server with links to and from each of its workers, over simulated NICs.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/links/simulated_loop.h"
#include "transport/rdma/rdma_inbound.h"
#include "transport/rdma/rdma_link.h"
#include "transport/send_queue.h"
#include "transport/tcp/block_pool.h"

namespace ps::test {

class RdmaStar {
 public:
  // `on_message`: what comes at the server.  What comes at a worker is dropped.  `rdma`: of all;
  // device and verbs are filled in.
  RdmaStar(size_t workers, std::function<void(Message message)> on_message,
           const RdmaOptions& rdma = {})
      : server_(loop_.AddNode("server", rdma, {})) {
    for (size_t i = 0; i < workers; ++i) {
      nics_.push_back(loop_.AddNode("worker" + std::to_string(i), rdma, {}));
      pushes_.push_back(std::make_unique<Direction>(nics_[i].get(), server_.get(), on_message));
      pulls_.push_back(std::make_unique<Direction>(server_.get(), nics_[i].get(), [](Message) {}));
    }
  }
  RdmaStar(const RdmaStar&) = delete;
  RdmaStar& operator=(const RdmaStar&) = delete;
  ~RdmaStar() = default;

  // Every link is proved.
  bool AwaitLinks() {
    return Await([this] {
      const auto proved = [](const auto& one) { return one->link->proved(); };
      return std::ranges::all_of(pushes_, proved) && std::ranges::all_of(pulls_, proved);
    });
  }
  void Push(size_t worker, Message message) { pushes_.at(worker)->Send(std::move(message)); }
  void Pull(size_t worker, Message message) { pulls_.at(worker)->Send(std::move(message)); }
  // Nothing is under way.
  bool idle() const {
    const auto idle = [](const auto& one) { return one->queue.empty() && one->link->idle(); };
    return std::ranges::all_of(pushes_, idle) && std::ranges::all_of(pulls_, idle);
  }
  // Steps until `over`; false if that does not come.
  bool Await(const std::function<bool()>& over) {
    for (int i = 0; i < 10'000'000 && !over(); ++i) {
      if (!loop_.Step()) break;
    }
    return over();
  }

  RdmaNic* server() const { return server_.get(); }
  RdmaNic* worker(size_t i) const { return nics_.at(i).get(); }

 private:
  // A link from one node to another.
  struct Direction {
    Direction(RdmaNic* from, RdmaNic* to, std::function<void(Message message)> on_message) {
      const auto broken = [](const bs::Status& why) { ADD_FAILURE() << why.ToString(); };
      link = std::move(
          RdmaLink::Create(from, {}, {.on_turn = [this] { Pump(); }, .on_broken = broken}).value());
      RdmaInbound::Listener listener{
          .on_message = [does = std::move(on_message)](
                            bs::Result<Message> message) { does(std::move(message.value())); },
          .place = {},
          .known = [] { return true; },
          .most_bytes = [](const Meta&) { return kMaxMessageBytes; },
          .on_broken = broken};
      const auto new_frame = [blocks = blocks](size_t size, std::span<std::byte>* memory) {
        return blocks->New(size, memory);
      };
      inbound =
          std::move(RdmaInbound::Take(to, link->offer(), new_frame, std::move(listener)).value());
      EXPECT_TRUE(link->OnTaken(inbound->answer()).ok());
    }
    void Send(Message message) {
      queue.Add(std::move(message));
      Pump();
    }
    void Pump() { EXPECT_TRUE(!link->proved() || link->Pump(&queue).ok()); }

    const std::shared_ptr<BlockPool> blocks = std::make_shared<BlockPool>();
    SendQueue queue;
    std::unique_ptr<RdmaLink> link;
    std::unique_ptr<RdmaInbound> inbound;
  };

  SimulatedLoop loop_{1};
  const std::shared_ptr<RdmaNic> server_;
  std::vector<std::shared_ptr<RdmaNic>> nics_;
  std::vector<std::unique_ptr<Direction>> pushes_;
  std::vector<std::unique_ptr<Direction>> pulls_;
};

}  // namespace ps::test
