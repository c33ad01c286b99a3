// MpiGate: lets a single thread in, until some thread closes it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/notification.h"
#include "base/types.h"

namespace bs::backend::collective {

class MpiGate {
 public:
  // A stay inside, if the gate is open.
  class Visit {
   public:
    explicit Visit(MpiGate* gate) : gate_(gate->Enter() ? gate : nullptr) {}
    ~Visit() {
      if (gate_ != nullptr) gate_->Leave();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    bool is_inside() const { return gate_ != nullptr; }

   private:
    MpiGate* const gate_;
  };

  // Nothing comes in from now on, and nothing is inside.  Any thread; waits for a visit.
  void Close() {
    if (!Shut()) left_.Wait();
  }
  // The same.  False: a visit goes on after that time.
  bool CloseWithin(Duration patience) { return Shut() || left_.WaitFor(patience); }

 private:
  enum class State : uint8_t { kOpen, kInUse, kClosing, kClosed };

  // False: a visit goes on.
  bool Shut() {
    State state = state_;
    while (state == State::kOpen || state == State::kInUse) {
      const State next = state == State::kOpen ? State::kClosed : State::kClosing;
      if (state_.compare_exchange_weak(state, next)) state = next;
    }
    return state == State::kClosed;
  }
  bool Enter() {
    State open = State::kOpen;
    return state_.compare_exchange_strong(open, State::kInUse);
  }
  // Behind Enter.
  void Leave() {
    State in_use = State::kInUse;
    if (state_.compare_exchange_strong(in_use, State::kOpen)) return;
    state_ = State::kClosed;
    left_.Notify();
  }

  std::atomic<State> state_ = State::kOpen;
  Notification left_;
};

}  // namespace bs::backend::collective
