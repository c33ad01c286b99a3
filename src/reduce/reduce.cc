// Sums by dtype in the default floating-point environment; many inputs are summed block by block.
#include "reduce/reduce.h"

#include <algorithm>

#include "base/check.h"
#include "reduce/float_environment.h"

namespace bs::reduce {
namespace {

// Block of one array: partial sums of more inputs than a kernel takes stay in a core's cache from
// one pass to the next.  With smaller blocks the hardware prefetches less of the inputs.
constexpr size_t kBlockBytes = size_t{64} * 1024;

Kernels::SumFn Find(const Kernels& kernels, DType dtype) {
  const auto code = static_cast<size_t>(dtype);
  BS_CHECK(code < 16 && kernels.sum[code] != nullptr);
  return kernels.sum[code];
}

// Sums the elements from `offset_bytes` on: as many inputs as a kernel takes, then adds the next
// inputs to their sum.
void SumBlock(Kernels::SumFn sum, std::byte* target, std::span<const void* const> inputs,
              size_t offset_bytes, size_t count) {
  const void* taken[kMaxFusedInputs];
  size_t num_taken = 0;
  for (size_t next = 0; next < inputs.size();) {
    for (; num_taken < kMaxFusedInputs && next < inputs.size(); ++next) {
      taken[num_taken++] = static_cast<const std::byte*>(inputs[next]) + offset_bytes;
    }
    sum(target + offset_bytes, taken, num_taken, count);
    taken[0] = target + offset_bytes;
    num_taken = 1;
  }
}

}  // namespace

const Kernels& BestKernels() { return *AvailableKernels().back(); }

void Sum(const Kernels& kernels, DType dtype, void* accumulator, const void* addend, size_t count) {
  Sum(kernels, dtype, accumulator, accumulator, addend, count);
}

void Sum(const Kernels& kernels, DType dtype, void* target, const void* a, const void* b,
         size_t count) {
  const DefaultFloatEnvironment environment;
  const void* const inputs[] = {a, b};
  Find(kernels, dtype)(target, inputs, 2, count);
}

void SumInputs(const Kernels& kernels, DType dtype, void* target,
               std::span<const void* const> inputs, size_t count) {
  BS_CHECK(inputs.size() >= 2);
  const DefaultFloatEnvironment environment;
  const Kernels::SumFn sum = Find(kernels, dtype);
  if (inputs.size() <= kMaxFusedInputs) return sum(target, inputs.data(), inputs.size(), count);
  const size_t block = kBlockBytes / SizeOf(dtype);
  for (size_t done = 0; done < count; done += block) {
    SumBlock(sum, static_cast<std::byte*>(target), inputs, done * SizeOf(dtype),
             std::min(block, count - done));
  }
}

}  // namespace bs::reduce
