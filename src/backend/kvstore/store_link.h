// StoreLink: plays the servers to a Worker, over a store that knows only whole keys.
//
// The Worker cuts, orders and bounds as it does over our own servers; what it sends arrives here
// instead of at a network and becomes operations on a synchronous stock store (MXNet's kvstore):
// each piece is a key of its own there, and so is the header in which rank 0 publishes how a tensor
// is cut.
//
// When credit returns.  The stock server answers a push only when every worker has pushed that key.
// If that answer gave the credit back, two workers whose credit is spent on different keys would
// wait for each other for ever (design decision 3).  So right behind each piece goes a probe: the
// pull of a tiny key that lies on the same server.  A stock worker has one connection to a server
// and sends in order, and a stock server answers a pull at once, in the middle of a round too.
// Therefore the answer to a probe says that the piece before it has crossed the link, and it waits
// for no other worker, only for the link.  Hence every piece that is started gives its credit back
// after a finite time whatever the others do, so every queued piece is started, so every worker
// pushes every piece it has: no cycle of waiting is possible.  A probe costs as much as a piece of
// a few KB.  So some bytes of small pieces go without, as long as they have not ended
// (`small_bytes`): they give their credit back at once, and when that is used up, the next are
// probed as all others. Measured at 50 Mbit/s: the probe behind 512 KiB came back after 88 ms,
// which is the time the piece needs; the sum came when the other worker had pushed, two seconds
// later.
//
// The order in which tensors are broadcast must be the same on every worker, because the key of a
// piece follows from it; the header says which tensor rank 0 means, so a difference is found.
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

class StoreLink {
 public:
  struct Options {
    int32_t rank = 0;
    int32_t num_workers = 1;
    uint32_t num_servers = 1;
    // Of rank 0: measure with so many bytes how large pieces shall be
    // (backend/kvstore/store_scale.h); less than kLeastSampleBytes: do not.
    uint64_t sample_bytes = 0;
    // Told once, before any key is declared here, what rank 0 has measured.  May be empty.
    std::function<void(uint32_t scale)> on_scale{};
    std::function<TimePoint()> now{};  // needed with sample_bytes
    // How much of pieces of up to a sixteenth of it may be on its way to one server beside credit.
    uint64_t small_bytes = 0;
  };
  using Done = UniqueFunction<void(const Status&)>;

  // `answer` takes what a server would send; it must not call back inside.
  StoreLink(const Options& options, Carry carry, std::function<void(ps::Message)> answer);
  StoreLink(const StoreLink&) = delete;
  StoreLink& operator=(const StoreLink&) = delete;
  ~StoreLink() = default;

  // Rank 0 puts the link's own keys into the store and measures; the others do nothing.  `done` may
  // run inside. REQUIRES: called first, once; between its end on rank 0 and any other use on any
  // worker lies a barrier of the stock store.
  void Prepare(Done done);
  // A request of the worker to a server.
  void OnRequest(const ps::Message& request);
  // `done` runs when every worker has called it as often.
  void Barrier(Done done);

 private:
  // Who asked what, to be answered once; the payload is in use during OnRequest only.
  struct Asked {
    int32_t peer = 0;
    ps::Extension envelope{};
    protocol::DataRequest what{};
  };
  // A piece of a tensor and what is asked about it in its current round.
  struct StorePiece {
    int32_t store_key = 0;
    uint32_t server = 0;
    uint64_t size_bytes = 0;
    Priority priority = 0;
    bool taken = false;    // it has crossed the link
    bool carried = false;  // its operation is over
    bool beside = false;   // it counts among the small ones beside credit
    Status outcome;
    std::span<const std::byte> value;           // once carried
    Asked push, pull;                           // the latest requests
    bool push_open = false, pull_open = false;  // not answered
  };
  struct StoreTensor {
    Tensor tensor;
    std::vector<StorePiece> pieces;
  };
  // A piece and the push it was sent for: a later round of it is another one.
  struct Sent {
    StorePiece* piece;
    uint64_t sequence;

    bool waits() const { return piece->push_open && piece->push.envelope.sequence == sequence; }
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
  void OnPush(const StoreTensor& tensor, StorePiece* piece, Asked request,
              std::span<const std::byte> payload);
  void OnPull(const StoreTensor& tensor, StorePiece* piece, Asked request);
  void Begin(const StoreTensor& tensor, StorePiece* piece, StoreRequest request);
  bool GoesBesideCredit(const StorePiece& piece) const;
  void Probe(uint32_t server);
  void BarrierNext();
  // Takes store keys for the pieces of a tensor that is placed.
  Status Adopt(const Tensor& tensor);
  void Settle(StorePiece* piece);
  std::optional<int32_t> TakeHeaderKey();

  static ps::Message ResponseTo(const Asked& request, ps::Op op, protocol::DataResponse body = {});
  void Answer(const Asked& request, const Status& status, ps::Frame payload = {});
  void AnswerLookup(const Asked& request, const Tensor& tensor);
  void SayPending(const Asked& request);

  const Options options_;
  const Carry carry_;
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
