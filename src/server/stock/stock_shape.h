// StockShape: the contents of a stock workers' key on this server, and how pushes add to its sum.
//
// Pure functions on memory the caller owns; thread-safe; never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "server/stock/stock_request.h"

namespace bs::server {

// Fixed by the first push of a key.
struct StockShape {
  DType dtype = DType::kFloat32;
  uint64_t size_bytes = 0;
  bool rows = false;      // row_sparse: rows are pushed and pulled one by one
  uint64_t num_rows = 0;  // rows
  uint64_t row_bytes = 0;

  size_t num_elements() const { return size_bytes / SizeOf(dtype); }
};

// The shape that a key gets by its first push; kInvalidArgument if it can have none.
Result<StockShape> ShapeOfInit(const StockCall& call);
// Why `call` does not fit a key of this shape.
Status CheckStockCall(const StockShape& shape, const StockCall& call);

// target := the values of a first push, in the key's own dtype.
void TakeInit(const StockShape& shape, const StockCall& call, float threshold, std::byte* target);

// A round's sum; its memory has SumElements(shape) of `dtype`.  That is the key's dtype, or float32
// where float16 is summed wider than it travels.
struct StockSum {
  DType dtype = DType::kFloat32;
  std::byte* data = nullptr;
  bool empty = true;  // data holds nothing of this round yet
};
// Returns the elements of a sum: the key's elements, and behind them a flag for each row.  The flag
// is 1 if the row was pushed and optimizers know the dtype, else 0.
inline size_t SumElements(const StockShape& shape) {
  return shape.num_elements() + (shape.rows ? shape.num_rows : 0);
}
// Returns the bytes of a sum; `wide`: a sum of float16 is float32.
inline uint64_t SumBytes(const StockShape& shape, bool wide) {
  const bool widens = wide && shape.dtype == DType::kFloat16;
  return SumElements(shape) * SizeOf(widens ? DType::kFloat32 : shape.dtype);
}
// Adds the values that `call` pushes.  `scratch` keeps its memory from call to call.  May throw
// std::bad_alloc; then nothing was added.  REQUIRES: CheckStockCall is ok.
void AddPush(const StockShape& shape, const StockCall& call, float threshold, StockSum* sum,
             std::vector<float>* scratch);

}  // namespace bs::server
