// One rank that sums memory of a real GPU by a real NCCL, and tells what it finds:
//
//     nccl_rank [FOLDER...]
//
// Without a driver it says so, and exits with 3.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/collective/nccl/cuda_driver.h"
#include "backend/collective/nccl/nccl_collective.h"
#include "backend/collective/nccl/nccl_library.h"
#include "base/loop_thread.h"
#include "base/notification.h"
#include "base/run_on.h"

namespace bs::backend::collective {
namespace {

constexpr size_t kCount = size_t{1} << 20U;
constexpr uint64_t kSums = 32;

// Memory of GPU 0, by the driver's own functions.
class Gpu {
 public:
  Gpu() : library_(::dlopen(CudaDriver::kFile, RTLD_NOW)) {}

  std::byte* Allocate(size_t size_bytes) {
    unsigned long long address = 0;
    auto* const allocate = Find<int(unsigned long long*, size_t)>("cuMemAlloc_v2");
    return allocate(&address, size_bytes) == 0 ? reinterpret_cast<std::byte*>(address) : nullptr;
  }
  bool Write(std::byte* to, const std::vector<float>& values) {
    auto* const copy = Find<int(unsigned long long, const void*, size_t)>("cuMemcpyHtoD_v2");
    return copy(reinterpret_cast<unsigned long long>(to), values.data(),
                values.size() * sizeof(float)) == 0;
  }
  std::vector<float> Read(const std::byte* from, size_t count) {
    std::vector<float> values(count);
    auto* const copy = Find<int(void*, unsigned long long, size_t)>("cuMemcpyDtoH_v2");
    copy(values.data(), reinterpret_cast<unsigned long long>(from), count * sizeof(float));
    return values;
  }

 private:
  template <typename F>
  F* Find(const char* name) {
    return reinterpret_cast<F*>(::dlsym(library_, name));
  }

  void* const library_;
};

Status SumOnce(LoopThread* loop, NcclCollective* nccl, uint64_t sequence,
               std::vector<Piece> pieces) {
  Notification ended;
  Status outcome;
  RunOn(loop, [&] {
    nccl->Begin(std::move(pieces), DType::kFloat32, sequence, [&](const Status& status) {
      outcome = status;
      ended.Notify();
    });
  });
  ended.Wait();
  return outcome;
}

Status SumOnGpu(std::unique_ptr<NcclLibrary> library, std::unique_ptr<CudaDriver> driver) {
  Status status = driver->Init();
  if (status.ok()) status = driver->Use(0);
  if (!status.ok()) return status;
  Gpu gpu;
  std::byte* const in = gpu.Allocate(kCount * sizeof(float));
  std::byte* const out = gpu.Allocate(kCount * sizeof(float));
  if (in == nullptr || out == nullptr) return Status::ResourceExhausted("no memory of the GPU");
  LoopThread loop("bs-io");
  std::unique_ptr<NcclCollective> nccl;
  NcclOptions options{
      .introduce = [](const std::string& card, const auto& done) { done(Cards{card}); }};
  options.spin = std::chrono::microseconds(100);
  RunOn(&loop, [&] {
    nccl = std::make_unique<NcclCollective>(&loop, std::move(library), std::move(driver), options);
  });
  for (uint64_t sequence = 0; sequence < kSums && status.ok(); ++sequence) {
    const std::vector<float> values(kCount, static_cast<float>(sequence) + 0.5F);
    if (!gpu.Write(in, values)) status = Status::Internal("the copy to the GPU failed");
    constexpr size_t kHalf = kCount / 2 * sizeof(float);
    if (!status.ok()) break;
    status = SumOnce(&loop, nccl.get(), sequence,
                     {{.in = {in, kHalf}, .out = {out, kHalf}},
                      {.in = {in + kHalf, kHalf}, .out = {out + kHalf, kHalf}}});
    if (status.ok() && gpu.Read(out, kCount) != values) {
      status = Status::Internal("sum " + std::to_string(sequence) + " differs");
    }
  }
  std::vector<float> here(16);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(here));
  const Status refused =
      status.ok() ? SumOnce(&loop, nccl.get(), kSums, {{.in = bytes, .out = bytes}}) : status;
  std::printf("a tensor of the CPU: %s\n", refused.message().c_str());
  RunOn(&loop, [&] { nccl.reset(); });
  return status;
}

int Main(const std::vector<std::string>& folders) {
  Result<std::unique_ptr<NcclLibrary>> library = NcclLibrary::Load(folders);
  if (!library.ok()) {
    std::printf("%s\n", library.status().message().c_str());
    return 2;
  }
  std::printf("NCCL %s, %s\n", NcclLibrary::TextOf(library.value()->version()).c_str(),
              library.value()->file().c_str());
  const Result<std::string> id = library.value()->NewId();
  std::printf("a unique id: %s\n", id.ok() ? "made" : id.status().message().c_str());
  Result<std::unique_ptr<CudaDriver>> driver = CudaDriver::Load();
  if (!driver.ok()) {
    std::printf("%s\n", driver.status().message().c_str());
    return 3;
  }
  const Status status = SumOnGpu(std::move(library.value()), std::move(driver.value()));
  std::printf("sums of one rank: %s\n", status.ok() ? "equal" : status.message().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace bs::backend::collective

int main(int argc, char** argv) {
  return bs::backend::collective::Main(std::vector<std::string>(argv + 1, argv + argc));
}
