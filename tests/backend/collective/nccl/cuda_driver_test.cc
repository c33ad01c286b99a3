// CudaDriver: what it finds, and what it says where it finds nothing.
#include "backend/collective/nccl/cuda_driver.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "backend/collective/nccl/fake_gpu_world.h"

namespace bs::backend::collective {
namespace {

TEST(CudaDriver, WithoutADriverItSaysSo) {
  const Status status = CudaDriver::Load("/nowhere/libcuda.so.1").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "NVIDIA's driver library cannot be used (/nowhere/libcuda.so.1: cannot open shared "
            "object file: No such file or directory): install the driver, or unset "
            "BYTESCHEDULER_COMM and BYTESCHEDULER_LOCAL_SUMS");
}

TEST(CudaDriver, ALibraryThatLacksAFunctionIsNamed) {
  const std::string text = LoadFakeDriver("driverless").status().message();
  EXPECT_NE(text.find("libcuda.so.1 lacks cuThreadExchangeStreamCaptureMode"), std::string::npos)
      << text;
}

TEST(CudaDriver, ADriverWithoutAGpuSaysSoWhenOneIsNeeded) {
  const auto driver = std::move(LoadFakeDriver("whole").value());
  ASSERT_EQ(::setenv("BS_FAKE_NO_GPU", "1", 1), 0);
  const Status status = driver->Init();
  ASSERT_EQ(::unsetenv("BS_FAKE_NO_GPU"), 0);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "NVIDIA's driver library cannot be used (cuInit: no CUDA-capable device is detected): "
            "install the driver, or unset BYTESCHEDULER_COMM and BYTESCHEDULER_LOCAL_SUMS");
}

TEST(CudaDriver, LoadingLeavesTheDriverAlone) {
  FakeGpuWorld world;
  world.ForgetInit();
  const auto driver = std::move(LoadFakeDriver("whole").value());
  const std::vector<float> memory(8);
  world.Own(memory, 1);
  EXPECT_EQ(driver->GpuOf(memory.data()).status().message(),
            "cuPointerGetAttribute: the fake driver refuses");
  ASSERT_TRUE(driver->Init().ok());
  EXPECT_EQ(driver->GpuOf(memory.data()).value(), 1);
}

TEST(CudaDriver, KnowsTheGpuOfMemory) {
  FakeGpuWorld world;
  const auto driver = std::move(LoadFakeDriver("whole").value());
  ASSERT_TRUE(driver->Init().ok());
  const std::vector<float> on_gpu(8);
  const std::vector<float> on_cpu(8);
  world.Own(on_gpu, 3);
  world.Own(on_cpu, -1);
  EXPECT_EQ(driver->GpuOf(on_gpu.data() + 7).value(), 3);
  const Status status = driver->GpuOf(on_cpu.data()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "NCCL sums tensors of GPUs, and this tensor is on the CPU: move it to the worker's GPU, "
      "or unset BYTESCHEDULER_COMM and BYTESCHEDULER_LOCAL_SUMS");
}

TEST(CudaDriver, AnEventIsOverWithTheWorkBeforeIt) {
  const auto driver = std::move(LoadFakeDriver("whole").value());
  ASSERT_TRUE(driver->Init().ok());
  EXPECT_FALSE(driver->NewStream().ok()) << "without a context";
  ASSERT_TRUE(driver->Use(0).ok());
  const CudaDriver::Stream stream = driver->NewStream().value();
  const CudaDriver::Event event = driver->Record(stream).value();
  while (!driver->IsOver(event).value()) {
  }
  driver->Free(event);
}

TEST(CudaDriver, AGraphThatAnotherThreadCapturesBarsNoCall) {
  FakeGpuWorld world;
  const auto driver = std::move(LoadFakeDriver("whole").value());
  ASSERT_TRUE(driver->Init().ok());
  std::thread([&] {
    ASSERT_TRUE(driver->Use(0).ok());
    const CudaDriver::Event event = driver->Record(driver->NewStream().value()).value();
    world.Capture(true);
    EXPECT_TRUE(driver->IsOver(event).ok());
    std::thread([&] { EXPECT_FALSE(driver->IsOver(event).ok()) << "a thread by itself"; }).join();
    world.Capture(false);
    while (!driver->IsOver(event).value()) {
    }
    driver->Free(event);
  }).join();
}

}  // namespace
}  // namespace bs::backend::collective
