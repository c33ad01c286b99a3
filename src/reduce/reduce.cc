// Sums by dtype: finds the kernel and gives it the default floating-point environment.
#include "reduce/reduce.h"

#include <cfenv>
#include <cstring>

#include "base/check.h"

namespace bs::reduce {
namespace {

// Sets the default environment (nearest even, subnormals kept) and puts the caller's back.
//
// Threads inherit it from the thread that started them, and loading a library that was built with
// -ffast-math turns subnormals off in the thread that loads it.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    BS_CHECK(std::fegetenv(&callers_) == 0);
    BS_CHECK(std::fesetenv(FE_DFL_ENV) == 0);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&callers_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t callers_;
};

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

void Copy(void* target, const void* source, size_t size_bytes) {
  if (size_bytes > 0) std::memcpy(target, source, size_bytes);
}

}  // namespace bs::reduce
