// NcclLibrary: which file it takes, and what it says of files that are of no use.
#include "backend/collective/nccl/nccl_library.h"

#include <gtest/gtest.h>

#include "backend/collective/nccl/fake_gpu_world.h"

namespace bs::backend::collective {
namespace {

TEST(NcclLibrary, TakesTheFirstFolderThatHasIt) {
  const auto library =
      std::move(NcclLibrary::Load(std::vector<std::string>{"/nowhere", FakeGpuFolder("newer"),
                                                           FakeGpuFolder("whole")})
                    .value());
  EXPECT_EQ(library->file(), FakeGpuFolder("newer") + "/libnccl.so.2");
  EXPECT_EQ(NcclLibrary::TextOf(library->version()), "2.23.4");
}

TEST(NcclLibrary, SaysWhereItLooked) {
  const Status status = NcclLibrary::Load(std::vector<std::string>{"/nowhere"}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "NCCL cannot be used: this process has not loaded it, /nowhere lacks it, and so do the "
            "system's folders and LD_LIBRARY_PATH (libnccl.so.2): install a PyTorch with CUDA, or "
            "run pip install nvidia-nccl-cu12 or nvidia-nccl-cu13, whichever CUDA the driver has");
}

TEST(NcclLibrary, RefusesAnOldVersion) {
  EXPECT_EQ(LoadFakeNccl("old").status().message(),
            "NCCL cannot be used: " + FakeGpuFolder("old") +
                "/libnccl.so.2 is NCCL 2.13.4, and version 2.14.0 or newer is needed: pip install "
                "-U torch, or nvidia-nccl-cu12");
}

TEST(NcclLibrary, NamesAFunctionThatIsMissing) {
  EXPECT_EQ(LoadFakeNccl("lacks").status().message(),
            "NCCL cannot be used: " + FakeGpuFolder("lacks") +
                "/libnccl.so.2 lacks ncclCommInitRankConfig");
}

TEST(NcclLibrary, LooksBesideThisProgram) {
  const std::vector<std::string> folders = NcclLibrary::FoldersBeside();
  ASSERT_EQ(folders.size(), 1U);
  EXPECT_TRUE(folders[0].ends_with("/nvidia/nccl/lib")) << folders[0];
}

TEST(NcclLibrary, EachIdIsAnotherOne) {
  const auto library = std::move(LoadFakeNccl("whole").value());
  const std::string id = library->NewId().value();
  EXPECT_EQ(id.size(), NcclLibrary::kIdBytes);
  EXPECT_NE(id, library->NewId().value());
}

}  // namespace
}  // namespace bs::backend::collective
