// EndedExchanges: the outcomes of exchanges that are over, for requests that come late.
//
// An outcome stays while its workers may send requests about it.  A worker states which of its
// requests have their answers, so it sends no further copy of them.  The outcome of a failed
// exchange also waits for its workers that have not got the failure yet.  The latest kLeast
// outcomes of each kind stay in any case, since the network may change the order of requests.
//
// Confined to the dispatcher's executor.  Bounded: beyond kMostWaits the earliest outcomes go, and
// requests that come later than that begin an exchange which only time-outs end.  Never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "protocol/exchange_terms.h"

namespace bs::server {

// By rank of an exchange's workers: the sequence of the latest request; 0: none has come.
using LatestRequests = std::map<int32_t, uint64_t>;

// None has come of any worker of an exchange.
LatestRequests RequestsOf(const protocol::ExchangeTerms& terms);

class EndedExchanges {
 public:
  static constexpr size_t kLeast = size_t{1} << 12U;
  // The bound of workers, counted over the outcomes of one kind.
  static constexpr size_t kMostWaits = size_t{1} << 22U;

  explicit EndedExchanges(int32_t num_workers)
      : answered_below_(static_cast<size_t>(num_workers)),
        gone_(static_cast<size_t>(num_workers)) {}

  // The outcome of an exchange that is over; null if none is known.
  const Status* Find(Key key) const;
  // `latest`: of a failed exchange, 0 for a worker that has not got the failure, but needs it.
  // Nothing happens if an outcome is known.
  void Add(Key key, const Status& outcome, const LatestRequests& latest);
  // A request about an exchange that is over has come.
  void NoteRequest(Key key, int32_t rank, uint64_t sequence);
  // The worker has the answers to its requests of a lower sequence.
  void NoteAnswers(int32_t rank, uint64_t answered_below);
  // True if a request is a late copy, whose answer the worker has.
  bool IsAnswered(int32_t rank, uint64_t sequence) const {
    return sequence < answered_below_[static_cast<size_t>(rank)];
  }
  // It sends nothing any more.
  void OnWorkerGone(int32_t rank);
  size_t size() const { return ended_.size(); }

 private:
  struct Latest {
    int32_t rank;
    uint64_t sequence;
  };
  struct Ended {
    Status outcome;
    std::vector<Latest> latest;
  };
  // Outcomes of one kind, the earliest first.
  struct Order {
    std::deque<Key> keys{};
    size_t num_waits = 0;           // workers in all of them
    size_t next_scan = 2 * kLeast;  // keys, with which all of them are looked at again
  };
  using Outcomes = std::unordered_map<Key, Ended>;

  bool IsSettled(const Ended& ended) const;
  // Forgets the earliest outcomes that no request needs.
  void Sweep(Order* order);
  // Does so behind an outcome that stays; each time for twice as many keys as stayed before.
  void SweepBehindUnsettled(Order* order);
  void Forget(Outcomes::iterator at, Order* order);
  void SweepAll();

  std::vector<uint64_t> answered_below_;  // by rank
  std::vector<bool> gone_;                // likewise
  Outcomes ended_;
  Order succeeded_;
  Order failed_;
};

}  // namespace bs::server
