// The settings of a node that listens on the loopback interface.
#pragma once

#include "config/config.h"

namespace bs::host {

inline Config OnLoopback() {
  Config config;
  config.root_uri = "127.0.0.1";
  return config;
}

}  // namespace bs::host
