// OperationContext: the state that the operations of a worker share.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/backend.h"
#include "base/status.h"
#include "codec/codec.h"
#include "core/core.h"
#include "job/view.h"
#include "trace/spans.h"

namespace bs::worker {

struct OperationContext {
  job::SharedView view = job::ShareView({}, 1, 1);
  bool credit_until_pulled = false;  // not Rules::credit_returns_with_the_push
  // Not owned.
  backend::Backend* backend = nullptr;
  Core* core = nullptr;
  const codec::Table* codecs = &codec::Builtin();
  trace::Spans spans{};

  int32_t rank() const { return view->own.rank; }
  // This worker has taken the rank of a lost worker.
  bool rejoined() const { return view->own.incarnation > 0; }
  // Fails the worker for good; exchanges and tasks are failing when it returns.  Returns the first
  // failure, which stays the worker's.
  std::function<Status(const Status&)> fail{};
};

}  // namespace bs::worker
