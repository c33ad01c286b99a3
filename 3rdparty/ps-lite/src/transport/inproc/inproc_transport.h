// InprocTransport: nodes in one process, over a shared InprocNetwork.
#pragma once

#include <memory>

#include "base/executor.h"
#include "ps/transport.h"

namespace ps {

// The wires between the in-process nodes.  Belongs to `executor`, on which it routes.
//
// One message at a time is on its way over a wire; the others wait for it here, most urgent first.
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

// Callbacks run on `executor`.  Both must outlive the transport, whose destructor waits for the
// network's executor and so must not run on it.  Frames are handed over, not copied: the receiver
// releases them.
std::unique_ptr<Transport> MakeInprocTransport(InprocNetwork* network, bs::Executor* executor);

}  // namespace ps
