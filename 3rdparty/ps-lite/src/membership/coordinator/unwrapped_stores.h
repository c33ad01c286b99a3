// UnwrappedStores: warns of stock workers without an attached one, which are not scheduled.
//
// Confined to the executor of the job.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "membership/coordinator/job_state.h"

namespace ps {

class UnwrappedStores {
 public:
  // `job` outlives it.
  explicit UnwrappedStores(JobState* job) : job_(job) {}
  UnwrappedStores(const UnwrappedStores&) = delete;
  UnwrappedStores& operator=(const UnwrappedStores&) = delete;
  ~UnwrappedStores() = default;

  // A worker was attached: that the others have wrapped their stores is worth a sentence.
  void OnAttached() { attached_ = true; }
  bool attached() const { return attached_; }
  // Names each stock worker without an attached one, once.  Not where a server is MXNet's own:
  // there a wrapped store has no attached worker either.
  void Warn();

 private:
  JobState* const job_;
  bool attached_ = false;
  std::set<std::pair<int32_t, uint64_t>> named_;  // by id and incarnation
};

}  // namespace ps
