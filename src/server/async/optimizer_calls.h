// OptimizerCalls: decides which of the workers' calls of set_optimizer counts.
//
// Workers count their calls alike.  The first worker to make call n sets the optimizer; the other
// workers find it set, however late they are, and lose no updates.
//
// Confined to the dispatcher's executor; never blocks.  Every call is answered through `send`: at
// once, or when the hosting process has accepted or refused the pickle.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "protocol/call.h"
#include "server/optimizer/hosted_updates.h"
#include "server/state/pending_calls.h"

namespace bs::server {

class OptimizerCalls {
 public:
  // Longest pickle.
  static constexpr size_t kMaxPickleBytes = size_t{16} << 20U;

  using Adopt = std::function<void(const OptimizerInForce&)>;
  // `hosted` must outlive this.  `adopt` is called before the answer.
  OptimizerCalls(Executor* dispatcher, HostedUpdates* hosted, SendFn send, Adopt adopt);

  // May throw std::bad_alloc; then the call is neither counted nor answered.
  void Handle(protocol::Call& call);
  void OnWorkerGone(int32_t rank) { pending_.Forget(rank); }
  void Fail(const Status& why) { pending_.RefuseAll(why, send_); }

 private:
  struct Wanted {
    Round number = 0;
    std::string text;
    OptimizerInForce optimizer;
  };

  static Result<Wanted> Read(const protocol::Call& call);
  void Judge(const protocol::Call& call, const Wanted& wanted);
  bool Agrees(const Wanted& wanted) const;
  void Take(const Wanted& wanted);
  void Load(protocol::Call call, Wanted wanted);
  void OnLoaded(const Wanted& wanted, const Status& status);
  void Answer(const protocol::Call& call, const Status& status);
  // Until the optimizer is loaded.
  void AddPending(protocol::Call call);

  Executor* const dispatcher_;
  HostedUpdates* const hosted_;
  const SendFn send_;
  const Adopt adopt_;
  Round number_ = 0;  // how often it was set
  std::string text_;  // of the optimizer in force
  OptimizerInForce optimizer_;
  // The call whose pickle is being loaded; it waits among the other calls.
  struct Loading {
    int32_t worker_id = 0;
    uint16_t incarnation = 0;
    uint64_t sequence = 0;
    bool operator==(const Loading&) const = default;
  };
  std::optional<Loading> loading_;
  PendingCalls pending_;
};

}  // namespace bs::server
