// The loops of onebit over eight elements at a time: a scalar specification, and vector kernels
// that give its bits.
//
// Pure functions on memory the caller owns; any alignment; thread-safe; in the default
// floating-point environment.  A kernel's file is compiled for its CPUs: it shares no inline
// function with other files, which a linker could take from there.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace bs::codec {

// Elements that are coded: in + ratio * residual, with the product rounded, or `in` if `residual`
// is null.
struct OnebitInput {
  const unsigned char* in;  // float32
  float* residual;
  float ratio;
};

struct OnebitKernels {
  std::string_view name;  // "scalar", "avx2", "avx512"
  // lanes[j] += the magnitude of each element 8 i + j, in that order.
  void (*add_magnitudes)(const OnebitInput& input, size_t eights, double* lanes);
  // A byte of signs for each eight; the values of the codes are subtracted from what is coded, and
  // the rest is the new residual.
  void (*code)(const OnebitInput& input, size_t eights, float scale, unsigned char* signs);
  // The values of codes put, or added, to float32 elements.  A NaN is the one of reduce.h.
  void (*put)(const unsigned char* signs, float scale, size_t eights, unsigned char* target);
  void (*add)(const unsigned char* signs, float scale, size_t eights, unsigned char* target);
};

// The specification.
const OnebitKernels& ScalarOnebit();
// Vector kernels, where the compiler makes them.
const OnebitKernels& Avx2Onebit();
const OnebitKernels& Avx512Onebit();

// All that this CPU can run, scalar first, fastest last.
std::span<const OnebitKernels* const> AvailableOnebit();

}  // namespace bs::codec
