// ReadyOrder: learns in which order tensors are needed from the order in which they become ready.
//
// Backward makes gradients ready in the reverse of the order in which the next forward needs them:
// the last to be ready is needed first.  Frameworks number parameters in other orders, by name for
// instance, where conv10 stands before conv2.
//
// Assumptions: the first tensor that is called for begins a step.  A step contains every regular
// tensor (it comes about as often as most tensors, or more often) as often as its share says.  It
// ends when a regular tensor is called for again after that.  Callers that run ahead change
// nothing: a gradient that backward left out is ready before the gradients of the previous step.
// Nor do pauses, tensors that come several times in a step, and tensors that come only in some
// steps.  Only tensors of every recorded step are renumbered.  The first step is not recorded: it
// contains initialisation and compilation.
//
// Tensors that became ready in the order of the calls say nothing: the caller may loop over
// gradients that are all ready, and a large gradient takes longer to copy.  Then nothing is
// renumbered.  Nor is it when the caller's numbers are right but for neighbours (the parameters of
// one layer).  The order within one moment says nothing either.  Gradients of one operator become
// ready at one moment.  So do gradients that were all ready when called for, such as the last
// layers' gradients, where backward is fast.  Among them the caller's number decides.
//
// Numbers above 0 are the caller's marks for tensors that are urgent for other reasons.  They stay,
// and no other number becomes as large.
//
// Pure: the same notes give the same lesson.  Not thread-safe: the owner confines it.  Bounded by
// kMostNotes; never fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/types.h"

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
    // The changed numbers of kRenumbered: the caller's numbers in another order.  Where all of them
    // are equal: distinct numbers around it, none above 0.
    std::vector<Renumbered> numbers{};
    size_t num_learned = 0;  // tensors of every step
    size_t num_moved = 0;    // by more than one place
  };

  struct Call {
    Key key = 0;
    Priority priority = 0;
    uint64_t called = 0;   // grows with the calls; which become ready in any order
    bool at_once = false;  // it was ready when called, for an unknown time
  };
  // A tensor became ready at `now`, which never decreases.
  void Note(const Call& call, TimePoint now);
  // Returns true after enough notes: several times as many as until the newest tensor came.
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
    bool at_once = false;
    TimePoint ready{};
  };
  struct Step {
    size_t begin = 0, end = 0;  // of `notes`
  };
  struct Split {
    std::vector<size_t> notes;  // of the log: step by step, and in each as they became ready
    std::vector<Step> steps;
  };
  // Sums over the recorded steps.
  struct Places {
    uint32_t tensor = 0;
    uint32_t steps = 0;     // in which it came
    uint64_t position = 0;  // where its moment began when it came last in a step
    uint64_t called = 0;
  };

  // Returns how often each tensor comes in a step, judged by the calls since the newest tensor
  // came; 0 if it comes in some steps only.
  std::vector<uint64_t> TimesInAStep() const;
  Split SplitIntoSteps() const;
  // For each note of the step, where among `notes` its moment began.
  void FindMoments(const Split& split, const Step& step, std::vector<size_t>* moments) const;
  // Returns the tensors that came in every step, the first to be ready first.
  std::vector<Places> Measure() const;
  Lesson Renumber(const std::vector<Places>& ready) const;

  std::vector<Tensor> tensors_;
  std::unordered_map<Key, uint32_t> indices_;
  std::vector<Event> log_;
  size_t newest_ = 0;  // notes until the newest tensor came, its own included
};

}  // namespace bs::core
