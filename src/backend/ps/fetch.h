// Fetch: a pull of a tensor without a push.
//
// Confined to the worker's executor.  Costs no credit: nothing is sent but requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/ps/requests.h"

namespace bs::worker {

class Fetch {
 public:
  // `link`, `tensor` and the memory of `out` must outlive this.  `ended` runs once, when `out` is
  // out of use; it may destroy this.  REQUIRES: `out` has the tensor's size.
  Fetch(const Link* link, const Tensor* tensor, std::span<std::byte> out,
        UniqueFunction<void(Status)> ended);
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;
  ~Fetch() = default;

  // Asks for `round`.  REQUIRES: called once.
  void Begin(Round round, Priority priority);

 private:
  void OnPulled(const Status& status);

  const Link* const link_;
  const Tensor* const tensor_;
  const std::span<std::byte> out_;
  UniqueFunction<void(Status)> ended_;
  Status failure_;
  size_t pending_ = 0;
};

}  // namespace bs::worker
