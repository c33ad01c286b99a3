// Worker: the engine in a training process: tensors in, sums out, in the order of their priority.
//
// Broadcast gives every worker rank 0's bytes; PushPull sums over the workers.  The operations on a
// key take effect in the order of their calls.  Every worker must call the same sequence of
// operations for a key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/types.h"
#include "codec/coding.h"
#include "job/view.h"
#include "protocol/rules.h"

namespace bs {

namespace codec {
class Table;
}

namespace trace {
class Trace;
}
namespace backend {
class Backend;
}

// The source of the priorities of push-pulls.
enum class Urgency : uint8_t {
  kCaller,
  // The order in which push-pulls become ready, once rank 0 has seen enough of it
  // (worker/measured_order.h).  For synchronous keys whose calls set `called`.
  kMeasured,
  kMeasuredAlone,  // the same, but each worker uses its own measurement
};

struct WorkerOptions {
  job::SharedView view = job::ShareView({}, 1, 1);
  uint64_t partition_bytes = kFirstPartitionBytes;  // at least 64; rank 0's value is in force
  uint64_t credit_bytes = kFirstCreditBytes;        // in flight to one server
  // Both hold until rank 0's back end has measured values that suit the network, if it measures.
  // Then rank 0 applies these values once, as if by Retune.  A call of Retune or a compressed
  // push-pull ends the measurement.  A push-pull of an asynchronous key applies nothing.
  // Until such a decision arrives, the end of an exchange applies the credit that the worker's own
  // back end has measured.

  // Partitions of all but large exchanges; a multiple of 64, the same on all workers.  Exchanges
  // have no rounds in which workers could agree on others, so these suit a link of 1 Gbit/s.
  uint64_t exchange_partition_bytes = uint64_t{64} << 10U;
  bool priority_order = true;                       // false: first ready, first sent
  uint64_t early_bytes = kEarlyBytes;               // CoreOptions::early_bytes
  uint64_t small_tensor_bytes = kSmallTensorBytes;  // CoreOptions::small_tensor_bytes
  Urgency urgency = Urgency::kCaller;               // without effect unless priority_order
  // Codecs of PushPullOptions::coding; outlives the worker.  Null: the engine's codecs.
  const codec::Table* codecs = nullptr;
  // Records the events of each partition, on the worker's executor; not owned; outlives the worker.
  // Null: no trace.
  trace::Trace* trace = nullptr;
};

// The first field of a struct whose fields callers have to name: it has no value to stand there.
class ByName {
 private:
  friend struct PushPullOptions;
  ByName() = default;
};

// Options of one push-pull: {.priority = 3, .factor = 0.5}.
struct PushPullOptions {
  [[no_unique_address]] ByName by_name = ByName();
  Priority priority = 0;
  // How `in` is coded for the servers (codec/codec.h); only float32 can be coded.  Where it is not
  // plain, the worker adds `in` to a residual, if it keeps one for the key.  It sends the codes of
  // that, and subtracts the values that they stand for.  All workers give the same coding in a
  // round; else the job fails with both codings and names.  A codec that cuts keys, and a key that
  // was declared without: this round goes as it lies in memory, and the key is cut with it.
  Coding coding{};
  PushRates rates{};  // with Coding::feedback: residuals follow their changes (codec/feedback.h)
  // A number that grows with the user's calls; PushPull itself is called when `in` is ready.
  // 0: the calls of PushPull are the only order.
  uint64_t called = 0;
  // With `called`: `in` was ready at the user's call already, for an unknown time.
  bool at_once = false;
  // Time from the user's call until `in` was ready; for the trace.
  Duration waited{};
  // `out` is the sum times this, which each worker multiplies as the sum arrives (reduce::Scale).
  // A finite number that is not 0; integers have no other than 1.
  double factor = 1;
};

class Worker {
 public:
  // Runs once, on the worker's executor, never inside the call that took it, without a lock.
  using Done = UniqueFunction<void(Status)>;

  // `executor` (thread "bs-io", or "bs-worker" with the kvstore back end) and `backend`
  // (src/backend/backend.h), which lives on it, outlive the worker.  `on_failure` is called at most
  // once, on the executor, when an operation failed for good: before every pending operation fails
  // with the same status.  Fail and Close do not call it.
  Worker(const WorkerOptions& options, Executor* executor, backend::Backend* backend,
         std::function<void(Status)> on_failure, const Logger& log,
         const protocol::Rules& rules = protocol::Rules());
  // REQUIRES: Close() was called, its callbacks have run, and the executor runs nothing of this
  // worker any more.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // All methods below are thread-safe and return at once.  Errors arrive through `done`:
  //  - kInvalidArgument: size or dtype differ from the declaration, on this or another worker;
  //    servers cannot sum the dtype; the key is one of the two largest, which are the engine's own
  //  - kFailedPrecondition: PushPull of a key without Broadcast
  //  - kAlreadyExists: second Broadcast of a key
  //  - kUnavailable: a peer was lost
  //  - kDeadlineExceeded, kCancelled
  // The first three concern only that call.  After any other error the worker is failed for good.

  // Declares `key` and copies rank 0's `value` into `value` of every worker.  The memory is the
  // caller's and stays valid until `done`.  Size and dtype must be equal on all workers.
  void Broadcast(Key key, DType dtype, std::span<std::byte> value, Done done);

  // Copies `value` of worker `root` into `value` of every worker, any number of times, bit for bit.
  // All workers call it for a key in the same order, with the same root and size.  The first call
  // declares the key, with elements of uint8.  A key with other elements is kInvalidArgument: sums
  // of floating point would change bits.  The memory is the caller's and stays valid until `done`.
  void BroadcastFrom(Key key, int32_t root, std::span<std::byte> value, Done done);

  // Sums `in` over all workers into `out` of every worker; both have the declared size and do not
  // overlap.  `pushed` runs when `in` may change again, `pulled` when `out` holds the sum.  Both
  // belong to the caller and stay valid until their callback has run.
  void PushPull(Key key, const PushPullOptions& options, std::span<const std::byte> in,
                std::span<std::byte> out, Done pushed, Done pulled);

  // This worker does not need a synchronous key for now.  When all workers have given it back,
  // servers forget it.  It takes effect behind earlier operations on the key.  A later PushPull or
  // BroadcastFrom takes the key again, on each worker at any time, and rounds go on: that waits for
  // another worker only where the sum does.  `for_good`: this worker never uses the key again, and
  // forgets it too.  Then a later PushPull is kFailedPrecondition.  Keys that are asynchronous, or
  // on stock servers, stay.  `done` may be empty; it runs when the servers know.
  void GiveBack(Key key, bool for_good, Done done);

  // An exchange between some workers, without a declaration.  Every giver contributes `in`, and
  // every taker gets the result: the contribution of the only giver, or the reduction of all
  // (protocol/exchange_terms.h).
  struct ExchangeCall {
    // No exchange of the job has had it before.  Keys of tensors are apart.
    Key key = 0;
    std::vector<int32_t> givers{};  // ranks, in order, here and below
    std::vector<int32_t> takers{};
    DType dtype = DType::kFloat32;
    Reduction reduction = Reduction::kSum;
    uint64_t size_bytes = 0;
    // The rank of the server that keeps it, modulo their number; below 0: by the key.  It follows
    // from the facts that the key is made of.  Otherwise calls that differ go to different servers,
    // where each waits until its `timeout`.
    int32_t home = -1;
    std::string label{};  // at most protocol::kMostLabelBytes
    Priority priority = 0;
    Duration timeout{};  // 0: none
    // The memory is the caller's: `in` until `given`, `out` until `done`.  Both may be the same.
    std::span<const std::byte> in{};  // of a giver
    std::span<std::byte> out{};       // of a taker
    Done given{};  // the servers have `in`, or this worker gives nothing; before `done`
    Done done{};
  };
  // All workers of an exchange state the same but for memory, priority and `timeout`.  If not, it
  // fails on all with kInvalidArgument, which names two of them.  After `timeout` it fails on all
  // with kDeadlineExceeded, which names the givers that are missing.  These, kFailedPrecondition,
  // kCancelled, and kResourceExhausted from a server concern only that call.
  void Exchange(ExchangeCall call);
  // Ends an exchange that this worker has under way, on all its workers: kCancelled with `reason`.
  void QuitExchange(Key key, std::string reason);

  // Gives an exchange that this worker has under way another priority, for what it has not sent
  // yet.  Nothing happens if it is over.
  void ReprioritiseExchange(Key key, Priority priority);

  // Asynchronous keys: servers update weights with every push as it comes.  A worker waits for
  // other workers only as BYTESCHEDULER_MAX_STALENESS says.

  // Broadcast of a key in this mode, which must be the same on all workers.
  void Broadcast(Key key, DType dtype, Mode mode, std::span<std::byte> value, Done done) {
    Broadcast(key, {.dtype = dtype, .mode = mode, .coding = {}}, value, std::move(done));
  }
  // The same.  `coding`: that of later push-pulls, for which the key is cut.
  struct Declaration {
    DType dtype = DType::kFloat32;
    Mode mode = Mode::kSynchronous;
    Coding coding{};
  };
  void Broadcast(Key key, const Declaration& declaration, std::span<std::byte> value, Done done);
  // The same for an asynchronous key that stays whole, so that the process that hosts its server
  // can update it.  Only rank 0's `about` and `hosted` count.  `about` describes the key to that
  // process (server_updater.h): 1 to 1024 bytes.  `hosted`: only that process can update it.
  struct WholeKey {
    DType dtype = DType::kFloat32;
    std::string about{};
    bool hosted = false;
  };
  void BroadcastWhole(Key key, WholeKey whole, std::span<std::byte> value, Done done);

  // A use of an asynchronous key; PushPull's rules for memory hold.
  struct UpdateCall {
    Priority priority = 0;
    Coding coding{};    // see PushPullOptions
    Duration waited{};  // see PushPullOptions
    PushRates rates{};
    std::span<const std::byte> in{};
    std::span<std::byte> out{};
    Done pushed{};  // empty: nothing is pushed
    Done pulled{};  // empty: nothing is pulled
  };
  // Pushes `in`, a gradient, then pulls the weights into `out`.  kFailedPrecondition if the servers
  // have no optimizer, which fails the worker.  REQUIRES: `pushed` or `pulled` is not empty.
  void Update(Key key, UpdateCall call);

  // Sets the optimizer of all servers for asynchronous keys, before later calls of Update take
  // effect (server/optimizer/optimizer.h has the grammar of `text`).  Every worker calls it equally
  // often: the servers take the n-th calls of all workers as a single call.  A further call starts
  // all states afresh.  kInvalidArgument, which concerns only this call: a server does not know the
  // optimizer, or another worker set a different optimizer.
  // `pickle` may be empty.  It is for the processes that host the servers: they make all updates if
  // the text is "hosted NAME", and always the updates of `hosted` keys.
  void SetOptimizer(std::string text, std::string pickle, Done done);

  // Replaces the options' values from now on: the partition size for keys declared later, the
  // credit at once.  REQUIRES: valid as options; on the executor.
  void SetPartitionAndCredit(uint64_t partition_bytes, uint64_t credit_bytes);

  // Rank 0 decides for all workers while the job runs.  Partitions of synchronous keys get at most
  // `partition_bytes` (rounded down to a multiple of 64); each worker may have `credit_bytes` in
  // flight to a server.  Rank 0's next push-pull of a key announces the change, and every worker
  // makes it behind that same round (protocol/next_layout.h).  The credit changes with the first
  // key.  Asynchronous keys stay as they are.  `done` runs when the decision is taken here.
  // kFailedPrecondition (another rank) and kInvalidArgument (fewer than 64 bytes, or no credit)
  // concern only this call.  REQUIRES: native servers, not the kvstore back end.
  void Retune(uint64_t partition_bytes, uint64_t credit_bytes, Done done);

  // Fails every pending and later operation with `status`, after its memory is out of use.
  void Fail(Status status);
  // Fails the worker with kCancelled; `closed` runs when no memory of the caller is in use any
  // more.
  void Close(UniqueFunction<void()> closed);

  // The three below REQUIRE: on the executor.
  // Returns the bytes started and not finished.
  uint64_t in_flight_bytes(uint32_t server) const;
  // Adds this worker's metrics; docs/operate/metrics.md describes each number.
  void Measure(Metrics* metrics) const;
  // Returns the latest steps, at most 64, the oldest first.
  std::vector<StepTime> Steps() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bs
