// PsMembership: the membership of a worker that the scheduler node lists, with the network on which
// its messages travel.
#pragma once

#include <memory>
#include <string>

#include "backend/ps/ps_backend.h"
#include "base/log.h"
#include "config/config.h"
#include "job/membership.h"
#include "node/kept_memory.h"
#include "node/network.h"
#include "ps/membership.h"

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
  // Its registrations end in Close.
  KeptMemory* kept_memory() { return &kept_memory_; }
  // Gives the messages of servers to `backend`, from now to Close, which it outlives.  On the
  // executor.
  void DeliverTo(backend::PsBackend* backend) { backend_ = backend; }

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
  backend::PsBackend* backend_ = nullptr;
};

}  // namespace bs::node
