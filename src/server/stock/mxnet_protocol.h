// MxnetProtocol: the server's part of the protocol of stock MXNet workers, whose messages carry no
// extension.
//
// Confined to the dispatcher's executor; never blocks.  Commands are answered here; values are the
// StockStore's.  Nothing that arrives is executed here: a pickled optimizer is for the hosting
// process to judge (bytescheduler/_hosting/pickles.py).
#pragma once

#include <functional>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "ps/message.h"
#include "server/state/server_options.h"
#include "server/stock/stock_profile.h"
#include "server/stock/stock_store.h"

namespace bs::server {

class MxnetProtocol {
 public:
  // `dispatcher` and the shards' executors must outlive this.  `on_stop` (kStopServer) is posted to
  // the dispatcher, at most once.
  MxnetProtocol(const ServerOptions& options, Executor* dispatcher,
                const std::vector<ServerShard>& shards, StockWays ways,
                std::function<void()> on_stop, const Logger& log);

  // Any message has come, native or not: MXNet's profiler may want it.
  void Note(const ps::Message& message) { profile_.Note(message); }
  // A message that is not native.  Control messages and responses are ignored.
  void OnMessage(ps::Message message);
  // The worker of this id was lost, and another takes its place.
  void OnWorkerVacant(int32_t id) { store_.OnWorkerVacant(id); }
  // The job has failed: ends the processes that wait for values.
  void Fail(const Status& why);

 private:
  void OnCommand(const ps::Message& request);
  void Obey(const ps::Message& request);
  void OnStop();

  Executor* const dispatcher_;
  const SendFn send_;
  const std::function<void()> on_stop_;
  StockStore store_;
  StockProfile profile_;
  bool stopped_ = false;
};

}  // namespace bs::server
