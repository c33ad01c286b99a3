// Server: sums the partitions of the workers' tensors and answers with the sums.
//
// A front on the network's executor takes requests apart and keeps the declarations of keys;
// shards, one executor and one NUMA node each, keep partitions and do the arithmetic.
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
#include "bytescheduler/server_options.h"
#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "ps/message.h"

namespace bs {

class Server {
 public:
  // A server keeps at most this many partitions; it also keeps at most 2^22 declared keys with 2^24
  // partitions in all (server/directory.h).  What is more is refused with kResourceExhausted.
  static constexpr size_t kMaxPartitions = size_t{1} << 22U;

  using SendFn = server::SendFn;
  struct Handler {
    // A stock worker's kStopServer: the owner joins the final barrier.  On the front's executor.
    std::function<void()> on_stop;
    // Something that ends the job: a stock worker asks for what can not be done, and can not be
    // told.  On the front's executor; the owner calls Fail().
    std::function<void(Status)> on_failure;
    // A native message of this peer makes no sense: what is wrong, for people.  On the front's
    // executor; the owner judges how many of them are too many.  May be empty.
    std::function<void(int32_t peer, const std::string& what)> on_nonsense{};
  };

  // `front` is the executor OnMessage is called on; everything must outlive the server.
  // REQUIRES: at least one shard.
  Server(const ServerOptions& options, Executor* front, const std::vector<ServerShard>& shards,
         SendFn send, Handler handler, const Logger& log);
  // REQUIRES: front and shards run nothing of this server any more, or are ended right after.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // All below: on the front's executor.

  // A data or command message of a worker.  Whatever is in it: answered, or refused with a response
  // that says why; never fatal.
  void OnMessage(ps::Message message);
  // Rank left or was lost: rounds that need it, now or later, are refused with `why`.
  void OnWorkerGone(int32_t rank, const Status& why);
  // The worker of this id was lost, and another may take its place, which begins from the start:
  // what the lost one had sent counts if it was complete, and waits for nobody.  `native`: or
  // MXNet's own.  kFailedPrecondition: the job cannot go on without it; the owner calls Fail().
  [[nodiscard]] Status OnWorkerVacant(int32_t id, bool native);
  // Answers every parked request with `why`, now and later.
  void Fail(const Status& why);
  // Asks front and shards what they have done and are doing with native keys (docs/metrics.md says
  // what each number is).  `done` runs once, on the front's executor; never if front or shards end
  // before.
  void Measure(UniqueFunction<void(const Metrics&)> done);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bs
