// Rules: decisions of a worker that a test takes back to show the need for them.
#pragma once

namespace bs::worker {

// A worker asks each question once, when it is made.
class Rules {
 public:
  Rules() = default;
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;
  virtual ~Rules() = default;

  // False: credit returns with the sum
  // (docs/design/decisions/0003-credit-at-the-push-acknowledgement.md).
  virtual bool credit_returns_with_the_push() const { return true; }
  // False: rank 0 uses a new layout already in the round that announces it
  // (protocol/next_layout.h).
  virtual bool layouts_change_behind_their_round() const { return true; }
};

}  // namespace bs::worker
