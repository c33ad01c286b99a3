// The rank that a launcher of processes gave to this process: torchrun, Open MPI, MPICH or Slurm.
//
// Pure function, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "config/config.h"

namespace bs::config {

struct LauncherRank {
  std::string_view variable;  // "RANK"
  int32_t rank = 0;
};

// The rank among `num_workers` workers; empty if no launcher has given a rank.  A launcher that
// says that it started another number of processes has not started the workers alone, so its ranks
// are not theirs.  Only torchrun's rank counts where TORCHELASTIC_RUN_ID is set.  kInvalidArgument
// if a rank is malformed or out of range, or if two launchers differ.
Result<std::optional<LauncherRank>> FindLauncherRank(const Lookup& lookup, int32_t num_workers);

}  // namespace bs::config
