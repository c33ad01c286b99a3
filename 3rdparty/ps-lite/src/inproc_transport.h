// InprocTransport: nodes in one process, over a shared InprocNetwork.
#pragma once

#include <memory>

#include "base/executor.h"
#include "ps/transport.h"

namespace ps {

// The wires between the in-process nodes.  Belongs to `executor`, on which it routes.
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
  const std::unique_ptr<Impl> impl_;
};

// Callbacks run on `executor`.  Both must outlive the transport.
std::unique_ptr<Transport> MakeInprocTransport(InprocNetwork* network, bs::Executor* executor);

}  // namespace ps
