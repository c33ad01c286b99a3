// Broadcast: one key's initialisation: everyone learns how it is cut and gets rank 0's bytes.
//
// Rank 0 cuts and places the tensor, declares it to the key's home server and pushes its value as
// round 0; it is done when everything is acknowledged.  The others look the cut up and pull round
// 0.
//
// Confined to the worker's executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/ps/push_pull_task.h"
#include "backend/ps/requests.h"
#include "protocol/placement.h"

namespace bs::worker {

class Broadcast {
 public:
  using Ended = UniqueFunction<void(Result<Tensor>)>;

  // `link` must outlive this.  `value` is in use until `ended` runs; that may destroy this.  What
  // the home server refuses with kInvalidArgument, kFailedPrecondition or kAlreadyExists ends only
  // this; any other failure is the worker's.
  Broadcast(const Link* link, const Tensor& tensor, std::span<std::byte> value, Ended ended);
  Broadcast(const Broadcast&) = delete;
  Broadcast& operator=(const Broadcast&) = delete;
  ~Broadcast() = default;

  // Rank 0: `tensor` is cut and placed.  REQUIRES: one of the two is called, once.
  void Publish();
  // The others: of `tensor` only key, dtype and size are known.
  void Fetch();

 private:
  // Takes the cut that was declared.
  void Adopt(UniqueFunction<void()> then);
  void PushAll();
  void PullAll();
  void OnPulled(const Status& status);
  // The outcome of a request that may concern this call only.
  Status Judge(const Status& refused) const;
  void End(Result<Tensor> outcome);

  const Link* const link_;
  Tensor tensor_;
  const std::span<std::byte> value_;
  Ended ended_;
  std::unique_ptr<PushPullTask> task_;  // rank 0's round 0
  Status failure_;
  size_t pending_ = 0;  // pulls
};

}  // namespace bs::worker
