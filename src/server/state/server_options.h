// ServerOptions: the shards and options of a server, and its report about each round.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/executor.h"
#include "base/numa.h"
#include "base/types.h"
#include "job/view.h"
#include "protocol/grants.h"
#include "ps/message.h"
#include "server/optimizer/server_updater.h"

namespace bs {

namespace codec {
class Table;
}
namespace server {
using SendFn = std::function<void(ps::Message)>;  // thread-safe
}  // namespace server

struct ServerShard {
  Executor* executor = nullptr;  // "bs-shard-<node>.<i>"; outlives the server
  int numa_node = 0;             // where its buffers live
};

// The times at which a round of a partition came together.
struct RoundTimes {
  Key key = 0;
  Round round = 0;
  uint32_t partition = 0;
  uint64_t size_bytes = 0;
  std::string_view coding{};  // name of the pushes' codec; empty: they were plain
  int32_t last_rank = 0;      // of the worker whose push came last
  TimePoint first_push{};     // arrived
  TimePoint last_push{};      // arrived
  TimePoint summed{};         // the sum is complete
};

// How the leader of collective operations divides tensors (server/grants/leader.h).
struct GrantOptions {
  // protocol::Division, unless worker 0 says otherwise.
  uint64_t partition_bytes = protocol::Division().partition_bytes;
  uint64_t credit_bytes = protocol::Division().credit_bytes;
  bool priority_order = true;
  // How long a tensor that is ready on some workers waits for all, before the job fails.
  Duration straggler_timeout = std::chrono::minutes(30);
};

struct ServerOptions {
  job::SharedView view = job::ShareView({.role = job::Role::kServer}, 1, 1);
  // True: sums always add in the order of the workers' ranks.  False: codes do, and others as long
  // as no more than hold_bytes of early contributions wait for a lower rank.
  bool deterministic = false;
  uint64_t hold_bytes = uint64_t{64} << 20U;          // for each shard
  uint64_t max_partition_bytes = uint64_t{1} << 30U;  // larger partitions are refused
  // The dispatcher itself keeps partitions of at most this many bytes: summing them takes less time
  // than another thread takes to wake up.
  uint64_t dispatcher_bytes = 0;
  // From this size on, the sum of a partition begins in the memory of the round's first push, if
  // the push has that memory for itself.  That saves a copy, but the memory is on no certain NUMA
  // node.
  uint64_t adopted_bytes = UINT64_MAX;
  // Gets the memory of each sum of whole pages that is not adopted; may be empty.
  LendPagesFn lend{};
  // How many pushes of an asynchronous key a worker may be ahead of the slowest worker before its
  // pulls wait; below 0: no bound.
  int64_t max_staleness = -1;
  // How long requests of stock workers wait for another live worker, or for the hosting process,
  // before the job fails.  Native workers have a deadline of their own.
  Duration straggler_timeout = std::chrono::minutes(30);
  // Limit of the keys of stock workers, initialised or only asked for.  A further key ends the job.
  size_t max_stock_keys = size_t{1} << 22U;
  // Limit of the requests of all workers that have arrived and that no shard has taken up yet
  // (server/memory/backlog.h).  Beyond it a native request has to be repeated, and a stock worker's
  // request ends the job.
  uint64_t max_backlog_bytes = uint64_t{4} << 30U;
  // Estimates the bytes of memory that this process can still take.  A partition whose values or
  // sums do not fit is refused; a stock worker's key that does not fit ends the job.  Any thread;
  // empty: the system's own number.
  std::function<uint64_t()> available_bytes{};
  // Updates asynchronous keys whose optimizer the server does not have itself; may be absent.
  ServerUpdater updater{};
  // Gets each complete round of synchronous keys, on the executor of the shard with that index.
  // The index after the last shard is the dispatcher's own.  May be empty.
  std::function<void(size_t shard, const RoundTimes& times)> on_round{};
  // Measure() includes how long rounds took, also where on_round is empty.
  bool timed = false;
  GrantOptions grants{};
  // Codecs that workers may use; outlives the server.  Null: the engine's codecs.
  const codec::Table* codecs = nullptr;
};

}  // namespace bs
