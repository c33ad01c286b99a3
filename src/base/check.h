// BS_CHECK: a programmer's mistake ends the process, in release builds too.
//
// Never for anything that came from the network, the environment or the user: such errors get a
// Status.
#pragma once

namespace bs {
// Prints "file:line: check failed: expression" on stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);
}  // namespace bs

#define BS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::bs::CheckFailed(__FILE__, __LINE__, #condition))
