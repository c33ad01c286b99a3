// CollectiveBackend: carries the sums of dense tensors by a library of collective operations, and
// all else by servers.
//
// Rounds of synchronous keys with plain codings, of the dtypes that the library sums, go by the
// library.  Declarations, first values and all other keys go by the back end of servers.
//
// A library needs one order of calls on all ranks.  So each rank reports its ready tensors to the
// leader, a room of server 0, and executes the operations that the leader grants, strictly in the
// order of their numbers (server/grants/leader.h).  This rank decides nothing: the credit of a
// partition returns as soon as the worker has started it.
//
// A library may have the ranks of a host alone (CollectiveOptions::host).  Then a tensor has two
// steps: the library adds each partition up on its owner, which exchanges it with the other hosts
// (HostCopies), and then gives it to the other ranks of the host.  The leader orders both steps.
//
// docs/design/decisions/0028-a-leader-grants.md and 0031-nccl-within-a-host.md have the reasons.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/backend_before.h"
#include "backend/collective/collective.h"
#include "backend/collective/host_copies.h"
#include "backend/host_plan.h"
#include "base/executor.h"
#include "protocol/grants.h"
#include "protocol/rules.h"
#include "ps/kv_worker.h"

namespace bs::backend::collective {

// The library has the ranks of a host alone, by their places in `plan`.
struct HostOptions {
  HostPlan plan;
  bool crosses = true;  // there are other hosts
  uint64_t credit_bytes = kFirstCreditBytes;
};

struct CollectiveOptions {
  int32_t rank = 0;
  // The longest time without an end of an operation, while some are under way.  All ranks are ready
  // for them, so that no rank has a reason to be late.
  Duration deadline = std::chrono::seconds(60);
  std::optional<HostOptions> host{};  // empty: the library has all ranks
  // How the leader divides tensors, as rank 0 has it.  Empty: as the leader's own options say.
  std::optional<protocol::Division> division{};
  Status no_library{};  // not ok: why there is no library, with which Prepare ends
};

class CollectiveBackend final : public BackendBefore {
 public:
  // Sends a request to a server: PsBackend::Ask.
  using AskFn = std::function<void(ps::KvRequest request, ps::KvWorker::Done done)>;

  // Requests of this rank without a response, while it waits for operations.
  static constexpr size_t kOpenRequests = 2;
  // And at most: beyond it readiness waits for a response, and goes together.
  static constexpr size_t kMostOpenRequests = 8;

  // `executor` is the worker's; it outlives this.  `library` is null if there is none.
  CollectiveBackend(CollectiveOptions options, Executor* executor, std::unique_ptr<Backend> servers,
                    std::unique_ptr<Collective> library, AskFn ask,
                    const protocol::Rules& rules = protocol::Rules());
  CollectiveBackend(const CollectiveBackend&) = delete;
  CollectiveBackend& operator=(const CollectiveBackend&) = delete;
  ~CollectiveBackend() override;

  void Prepare(Done done) override;
  Carriers CarriersOf(const protocol::Tensor& tensor, const Coding& coding,
                      const Partition& partition) const override;
  // Arrays that the library sums may be on a device, so no network device of ours uses them.
  std::shared_ptr<void> LendSent(std::span<const std::byte> /*memory*/) override { return nullptr; }
  std::shared_ptr<void> LendFilled(std::span<std::byte> /*memory*/) override { return nullptr; }
  // kFailedPrecondition through the callbacks: a key changes from plain to coded sums.
  void Start(const protocol::Tensor& tensor, Exchange exchange) override;
  void Release(const protocol::Tensor& retired, bool given_back, Done done) override;
  void Fail(const Status& status) override;
  void Measure(Metrics* metrics) const override;

 private:
  // A partition of the worker, whose sum is not there.
  struct Part {
    Exchange exchange{};
    uint64_t missing_bytes = 0;  // not summed; in the second step: not given
    bool gives = false;          // it is in the second step
    uint64_t granted_bytes = 0;  // of the second step
  };
  // A tensor in the round that is under way.
  struct Pending {
    Round round = 0;
    DType dtype = DType::kFloat32;
    uint64_t size_bytes = 0;
    protocol::Tensor tensor{};      // without partitions
    const std::byte* in = nullptr;  // the tensor, of which partitions are ranges
    std::byte* out = nullptr;
    std::vector<Part> parts{};  // by index
    size_t num_started = 0;     // by the worker
    uint64_t granted_bytes = 0;
    size_t num_ended = 0;  // parts
    std::string next_layout{};
    size_t in_library = 0;  // pieces, and copies of its parts
  };
  // Ends of exchanges, which may start the next round of a key, or fail the worker.
  struct Ends {
    std::vector<UniqueFunction<void(const Status&)>> sent{};
    struct Summed {
      UniqueFunction<void(const Status&, const std::string& next_layout)> summed;
      std::string next_layout;
    };
    std::vector<Summed> summed{};
  };

  // The library would sum it if it were plain.
  bool IsSum(const protocol::Tensor& tensor, const Exchange& exchange) const;
  // Tells the leader that this rank's sum of a tensor is coded, as another rank's may not be.
  void TellCoded(const protocol::Tensor& tensor, Exchange* exchange);
  void Add(const protocol::Tensor& tensor, Exchange exchange);
  void RequestReport();
  void Report();
  void Send(protocol::Readiness readiness);
  void OnResponse(const Status& status, const ps::Message& response);
  void OnGrants(protocol::Grants grants);
  void Execute(uint64_t number, protocol::GrantedOperation operation);
  // Adds the arrays of what is granted.
  Status AddPieces(const protocol::GrantedPiece& granted, std::vector<Piece>* pieces);
  // A reduction for each owner.
  void AddReductions(const protocol::GrantedPiece& granted, const Pending& pending,
                     std::vector<Piece>* pieces) const;
  // Null: no such part is in its second step, or the bytes are not those that follow.
  const Part* TakePart(const protocol::GrantedPiece& granted, Pending* pending);
  void OnSummed(uint64_t number, const protocol::GrantedOperation& operation, const Status& status);
  // Arrays of the first step count as summed though they are not: a rule is broken.
  void AdvanceEarly(const protocol::GrantedOperation& operation);
  // A piece of a tensor is summed, or given.
  void Advance(const protocol::GrantedPiece& piece, Pending* pending, Ends* ends);
  // Returns the parts that are summed now.
  static std::vector<uint32_t> Complete(Pending* pending, uint64_t offset_bytes,
                                        uint64_t size_bytes);
  void EndPart(Pending* pending, uint32_t index, Ends* ends);
  // A part is summed on this host, on its owner.
  void OnAdded(Pending* pending, uint32_t index);
  void OnCrossed(Key key, uint32_t index, const Status& status);
  // The sum of a part is on its owner, as far as this rank knows.
  void Give(Pending* pending, uint32_t index);
  // Applies the credit that comes with a sum.
  void Hear(const std::string& next_layout);
  void EndFailed(Pending* pending);
  // Looks once a quarter of the deadline, and a last time behind the last operation under way.
  void Watch();
  void LookForEnds();
  // Tells the leader how many operations the library has begun, unless it knows.
  void Tell(uint64_t num_joined);
  // No operation has ended within the deadline.
  Status Late() const;
  // This rank cannot go on: tells the leader, and all operations end with `why`.
  void GiveUp(const Status& why);

  const CollectiveOptions options_;
  const HostPlan* const plan_;  // of options_.host; null: the library has all ranks
  const bool in_order_;         // protocol::Rules::grants_are_executed_in_order
  const bool once_;             // protocol::Rules::grants_are_executed_once
  // Rules within a host.
  const bool adds_up_on_owners_;
  const bool copies_wait_;
  const bool gives_to_all_;
  Executor* const executor_;
  const AskFn ask_;
  // Ours alone; posted tasks hold weak references.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::unordered_map<Key, Pending> pending_;
  std::set<Key> by_library_;  // keys with a round that the library summed
  std::vector<UniqueFunction<void(const Status&)>> released_;  // Exchange::released, to be called
  std::vector<protocol::ReadyTensor> ready_;                   // not yet reported
  size_t num_waiting_ = 0;       // tensors that were reported and not wholly granted
  size_t num_crossing_ = 0;      // parts of copies_, whose failure on a peer the leader tells
  size_t num_coded_ = 0;         // sums that go by servers, whose failure the leader may tell
  size_t num_open_ = 0;          // requests
  uint64_t next_ready_ = 0;      // number of the next request
  uint64_t next_operation_ = 0;  // to execute
  std::map<uint64_t, protocol::GrantedOperation> early_;  // behind one that has not come
  uint64_t summed_bytes_ = 0;                             // by the library
  uint64_t finished_ = 0;              // number of the first operation that has not ended
  std::set<uint64_t> finished_early_;  // behind one that has not ended
  uint64_t reported_finished_ = 0;
  std::map<uint64_t, protocol::GrantedPiece> under_way_;  // the first pieces, by number
  TimePoint progress_{};                                  // since then no operation has ended
  uint64_t num_joined_ = 0;  // operations that the library has begun, as far as the leader knows
  bool watches_ = false;     // a look is posted
  bool told_late_ = false;   // the leader knows that the deadline is over
  uint64_t decision_ = 0;    // the latest whose credit is in force
  bool report_posted_ = false;
  bool is_heard_ = false;  // the leader has responded
  Status failure_;
  std::unique_ptr<HostCopies> copies_;  // null: no partition of this worker crosses
  const std::unique_ptr<Collective> library_;
};

}  // namespace bs::backend::collective
