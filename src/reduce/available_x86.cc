// Chooses the kernels for x86-64 that the CPU and the system support.
#include <cpuid.h>

#include "reduce/kernels_x86.h"

namespace bs::reduce {
namespace {

struct Found {
  const Kernels* kernels[4] = {};
  size_t count = 0;
  const Casts* casts[3] = {};
  size_t num_casts = 0;

  void Add(const Kernels& one) { kernels[count++] = &one; }
  void Add(const Casts& one) { casts[num_casts++] = &one; }
};

// Not a word that every compiler's built-in knows; where AVX2 is usable, so are its registers.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
         (ecx & static_cast<unsigned>(bit_F16C)) != 0;
}

// Null without AVX512-FP16, or a compiler that knows it: a macro, as the rest of this file is the
// same with and without.  Types but float16 are added as by the other AVX-512 kernels.
const Kernels* Avx512Fp16Kernels() {
#ifdef BS_REDUCE_FP16
  if (!__builtin_cpu_supports("avx512fp16")) return nullptr;
  static const Kernels kernels = [] {
    Kernels all = Avx512Kernels();
    all.name = "avx512fp16";
    all.sum[static_cast<size_t>(DType::kFloat16)] = Avx512Fp16Sum();
    return all;
  }();
  return &kernels;
#else
  return nullptr;
#endif
}

Found Detect() {
  // The built-in also asks whether the system saves the wider registers, without which the CPU's
  // own word is worth nothing.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && HasF16c();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  Found found;
  found.Add(ScalarKernels());
  found.Add(ScalarCasts());
  if (avx2) {
    found.Add(Avx2Kernels());
    found.Add(Avx2Casts());
  }
  if (avx2 && avx512) {
    found.Add(Avx512Kernels());
    found.Add(Avx512Casts());
    const Kernels* const fp16 = Avx512Fp16Kernels();
    if (fp16 != nullptr) found.Add(*fp16);
  }
  return found;
}

const Found& OnThisCpu() {
  static const Found found = Detect();
  return found;
}

}  // namespace

std::span<const Kernels* const> AvailableKernels() {
  return {OnThisCpu().kernels, OnThisCpu().count};
}

std::span<const Casts* const> AvailableCasts() {
  return {OnThisCpu().casts, OnThisCpu().num_casts};
}

}  // namespace bs::reduce
