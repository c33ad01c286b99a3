// Verbs over libibverbs.so.1, which is loaded at run time.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "transport/rdma/verbs.h"

namespace ps {

struct VerbsLibraryOptions {
  std::string library = "libibverbs.so.1";
  // The folder above "sys", where the kernel shows the devices; a test may make them up.
  std::string root{};
};

// Loads the library and decides about fork: call it before the process registers memory.
// kUnavailable: the library is not there, is too old, or cannot protect memory from fork; the
// message names the remedy.  Devices may be missing, which Devices tells.
bs::Result<std::shared_ptr<Verbs>> LoadVerbsLibrary(const VerbsLibraryOptions& options);

}  // namespace ps
