#include "server/stock/stock_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/snapshot.h"
#include "server/stock/stock_support.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

StockShape ShapeOf(const StockAsk& init) {
  const Result<StockShape> shape = ShapeOfInit(MakeStockCall(init));
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  return shape.value();
}

std::string Why(const StockShape& shape, const StockAsk& ask) {
  return CheckStockCall(shape, MakeStockCall(ask)).message();
}

TEST(StockShapeTest, EveryDTypeIsSummed) {
  for (const DType dtype : kAllDTypes) {
    StockAsk init = StockPush(0, Encode(dtype, {1, 2, 3}));
    init.dtype = dtype;
    const StockShape shape = ShapeOf(init);
    EXPECT_EQ(shape.dtype, dtype);
    EXPECT_EQ(shape.num_elements(), 3u);
    std::vector<std::byte> memory(shape.size_bytes);
    StockSum sum{.dtype = dtype, .data = memory.data()};
    std::vector<float> scratch;
    AddPush(shape, MakeStockCall(init), 0, &sum, &scratch);
    EXPECT_FALSE(sum.empty);
    AddPush(shape, MakeStockCall(init), 0, &sum, &scratch);
    EXPECT_EQ(memory, Encode(dtype, {2, 4, 6}));
  }
}

TEST(StockShapeTest, Float16IsSummedWideIfAskedFor) {
  StockAsk init = StockPush(0, Encode(DType::kFloat16, {1, 127}));
  init.dtype = DType::kFloat16;
  const StockShape shape = ShapeOf(init);
  std::vector<float> sums(2);
  StockSum sum{.dtype = DType::kFloat32, .data = reinterpret_cast<std::byte*>(sums.data())};
  std::vector<float> scratch;
  for (int i = 0; i < 3; ++i) AddPush(shape, MakeStockCall(init), 0, &sum, &scratch);
  EXPECT_EQ(sums, (std::vector<float>{3, 381}));
}

TEST(StockShapeTest, CodesAreAddedAsTheirValues) {
  const StockShape shape = ShapeOf(StockPush(0, Floats({9, 9, 9})));
  std::vector<float> sums(3);
  StockSum sum{.dtype = DType::kFloat32, .data = reinterpret_cast<std::byte*>(sums.data())};
  std::vector<float> scratch;
  // 11 is plus, 10 minus, 00 nothing.
  const StockAsk codes = StockTwoBit(0, 3, {std::byte{0b11100000}, {}, {}, {}});
  AddPush(shape, MakeStockCall(codes), 0.5F, &sum, &scratch);
  EXPECT_EQ(sums, (std::vector<float>{0.5F, -0.5F, 0}));
  AddPush(shape, MakeStockCall(codes), 0.5F, &sum, &scratch);
  EXPECT_EQ(sums, (std::vector<float>{1, -1, 0}));
  std::vector<float> first(3);
  TakeInit(ShapeOf(codes), MakeStockCall(codes), 2, reinterpret_cast<std::byte*>(first.data()));
  EXPECT_EQ(first, (std::vector<float>{2, -2, 0}));
}

TEST(StockShapeTest, RowsThatNoWorkerPushesAreZero) {
  const StockShape shape = ShapeOf(StockRows(StockPush(0, Floats({1, 1, 2, 2, 3, 3})), {0, 1, 2}));
  EXPECT_TRUE(shape.rows);
  EXPECT_EQ(shape.num_rows, 3u);
  EXPECT_EQ(shape.row_bytes, 8u);
  std::vector<float> sums(SumElements(shape), 77);
  StockSum sum{.dtype = DType::kFloat32, .data = reinterpret_cast<std::byte*>(sums.data())};
  std::vector<float> scratch;
  AddPush(shape, MakeStockCall(StockRows(StockPush(0, {}), {})), 0, &sum, &scratch);
  EXPECT_FALSE(sum.empty);
  AddPush(shape, MakeStockCall(StockRows(StockPush(0, Floats({5, 6, 7, 8})), {2, 0})), 0, &sum,
          &scratch);
  AddPush(shape, MakeStockCall(StockRows(StockPush(1, Floats({1, 1})), {2})), 0, &sum, &scratch);
  EXPECT_EQ(sums, (std::vector<float>{7, 8, 0, 0, 6, 7, 1, 0, 1})) << "and who was pushed";
}

TEST(StockShapeTest, AServerMayHaveNoRowOfAnArray) {
  const StockShape shape = ShapeOf(StockRows(StockPush(0, {}), {}));
  EXPECT_EQ(shape.size_bytes, 0u);
  EXPECT_EQ(Why(shape, StockRows(StockPush(1, {}), {})), "");
  EXPECT_EQ(Why(shape, StockRows(StockPull(1), {})), "");
  EXPECT_THAT(Why(shape, StockRows(StockPull(1), {0})), HasSubstr("row 0 of 0"));
}

TEST(StockShapeTest, APullOfMoreRowsThanThereAreIsRefused) {
  const StockShape shape = ShapeOf(StockRows(StockPush(0, Floats({1, 2})), {0, 1}));
  EXPECT_EQ(Why(shape, StockRows(StockPull(1), {0, 1})), "");
  EXPECT_THAT(Why(shape, StockRows(StockPull(1), {0, 1, 1})), HasSubstr("asks for 3 rows of 2"));
}

TEST(StockShapeTest, FirstPushesThatMakeNoArrayAreRefused) {
  const auto why = [](const StockAsk& ask) {
    return ShapeOfInit(MakeStockCall(ask)).status().message();
  };
  StockAsk boolean = StockPush(0, Floats({1}));
  boolean.dtype = static_cast<DType>(7);
  EXPECT_SNAPSHOT(why(boolean),
                  "push of key 3 from worker 0: dtype 7 is none that a server can sum");
  EXPECT_THAT(why(StockPush(0, {std::byte{}})), HasSubstr("no whole number of elements"));
  EXPECT_THAT(why(StockRows(StockPush(0, Floats({1, 2})), {0, 2})), HasSubstr("all of its rows"));
  EXPECT_THAT(why(StockRows(StockPush(0, Floats({1, 2, 3})), {0, 1})),
              HasSubstr("no whole number of elements"));
  EXPECT_THAT(why(StockRows(StockPush(0, {std::byte{}}), {})), HasSubstr("1 byte for 0 rows"));
  StockAsk wide = StockTwoBit(0, 1, std::vector<std::byte>(4));
  wide.dtype = DType::kFloat64;
  EXPECT_THAT(why(wide), HasSubstr("float32 only"));
}

TEST(StockShapeTest, RequestsThatDoNotFitAreRefused) {
  const StockShape dense = ShapeOf(StockPush(0, Floats({1, 2})));
  EXPECT_EQ(Why(dense, StockPush(1, Floats({1, 2}))), "");
  EXPECT_EQ(Why(dense, StockPull(1)), "");
  EXPECT_SNAPSHOT(Why(dense, StockPush(1, Floats({1}))),
                  "push of key 3 from worker 1: it brings float32 of 4 bytes, but the key was "
                  "initialised as float32 of 8 bytes");
  StockAsk other = StockPush(1, Floats({1, 2}));
  other.dtype = DType::kInt32;
  EXPECT_THAT(Why(dense, other), HasSubstr("it brings int32 of 8 bytes"));
  EXPECT_THAT(Why(dense, StockTwoBit(1, 3, std::vector<std::byte>(4))), HasSubstr("12 bytes"));
  EXPECT_THAT(Why(dense, StockRows(StockPull(1), {0})), HasSubstr("initialised dense"));
  const StockShape rows = ShapeOf(StockRows(StockPush(0, Floats({1, 2})), {0, 1}));
  EXPECT_THAT(Why(rows, StockPush(1, Floats({1, 2}))), HasSubstr("initialised row_sparse"));
  EXPECT_THAT(Why(rows, StockRows(StockPush(1, Floats({1})), {2})), HasSubstr("row 2 of 2"));
  EXPECT_THAT(Why(rows, StockRows(StockPush(1, Floats({1, 2})), {1})),
              HasSubstr("8 bytes for 1 row of 4"));
}

}  // namespace
}  // namespace bs::server
