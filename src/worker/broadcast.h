// Broadcast: one key's initialisation: every worker learns its layout and gets rank 0's bytes.
//
// Rank 0 partitions and places the tensor, declares it to the back end and contributes its value as
// round 0; it is done when everything is acknowledged.  The other workers look the layout up and
// ask for round 0.
//
// Confined to the worker's executor.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/unique_function.h"
#include "worker/fetch.h"
#include "worker/operation_context.h"
#include "worker/push_pull_task.h"

namespace bs::worker {

class Broadcast {
 public:
  using Ended = UniqueFunction<void(Result<protocol::Tensor>)>;

  // `context` must outlive this.  `value` is in use until `ended` runs; that may destroy this.  A
  // declaration or look-up that is refused with kInvalidArgument, kFailedPrecondition or
  // kAlreadyExists ends only this; any other failure is the worker's.
  Broadcast(const OperationContext* context, const protocol::Tensor& tensor,
            std::span<std::byte> value, Ended ended);
  Broadcast(const Broadcast&) = delete;
  Broadcast& operator=(const Broadcast&) = delete;
  ~Broadcast() = default;

  // Rank 0: `tensor` is partitioned and placed.  REQUIRES: one of the two is called, once.
  void Publish();
  // Other ranks: only key, dtype, mode and size of `tensor` are known.
  void Receive();

 private:
  // Takes the layout that was declared.
  void Adopt(UniqueFunction<void()> then);
  void PushAll();
  void PullAll();
  // The outcome of a request that may concern this call only.
  Status Judge(const Status& refused) const;
  void End(Result<protocol::Tensor> outcome);

  const OperationContext* const context_;
  protocol::Tensor tensor_;
  const std::span<std::byte> value_;
  Ended ended_;
  std::unique_ptr<PushPullTask> task_;  // rank 0's round 0
  std::unique_ptr<Fetch> fetch_;
  Status failure_;
};

}  // namespace bs::worker
