// OperationHost: a node as the operations of its worker see it.
#pragma once

#include <string>

#include "base/status.h"
#include "worker/worker.h"

namespace bs::node {

// Thread-safe.  REQUIRES: the node has joined the job and is not closed.
class OperationHost {
 public:
  OperationHost() = default;
  OperationHost(const OperationHost&) = delete;
  OperationHost& operator=(const OperationHost&) = delete;

  virtual Worker* worker() = 0;
  // Backend::CheckExtra.
  virtual Status CheckExtra(const std::string& what) const = 0;
  // The node's Close waits until as many callbacks have ended as were expected.
  virtual void ExpectCallback() = 0;
  // REQUIRES: on the worker's executor.
  virtual void EndCallback() = 0;

 protected:
  ~OperationHost() = default;
};

}  // namespace bs::node
