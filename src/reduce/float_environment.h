// The default floating-point environment for as long as a sum takes.
//
// Confined to the thread that makes it; there is one file for each kind of CPU.
#pragma once

#include <cfenv>

namespace bs::reduce {

// Sets the default environment (to nearest even, subnormals kept) and puts the caller's back.
//
// Threads inherit the environment of the thread that started them.  Loading a library that was
// built with -ffast-math turns subnormals off in the thread that loads it.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment();
  ~DefaultFloatEnvironment();
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t callers_;
};

}  // namespace bs::reduce
