// HostPlan: the workers of one host, and which of them adds up a partition.
//
// Pure values, the same on all nodes of a job, as the list of nodes is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/types.h"
#include "job/view.h"

namespace bs::backend {

class HostPlan {
 public:
  // `also_on_one_host`: the workers add up where the job has no other host too.  REQUIRES: the view
  // is a worker's.
  explicit HostPlan(const job::View& view, bool also_on_one_host = false);

  // More than one worker adds up.
  bool in_use() const { return ranks_.size() > 1; }
  // The workers of the host, in order.
  const std::vector<int32_t>& ranks() const { return ranks_; }
  size_t num_workers() const { return ranks_.size(); }
  // The place of a rank among them; nothing if it is on another host.
  std::optional<size_t> PlaceOf(int32_t rank) const;
  // The same; REQUIRES: the rank is on this host.
  size_t PlaceOnHost(int32_t rank) const;
  // The worker that adds up the partition.  All have nearly the same number of them.
  int32_t OwnerOf(Key key, uint32_t partition) const;
  // The place of that worker.
  size_t OwnersPlace(Key key, uint32_t partition) const;

 private:
  std::vector<int32_t> ranks_;
};

}  // namespace bs::backend
