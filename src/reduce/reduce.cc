// Sums by dtype: finds the kernel and gives it the default floating-point environment.
#include "reduce/reduce.h"

#include "base/check.h"
#include "reduce/float_environment.h"

namespace bs::reduce {
namespace {

// The table's entry for `dtype`.
template <typename Function>
Function Find(const Function (&table)[16], DType dtype) {
  const auto code = static_cast<size_t>(dtype);
  BS_CHECK(code < 16 && table[code] != nullptr);
  return table[code];
}

}  // namespace

const Kernels& BestKernels() { return *AvailableKernels().back(); }

void Sum(const Kernels& kernels, DType dtype, void* accumulator, const void* addend, size_t count) {
  const DefaultFloatEnvironment environment;
  Find(kernels.sum, dtype)(accumulator, addend, count);
}

void Sum(const Kernels& kernels, DType dtype, void* target, const void* a, const void* b,
         size_t count) {
  const DefaultFloatEnvironment environment;
  Find(kernels.sum2, dtype)(target, a, b, count);
}

}  // namespace bs::reduce
