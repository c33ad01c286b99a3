// Worker: a training process's end: tensors in, sums out, in the order of their priority.
//
// Broadcast gives everyone rank 0's bytes; PushPull sums over the workers.  Per key, operations
// take effect in the order of the calls on each worker; every worker must call the same sequence of
// operations for a key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/figures.h"
#include "base/log.h"
#include "bytescheduler/coding.h"
#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "ps/kv_worker.h"
#include "ps/message.h"

namespace bs {

namespace codec {
class Table;
}

namespace core {
class Trace;
}
namespace worker {
struct Link;
}

// Whose numbers say which push-pull is more urgent.
enum class Urgency : uint8_t {
  kCaller,
  // Those of the order in which push-pulls become ready, once rank 0 has seen enough of it
  // (backend/ps/measured_order.h): of synchronous keys whose calls say `called`.
  kMeasured,
  kMeasuredAlone,  // as above, but each worker goes by what it has seen itself
};

struct WorkerOptions {
  int32_t rank = 0;
  int32_t num_workers = 1;
  int32_t num_servers = 1;
  uint64_t partition_bytes = uint64_t{128} << 10U;  // at least 64; rank 0's counts
  uint64_t credit_bytes = uint64_t{512} << 10U;     // in flight to one server
  // Both only until rank 0, whose option counts, has seen how fast the network takes what it
  // pushes: then what suits that (backend/ps/link_rate.h), once, as if by Retune.  A call of Retune
  // before ends the measuring, and so does a push-pull that is compressed; push-pulls of
  // asynchronous keys decide nothing.
  bool fits_pieces = false;
  // How many bytes have gone to servers through memory that they share; for the above, called once
  // on the executor.  Empty: none have.
  std::function<uint64_t()> shared_bytes{};
  // A partition up to this size is pushed and pulled by one request, which our servers take; a
  // stock store does not.
  uint64_t together_bytes = 0;
  bool priority_order = true;          // false: first ready, first sent
  Urgency urgency = Urgency::kCaller;  // of no use without priority_order
  ps::KvWorkerOptions requests;        // but for the rules of bodies
  // Codecs of PushPullOptions::coding; outlives the worker.  Null: those of the engine.
  const codec::Table* codecs = nullptr;
  // Gets what happens to each partition; outlives the worker, whose executor records.  Null: nobody
  // wants to know.
  core::Trace* trace = nullptr;
  // Takes decision 3 of the design back, for the test that shows why it is one: credit returns when
  // the sum has come instead of when the push is acknowledged.
  bool test_credit_until_pulled = false;
  // Takes back that a key changes over behind the round that says so, for the test that shows why
  // it does: rank 0 cuts it anew in that round already.
  bool test_cut_at_once = false;
};

// How one push-pull travels.
struct PushPullOptions {
  // Implicit on purpose: mostly there is only a priority.
  PushPullOptions(Priority p, const Coding& k = {},  // NOLINT(google-explicit-constructor)
                  uint64_t c = 0, bool a = false, Duration w = {})
      : priority(p), coding(k), called(c), at_once(a), waited(w) {}

  Priority priority;
  // How `in` is coded for the servers (codec/codec.h).  If it is not plain, each worker adds `in`
  // to a residual that it keeps for the key, sends codes of that, and takes out of it what they
  // stand for.  float32 only; the same on all workers in each round (else the job fails with both
  // codings and names).
  Coding coding;
  // Grows with the calls for which the framework's user asked, while PushPull is called when `in`
  // is ready; 0: there is no other order than that of PushPull.
  uint64_t called;
  // With `called`: `in` was ready when the user asked, nobody knows since when.
  bool at_once;
  // Since the user asked, until `in` was ready; for the trace.
  Duration waited;
};

class Worker {
 public:
  using SendFn = std::function<void(ps::Message)>;
  // Runs once, on the worker's executor, never inside the call, without a lock.
  using Done = UniqueFunction<void(Status)>;

  // `executor` (thread "bs-io", or "bs-worker" over a stock store) and what `send` needs must
  // outlive the worker.  `on_failure` is called at most once, on the executor, when an operation
  // failed for good; by then every pending operation is failing with the same status.  It is not
  // called for Fail and Close.
  Worker(const WorkerOptions& options, Executor* executor, SendFn send,
         std::function<void(Status)> on_failure, const Logger& log);
  // REQUIRES: Close() was called, its callbacks have run, and the executor runs nothing of this
  // worker any more.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // All methods below are thread-safe and return at once.  Errors come through `done`:
  // kInvalidArgument (size or dtype differ from the declared ones, on this or on another worker; a
  // dtype we cannot sum; one of the two largest keys, which are the engine's own),
  // kFailedPrecondition (PushPull of a key without Broadcast), kAlreadyExists (second Broadcast of
  // a key), kUnavailable (a peer was lost), kDeadlineExceeded, kCancelled. The first three concern
  // only that call; after any other error the worker is failed for good.

  // Declares `key` and copies rank 0's `value` into everyone's `value`.  The memory must stay valid
  // until `done`; size and dtype must be equal on all workers.
  void Broadcast(Key key, DType dtype, std::span<std::byte> value, Done done);

  // Sums `in` over all workers into everyone's `out` (same size as declared).  `pushed` runs when
  // `in` may change again, `pulled` when `out` holds the sum.  `in` and `out` must not overlap;
  // both must stay valid until their callback ran.
  void PushPull(Key key, const PushPullOptions& options, std::span<const std::byte> in,
                std::span<std::byte> out, Done pushed, Done pulled);

  // Asynchronous keys: servers update weights with every push as it comes, and nobody waits for
  // the other workers but as BYTESCHEDULER_MAX_STALENESS says.

  // As Broadcast, of a key in this mode, which must be the same on all workers.
  void Broadcast(Key key, DType dtype, Mode mode, std::span<std::byte> value, Done done);
  // The same for an asynchronous key that stays in one piece, so that the process that hosts its
  // server can update it.  Of rank 0 only: `about` tells that process what the key is
  // (server_updater.h), at most 1024 bytes, not empty; `hosted`: nobody else can update it.
  struct WholeKey {
    DType dtype = DType::kFloat32;
    std::string about{};
    bool hosted = false;
  };
  void BroadcastWhole(Key key, WholeKey whole, std::span<std::byte> value, Done done);

  // One use of an asynchronous key; memory as of PushPull.
  struct UpdateCall {
    Priority priority = 0;
    Coding coding{};    // as of PushPullOptions
    Duration waited{};  // as of PushPullOptions
    PushRates rates{};
    std::span<const std::byte> in{};
    std::span<std::byte> out{};
    Done pushed{};  // empty: nothing is pushed
    Done pulled{};  // empty: nothing is pulled
  };
  // Pushes `in`, a gradient, then pulls the weights into `out`.  kFailedPrecondition if the servers
  // have no optimizer, which fails the worker.  REQUIRES: `pushed` or `pulled` is there.
  void Update(Key key, UpdateCall call);

  // Tells every server how to update asynchronous keys (server/optimizer/optimizer.h has the
  // grammar); later calls of Update find it set.  A second call starts all states afresh; workers
  // count their calls alike, so one call of each is one for the servers.  kInvalidArgument, which
  // concerns only this call, if a server does not know it or another worker set another one.
  // `pickle`, if not empty, is for the processes that host the servers: they make the updates if
  // the text is "hosted NAME", and those of keys that nobody else can update.
  void SetOptimizer(std::string text, std::string pickle, Done done);

  // Instead of the options' from now on: of keys that are declared later, and of all that is sent.
  // REQUIRES: as of the options; on the executor.
  void SetPieces(uint64_t partition_bytes, uint64_t credit_bytes);

  // Rank 0 decides for everyone, while the job runs: partitions of synchronous keys have at most
  // `partition_bytes` (rounded down to a multiple of 64) and each worker has `credit_bytes` in
  // flight to a server.  A key changes over behind its next push-pull here, which says so, in the
  // same round on every worker (protocol/next_cut.h); the credit changes behind the first of all.
  // Asynchronous keys stay as they are.  `done` runs when the decision is taken here:
  // kFailedPrecondition on other ranks, kInvalidArgument for fewer than 64 bytes or no credit,
  // which concern only this call.  The servers must be ours, not a stock store's.
  void Retune(uint64_t partition_bytes, uint64_t credit_bytes, Done done);

  // A message from a server.
  void OnMessage(ps::Message message);
  // Where the payload of a message that is coming in belongs: Transport::Handler::place.  Not
  // thread-safe: on the executor.
  std::shared_ptr<ps::Landing> Place(int32_t peer, const ps::Meta& meta, uint64_t size_bytes);
  // Every pending and later operation fails with `status`, after its memory is out of use.
  void Fail(Status status);
  // As Fail with kCancelled; `closed` runs when nothing of the caller's memory is in use any more.
  void Close(UniqueFunction<void()> closed);

  // The three below REQUIRE: on the executor.
  // Bytes started and not finished.
  uint64_t in_flight_bytes(uint32_t server) const;
  // What it has done and what it is doing; docs/metrics.md says what each number is.
  void Measure(Figures* figures) const;
  // The latest steps, at most 64, the oldest first.
  std::vector<StepTime> Steps() const;

 private:
  const worker::Link& link() const;

  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bs
