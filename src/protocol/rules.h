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
  // False: codecs get the partitions that keys have, whatever their units are (codec/codec.h).
  virtual bool coded_keys_are_cut_into_units() const { return true; }
  // False: a server forgets a key as soon as one worker has given it back (server/directory.h).
  virtual bool keys_go_when_all_workers_give_them_back() const { return true; }
  // False: the leader grants what is ready on its own rank alone (server/grants/leader.h).
  virtual bool grants_wait_for_all_workers() const { return true; }
  // False: a worker executes grants as they come (backend/collective/collective_backend.h).
  virtual bool grants_are_executed_in_order() const { return true; }
  // False: a worker executes a grant again when it comes again.
  virtual bool grants_are_executed_once() const { return true; }
  // Workers of a host add up (docs/design/decisions/0027-one-copy-a-host.md).  False: the host's
  // copy leaves with the first contribution; it leaves twice; the credit of the worker that adds up
  // waits for it; the worker of the highest rank gets no sum.
  virtual bool host_copies_wait_for_all() const { return true; }
  virtual bool host_copies_leave_once() const { return true; }
  virtual bool host_copies_have_their_own_credit() const { return true; }
  virtual bool host_sums_go_to_all() const { return true; }
  // A library adds up within hosts (docs/design/decisions/0031-nccl-within-a-host.md).  False: it
  // adds a partition up on the worker behind its owner; the owner's copy leaves before all have
  // added; the worker of the highest rank on a host is not given the sum.
  virtual bool library_adds_up_on_owners() const { return true; }
  virtual bool library_copies_wait_for_all() const { return true; }
  virtual bool library_gives_sums_to_all() const { return true; }
  // Exchanges (server/exchange/exchange.h).  False: the result is there with the first
  // contribution; a server forgets an exchange as soon as one taker has the result.
  virtual bool exchanges_wait_for_all_givers() const { return true; }
  virtual bool exchanges_stay_until_all_takers_have_them() const { return true; }
  // False: a server takes the first worker's terms for those of all; a worker's shard goes to the
  // server of another home, so that it misses the shards of the other givers.
  virtual bool exchanges_compare_terms() const { return true; }
  // False: a repeat of a contribution counts again; a late copy of a request for an exchange that
  // is over begins it again.
  virtual bool exchanges_count_contributions_once() const { return true; }
  virtual bool exchanges_stay_over() const { return true; }
  virtual bool exchanges_go_to_their_home() const { return true; }
};

}  // namespace bs::protocol
