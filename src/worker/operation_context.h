// OperationContext: the state that the operations of a worker share.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/backend.h"
#include "bytescheduler/core.h"
#include "bytescheduler/status.h"
#include "codec/codec.h"
#include "trace/spans.h"

namespace bs::worker {

struct OperationContext {
  int32_t rank = 0;
  bool rejoined = false;             // WorkerOptions::rejoined
  bool credit_until_pulled = false;  // WorkerOptions::test_credit_until_pulled
  // Not owned.
  Backend* backend = nullptr;
  Core* core = nullptr;
  const codec::Table* codecs = &codec::Builtin();
  Spans spans{};
  // Fails the worker for good; exchanges and tasks are failing when it returns.  Returns the first
  // failure, which stays the worker's.
  std::function<Status(const Status&)> fail{};
};

}  // namespace bs::worker
