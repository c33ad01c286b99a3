// HostBackend: a back end beside others on its host, which adds up there what crosses the link.
//
// Each partition of a synchronous key has an owner among the workers of the host (HostPlan).  The
// others send it their contributions, through the transport's shared memory where there is any, and
// get the sum from it.  Everything else goes to the back end behind: first values, keys in two
// bits, asynchronous keys, small tensors, declarations.
//
// No request and no response is trusted; one that does not fit is refused, or kInternal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/backend_before.h"
#include "backend/host/host_sums.h"
#include "backend/host_plan.h"
#include "backend/ps/ps_backend.h"
#include "base/executor.h"
#include "base/limited_log.h"
#include "base/log.h"
#include "base/unique_function.h"
#include "codec/codec.h"
#include "protocol/rules.h"
#include "ps/kv_worker.h"
#include "ps/message.h"
#include "ps/transport.h"

namespace bs::backend {

struct HostBackendOptions {
  job::SharedView view = job::ShareView({}, 1, 1);
  // Larger tensors are added up.
  uint64_t least_bytes = 0;
  const codec::Table* codecs = &codec::Builtin();  // not owned
  uint64_t credit_bytes = kFirstCreditBytes;
  bool deterministic = false;
  uint64_t hold_bytes = 0;
  // Calls that miss a worker which left wait so long for its reason, if it gave none: its launcher
  // learns the exit code a moment later.
  Duration reason_patience{};
  std::function<uint64_t()> available_bytes{};       // HostSumsOptions::available_bytes
  std::function<Carriers(int32_t peer)> carriers{};  // PsBackendOptions::carriers
  ps::KvWorkerOptions requests{};  // to workers; the back end sets roles and the rules of bodies
};

class HostBackend final : public BackendBefore {
 public:
  using SendFn = std::function<void(ps::Message)>;

  // `executor` is the worker's; it and the objects that `send` uses outlive this.  REQUIRES: the
  // host has several workers (HostPlan::in_use).
  HostBackend(const HostBackendOptions& options, std::unique_ptr<PsBackend> link,
              Executor* executor, SendFn send, const Logger& log,
              const protocol::Rules& rules = protocol::Rules());
  HostBackend(const HostBackend&) = delete;
  HostBackend& operator=(const HostBackend&) = delete;
  ~HostBackend() override;

  // Takes a message from a server, or from a worker of this host.  Thread-safe.
  void OnMessage(ps::Message message);
  // The worker of `rank` left because of `why`, and no message of it comes.  On the executor.
  void OnWorkerLeft(int32_t rank, const Status& why);
  // PsBackend::LandingFor.
  std::shared_ptr<ps::Landing> LandingFor(int32_t peer, const ps::Meta& meta, uint64_t size_bytes);

  Carriers CarriersOf(const protocol::Tensor& tensor, const Coding& coding,
                      const Partition& partition) const override;
  bool AddsUp(const protocol::Tensor& tensor, const Coding& coding) const override;
  void Start(const protocol::Tensor& tensor, Exchange exchange) override;
  void Leave(const std::string& reason, Done done) override;
  void Fail(const Status& status) override;

 private:
  // The ends of an exchange that misses a worker.
  struct Missed {
    UniqueFunction<void(const Status&)> sent;
    UniqueFunction<void(const Status&, const std::string&)> summed;
  };
  // A worker of this host, as this worker knows it.
  struct Neighbour {
    size_t asked = 0;  // requests to it without an answer
    // Its goodbye, which waits for these.
    std::optional<protocol::Call> goodbye{};
    bool leaves = false;           // it said so
    std::optional<Status> gone{};  // why it left, as exchanges that miss it hear
    std::vector<Missed> missed{};  // until that is known
    bool told = false;             // it knows that this worker leaves, or has left itself
  };

  void SendTo(int32_t owner, const protocol::Tensor& tensor, Exchange exchange);
  // Ends an exchange with the worker at `place`.
  void EndExchange(size_t place, Missed ends, const Status& status, const std::string& next);
  void OnAnswer(size_t place);
  void Handle(ps::Message message);
  void OnRequest(ps::Message message);
  void OnGoodbye(size_t place, protocol::Call call);
  void AnswerGoodbye(size_t place);
  // The worker at `place` leaves, and `reason` may be empty.
  void Part(size_t place, const std::string& reason);
  // Exchanges that miss the worker at `place` fail because of `why`.
  void Miss(size_t place, const Status& why);
  void EndMissed(size_t place, const Status& why);
  void SayGoodbye(size_t place, const std::string& reason);
  void Told(size_t place);
  // Applies the credit that comes with a sum.
  void Hear(const std::string& next_layout);

  const HostBackendOptions options_;
  const HostPlan plan_;
  Executor* const executor_;
  const SendFn send_;
  const Logger log_;
  LimitedLog odd_requests_;
  PsBackend* const link_;  // the back end behind
  ps::KvWorker requests_;
  ps::KvWorker goodbyes_;  // apart: they go on when requests_ has failed
  HostSums sums_;
  std::vector<Neighbour> neighbours_;  // by place
  uint64_t decision_ = 0;              // the latest whose credit is in force
  Done leave_done_{};
  size_t not_told_ = 0;
  bool failed_ = false;
  std::shared_ptr<bool> lives_ = std::make_shared<bool>();  // gone with this
};

}  // namespace bs::backend
