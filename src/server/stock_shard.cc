// Hands requests of stock MXNet workers to the keys of one thread.
#include "server/stock_shard.h"

#include <new>
#include <string>
#include <utility>

namespace bs::server {

void StockShard::Handle(StockCall call) {
  const std::string what = DescribeStockCall(call);
  try {
    slots_.try_emplace(call.key, &state_, call.key).first->second.Handle(std::move(call));
  } catch (const std::bad_alloc&) {
    state_.fail(Status::ResourceExhausted(what + ": no memory"));
  }
}

}  // namespace bs::server
