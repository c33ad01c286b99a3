// Exchanges: the exchanges under way on a server, and the outcomes of those that ended last.
//
// A late repeat of an exchange that is over finds its outcome here, so that it begins nothing.
//
// Confined to the dispatcher's executor.  Bounded: at most kMost exchanges are under way, and
// kMostEnded outcomes are kept.  Never blocks.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/metrics.h"
#include "base/status.h"
#include "base/types.h"
#include "protocol/call.h"
#include "protocol/rules.h"
#include "server/exchange/exchange.h"
#include "server/state/shard_state.h"

namespace bs::server {

class Exchanges {
 public:
  static constexpr size_t kMost = size_t{1} << 20U;
  static constexpr size_t kMostEnded = size_t{1} << 12U;

  Exchanges(ShardState shard, const protocol::Rules& rules);
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;
  ~Exchanges() = default;

  // A kGive or kTake.  Responses go through the shard's `send`, as below.
  void Handle(protocol::Call& call);
  // A kTaken.
  void Taken(const protocol::Call& call);
  // A kQuit.
  void Quit(const protocol::Call& call);
  // The worker of this rank left or was lost: exchanges that need its contribution fail with `why`.
  void OnWorkerGone(int32_t rank, const Status& why);
  // Refuses all requests that wait.  The dispatcher refuses later ones.
  void Fail(const Status& why);
  // There has been one.
  bool used() const { return used_; }
  void Measure(Metrics* metrics) const;

 private:
  using ByKey = std::unordered_map<Key, std::unique_ptr<Exchange>>;

  // Null, and the call is answered, if `call` belongs to no exchange that is under way.
  Exchange* Find(const protocol::Call& call);
  Exchange* Begin(const protocol::Call& call);
  void AnswerLate(const protocol::Call& call, const Status& outcome);
  void FailOne(ByKey::iterator at, const Status& why);
  // Remembers the outcome, and forgets the earliest beyond kMostEnded.
  void NoteEnd(Key key, const Status& outcome);
  void Refuse(const protocol::Call& call, const Status& why);

  ShardState shard_;
  const ExchangeRules rules_;
  ByKey exchanges_;
  std::unordered_map<Key, Status> ended_;
  std::deque<Key> order_;  // of ended_
  bool used_ = false;
};

}  // namespace bs::server
