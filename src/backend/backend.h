// Backend: carries the partitions of a worker's tensors to where they are summed, and the sums
// back.
//
// The worker decides which partition goes next; a back end decides how it travels.  Each partition
// has a destination, and credit bounds the bytes in flight to each destination.  A parameter server
// has one destination for each server; a back end without servers has a single destination.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/metrics.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"
#include "codec/codec.h"
#include "codec/coding.h"
#include "protocol/tensor.h"

namespace bs::backend {

struct PartitionAndCredit {
  uint64_t partition_bytes;
  uint64_t credit_bytes;  // in flight to each destination

  bool operator==(const PartitionAndCredit&) const = default;
};

// How a contribution is encoded, and its sum.
struct Coder {
  Coding coding{};
  const codec::Codec* codec = nullptr;      // of `coding`; null if that is plain
  Coding sum_coding{};                      // of the sum
  const codec::Codec* sum_codec = nullptr;  // as above
  // A float32 for each element of the tensor, or of the partition: the rest that the codes cannot
  // express.  Empty: none is kept.
  std::span<float> residual{};
  float ratio = 1;  // its factor in this round
};

struct OptimizerText {
  std::string text;
  std::string pickle;  // may be empty
};

// A partition in a round: this worker's contribution, and the sum of all.
//
// Round 0 sums nothing: rank 0 contributes the first value, and the other workers ask for it.  A
// later round of a synchronous key has both directions.
struct Exchange {
  Round round = 0;
  Partition partition{};
  Priority priority = 0;
  PushRates rates{};  // of a contribution to an asynchronous key
  Coder coder{};
  // From rank 0, of partition 0: the layout from the next round on (protocol/next_layout.h).  Every
  // worker gets it with that partition's sum.  Empty: no change.
  std::string next_layout{};
  // Number of workers, all of this host, whose sum the contribution is; 0: it is this worker's.  A
  // sum is coded under the lowest rank of the host, whichever worker sends it.
  uint32_t stands_for = 0;
  // The partition's bytes in the tensor.  `in` stays valid and unchanged until `sent`, and `out`
  // stays valid until `summed`.
  std::span<const std::byte> in{};
  std::span<std::byte> out{};
  // Each callback runs once, with an error too, in this order, never inside Start:
  // The bytes have crossed the link, so their credit returns.  It waits for no other worker.
  UniqueFunction<void(const Status&)> released{};
  // `in` is out of use.  Empty, as is `released`: nothing is contributed.
  UniqueFunction<void(const Status&)> sent{};
  // `out` holds the sum; its bytes are undefined after an error.  Empty: no sum is wanted.
  UniqueFunction<void(const Status&, const std::string& next_layout)> summed{};
};

// A partition of an exchange between some workers, without a declaration
// (protocol/exchange_terms.h).
struct ExchangePartition {
  // Status, and whether the destination itself refused: then the exchange alone fails.
  using Ended = UniqueFunction<void(const Status&, bool refused)>;

  Key key = 0;
  std::string terms{};  // encoded
  Partition partition{};
  Priority priority = 0;
  // The partition's bytes.  They stay valid until the callback of their direction, and `in` stays
  // unchanged; both may be the same memory.
  std::span<const std::byte> in{};
  std::span<std::byte> out{};
  // Each runs once, with an error too, in this order, never inside StartPartition:
  // The bytes have crossed the link, so their credit returns.  It waits for no other worker.
  Ended released{};
  // The destination has taken `in` up.  Empty, as is `released`: nothing is given.
  Ended given{};
  // `out` holds the result.  Empty: none is wanted.
  Ended taken{};
};

// Confined to the worker's executor, as are its callbacks.  Errors name key, round, partition and
// destination.
class Backend {
 public:
  using Done = UniqueFunction<void(const Status&)>;

  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  // Gets ready for the other calls, but for those that return numbers.  Called at most once, first.
  // `done` may run inside.
  virtual void Prepare(Done done) { done(Status::Ok()); }
  // Ok if the back end carries more than first values and sums of synchronous keys with plain
  // codings: asynchronous keys, codings, optimizers, other layouts.  Else kFailedPrecondition,
  // with a text that begins with `what`.  Any thread.
  virtual Status CheckExtra(const std::string& /*what*/) const { return Status::Ok(); }
  // Partition::server is less.
  virtual uint32_t num_destinations() const = 0;
  // How the bytes go to the destinations.
  virtual Shares shares() const { return {}; }
  // The carriers of a partition now, if its data are long; `coding` is that of contributions.
  virtual Carriers CarriersOf(const protocol::Tensor& /*tensor*/, const Coding& /*coding*/,
                              const Partition& /*partition*/) const {
    return {};
  }
  // True if the workers of this host add up contributions to later rounds of that tensor.  They
  // then travel within the host as they lie in memory, and so do the sums that come back.  The
  // worker that adds up a partition codes its sum with its own residual of it; those of the other
  // workers are not in use.
  virtual bool AddsUp(const protocol::Tensor& /*tensor*/, const Coding& /*coding*/) const {
    return false;
  }
  // Gives each partition of a new layout its destination, in place of the destinations of the
  // layout before.
  virtual void Place(std::span<Partition> partitions, std::span<const Partition> replaced) = 0;
  // Returns the destination of all partitions of a key whose tensor is small and seldom sent.
  virtual uint32_t DestinationOf(Key key) const = 0;

  // Publishes the layout of `tensor`, as rank 0; kAlreadyExists if it has a layout.  `tensor` is
  // not in use after the call.  A key that was given back has a larger layout version than before.
  virtual void Declare(const protocol::Tensor& tensor, Done done) = 0;
  // Asks for the layout; waits until rank 0 has published it.  kInvalidArgument if size, dtype or
  // mode differ from rank 0's.  Only these, the key and the least layout version of `asked` are in
  // use, during the call.
  virtual void Lookup(const protocol::Tensor& asked,
                      UniqueFunction<void(Result<protocol::Tensor>)> done) = 0;
  // Memory of an operation, which a network device then reads, or fills, where it lies.  The memory
  // stays the operation's until the handle is gone.  Null: no device does, and bytes are copied.
  virtual std::shared_ptr<void> LendSent(std::span<const std::byte> /*memory*/) { return nullptr; }
  virtual std::shared_ptr<void> LendFilled(std::span<std::byte> /*memory*/) { return nullptr; }
  // REQUIRES: `tensor` is declared, and its earlier round is over.  It is in use during the call.
  virtual void Start(const protocol::Tensor& tensor, Exchange exchange) = 0;
  // REQUIRES: CheckExtra is ok, here and below.
  virtual void StartPartition(ExchangePartition /*part*/) { BS_CHECK(false); }
  // Ends an exchange of these terms at that destination, for all its workers, with `why`:
  // kDeadlineExceeded or kCancelled.  `done` runs when the destination knows.
  virtual void Quit(Key /*key*/, const std::string& /*terms*/, uint32_t /*destination*/,
                    const Status& /*why*/, Done /*done*/) {
    BS_CHECK(false);
  }
  // No worker sends partitions of `retired`, an earlier layout, any more.  `done` gets the first
  // error.  `retired` is not in use after the call.  `given_back`: all workers have given the key
  // back.
  virtual void Release(const protocol::Tensor& retired, bool given_back, Done done) = 0;
  // Tells where the key is declared that this worker gives it back, if `turn` is odd, or takes it
  // again.  `turn` counts both since the declaration.  `done` gets true if all workers have given
  // the key back, so that it is forgotten.  `tensor` is not in use after the call.
  // REQUIRES: no operation of this worker on the key is under way.
  virtual void GiveBack(const protocol::Tensor& /*tensor*/, uint64_t /*turn*/,
                        UniqueFunction<void(Result<bool>)> done) {
    done(false);  // this back end keeps what is declared
  }
  // Sets the optimizer of asynchronous keys; `number` counts the calls of this worker.
  // kInvalidArgument if it is refused.
  virtual void SetOptimizer(OptimizerText optimizer, uint64_t number, Done done) = 0;

  // This worker leaves the job, because of `reason` if that is not empty.  `done` runs once, after
  // a bounded time: no other worker waits for bytes of this worker any more.  `done` may run
  // inside. Called at most once, after Fail.
  virtual void Leave(const std::string& /*reason*/, Done done) { done(Status::Ok()); }
  // Returns the sizes that suit the network, once, as soon as they are measured.
  virtual std::optional<PartitionAndCredit> TakeFitting() = 0;
  // Ends everything under way with `status` as soon as its memory is out of use, and later calls
  // too.  Callbacks run after the call.
  virtual void Fail(const Status& status) = 0;
  virtual void Measure(Metrics* metrics) const = 0;
};

}  // namespace bs::backend
