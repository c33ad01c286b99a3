// Mutants of a simulated job: a test takes a rule or a row back, and the simulator must notice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>

#include "protocol/rules.h"
#include "sim/cluster.h"

namespace bs::sim {

// Returns true if one of the first clusters of `draw`, with this change, breaks a promise of one of
// these kinds; of any kind if there are none.
inline bool IsFoundOut(ClusterOptions (*draw)(uint64_t),
                       const std::function<void(ClusterOptions*)>& change,
                       std::initializer_list<Broken> kinds = {}) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    ClusterOptions options = draw(seed);
    change(&options);
    const Report report = RunCluster(options, seed);
    const auto shows = [&](Broken kind) { return report.Has(kind); };
    if (std::any_of(kinds.begin(), kinds.end(), shows)) return true;
    if (kinds.size() == 0 && !report.problems.empty()) return true;
  }
  return false;
}

// The same with other rules.
inline bool IsFoundOut(const protocol::Rules& rules, ClusterOptions (*draw)(uint64_t),
                       std::initializer_list<Broken> kinds = {}) {
  return IsFoundOut(draw, [&](ClusterOptions* options) { options->rules = &rules; }, kinds);
}

}  // namespace bs::sim
