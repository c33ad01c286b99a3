// Rules: decisions of workers and servers that a test takes back to show the need for them.
#pragma once

#include <cstdint>

namespace bs::protocol {

// A worker or server asks each of its questions once, when it is made.
class Rules {
 public:
  Rules() = default;
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;
  virtual ~Rules() = default;

  // A server's buffers for sums of a partition: 1 or 2
  // (docs/design/decisions/0002-two-buffers-and-a-round-number.md).
  virtual uint32_t num_buffers() const { return 2; }
  // False: a worker's credit returns with the sum
  // (docs/design/decisions/0003-credit-at-the-push-acknowledgement.md).
  virtual bool credit_returns_with_the_push() const { return true; }
  // False: worker 0 uses a new layout already in the round that announces it
  // (protocol/next_layout.h).
  virtual bool layouts_change_behind_their_round() const { return true; }
  // False: a server forgets a key as soon as one worker has given it back (server/directory.h).
  virtual bool keys_go_when_all_workers_give_them_back() const { return true; }
  // False: the leader grants what is ready on its own rank alone (server/grants/leader.h).
  virtual bool grants_wait_for_all_workers() const { return true; }
  // False: a worker executes grants as they come (backend/collective/collective_backend.h).
  virtual bool grants_are_executed_in_order() const { return true; }
  // False: a worker executes a grant again when it comes again.
  virtual bool grants_are_executed_once() const { return true; }
};

}  // namespace bs::protocol
