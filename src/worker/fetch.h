// Fetch: asks for a tensor without a contribution.
//
// Confined to the worker's executor.  Costs no credit: only requests are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/unique_function.h"
#include "worker/operation_context.h"

namespace bs::worker {

class Fetch {
 public:
  // `context`, `tensor` and the memory of `out` must outlive this.  `ended` runs once, when `out`
  // is out of use; it may destroy this.  REQUIRES: `out` has the tensor's size.
  Fetch(const OperationContext* context, const protocol::Tensor* tensor, std::span<std::byte> out,
        UniqueFunction<void(Status)> ended);
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;
  ~Fetch() = default;

  // Asks for `round`.  REQUIRES: called once.
  void Begin(Round round, Priority priority);

 private:
  void OnSum(const Status& status);

  const OperationContext* const context_;
  const protocol::Tensor* const tensor_;
  const std::span<std::byte> out_;
  std::shared_ptr<void> lent_;  // registration of `out`, which ends before `ended`
  UniqueFunction<void(Status)> ended_;
  Status failure_;
  size_t pending_ = 0;
};

}  // namespace bs::worker
