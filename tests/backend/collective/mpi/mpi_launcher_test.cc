// FindMpiLauncher: whose variables fit the job.
#include "backend/collective/mpi/mpi_launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "base/snapshot.h"

namespace bs::backend::collective {
namespace {

using Environment = std::map<std::string, std::string, std::less<>>;

Result<MpiLauncher> Find(const Environment& environment, int64_t workers) {
  return FindMpiLauncher(
      [&](std::string_view name) {
        const auto at = environment.find(name);
        return at != environment.end() ? std::optional(at->second) : std::nullopt;
      },
      workers);
}

TEST(MpiLauncherTest, ItsProcessesAreTheWorkers) {
  EXPECT_EQ(Find({{"OMPI_COMM_WORLD_SIZE", "3"}}, 3).value().name, "Open MPI");
  EXPECT_EQ(Find({{"PMI_SIZE", "3"}}, 3).value().name, "MPICH");
  EXPECT_EQ(Find({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMI_SIZE", "3"}}, 3).value().name, "MPICH");
  EXPECT_EQ(Find({{"PMI_SIZE", "3"}}, 3).value().processes, 3);
}

TEST(MpiLauncherTest, ThereIsNoneWithoutMpirun) {
  const Status status = Find({}, 2).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "BYTESCHEDULER_COMM=mpi needs a job whose workers are the processes of mpirun or "
                  "mpiexec, and neither OMPI_COMM_WORLD_SIZE nor PMI_SIZE is set: start it with "
                  "mpirun -n 2, or set BYTESCHEDULER_COMM=direct");
}

TEST(MpiLauncherTest, NamesProcessesThatAreNotTheWorkers) {
  const Status status = Find({{"OMPI_COMM_WORLD_SIZE", "5"}, {"PMI_SIZE", "1"}}, 2).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_SNAPSHOT(status.message(),
                  "BYTESCHEDULER_COMM=mpi needs a job whose workers are the processes of mpirun or "
                  "mpiexec: this job has 2 workers, and OMPI_COMM_WORLD_SIZE=5 and PMI_SIZE=1");
}

}  // namespace
}  // namespace bs::backend::collective
