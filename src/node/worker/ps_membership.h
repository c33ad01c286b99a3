// PsMembership: the membership of a worker that the scheduler node lists, with the network on which
// its messages travel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "config/config.h"
#include "job/membership.h"
#include "node/kept_memory.h"
#include "node/network.h"
#include "ps/membership.h"
#include "ps/message.h"
#include "ps/transport.h"

namespace bs::node {

// Its executor is the network's thread, "bs-io", beside the sockets, so that messages do not wait
// for another thread to wake up.  Close releases every frame of the caller's memory.
class PsMembership final : public job::Membership {
 public:
  // `log`: of MakeNetworkLogger.
  PsMembership(const Config& config, const ps::MembershipOptions& options, ps::RdmaOptions rdma,
               Logger log);
  // REQUIRES: Close() has returned.
  ~PsMembership() override = default;

  Network* network() { return network_.get(); }
  // No worker is MXNet's own.  REQUIRES: there is a view.
  bool all_native() const { return all_native_; }
  // Its registrations end in Close.
  KeptMemory* kept_memory() { return &kept_memory_; }
  // The part of a worker that gets its messages; as in ps::Member::Handler.
  struct Receiver {
    std::function<void(ps::Message message)> on_message;
    std::function<std::shared_ptr<ps::Landing>(int32_t peer, const ps::Meta& meta,
                                               uint64_t size_bytes)>
        place;
    std::function<void(int32_t rank, const Status& why)> on_worker_left{};
  };
  // Gives the data messages to `receiver`, from now to Close.  On the executor.
  void DeliverTo(Receiver receiver) { receiver_ = std::move(receiver); }

  Executor* executor() override { return network_->io(); }
  void Join(Handler handler) override;
  job::SharedView view() const override { return view_; }
  std::string place() const override { return place_; }
  void Barrier(Done done) override;
  void Fail(const Status& why) override;
  void Leave(const Goodbye& goodbye, Done done) override;
  Status Close() override;

 private:
  ps::Member::Handler MakeHandler();
  void OnReady(Result<ps::View> listed);

  const Logger log_;
  const std::unique_ptr<Network> network_;
  KeptMemory kept_memory_;
  // On the executor.
  std::unique_ptr<ps::Member> member_;  // null once closed
  Handler handler_;
  job::SharedView view_;
  std::string place_;
  bool all_native_ = false;
  Receiver receiver_{};
};

}  // namespace bs::node
