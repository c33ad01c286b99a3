// FindLibrary: the library that BYTESCHEDULER_COMM names.
#include "node/worker/libraries.h"

#include <gtest/gtest.h>

#include <string>

namespace bs::node {
namespace {

TEST(LibrariesTest, ServersSumUnlessALibraryIsNamed) {
  Config config;
  config.num_workers = 2;
  for (const std::string comm : {"", "auto", "servers", "direct"}) {
    config.comm = comm;
    const Result<MakeLibraryFn> library = FindLibrary(config);
    ASSERT_TRUE(library.ok()) << comm;
    EXPECT_FALSE(library.value()) << comm;
  }
}

TEST(LibrariesTest, NcclIsNamedForSumsOfHostsToo) {
  Config config;
  config.num_workers = 2;
  config.comm = "direct";
  config.local_sums = "nccl";
  EXPECT_TRUE(FindLibrary(config).value());
  config.local_sums = "1";
  EXPECT_FALSE(FindLibrary(config).value());
}

TEST(LibrariesTest, ALibraryHasItsOwnErrors) {
  Config config;
  config.num_workers = 2;
  config.comm = "mpi";
  EXPECT_NE(FindLibrary(config).status().message().find("mpirun -n 2"), std::string::npos);
}

}  // namespace
}  // namespace bs::node
