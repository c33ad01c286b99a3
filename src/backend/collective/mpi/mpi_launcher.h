// MpiLauncher: the program that starts the processes of an MPI job, by the variables that it sets.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backend/collective/mpi/mpi_abi.h"
#include "base/status.h"

namespace bs::backend::collective {

struct MpiLauncher {
  std::string_view name;
  std::string_view size_variable;  // it sets this for each process
  std::string_view packages;       // that install its library
  std::span<const MpiAbi> abis;    // of its library, the preferred ABI first
  int64_t processes = 0;           // that it has started
};

// Returns the value of a variable of the environment.
using MpiVariables = std::function<std::optional<std::string>(std::string_view name)>;

// Returns the launcher of this process.  kFailedPrecondition: there is none, or its processes are
// not the `workers` of the job.
Result<MpiLauncher> FindMpiLauncher(const MpiVariables& variables, int64_t workers);

}  // namespace bs::backend::collective
