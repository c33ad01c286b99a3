// StockCall: the request of a stock MXNet worker about its values, taken apart and checked.
//
// Pure functions on messages; thread-safe; never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "ps/message.h"

namespace bs::server {

// How the values of a request are laid out.  Numbers are on the wire, paired with the dtype's.
enum class StockLayout : uint32_t { kDense = 0, kRows = 1, kTwoBit = 2 };

// Identity of a store in a worker: a process may have several, each of which counts as one worker.
struct StockParty {
  int32_t worker_id = 0;
  int32_t customer_id = 0;
  auto operator<=>(const StockParty&) const = default;
};

struct StockCall {
  StockParty from;
  int32_t worker_rank = 0;
  ps::Meta meta;  // echoed by the answer
  StockLayout layout = StockLayout::kDense;
  uint32_t dtype = 0;
  bool push = false;
  bool pull = false;       // `push` or `pull` is true
  uint64_t key = 0;        // as MXNet numbers it
  uint64_t num_coded = 0;  // kTwoBit, push: elements that the codes stand for
  ps::Frame keys;          // echoed; of rows the first is the key's
  ps::Frame values;        // of a push

  // kRows: how many rows the request names, and which its i-th is (unchecked).
  size_t num_rows() const { return keys.size() / sizeof(uint64_t) - 1; }
  uint64_t row(size_t i) const;
};

// The keys on the wire that belong to a server; `end` is not.  MXNet's numbers count from `begin`.
struct StockRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};
// The keys of server `rank` of `num_servers`.
StockRange StockRangeOf(int32_t rank, int32_t num_servers);

// Takes a request apart to the server of `range`.  kInvalidArgument, naming sender and key, for a
// request that no stock worker sends.
Result<StockCall> ParseStockCall(ps::Message message, const StockRange& range);

// "push key 3 from worker 1", for people.
std::string DescribeStockCall(const StockCall& call);

// The answer to `call`, whose keys it takes: with the values, or, if it asked for none, without.
ps::Message MakeStockAnswer(StockCall* call, ps::Frame values);
// Makes a response of rows with `row_length` elements each.
ps::Message MakeStockRowsAnswer(StockCall* call, ps::Frame values, uint32_t row_length);
}  // namespace bs::server
