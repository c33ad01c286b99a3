// Server: sums the partitions of the workers' tensors and answers with the sums.
//
// A dispatcher on the network's executor parses requests and keeps the declarations of keys.
// Shards, with one executor and one NUMA node each, keep partitions and do the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/types.h"
#include "protocol/rules.h"
#include "ps/message.h"
#include "server/state/server_options.h"

namespace bs {

class Server {
 public:
  // A server keeps at most this many partitions.  It also keeps at most 2^22 declared keys with
  // 2^24 partitions in all (server/directory.h).  It refuses more with kResourceExhausted.
  static constexpr size_t kMaxPartitions = size_t{1} << 22U;

  // Functions of the owner; all but `send` may be empty.
  struct Handler {
    // Sends a response.  On the executor of the dispatcher or of a shard.
    server::SendFn send;
    // A stock worker's kStopServer: the owner joins the final barrier.  On the dispatcher's
    // executor.
    std::function<void()> on_stop{};
    // The job must end: a stock worker asks for something impossible, and its protocol has no
    // error response.  On the dispatcher's executor; the owner calls Fail().
    std::function<void(Status)> on_failure{};
    // A native message of this peer violates the protocol; `what` says how, for people.  On the
    // dispatcher's executor; the owner judges how many violations are too many.
    std::function<void(int32_t peer, const std::string& what)> on_violation{};
  };

  // `dispatcher` is the executor on which OnMessage is called.  The executors, and whatever
  // `handler` uses, outlive the server.  REQUIRES: at least one shard.
  Server(const ServerOptions& options, Executor* dispatcher, const std::vector<ServerShard>& shards,
         Handler handler, const Logger& log, const protocol::Rules& rules = protocol::Rules());
  // REQUIRES: the executors run nothing of this server any more, or end right after this call.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // All below: on the dispatcher's executor.

  // Takes a data or command message of a worker.  Any content gets a response, which may be a
  // refusal with its reason; none is fatal.
  void OnMessage(ps::Message message);
  // The worker of this rank left or was lost.  Rounds that need it, now or later, are refused with
  // `why`.
  void OnWorkerGone(int32_t rank, const Status& why);
  // The worker of this id was lost, and another worker may take its place and begin from the start.
  // Complete pushes of the lost worker still count; nothing waits for the rest.  `native`: false
  // for a worker of MXNet's own.  kFailedPrecondition: the job cannot go on; the owner calls
  // Fail().
  [[nodiscard]] Status OnWorkerVacant(int32_t id, bool native);
  // Fails every pending request with `why`, now and later.
  void Fail(const Status& why);
  // Collects the metrics of dispatcher and shards about native keys (docs/operate/metrics.md
  // describes each number).  `done` runs once, on the dispatcher's executor; never if dispatcher or
  // shards end before.
  void Measure(UniqueFunction<void(const Metrics&)> done);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bs
