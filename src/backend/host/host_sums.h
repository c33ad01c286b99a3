// HostSums: the partitions that this worker adds up for its host.
//
// It takes the contributions of the host's workers, its own too.  When all are there, one
// contribution that stands for them goes to the server, and the sum of all hosts goes back to each
// of them.  A coded contribution is the code of their sum, with the residual that this worker keeps
// of the partition: the host has one residual, as a worker alone on its host has.  Each round of a
// partition stands alone: it begins with its first contribution, and ends when every worker of the
// host has said that it has the answer.
//
// A copy of the host leaves by the credit of these copies, most urgent first.  It never waits for
// the credit of this worker's own operations: two workers that wait for each other's contributions
// would wait for ever (docs/design/decisions/0027-one-copy-a-host.md).
//
// A worker of the host may be ahead of this one, with any number of rounds.  What that takes must
// fit into memory; a contribution that does not is refused.
//
// Confined to the worker's executor.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host/host_round.h"
#include "backend/host/spare_sums.h"
#include "backend/host_plan.h"
#include "base/executor.h"
#include "codec/codec.h"
#include "core/server_queues.h"
#include "job/view.h"
#include "protocol/call.h"
#include "protocol/rules.h"
#include "ps/message.h"
#include "server/memory/memory_room.h"
#include "server/state/pending_calls.h"

namespace bs::backend {

struct HostSumsOptions {
  job::SharedView view = job::ShareView({}, 1, 1);
  const codec::Table* codecs = &codec::Builtin();
  uint64_t credit_bytes = kFirstCreditBytes;
  bool deterministic = false;
  // Unless that is set: most bytes of contributions that wait for their turn.
  uint64_t hold_bytes = 0;
  // The time that a round waits for contributions after this worker's own.
  Duration straggler_timeout = std::chrono::minutes(30);
  // The bytes that this process can still take; empty: the system's own number.
  std::function<uint64_t()> available_bytes{};
};

class HostSums {
 public:
  using SendFn = std::function<void(ps::Message)>;

  // `plan`, `link` and `executor` outlive this, and what `send` uses.
  HostSums(const HostSumsOptions& options, const HostPlan* plan, Backend* link, Executor* executor,
           SendFn send, const protocol::Rules& rules);
  HostSums(const HostSums&) = delete;
  HostSums& operator=(const HostSums&) = delete;
  ~HostSums();

  // This worker's contribution to a partition that it owns.
  void Add(const protocol::Tensor& tensor, Exchange exchange);
  // A contribution of the worker at `place`, or a repeat.
  void Handle(size_t place, protocol::Call call);
  // The worker at `place` left because of `why`, and needs nothing more.
  void OnWorkerLeft(size_t place, const Status& why);
  void SetCredit(uint64_t credit_bytes);
  // This worker leaves: rounds without its contribution fail because of `why`.  The others are
  // served.
  void Leave(const Status& why);
  // Ends this worker's part of each round.  Others that wait hear of it by the end of the job, or
  // by Leave.
  void Fail(const Status& why);

 private:
  struct RoundId {
    Key key = 0;
    uint32_t partition = 0;
    uint32_t layout_version = 0;
    Round round = 0;

    auto operator<=>(const RoundId&) const = default;
  };
  enum class State : uint8_t {
    kCollecting,
    kCrossing,  // in the queue of the link, or on it
    kDone,      // the sum of all hosts is there
    kFailed,
  };
  struct Own {
    protocol::Tensor tensor;  // without its partitions
    Exchange exchange;
  };
  struct Entry {
    Entry(const RoundId& its_id, HostRound its_round) : id(its_id), round(std::move(its_round)) {}

    const RoundId id;
    HostRound round;
    server::MemoryRoom::Promise memory{};  // until it is in use
    State state = State::kCollecting;
    Status why{};           // of kFailed
    size_t unanswered = 0;  // requests of workers that may not have the answer
    server::PendingCalls pending{};
    std::unique_ptr<Own> own{};  // null: this worker's part has ended, or has not come
    Coding coding{};             // of the host's copy, or of later rounds: as the first said
    int32_t coding_rank = 0;     // the worker that said it
    float ratio = 1;             // of the residual, as the lowest rank of the host says
    Priority priority = std::numeric_limits<Priority>::min();  // the largest of the workers'
    TimePoint began{};                                         // when this worker contributed
    std::string next_layout{};  // as rank 0 said; later as the sum says
    int ends_missing = 0;       // of the copy on the link: its sending, and its sum
    Status crossed{};           // the first error of them
  };
  struct Place {
    uint64_t answered_below = 0;            // it has the answers of requests of a lower sequence
    std::map<uint64_t, Entry*> requests{};  // the others, by sequence
    std::optional<Status> gone{};           // why it left
  };

  static std::string Describe(const RoundId& id);
  // For a contribution of the worker at `place`; kResourceExhausted if it does not fit into memory.
  // `coding`: as the contribution says.  A new round has it.
  Result<Entry*> EntryFor(const RoundId& id, size_t place, const protocol::PartitionShape& shape,
                          const Coding& coding);
  Status CheckFields(const protocol::Call& call) const;
  // All contributions name the same coding.  `rank`: of the worker that names this.
  Status CheckCoding(const Entry& entry, const Coding& coding, int32_t rank) const;
  Status CheckOwn(const Entry& entry, const protocol::PartitionShape& shape) const;
  Status Check(size_t place, const protocol::Call& call) const;
  Status CheckShape(const Entry& entry, const protocol::PartitionShape& shape,
                    const std::string& sender) const;
  void Repeat(Entry* entry, protocol::Call call);
  // The rounds whose answers the worker has are not needed any more.
  void Forget(size_t place, uint64_t answered_below);
  void EraseIfOver(Entry* entry);
  // Contributions are added by rank, however many wait for their turn.
  bool IsInOrder(const Coding& coding) const { return options_.deterministic || !coding.plain(); }
  // Bytes that the host's copy counts against the credit of copies.
  uint64_t CreditBytes(const Entry& entry) const {
    return options_.codecs->CreditBytes(entry.coding, entry.round.shape().size_bytes);
  }
  // The reason why the round cannot complete; null if it can.
  const Status* Blocked(const Entry& entry) const;
  // Ends the round if there is no memory for its sum.
  void Take(Entry* entry, size_t place, ps::Frame payload);
  // Looks for stragglers again and again, as long as there are rounds.
  void WatchStragglers();
  void EndLateRounds();
  void Submit(Entry* entry);
  void StartCopies();
  void Start(Entry* entry);
  void OnEnd(Entry* entry, const Status& status);
  void Finish(Entry* entry);
  void Answer(Entry* entry, const protocol::Call& call);
  void AnswerPending(Entry* entry);
  // `tells`: also the workers that wait.
  void FailRound(Entry* entry, const Status& why, bool tells);
  void EndOwn(Entry* entry, const Status& why);
  std::string Awaited(const Entry& entry) const;

  const HostSumsOptions options_;
  const HostPlan* const plan_;
  Backend* const link_;
  Executor* const executor_;
  const SendFn send_;
  // Rules.
  const bool waits_for_all_;
  const bool leaves_once_;
  const bool has_own_credit_;
  const bool goes_to_all_;
  const size_t own_place_;
  core::ServerQueues copies_;  // that may not leave yet
  server::MemoryRoom room_;
  SpareSums spares_;
  size_t most_entries_ = 0;  // at once so far: small memory of rounds that are over serves again
  std::map<RoundId, std::unique_ptr<Entry>> entries_;
  std::vector<Place> places_;
  uint64_t held_bytes_ = 0;  // of all rounds
  TimerId watch_ = 0;        // 0: there are no rounds
  std::optional<Status> left_{};
  std::optional<Status> failure_{};
};

}  // namespace bs::backend
