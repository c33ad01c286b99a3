// OperationOf: the engine's operation of a round.
#pragma once

#include "frontend/mxnet/mxnet_round.h"

namespace bs::mxnet {

// REQUIRES: its proxies have located their memory.  `pushed` and `pulled` get the round.
inline bs_operation OperationOf(Round* round, bool was_there, bs_done pushed, bs_done pulled) {
  const auto kind_of = [](const Round& r) {
    if (!r.asynchronous) return BS_PUSH_PULL;
    if (!r.pulls) return BS_PUSH;
    return r.pushes ? BS_UPDATE : BS_PULL;
  };
  bs_operation operation = bs_operation_init(kind_of(*round));
  operation.key = round->key;
  operation.priority = round->priority;
  operation.size_bytes = round->size_bytes;
  operation.waited_ns = round->waited.count();
  operation.context = round;
  operation.done = round->pulls ? pulled : pushed;
  if (round->pushes) {
    operation.in = round->push.data;
    operation.coding = round->coding;
    if (round->has_rates) operation.rates = &round->rates;
  }
  if (round->pulls) operation.out = round->pull.data;
  if (round->pushes && round->pulls) operation.pushed = pushed;
  if (round->asynchronous) return operation;
  operation.called = round->called;
  operation.at_once = was_there ? 1 : 0;
  return operation;
}

}  // namespace bs::mxnet
