// The choice of kernels on CPUs for which there is only the specification.
#include "reduce/casts.h"
#include "reduce/reduce.h"

namespace bs::reduce {

std::span<const Kernels* const> AvailableKernels() {
  static const Kernels* const only[] = {&ScalarKernels()};
  return only;
}

std::span<const Casts* const> AvailableCasts() {
  static const Casts* const only[] = {&ScalarCasts()};
  return only;
}

}  // namespace bs::reduce
