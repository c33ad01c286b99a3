// FindMpi: the errors before a worker joins its job.  Jobs with real libraries are in tests/e2e.
#include "node/worker/mpi_worker.h"

#include <gtest/gtest.h>

namespace bs::node {
namespace {

TEST(MpiWorkerTest, NeedsALauncherOfMpi) {
  Config config;
  config.num_workers = 2;
  const Status status = FindMpi(config).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("neither OMPI_COMM_WORLD_SIZE nor PMI_SIZE is set"),
            std::string::npos)
      << status.message();
}

TEST(MpiWorkerTest, NamesTheSizeThatALauncherGave) {
  Config config;
  config.num_workers = 2;
  config.mpi_sizes["PMI_SIZE"] = "3";
  const Status status = FindMpi(config).status();
  EXPECT_NE(status.message().find("this job has 2 workers, and PMI_SIZE=3"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace bs::node
