// KvstoreBackend: takes the place of the servers for a Worker, on a store that knows only whole
// keys.
//
// The Worker partitions, orders and bounds as it does with our own servers.  Its requests arrive
// here instead of at a network and become operations on a synchronous stock store (MXNet's
// kvstore).  Each partition is a key of its own there.  So is the header in which rank 0 publishes
// the partitions of a tensor.
//
// When credit returns: the stock server acknowledges a push only when every worker has pushed that
// key.  If that acknowledgement returned the credit, two workers whose credit is spent on different
// keys would wait for each other for ever (design decision 3).  So a probe goes right behind each
// partition: the pull of a tiny key on the same server.  A stock worker has one connection to a
// server and sends in order; a stock server answers a pull at once, also in the middle of a round.
// Therefore the response to a probe shows that the partition before it has crossed the link.  It
// waits for the link only, and for no other worker.  Hence every started partition returns its
// credit after a finite time, so every queued partition starts, so every worker pushes every
// partition it has: no cycle of waiting is possible.
//
// A probe costs as much as a partition of a few KB.  So some bytes of small partitions need none
// while they are in flight (`small_bytes`): they return their credit at once.  When that is used
// up, the next ones are probed like all others.
// Measured at 50 Mbit/s: the probe behind 512 KiB came back after 88 ms, which is the time of the
// partition; the sum came when the other worker had pushed, two seconds later.
//
// Every worker must broadcast tensors in the same order, because the keys of partitions follow from
// it.  The header names rank 0's tensor, so a difference is found.
//
// Confined to the worker's executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/kvstore/store_keys.h"
#include "backend/kvstore/store_request.h"
#include "backend/kvstore/store_scale.h"
#include "base/unique_function.h"
#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "protocol/data_body.h"
#include "protocol/placement.h"
#include "protocol/tensor.h"
#include "ps/message.h"

namespace bs::worker {

class KvstoreBackend {
 public:
  struct Options {
    int32_t rank = 0;
    int32_t num_workers = 1;
    uint32_t num_servers = 1;
    // Rank 0 measures with this many bytes which partitions suit the store
    // (backend/kvstore/store_scale.h); less than kLeastSampleBytes: it does not.
    uint64_t sample_bytes = 0;
    // Gets rank 0's measurement, once, before any key is declared here.  May be empty.
    std::function<void(uint32_t scale)> on_scale{};
    std::function<TimePoint()> now{};  // needed with sample_bytes
    // How much of partitions of up to a sixteenth of it may be on its way to one server beside
    // credit.
    uint64_t small_bytes = 0;
  };
  using Done = UniqueFunction<void(const Status&)>;

  // `begin` starts operations on the store.  `answer` takes the responses that a server would send;
  // it must not call back inside.
  KvstoreBackend(const Options& options, StoreFn begin, std::function<void(ps::Message)> answer);
  KvstoreBackend(const KvstoreBackend&) = delete;
  KvstoreBackend& operator=(const KvstoreBackend&) = delete;
  ~KvstoreBackend() = default;

  // Rank 0 puts the back end's own keys into the store and measures; the others do nothing.  `done`
  // may run inside.
  // REQUIRES: called first, once; between its end on rank 0 and any other use on any worker lies a
  // barrier of the stock store.
  void Prepare(Done done);
  // Takes a request of the worker to a server.
  void OnRequest(const ps::Message& request);
  // `done` runs when every worker has called it as often.
  void Barrier(Done done);

 private:
  // A request that needs one response; its payload is in use during OnRequest only.
  struct Asked {
    int32_t peer = 0;
    ps::Extension envelope{};
    protocol::DataRequest what{};
  };
  // A partition of a tensor, with the requests for it in its current round.
  struct StorePartition {
    int32_t store_key = 0;
    uint32_t server = 0;
    uint64_t size_bytes = 0;
    Priority priority = 0;
    bool taken = false;   // it has crossed the link
    bool done = false;    // its operation is over
    bool beside = false;  // it counts among the small ones beside credit
    Status outcome;
    std::span<const std::byte> value;           // once done
    Asked push, pull;                           // the latest requests
    bool push_open = false, pull_open = false;  // not answered
  };
  struct StoreTensor {
    Tensor tensor;
    std::vector<StorePartition> partitions;
  };
  // A partition and the push for which it was sent: a later round has another push.
  struct Sent {
    StorePartition* partition;
    uint64_t sequence;

    bool waits() const {
      return partition->push_open && partition->push.envelope.sequence == sequence;
    }
  };
  struct Probes {
    std::vector<int32_t> free;
    std::vector<Sent> uncovered;  // sent to one server since its latest probe
    uint64_t beside_bytes = 0;    // on their way beside credit
  };

  void Measure(Done done);
  void SetScale(uint32_t scale);
  void OnDeclare(Asked request);
  void OnLookup(Asked request);
  void LookupNext();
  Status OnHeader(std::span<const std::byte> value);
  void OnPush(const StoreTensor& tensor, StorePartition* partition, Asked request,
              std::span<const std::byte> payload);
  void OnPull(const StoreTensor& tensor, StorePartition* partition, Asked request);
  void Begin(const StoreTensor& tensor, StorePartition* partition, StoreRequest request);
  bool GoesBesideCredit(const StorePartition& partition) const;
  void Probe(uint32_t server);
  void BarrierNext();
  // Takes store keys for the partitions of a tensor that is placed.
  Status Adopt(const Tensor& tensor);
  void Settle(StorePartition* partition);
  std::optional<int32_t> TakeHeaderKey();

  static ps::Message ResponseTo(const Asked& request, ps::Op op, protocol::DataResponse body = {});
  void Answer(const Asked& request, const Status& status, ps::Frame payload = {});
  void AnswerLookup(const Asked& request, const Tensor& tensor);
  void SayPending(const Asked& request);

  const Options options_;
  const StoreFn begin_;
  const std::function<void(ps::Message)> answer_;
  StoreKeys keys_;
  Loads loads_;
  int32_t barrier_key_ = 0;
  int32_t sample_key_ = 0;
  uint32_t scale_ = 0;                  // 0: not known
  std::unique_ptr<StoreScale> scaler_;  // while it measures
  uint64_t num_headers_ = 0;
  std::vector<Probes> probes_;  // by server
  std::map<Key, std::unique_ptr<StoreTensor>> tensors_;
  std::map<Key, Asked> declaring_;  // rank 0: the header is on its way
  std::deque<Asked> lookups_;       // the others: the first is under way
  Status lookup_failure_;           // the others: no header can be told any more
  std::deque<Done> barriers_;       // the first is under way
};

}  // namespace bs::worker
