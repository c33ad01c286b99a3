// An open device of libibverbs: memory, queue pairs, completions.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "transport/rdma/ibverbs_symbols.h"
#include "transport/rdma/verbs.h"

namespace ps {

using IbverbsContext = std::unique_ptr<ibv_context, decltype(IbverbsSymbols::close_device)>;

// Adds the facts that only an open device tells: limits, and the MTU of its ports.
void AddFacts(const IbverbsSymbols& symbols, ibv_context* context, RdmaDevice* device);

// Keeps the promise of Verbs::Open; `facts` are the known facts of the device.
bs::Result<std::unique_ptr<VerbsDevice>> OpenIbverbsDevice(
    std::shared_ptr<const IbverbsSymbols> symbols, IbverbsContext context, RdmaDevice facts,
    uint32_t most_completions);

}  // namespace ps
