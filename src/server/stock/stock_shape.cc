// The shape of a stock worker's key on this server, and how pushes add to its sum.
#include "server/stock/stock_shape.h"

#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/count_of.h"
#include "codec/two_bit.h"
#include "protocol/describe.h"
#include "reduce/reduce.h"

namespace bs::server {
namespace {

Status Wrong(const StockCall& call, const std::string& what) {
  return Status::InvalidArgument(DescribeStockCall(call) + ": " + what);
}

uint64_t PushedBytes(const StockCall& call) {
  return call.layout == StockLayout::kTwoBit ? call.num_coded * sizeof(float) : call.values.size();
}

// All rows of the key, in order.
Status CheckAllRows(const StockCall& call) {
  const size_t num_rows = call.num_rows();
  for (size_t i = 0; i < num_rows; ++i) {
    if (call.row(i) != i) {
      return Wrong(call, "the first push of a row_sparse array must bring all of its rows");
    }
  }
  if (num_rows == 0 ? call.values.size() == 0 : call.values.size() % num_rows == 0) {
    return Status::Ok();
  }
  return Wrong(call, CountOf(call.values.size(), "byte") + " for " + CountOf(num_rows, "row"));
}

Status CheckRows(const StockShape& shape, const StockCall& call) {
  const size_t num_rows = call.num_rows();
  for (size_t i = 0; i < num_rows; ++i) {
    if (call.row(i) >= shape.num_rows) {
      return Wrong(call, "row " + std::to_string(call.row(i)) + " of " +
                             std::to_string(shape.num_rows) + " that this server has");
    }
  }
  if (call.pull && num_rows > shape.num_rows) {  // an answer is no larger than the key
    return Wrong(call, "it asks for " + CountOf(num_rows, "row") + " of " +
                           std::to_string(shape.num_rows) + " that this server has");
  }
  // No overflow: all these keys have arrived.
  if (!call.push || call.values.size() == num_rows * shape.row_bytes) return Status::Ok();
  return Wrong(call, CountOf(call.values.size(), "byte") + " for " + CountOf(num_rows, "row") +
                         " of " + std::to_string(shape.row_bytes));
}

// The elements of `sum` from `offset` on += values, or := if `put`.
void AddRange(const StockSum& sum, DType dtype, size_t offset, std::span<const std::byte> values,
              bool put, std::vector<float>* scratch) {
  if (values.empty()) return;
  const size_t count = values.size() / SizeOf(dtype);
  std::byte* const target = sum.data + offset * SizeOf(sum.dtype);
  if (sum.dtype == dtype) {
    if (put) return reduce::Copy(target, values.data(), values.size());
    return reduce::Sum(reduce::BestKernels(), dtype, target, values.data(), count);
  }
  if (put) return reduce::Widen({reinterpret_cast<float*>(target), count}, values);
  reduce::Widen({scratch->data(), count}, values);
  reduce::Sum(reduce::BestKernels(), sum.dtype, target, scratch->data(), count);
}

// sum[offset] := 1, of the types that optimizers know.
void SetOne(const StockSum& sum, size_t offset) {
  constexpr float kOne = 1;
  constexpr double kOne64 = 1;
  constexpr uint16_t kOne16 = 0x3c00;
  const void* one = &kOne;
  if (sum.dtype == DType::kFloat64) one = &kOne64;
  if (sum.dtype == DType::kFloat16) one = &kOne16;
  const size_t size_bytes = SizeOf(sum.dtype);
  if (size_bytes >= sizeof(kOne16)) std::memcpy(sum.data + offset * size_bytes, one, size_bytes);
}

}  // namespace

Result<StockShape> ShapeOfInit(const StockCall& call) {
  const std::optional<DType> dtype = DTypeFromCode(call.dtype);
  if (!dtype) {
    return Wrong(call, "dtype " + std::to_string(call.dtype) + " is none that a server can sum");
  }
  if (call.layout == StockLayout::kTwoBit && *dtype != DType::kFloat32) {
    return Wrong(call, "two bits an element are for float32 only");
  }
  StockShape shape{.dtype = *dtype, .size_bytes = PushedBytes(call)};
  size_t whole_bytes = SizeOf(*dtype);
  if (call.layout == StockLayout::kRows) {
    if (const Status wrong = CheckAllRows(call); !wrong.ok()) return wrong;
    shape.rows = true;
    shape.num_rows = call.num_rows();
    shape.row_bytes = shape.num_rows == 0 ? 0 : call.values.size() / shape.num_rows;
    whole_bytes *= shape.num_rows == 0 ? 1 : shape.num_rows;
  }
  if (shape.size_bytes % whole_bytes == 0) return shape;
  return Wrong(call, protocol::DescribeArray(call.dtype, shape.size_bytes) +
                         " is no whole number of elements");
}

Status CheckStockCall(const StockShape& shape, const StockCall& call) {
  const bool rows = call.layout == StockLayout::kRows;
  if (rows && !shape.rows) {
    return Wrong(call, "it is row_sparse, but the key was initialised dense");
  }
  if (rows) {
    if (const Status wrong = CheckRows(shape, call); !wrong.ok()) return wrong;
  }
  if (!call.push) return Status::Ok();
  if (!rows && shape.rows) {
    return Wrong(call, "it is dense, but the key was initialised row_sparse");
  }
  const uint64_t pushed = rows ? shape.size_bytes : PushedBytes(call);
  if (call.dtype == static_cast<uint32_t>(shape.dtype) && pushed == shape.size_bytes) {
    return Status::Ok();
  }
  return Wrong(call,
               "it brings " + protocol::DescribeArray(call.dtype, pushed) +
                   ", but the key was initialised as " +
                   protocol::DescribeArray(static_cast<uint32_t>(shape.dtype), shape.size_bytes));
}

void TakeInit(const StockShape& shape, const StockCall& call, float threshold, std::byte* target) {
  if (shape.size_bytes == 0) return;
  if (call.layout == StockLayout::kTwoBit) {
    return codec::DequantizeTwoBit(threshold, call.values.bytes().data(), target, call.num_coded);
  }
  reduce::Copy(target, call.values.bytes().data(), shape.size_bytes);
}

void AddPush(const StockShape& shape, const StockCall& call, float threshold, StockSum* sum,
             std::vector<float>* scratch) {
  const std::span<const std::byte> values = call.values.bytes();
  const bool put = sum->empty;
  if (sum->dtype != shape.dtype) scratch->resize(shape.num_elements());
  sum->empty = false;
  if (call.layout == StockLayout::kTwoBit) {
    if (call.num_coded == 0) return;
    const auto add = put ? codec::DequantizeTwoBit : codec::AddTwoBit;
    return add(threshold, values.data(), sum->data, call.num_coded);
  }
  if (!shape.rows) return AddRange(*sum, shape.dtype, 0, values, put, scratch);
  const size_t count = SumElements(shape);
  if (put && count > 0) std::memset(sum->data, 0, count * SizeOf(sum->dtype));
  const size_t row_length = shape.row_bytes / SizeOf(shape.dtype);
  for (size_t i = 0; i < call.num_rows(); ++i) {
    const std::span<const std::byte> row = values.subspan(i * shape.row_bytes, shape.row_bytes);
    AddRange(*sum, shape.dtype, call.row(i) * row_length, row, false, scratch);
    SetOne(*sum, shape.num_elements() + call.row(i));
  }
}

}  // namespace bs::server
