// Exchange: the server's state of one exchange: what its givers gave, and which takers have it.
//
// The first request of an exchange makes it.  A partition's memory goes when all takers have
// notified that they have it; the exchange is over when that is so of all partitions.
//
// Confined to the dispatcher's executor.  Every request is answered through the shard's `send`, now
// or when the partition is complete; never blocks.  May throw std::bad_alloc; then the request is
// refused, and nothing wrong is in a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "protocol/call.h"
#include "protocol/exchange_terms.h"
#include "server/exchange/ended_exchanges.h"
#include "server/memory/sum_ref.h"
#include "server/state/pending_calls.h"
#include "server/state/shard_state.h"

namespace bs::server {

// Answers of protocol::Rules, which a server asks when it is made.
struct ExchangeRules {
  bool wait_for_all_givers = true;
  bool stay_until_all_takers_have_them = true;
  bool compare_terms = true;
  bool count_contributions_once = true;
  bool stay_over = true;
};

class Exchange {
 public:
  // `shard`, `rules` and `num_partitions` outlive this.  `first` is the first request, and `terms`
  // its terms.  `num_partitions` counts those with a state, of all exchanges.
  Exchange(ShardState* shard, const ExchangeRules* rules, size_t* num_partitions,
           const protocol::Call& first, protocol::ExchangeTerms terms);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() { *num_partitions_of_all_ -= partitions_.size(); }

  // True if `call` states the terms of the first request.
  bool HasTerms(const protocol::Call& call) const {
    return call.request.terms == encoded_ || !rules_->compare_terms;
  }
  // Why the exchange fails for all its workers: `call` states these other terms.
  Status Differs(const protocol::Call& call, const protocol::ExchangeTerms& stated) const;
  // kInvalidArgument if no correct worker sends this.
  Status CheckPlace(const protocol::Call& call) const;
  // The requests so far, of each of its workers.
  const LatestRequests& latest() const { return latest_; }
  // The same, with 0 for each worker that still has to learn of a failure.
  LatestRequests LatestOfAware() const;
  // REQUIRES: CheckPlace is ok.
  void NoteRequest(const protocol::Call& call);
  bool HasWorker(int32_t rank) const { return latest_.contains(rank); }
  // True if a request for this partition needs a new state.
  bool IsNew(uint32_t partition) const { return !partitions_.contains(partition); }
  // Why it cannot end any more; null if it can.
  const Status* Blocked() const;

  // REQUIRES: HasTerms, and CheckPlace is ok.
  void Give(protocol::Call& call);
  // Gives first what it brings.
  void Take(protocol::Call& call);
  // `rank` has the result of a partition.
  void Taken(int32_t rank, uint32_t partition);
  // `rank` is in shard->gone now: it needs nothing any more.
  void OnWorkerGone(int32_t rank);
  // Refuses all requests that wait, by way of `send`, and drops what was given.
  void Fail(const Status& why, const SendFn& send);
  bool over() const { return num_over_ == num_partitions_; }
  // Returns the givers of which a contribution is missing: "workers 1, 3"; empty: none.
  std::string Missing() const;
  const protocol::ExchangeTerms& terms() const { return terms_; }

 private:
  // Places are positions among the givers, or among the takers.
  struct PartitionState {
    std::vector<bool> given;
    std::vector<bool> taken;
    uint32_t num_given = 0;
    size_t next = 0;  // all givers before it are in the result
    std::map<size_t, ps::Frame> early;
    SumRef result{};
    PendingCalls waiting{};
    bool over = false;
  };

  // Takes the payload up, unless it did so before.  False if there is no memory, and the call is
  // refused.
  bool TakeUp(protocol::Call& call, PartitionState* state);
  // A contribution of `rank` is missing.
  bool Needs(int32_t rank) const;
  // `rank` has given and taken all that it has to.
  bool HasEnded(int32_t rank) const;
  PartitionState& StateOf(uint32_t partition);
  bool IsComplete(const PartitionState& state) const {
    return state.num_given >= (rules_->wait_for_all_givers ? terms_.givers.size() : 1);
  }
  // It waits for contributions of givers before it.
  bool ComesEarly(const PartitionState& state, size_t place, uint64_t size_bytes) const;
  void Begin(PartitionState* state, ps::Frame payload);
  // Adds the early contributions whose turn has come.
  void AddEarly(PartitionState* state);
  void Combine(PartitionState* state, const ps::Frame& payload) const;
  void AnswerIfComplete(PartitionState* state);
  void AnswerWaiting(PartitionState* state);
  void Answer(const protocol::Call& call, PartitionState* state);
  // Ends the partition if all takers have it.
  void EndIfTaken(PartitionState* state);
  void Release(PartitionState* state);
  std::string Awaited(const PartitionState& state) const;
  void Refuse(const protocol::Call& call, const Status& why);

  ShardState* const shard_;
  const ExchangeRules* const rules_;
  const protocol::ExchangeTerms terms_;
  const std::string encoded_;  // terms_, as they came
  const int32_t first_rank_;   // that stated them
  const uint64_t num_partitions_;
  size_t* const num_partitions_of_all_;
  LatestRequests latest_;
  std::vector<bool> gone_;  // takers, by place
  std::map<uint32_t, PartitionState> partitions_;
  std::vector<uint64_t> num_given_;  // partitions, by place of the giver
  uint64_t num_over_ = 0;            // partitions
};

}  // namespace bs::server
