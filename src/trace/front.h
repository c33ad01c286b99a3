// Front: what a step loses where the backward pass ends and the next forward pass cannot begin:
// the last gradient is ready, and the sum of the most urgent tensor, which the first layer needs,
// is not there.
//
// Confined to the worker's executor.
#pragma once

#include <cstdint>
#include <optional>

#include "bytescheduler/types.h"

namespace bs::worker {

class Front {
 public:
  // So many times the tensors of a step without the front, and another one is looked for.
  static constexpr uint64_t kFrozen = 16;

  // A gradient is ready.
  void Ready(Key key, Priority priority, TimePoint now);
  // The sum of a tensor is there.  If it is the front's: since when all gradients of the step were
  // ready; `now` at the latest.
  std::optional<TimePoint> Summed(Key key, TimePoint now);

 private:
  struct Tensor {
    Key key = 0;
    Priority priority = 0;
  };

  // The most urgent tensor becomes the front.
  void Look();

  std::optional<Key> first_;      // that was ready since nothing is known: when it comes again a
                                  // step is over
  std::optional<Key> front_;      // of the step before
  std::optional<Tensor> urgent_;  // of those ready in this step, the first of the most urgent
  uint64_t ready_ = 0;            // in this step
  uint64_t a_step_ = 0;           // that many were in the one before
  TimePoint last_ready_{};
};

}  // namespace bs::worker
