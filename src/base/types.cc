// Element types and reductions: codes, sizes and names.
#include "base/types.h"

#include <iterator>

#include "base/check.h"

namespace bs {
namespace {

struct DTypeRow {
  DType dtype;
  size_t size_bytes;
  std::string_view name;
};

constexpr DTypeRow kDTypes[] = {
    {DType::kFloat32, 4, "float32"}, {DType::kFloat64, 8, "float64"},
    {DType::kFloat16, 2, "float16"}, {DType::kUint8, 1, "uint8"},
    {DType::kInt32, 4, "int32"},     {DType::kInt8, 1, "int8"},
    {DType::kInt64, 8, "int64"},     {DType::kBfloat16, 2, "bfloat16"},
};

const DTypeRow* Find(uint32_t code) {
  for (const DTypeRow& row : kDTypes) {
    if (static_cast<uint32_t>(row.dtype) == code) return &row;
  }
  return nullptr;
}

const DTypeRow& RowOf(DType dtype) {
  const DTypeRow* row = Find(static_cast<uint32_t>(dtype));
  BS_CHECK(row != nullptr);
  return *row;
}

constexpr std::string_view kReductions[] = {"sum", "min", "max", "product"};

}  // namespace

std::optional<DType> DTypeFromCode(uint32_t code) {
  const DTypeRow* row = Find(code);
  if (row == nullptr) return std::nullopt;
  return row->dtype;
}

size_t SizeOf(DType dtype) { return RowOf(dtype).size_bytes; }

std::string_view NameOf(DType dtype) { return RowOf(dtype).name; }

std::optional<Reduction> ReductionFromCode(uint32_t code) {
  if (code >= std::size(kReductions)) return std::nullopt;
  return static_cast<Reduction>(code);
}

std::string_view NameOf(Reduction reduction) { return kReductions[static_cast<size_t>(reduction)]; }

}  // namespace bs
