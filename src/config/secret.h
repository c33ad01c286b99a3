// The secret that the nodes of a job share.
#pragma once

#include <string>

#include "base/status.h"
#include "config/config.h"

namespace bs::config {

// Returns the content of the file without white space at its end.  Blocks on the file system.
// kInvalidArgument, naming BYTESCHEDULER_SECRET_FILE and the path: the file cannot be read, is
// larger than 64 KiB, is open to every user of this host, or is too short for a secret.
Result<std::string> ReadSecret(const std::string& path);
// Reads config->secret_file, if it is set, into config->secret; fails as ReadSecret.
Status LoadSecret(Config* config);

}  // namespace bs::config
