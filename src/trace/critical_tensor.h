// CriticalTensor: the tensor that the next forward pass waits for, and for how long.
//
// A step loses time where its backward pass ends and the next forward pass cannot begin.  Then the
// last gradient is ready, and the sum of the most urgent tensor, which the first layer needs, is
// not there.
//
// Bookkeeping is left out: such a round may overtake all gradients, and come behind the last.
//
// Confined to the worker's executor.
#pragma once

#include <cstdint>
#include <optional>

#include "base/types.h"

namespace bs::trace {

// Keys from here on are no tensors of the training: the engine and the wrappers of frameworks keep
// their books under them (BS_FIRST_BOOKKEEPING_KEY).
inline constexpr Key kFirstBookkeepingKey = Key{1} << 63U;

class CriticalTensor {
 public:
  // The critical tensor is out of use when this many times the tensors of a step have come without
  // it.  Then the search for another tensor begins.
  static constexpr uint64_t kFrozen = 16;

  // A gradient is ready.
  void Ready(Key key, Priority priority, TimePoint now);
  // The sum of a tensor is there.  For the critical tensor: returns the time since which all
  // gradients of the step are ready, at most `now`.
  std::optional<TimePoint> Summed(Key key, TimePoint now);

 private:
  struct Tensor {
    Key key = 0;
    Priority priority = 0;
  };

  // A step is over: its most urgent tensor becomes the critical tensor.
  void EndStep();

  std::optional<Key> first_;      // the first key seen while no tensor is critical; the step is
                                  // over when it comes again
  std::optional<Key> critical_;   // learned from the step before
  std::optional<Tensor> urgent_;  // of the tensors ready in this step, the first of the most urgent
  uint64_t ready_ = 0;            // tensors ready in this step
  uint64_t a_step_ = 0;           // tensors ready in the step before
  TimePoint last_ready_{};
};

}  // namespace bs::trace
