// StockOptimizers: the optimizers that stock workers send pickled, each worker its copy.
//
// Workers count their calls alike.  At the first call n the hosting process loads the pickle, with
// fresh state; the same call of the other workers finds it loaded.  A pickle that is refused, or
// not loaded after straggler_timeout, fails the job: the protocol has no way to tell a stock
// worker.
//
// Confined to the dispatcher's executor; never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "base/types.h"
#include "ps/message.h"
#include "server/optimizer/hosted_updates.h"
#include "server/state/server_options.h"
#include "server/stock/stock_request.h"

namespace bs::server {

class StockOptimizers {
 public:
  using Adopt = std::function<void(HostedUpdates::Optimizer)>;

  // `adopt` is called before the workers get their answers.
  StockOptimizers(Executor* dispatcher, std::shared_ptr<HostedUpdates> hosted, SendFn send,
                  Adopt adopt, std::function<void(const Status&)> fail, Duration straggler_timeout);

  // A command with a pickle, of a worker of this job.  Answered when it is loaded.
  void Handle(const ps::Message& request);
  // The worker was lost; the worker that takes its place counts its calls from 1.
  void Forget(int32_t worker_id);

 private:
  void Load(const ps::Message& request);
  void OnLoaded(const HostedUpdates::Optimizer& optimizer, int32_t worker_id, const Status& status);

  Executor* const dispatcher_;
  const std::shared_ptr<HostedUpdates> hosted_;
  const SendFn send_;
  const Adopt adopt_;
  const std::function<void(const Status&)> fail_;
  const Duration straggler_timeout_;
  std::map<StockParty, uint64_t> calls_;  // of each worker
  uint64_t number_ = 0;                   // of the latest call that was taken
  bool loading_ = false;
  TimerId patience_ = 0;              // of the load under way
  std::vector<ps::Message> waiting_;  // answers
};

}  // namespace bs::server
