// ReadyOrder: learns in which order tensors are needed from the order in which they become ready.
//
// Backward makes gradients ready in the reverse of the order in which the next forward needs them:
// the last to be ready is needed first.  Frameworks number parameters in other orders, by name for
// instance, where conv10 stands before conv2.
//
// What it takes for granted: the first tensor it is told of begins a step; a step contains every
// regular tensor (one that comes about as often as most) at least once, and ends when one comes
// again after that.  So pauses, tensors that come several times in a step and tensors that come
// only in some steps change nothing; only those of every recorded step are renumbered.  (One that
// comes twice after all others is taken for the beginning of the next step.)  The first step is not
// recorded: initialisation and compilation are in it.
//
// Tensors that became ready in the order in which the caller called for them tell nothing: it may
// be a loop over gradients that had all been there.  Then, and when the caller's numbers are right
// but for neighbours (the parameters of one layer), nothing is renumbered.
//
// Pure: the same notes give the same lesson.  Not thread-safe: the owner confines it.  Bounded by
// kMostNotes; never fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "bytescheduler/types.h"

namespace bs::core {

// A tensor whose priority is `measured` where the caller says `callers`.
struct Renumbered {
  Key key = 0;
  Priority callers = 0;
  Priority measured = 0;
  bool operator==(const Renumbered&) const = default;
};

class ReadyOrder {
 public:
  static constexpr size_t kMostNotes = size_t{1} << 18U;

  enum class Verdict : uint8_t {
    kRenumbered,      // the caller's numbers contradict the order
    kCallersIsRight,  // they do not
    kAsCalled,        // tensors became ready in the order of the calls
    kUnsteady,        // too few of them come in every step, always with the same number
  };
  struct Lesson {
    Verdict verdict = Verdict::kUnsteady;
    // The caller's numbers in another order; of kRenumbered, and only what changes.  Where all of
    // them are equal: distinct ones around that.
    std::vector<Renumbered> numbers{};
    size_t num_learned = 0;  // tensors of every step
    size_t num_moved = 0;    // by more than one place
  };

  // A tensor became ready.  `called` grows with the calls for which the caller asked, in which it
  // need not be this one's turn.
  void Note(Key key, Priority priority, uint64_t called);
  // Whether it was told enough: several times as much as until the newest tensor came.
  bool complete() const;
  Lesson Learn() const;

 private:
  struct Tensor {
    Key key = 0;
    Priority priority = 0;
    bool steady = true;  // it always had that priority
  };
  struct Event {
    uint32_t tensor = 0;  // index
    uint64_t called = 0;
  };
  struct Step {
    size_t begin = 0, end = 0;  // of the log
  };
  // Sums over the recorded steps.
  struct Places {
    uint32_t tensor = 0;
    uint32_t steps = 0;     // in which it came
    uint64_t position = 0;  // where it came last in a step
    uint64_t called = 0;
  };

  // Those that came about as often as most since the newest came.
  std::vector<bool> Regular() const;
  std::vector<Step> Cut() const;
  // Of the tensors that came in every step, the first to be ready first.
  std::vector<Places> Measure() const;
  Lesson Renumber(const std::vector<Places>& ready) const;

  std::vector<Tensor> tensors_;
  std::unordered_map<Key, uint32_t> indices_;
  std::vector<Event> log_;
  size_t newest_ = 0;  // notes until the newest tensor came, that one included
};

}  // namespace bs::core
