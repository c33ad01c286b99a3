// Exchanges: the exchanges under way on a server, and the outcomes of those that are over.
//
// A late request of an exchange that is over finds its outcome here, so that it begins nothing.
//
// Confined to the dispatcher's executor.  Bounded: at most kMost exchanges are under way, with
// kMostPartitions that have a state.  Never blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/metrics.h"
#include "base/status.h"
#include "base/types.h"
#include "protocol/call.h"
#include "protocol/rules.h"
#include "server/exchange/ended_exchanges.h"
#include "server/exchange/exchange.h"
#include "server/state/shard_state.h"

namespace bs::server {

class Exchanges {
 public:
  static constexpr size_t kMost = size_t{1} << 20U;
  static constexpr size_t kMostPartitions = size_t{1} << 22U;
  // A longer text of a worker that ends an exchange is cut.
  static constexpr size_t kMostReasonBytes = 1024;

  // `send_failure` sends refusals because an exchange failed as a whole: correct workers may get
  // them, as scripts of workers may differ.
  Exchanges(ShardState shard, SendFn send_failure, const protocol::Rules& rules,
            size_t most_partitions = kMostPartitions);
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
  // One has begun.
  bool used() const { return used_; }
  void Measure(Metrics* metrics) const;

 private:
  using ByKey = std::unordered_map<Key, std::unique_ptr<Exchange>>;

  // Null, and the call is answered, if `call` belongs to no exchange that can be under way.
  Exchange* Find(const protocol::Call& call);
  Exchange* Begin(const protocol::Call& call);
  // Why the job cannot have such an exchange.
  Result<protocol::ExchangeTerms> TermsOf(const protocol::Call& call) const;
  void AnswerLate(const protocol::Call& call, const Status& outcome);
  // True, and the call is answered, if it needs more memory than exchanges may have.
  bool LacksRoom(const protocol::Call& call, const Exchange& exchange);
  void FailOne(ByKey::iterator at, const Status& why);
  // Forgets an exchange, and remembers how it ended.
  void End(ByKey::iterator at, const Status& outcome, const LatestRequests& latest);
  void EndIfOver(ByKey::iterator at);
  void Refuse(const protocol::Call& call, const Status& why);

  ShardState shard_;
  const SendFn send_failure_;
  const ExchangeRules rules_;
  const size_t most_partitions_;
  size_t num_partitions_ = 0;  // that have a state
  ByKey exchanges_;            // refer to the above
  EndedExchanges ended_;
  bool used_ = false;
};

}  // namespace bs::server
