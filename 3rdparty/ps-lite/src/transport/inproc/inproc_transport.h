// InprocTransport: nodes in one process, over a shared InprocNetwork.
#pragma once

#include <memory>

#include "base/executor.h"
#include "ps/transport.h"

namespace ps {

// The network between the nodes of one process.  Belongs to `executor`, on which it routes.
//
// A connection carries one message at a time; the others wait here, most urgent first.
class InprocNetwork {
 public:
  explicit InprocNetwork(bs::Executor* executor);
  InprocNetwork(const InprocNetwork&) = delete;
  InprocNetwork& operator=(const InprocNetwork&) = delete;
  // REQUIRES: every transport on it is gone.
  ~InprocNetwork();

 private:
  friend class InprocTransport;
  class Impl;
  const std::shared_ptr<Impl> impl_;  // also held by the tasks it posts
};

// Callbacks run on `executor`.  Both arguments must outlive the transport.  Its destructor waits
// for the network's executor and so must not run on it.  Frames are handed over, not copied; the
// receiver releases them.
std::unique_ptr<Transport> MakeInprocTransport(InprocNetwork* network, bs::Executor* executor);

}  // namespace ps
