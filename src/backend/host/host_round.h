// HostRound: one round of a partition, as the workers of a host add it up.
//
// Contributions are added in the order of ranks, but for those that the owner does not keep until
// their turn.  Confined to the worker's executor.  May throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/host/spare_sums.h"
#include "protocol/describe.h"
#include "ps/message.h"
#include "server/memory/sum_ref.h"

namespace bs::backend {

class HostRound {
 public:
  // `spares` gives the memory of the sum, and outlives this.
  HostRound(size_t num_workers, SpareSums* spares, const protocol::PartitionShape& shape);

  // REQUIRES: place < num_workers, here and below.
  bool has(size_t place) const { return taken_[place]; }
  const protocol::PartitionShape& shape() const { return shape_; }
  size_t num_workers() const { return taken_.size(); }
  // All contributions are in the sum.
  bool complete() const { return num_summed_ == num_workers(); }
  // The bytes of contributions that wait for their turn.
  uint64_t held_bytes() const { return early_.size() * shape_.size_bytes; }
  // A contribution would have to wait for its turn.  Two workers need no order: a + b and b + a
  // have the same bits.
  bool ComesEarly(size_t place) const { return num_workers() > 2 && place != next_; }

  // Takes a contribution, and adds it and others whose turn it then is.  A frame is released when
  // it is in the sum.  `waits`: it is kept until its turn.  REQUIRES: not has(place).
  void Take(size_t place, ps::Frame payload, bool waits);
  // Releases the contributions that wait.
  void Drop() { early_.clear(); }

  // REQUIRES: a contribution is in the sum.
  const server::SumRef& sum() const { return sum_; }
  // The round is over.
  void GiveSumBack() { spares_->Keep(std::move(sum_), shape_.size_bytes); }

 private:
  void Add(const std::vector<ps::Frame>& ready);

  const protocol::PartitionShape shape_;
  SpareSums* spares_;
  std::vector<bool> taken_;
  size_t num_summed_ = 0;
  size_t next_ = 0;                    // the first place that is not in the sum
  std::map<size_t, ps::Frame> early_;  // by place
  server::SumRef sum_;                 // owners: this, and answers in flight
};

}  // namespace bs::backend
