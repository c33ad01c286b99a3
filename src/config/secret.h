// The secret that the nodes of a job share.
#pragma once

#include <string>

#include "bytescheduler/config.h"
#include "bytescheduler/status.h"

namespace bs::api {

// What stands in the file, without white space at its end.  Blocks on the file system.
// kInvalidArgument, naming BYTESCHEDULER_SECRET_FILE and the path, if it cannot be read, is not a
// file of at most 64 KiB, is open to everybody on this host, or holds too little to be a secret.
Result<std::string> ReadSecret(const std::string& path);
// Reads config->secret_file, if it names one, into config->secret; fails as ReadSecret.
Status LoadSecret(Config* config);

}  // namespace bs::api
