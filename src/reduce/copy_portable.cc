// Copies on CPUs where we leave it to the C library when to stream.
#include <cstring>

#include "reduce/reduce.h"

namespace bs::reduce {

void Copy(void* target, const void* source, size_t size_bytes) {
  if (size_bytes > 0) std::memcpy(target, source, size_bytes);
}

}  // namespace bs::reduce
