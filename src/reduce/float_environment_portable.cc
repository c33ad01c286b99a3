// The default floating-point environment by way of the C library.
#include "base/check.h"
#include "reduce/float_environment.h"

namespace bs::reduce {

DefaultFloatEnvironment::DefaultFloatEnvironment() {
  BS_CHECK(std::fegetenv(&callers_) == 0);
  BS_CHECK(std::fesetenv(FE_DFL_ENV) == 0);
}

DefaultFloatEnvironment::~DefaultFloatEnvironment() { std::fesetenv(&callers_); }

}  // namespace bs::reduce
