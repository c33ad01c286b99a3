// BS_CHECK's last words.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace bs {

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace bs
