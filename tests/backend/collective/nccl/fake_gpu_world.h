// The library that plays NVIDIA's driver and NCCL, as tests of this process load and lead it.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/collective/nccl/cuda_driver.h"
#include "backend/collective/nccl/fake_gpu.h"
#include "backend/collective/nccl/nccl_library.h"

namespace bs::backend::collective {

inline std::string FakeGpuFolder(const std::string& kind) {
  return std::string(BS_FAKE_GPU_FOLDER) + "/" + kind;
}

inline Result<std::unique_ptr<NcclLibrary>> LoadFakeNccl(const std::string& kind) {
  return NcclLibrary::Load(std::vector<std::string>{FakeGpuFolder(kind)});
}

inline Result<std::unique_ptr<CudaDriver>> LoadFakeDriver(const std::string& kind) {
  return CudaDriver::Load(FakeGpuFolder(kind) + "/" + CudaDriver::kFile);
}

class FakeGpuWorld {
 public:
  explicit FakeGpuWorld(const std::string& kind = "whole")
      : library_(::dlopen((FakeGpuFolder(kind) + "/libnccl.so.2").c_str(), RTLD_NOW)) {}

  void Own(const std::vector<float>& memory, int gpu) {
    Find<FakeGpuOwnFn>("fake_gpu_own")(memory.data(), memory.size() * sizeof(float), gpu);
  }
  void SetFault(int rank, FakeFault fault, int operation = 0) {
    Find<FakeGpuFaultFn>("fake_gpu_fault")(rank, fault, operation);
  }
  void ForgetInit() { Find<FakeGpuForgetFn>("fake_gpu_forget")(); }
  // A graph is captured by a thread of the test.
  void Capture(bool captures) { Find<FakeGpuCaptureFn>("fake_gpu_capture")(captures); }
  // Copies wait on their streams.
  void Hold(bool holds) { Find<FakeGpuHoldFn>("fake_gpu_hold")(holds); }
  int aborts() { return Find<FakeGpuAbortsFn>("fake_gpu_aborts")(); }
  size_t copied_bytes() { return Find<FakeGpuCopiedFn>("fake_gpu_copied")(); }
  size_t locked_bytes() { return Find<FakeGpuLockedFn>("fake_gpu_locked")(); }
  // The test gives up memory that is still page-locked.
  void ForgetLocked() { Find<FakeGpuForgetFn>("fake_gpu_forget_locked")(); }
  void Locks(bool locks) { Find<FakeGpuLocksFn>("fake_gpu_locks")(locks); }
  int groups() { return Find<FakeGpuGroupsFn>("fake_gpu_groups")(); }

 private:
  template <typename F>
  F Find(const char* name) {
    return reinterpret_cast<F>(::dlsym(library_, name));
  }

  void* const library_;
};

}  // namespace bs::backend::collective
