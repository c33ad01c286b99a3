// The specification of casts: one element at a time, in portable arithmetic.
#include "reduce/casts.h"

#include <cstdint>
#include <cstring>

#include "reduce/halves.h"

namespace bs::reduce {
namespace {

template <typename T>
T ElementAt(const void* array, size_t index) {
  T element;  // copied out, because an array may start at any byte of a message
  std::memcpy(&element, static_cast<const unsigned char*>(array) + index * sizeof(T), sizeof(T));
  return element;
}

template <typename T>
void PutElement(void* array, size_t index, T element) {
  std::memcpy(static_cast<unsigned char*>(array) + index * sizeof(T), &element, sizeof(T));
}

template <typename Half>
void NarrowOf(void* halves, const void* floats, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) {
    PutElement(halves, i, Half::Narrow(OneNan(ElementAt<float>(floats, i) * factor)));
  }
}

template <typename Half>
void WidenOf(void* floats, const void* halves, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) {
    PutElement(floats, i, OneNan(Half::Widen(ElementAt<uint16_t>(halves, i)) * factor));
  }
}

template <typename Half>
void AddOf(void* floats, const void* halves, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    PutElement(floats, i,
               OneNan(ElementAt<float>(floats, i) + Half::Widen(ElementAt<uint16_t>(halves, i))));
  }
}

template <typename Half>
constexpr HalfCasts kCastsOf = {NarrowOf<Half>, WidenOf<Half>, AddOf<Half>};

constexpr Casts kCasts = {
    .name = "scalar", .float16 = kCastsOf<Float16>, .bfloat16 = kCastsOf<Bfloat16>};

}  // namespace

const Casts& ScalarCasts() { return kCasts; }

const Casts& BestCasts() { return *AvailableCasts().back(); }

}  // namespace bs::reduce
