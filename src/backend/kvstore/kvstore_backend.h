// KvstoreBackend: carries partitions over a synchronous stock store (MXNet's kvstore), which knows
// only whole keys.
//
// Each partition is a key of its own there.  So is the header in which rank 0 publishes the
// partitions of a tensor.
//
// When credit returns: the stock server acknowledges a push only when every worker has pushed that
// key.  If that acknowledgement returned the credit, two workers whose credit is spent on different
// keys would wait for each other for ever
// (docs/design/decisions/0003-credit-at-the-push-acknowledgement.md).
//
// So a probe goes right behind each partition: the pull of a tiny key on the same server.  A stock
// worker has one connection to a server and sends in order; a stock server answers a pull at once,
// also in the middle of a round.  Therefore the response to a probe shows that the partition before
// it has crossed the link.  It waits for the link only, and for no other worker.
//
// Hence every started partition returns its credit after a finite time.  So every queued partition
// starts, and every worker pushes every partition that it has: no cycle of waiting is possible.
//
// A probe costs as much as a partition of a few KB.  So some bytes of small partitions need none
// while they are in flight (`small_bytes`): they return their credit at once.  When that is used
// up, the next partitions are probed like all larger partitions.
// Measured at 50 Mbit/s: the probe behind 512 KiB came back after 88 ms, which is the time of the
// partition; the sum came when the other worker had pushed, two seconds later.
//
// Every worker must broadcast tensors in the same order, because the keys of partitions follow from
// it.  The header names rank 0's tensor, so a difference is found.
//
// Confined to the worker's executor.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/kvstore/open_calls.h"
#include "backend/kvstore/store_keys.h"
#include "backend/kvstore/store_request.h"
#include "backend/kvstore/store_scale.h"
#include "backend/traffic.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"
#include "base/types.h"
#include "base/unique_function.h"
#include "job/view.h"
#include "protocol/placement.h"
#include "protocol/tensor.h"

namespace bs::backend {

class KvstoreBackend final : public Backend {
 public:
  struct Options {
    job::SharedView view = job::ShareView({}, 1, 1);
    // How long the servers may take for Prepare.
    Duration prepare_timeout = std::chrono::seconds(60);
    // How long a call may wait for the other workers and the servers.
    Duration straggler_timeout = std::chrono::seconds(1800);
    // Rank 0 measures with this many bytes which partitions suit the store
    // (backend/kvstore/store_scale.h); less than kLeastSampleBytes: it does not.
    uint64_t sample_bytes = 0;
    // Gets rank 0's measurement, once, before any key is declared here.  May be empty.
    std::function<void(uint32_t scale)> on_scale{};
    // Most bytes on their way to a server beside credit, in partitions of at most a sixteenth of
    // this number.
    uint64_t small_bytes = 0;
  };

  // `begin` starts operations on the store.  `executor` is the worker's; both outlive this.
  KvstoreBackend(const Options& options, Executor* executor, StoreFn begin, const Logger& log);

  // Rank 0 puts the back end's own keys into the store and measures; other workers do nothing.
  // kDeadlineExceeded if the store takes longer than the time-out.
  // REQUIRES, besides: called; between its end on rank 0 and any other use on any worker lies a
  // barrier of the stock store.
  void Prepare(Done done) override;
  // Stock servers have nothing more: an error.
  Status CheckExtra(const std::string& what) const override;
  // `done` runs when every worker has called it as often.
  void Barrier(Done done);

  uint32_t num_destinations() const override { return num_servers(); }
  void Place(std::span<Partition> partitions, std::span<const Partition> replaced) override;
  uint32_t DestinationOf(Key key) const override {
    return protocol::HomeServer(key, num_servers());
  }
  void Declare(const protocol::Tensor& tensor, Done done) override;
  void Lookup(const protocol::Tensor& asked,
              UniqueFunction<void(Result<protocol::Tensor>)> done) override;
  // REQUIRES, besides: the key is synchronous; no coder, no next layout.
  void Start(const protocol::Tensor& tensor, Exchange exchange) override;
  // Layouts do not change here, so there is nothing to release.
  void Release(const protocol::Tensor& retired, bool given_back, Done done) override;
  // Stock servers take no optimizer from here: kInvalidArgument.
  void SetOptimizer(OptimizerText optimizer, uint64_t number, Done done) override;
  // The scale is measured instead, before any key is declared.
  std::optional<PartitionAndCredit> TakeFitting() override { return std::nullopt; }
  void Fail(const Status& status) override { calls_.FailAll(status); }
  void Measure(Metrics* metrics) const override;

 private:
  // A direction of an exchange.
  struct OneWay {
    OpenCalls::Id call = 0;
    TimePoint began{};
  };
  // A partition of a tensor, with its current round.
  struct StorePartition {
    int32_t store_key = 0;
    uint32_t server = 0;
    uint64_t size_bytes = 0;
    Priority priority = 0;
    bool taken = false;   // it has crossed the link
    bool done = false;    // its operation is over
    bool beside = false;  // it counts among the small partitions beside credit
    Status outcome;
    std::span<const std::byte> value;  // once done
    OneWay push, pull;                 // the latest
    std::span<std::byte> out;          // of the pull
  };
  struct StoreTensor {
    protocol::Tensor tensor;
    std::vector<StorePartition> partitions;
  };
  // A partition and the push for which it was sent: a later round has another push.
  struct Sent {
    StorePartition* partition;
    OpenCalls::Id push;
  };
  struct Probes {
    std::vector<int32_t> free;
    std::vector<Sent> uncovered;  // sent to a server since its latest probe
    uint64_t beside_bytes = 0;    // on their way beside credit
  };
  struct LookupCall {
    OpenCalls::Id call;
    // The tensor asked for, then the tensor of the store; shared with the call's `done`.
    std::shared_ptr<protocol::Tensor> tensor;
  };

  uint32_t num_servers() const { return static_cast<uint32_t>(options_.view->num_servers()); }
  // Returns `done`, which gets an error if the time of Prepare is over first.
  Done WithDeadline(Done done);
  void MeasureScale(Done done);
  void SetScale(uint32_t scale);
  void LookupNext();
  Status OnHeader(std::span<const std::byte> value);
  void Push(const StoreTensor& tensor, StorePartition* partition, Exchange* exchange);
  void Pull(const StoreTensor& tensor, StorePartition* partition, Exchange* exchange);
  void Begin(const StoreTensor& tensor, StorePartition* partition, StoreRequest request);
  bool GoesBesideCredit(const StorePartition& partition) const;
  void Probe(uint32_t server);
  void BarrierNext();
  // Takes store keys for the partitions of a tensor that is placed.
  Status Adopt(const protocol::Tensor& tensor);
  // Ends the directions of the partition's round that can end.
  void Settle(StorePartition* partition);
  Status TakeSum(const StorePartition& partition) const;
  void End(const StorePartition& partition, const OneWay& way, Traffic::Direction* counted,
           const Status& status);
  std::optional<int32_t> TakeHeaderKey();

  const Options options_;
  Executor* const executor_;
  const StoreFn begin_;
  OpenCalls calls_;
  StoreKeys keys_;
  protocol::Loads loads_;
  int32_t barrier_key_ = 0;
  std::map<uint32_t, int32_t> samples_;  // keys of the servers that are measured
  uint32_t scale_ = 0;                   // 0: not known
  std::unique_ptr<StoreScale> scaler_;   // while it measures
  uint64_t num_headers_ = 0;
  std::vector<Probes> probes_;    // by server
  std::vector<Traffic> traffic_;  // by server
  std::map<Key, std::unique_ptr<StoreTensor>> tensors_;
  std::deque<LookupCall> lookups_;  // on a rank but 0: the first is under way
  Status lookup_failure_;           // no header can be found any more
  std::deque<Done> barriers_;       // the first is under way
};

}  // namespace bs::backend
