// FindNccl: a library that is absent is an error of the function.
#include "node/worker/nccl_worker.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace bs::node {
namespace {

TEST(NcclWorkerTest, AnAbsentLibraryIsAnErrorOfTheRank) {
  if (::dlopen("libnccl.so.2", RTLD_NOW) != nullptr) GTEST_SKIP() << "this machine has NCCL";
  Config config;
  config.num_workers = 2;
  config.comm = "nccl";
  const Result<MakeLibraryFn> library = FindNccl(config);
  ASSERT_TRUE(library.ok());
  const Status status = library.value()({}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.message().starts_with("NCCL cannot be used: this process has not loaded it"))
      << status.message();
}

}  // namespace
}  // namespace bs::node
