// Leader: decides one order of the collective operations of all ranks.
//
// Each rank tells the leader which tensors are ready, and rank 0 how tensors are divided.  When a
// tensor is ready on every rank, the leader's Core decides when its partitions go, by priority and
// credit.  Partitions that start together, are of one dtype and fit into one partition's size are
// one operation.  The leader numbers the operations and grants each to all ranks, which execute
// them in that order.
//
// A request of a rank is the readiness of some tensors, and its response has operations.  Some
// requests of a rank stay open, so that an operation need not wait for the next one.
//
// A tensor that some ranks have and another one skips fails all ranks after the straggler time-out,
// though other tensors go on.  A tensor that is coded on some ranks, and so goes by servers there,
// fails all ranks at once if it is ready on another rank.
//
// Safety: an operation exists only when every rank is ready for it, and all ranks execute the same
// sequence.  So each operation ends, its credit returns, and every ready tensor is granted.
//
// Confined to the dispatcher's executor.  Every request gets its response through `send`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "base/types.h"
#include "core/core.h"
#include "protocol/call.h"
#include "protocol/grants.h"
#include "protocol/rules.h"
#include "server/state/server_options.h"

namespace bs::server {

class Leader {
 public:
  // Most operations, however small, that have not ended on rank 0.  Tensors that become ready
  // meanwhile can be one operation.  Two operations keep the library busy; the third is on its way
  // to the other ranks.
  static constexpr uint64_t kMostOperations = 3;
  // A rank's requests that stay open when there is nothing to respond.
  static constexpr size_t kOpenRequests = 2;
  // Most requests of a rank between the oldest that has not arrived and the newest that has.
  static constexpr uint64_t kMostAhead = 4096;
  // Keys whose tensors are ready on some ranks and not on all.
  static constexpr size_t kMostKeys = size_t{1} << 22U;

  // `executor` is the dispatcher's; it outlives this.
  Leader(const GrantOptions& options, int32_t num_workers, Executor* executor, SendFn send,
         const protocol::Rules& rules);
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;
  ~Leader();

  // Takes a kReady request.
  void Ready(protocol::Call call);
  // Tensors that need this worker, now or later, are refused with `why`, and with them all else.
  void OnWorkerGone(int32_t rank, const Status& why);
  // Refuses all open and later requests.
  void Fail(const Status& why);

  // For tests and metrics.
  uint64_t num_operations() const { return first_kept_ + operations_.size(); }
  uint64_t in_flight_bytes() const { return core_->in_flight_bytes(0); }

 private:
  class Task;
  // A partition that the Core has started.
  struct Started {
    Task* task;
    uint32_t index;
  };
  // A tensor that is ready on some ranks.
  struct Gathering {
    protocol::ReadyTensor tensor{};  // as the first rank has it, with what counts of rank 0
    int32_t first_rank = 0;
    std::vector<bool> ready{};  // by rank
    int32_t missing = 0;
    TimePoint begin{};
  };
  // A round of a tensor that is coded on some ranks, which send it to the servers.
  struct Coded {
    int32_t rank = 0;       // the first
    int32_t num_ranks = 0;  // that have told
    std::string how{};      // for people
  };
  struct Operation {
    std::vector<Started> pieces{};
    std::string encoded{};
  };
  struct Rank {
    uint64_t seen = 0;                        // number of the first request that has not come
    std::set<uint64_t> seen_ahead;            // numbers of later requests that have come
    std::map<uint64_t, protocol::Call> open;  // by number
    uint64_t received = 0;                    // number of the first operation that the rank lacks
    uint64_t sent = 0;                        // number of the first operation that no response had
    uint64_t reported = 0;                    // tensors
    uint64_t joined = 0;                      // operations that its library is known to have begun
    std::optional<Status> gone;
  };

  // Responds to a request that has come before.
  void Repeat(Rank* rank, protocol::Call call);
  // Counts the request; false if it has come before.
  static bool IsNew(Rank* rank, uint64_t number);
  Status Take(int32_t rank, const protocol::Readiness& readiness);
  void MakeCore(const protocol::Division& division);
  // The first word of rank 0 counts.
  void Divide(const protocol::Division& division);
  // The failure of a rank; where an operation is late there, with the ranks that are not known to
  // have joined it.
  Status FailureOf(const protocol::Readiness& readiness) const;
  Status TakeTensor(int32_t rank, const protocol::ReadyTensor& tensor);
  Status TakeCoded(int32_t rank, const protocol::ReadyTensor& tensor);
  // The rank's tensor is plain, and it is coded elsewhere.
  static Status Unlike(const protocol::ReadyTensor& tensor, int32_t rank, const Coded& coded);
  Status CheckSame(int32_t rank, const protocol::ReadyTensor& tensor,
                   const Gathering& gathering) const;
  void Begin(Gathering gathering);
  // Rank 0 has ended the first `finished` operations.
  void Finish(uint64_t finished);
  void ForgetOld();
  void RequestTurn();
  void Turn();
  // Makes operations of what the Core has started.
  void Fuse();
  void AddOperation(std::vector<Started> pieces);
  void Respond(Rank* rank);
  void AnswerOpen(Rank* rank, std::map<uint64_t, protocol::Call>::iterator open);
  void Answer(const protocol::Call& call, uint64_t from) const;
  std::string Awaited(int32_t rank) const;
  std::string DescribeMissing(const Gathering& gathering) const;
  // Looks for tensors that wait too long, again and again, as long as some wait.
  void Watch();
  void StopWatch();
  std::vector<int32_t> MissingRanks(const Gathering& gathering) const;
  void TaskEnded(Task* task);

  const GrantOptions options_;
  Executor* const executor_;
  const SendFn send_;
  const bool waits_for_all_;  // protocol::Rules::grants_wait_for_all_workers
  // Ours alone; a posted turn holds a weak reference.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::vector<Rank> ranks_;
  std::map<std::pair<Key, uint32_t>, Gathering> gathering_;  // by key and part
  std::map<std::pair<Key, Round>, Coded> coded_;             // until all ranks have told
  std::unordered_map<const Task*, std::unique_ptr<Task>> tasks_;
  std::function<void()> run_;  // of the Core; empty: it asks for none
  std::vector<Started> started_;
  // Numbers first_kept_ and up: not ended on rank 0, or not received by every rank.
  std::deque<Operation> operations_;
  uint64_t first_kept_ = 0;
  uint64_t finished_ = 0;       // number of the first that has not ended on rank 0
  uint64_t fully_granted_ = 0;  // tensors
  bool turn_posted_ = false;
  std::optional<TimerId> watch_;
  std::optional<Status> failure_;
  protocol::Division division_;
  bool is_divided_ = false;     // rank 0 has said how
  std::unique_ptr<Core> core_;  // last: it refers to the above
};

}  // namespace bs::server
