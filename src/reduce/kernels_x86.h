// The vector kernels of x86-64, for available_x86.cc to choose from.
//
// The files that define them are compiled for CPUs that not every machine has.  They must therefore
// emit no function that another file might emit too (inline functions, templates of std): the
// linker keeps one copy, and if it kept theirs, generic code would stop on older CPUs.  So
// everything there is in an anonymous namespace, and a test checks that their objects hold no such
// symbol.
#pragma once

#include "reduce/casts.h"
#include "reduce/reduce.h"

namespace bs::reduce {

// REQUIRES of its functions: the CPU and the system support AVX2 and F16C.
const Kernels& Avx2Kernels();
// REQUIRES of its functions: the CPU and the system support AVX-512 F, BW, VL and DQ.
const Kernels& Avx512Kernels();
// The same for casts.
const Casts& Avx2Casts();
const Casts& Avx512Casts();
// Sums float16.  REQUIRES also: AVX512-FP16.  Exists only where BS_REDUCE_FP16 is defined, because
// not every compiler knows these instructions.
Kernels::SumFn Avx512Fp16Sum();

}  // namespace bs::reduce
