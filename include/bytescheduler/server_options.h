// What a server is made with: its shards, its options, and what it says of its rounds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/executor.h"
#include "bytescheduler/server_updater.h"
#include "bytescheduler/types.h"
#include "ps/message.h"

namespace bs {

namespace codec {
class Table;
}
namespace server {
using SendFn = std::function<void(ps::Message)>;  // thread-safe
}

struct ServerShard {
  Executor* executor = nullptr;  // "bs-shard-<node>.<i>"; outlives the server
  int numa_node = 0;             // where its buffers live
};

// When a round of a partition came together.
struct RoundTimes {
  Key key = 0;
  Round round = 0;
  uint32_t part = 0;
  uint64_t size_bytes = 0;
  int32_t last_rank = 0;   // of the worker whose push came last
  TimePoint first_push{};  // came
  TimePoint last_push{};   // came
  TimePoint summed{};      // with all in it
};

struct ServerOptions {
  int32_t rank = 0;
  int32_t num_workers = 1;
  // True: always sum in the order of the workers' ranks.  False: in that order as long as no more
  // than hold_bytes of early contributions wait for a lower rank, else in order of arrival.
  bool deterministic = false;
  uint64_t hold_bytes = uint64_t{64} << 20U;          // for each shard
  uint64_t max_partition_bytes = uint64_t{1} << 30U;  // larger ones are refused
  // Partitions of at most so many bytes are kept by the front itself: a sum of theirs takes less
  // time than another thread takes to wake up.
  uint64_t front_bytes = 0;
  // Of asynchronous keys: how many pushes a worker may be ahead of the slowest before its pulls
  // wait; below 0: no bound.
  int64_t max_staleness = -1;
  // How long requests of stock workers wait for another worker that lives, or for the hosting
  // process, before the job fails.  Native workers count for themselves.
  Duration straggler_timeout = std::chrono::minutes(30);
  // Keys of stock workers, initialised or only asked for: who asks for one more ends the job.
  size_t max_stock_keys = size_t{1} << 22U;
  // Of requests, all workers' together, that have come and that no shard has taken up yet
  // (server/memory/backlog.h): native ones beyond have to be repeated, by one of stock workers the
  // job ends.
  uint64_t max_backlog_bytes = uint64_t{4} << 30U;
  // How many bytes of memory this process can still have, about: a partition whose values or sums
  // do not fit is refused, and a key of stock workers ends the job.  Any thread; empty: as the
  // system says.
  std::function<uint64_t()> available_bytes{};
  // Of asynchronous keys whose optimizer the server has not got itself; may be absent.
  ServerUpdater updater{};
  // Told of each complete round of synchronous keys, on the executor of the shard of that index;
  // the one after the last is the front's own.  May be empty.
  std::function<void(size_t shard, const RoundTimes& times)> on_round{};
  // Whether Measure() tells how long rounds took, without on_round too.
  bool timed = false;
  // Takes decision 2 of the design back, for the test that shows why it is one.
  uint32_t test_num_buffers = 2;
  // Codecs that workers may use; outlives the server.  Null: those of the engine.
  const codec::Table* codecs = nullptr;
  int32_t num_servers = 1;  // stock workers number their keys from a first one of each server
};

}  // namespace bs
