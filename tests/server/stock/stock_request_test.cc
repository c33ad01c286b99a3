#include "server/stock/stock_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/snapshot.h"
#include "ps-lite/wire/golden.h"
#include "server/stock/stock_support.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

const StockRange kAll = StockRangeOf(0, 1);

ps::Meta GoldenMeta(const std::string& name) {
  for (const ps::test::Golden& golden : ps::test::GoldenData()) {
    if (golden.name == name) return golden.meta;
  }
  ADD_FAILURE() << name;
  return {};
}

// As captured: key 3, the floats 1 to 4, their length.
ps::Message Captured(const std::string& name, bool with_values) {
  ps::Message message;
  message.peer = ps::WorkerId(1);
  message.meta = GoldenMeta(name);
  const std::string values = ps::test::FromHex("0000803f000000400000404000008040");
  message.data.push_back(ps::Frame::Copy(ps::test::FromHex("0300000000000000")));
  message.data.push_back(ps::Frame::Copy(with_values ? values : ""));
  if (with_values) message.data.push_back(ps::Frame::Copy(ps::test::FromHex("10000000")));
  return message;
}

TEST(StockRequestTest, CapturedRequestsAreUnderstoodAndAnsweredAsCaptured) {
  for (const std::string kind : {"push", "pull", "push_pull"}) {
    const bool pushes = kind != "pull";
    Result<StockCall> call = ParseStockCall(Captured(kind + " request", pushes), kAll);
    ASSERT_TRUE(call.ok()) << call.status().message();
    StockCall& asked = call.value();
    EXPECT_EQ(asked.from, (StockParty{ps::WorkerId(1), 0}));
    EXPECT_EQ(asked.worker_rank, 1);
    EXPECT_EQ(asked.key, 3u);
    EXPECT_EQ(asked.layout, StockLayout::kDense);
    EXPECT_EQ(asked.dtype, 0u);
    EXPECT_EQ(asked.push, pushes);
    EXPECT_EQ(asked.pull, kind != "push");
    EXPECT_EQ(asked.values.size(), pushes ? 16u : 0u);
    const ps::Message answer = MakeStockAnswer(&asked, ps::Frame::Copy("sixteen bytes ok"));
    EXPECT_EQ(answer.peer, ps::WorkerId(1));
    EXPECT_EQ(answer.meta, GoldenMeta(kind + " response"));
    ASSERT_EQ(answer.data.size(), kind == "push" ? 0u : 3u);
    if (kind == "push") continue;
    EXPECT_EQ(answer.data[0].text(), ps::test::FromHex("0300000000000000"));
    EXPECT_EQ(answer.data[1].text(), "sixteen bytes ok");
    EXPECT_EQ(answer.data[2].text(), ps::test::FromHex("10000000"));
  }
}

TEST(StockRequestTest, AnOldWorkerThatDoesNotSayPullIsAnsweredLikewise) {
  ps::Message old = Captured("pull request", false);
  old.meta.pull = false;
  Result<StockCall> call = ParseStockCall(std::move(old), kAll);
  ASSERT_TRUE(call.ok());
  EXPECT_TRUE(call.value().pull);
  const ps::Message answer = MakeStockAnswer(&call.value(), ps::Frame::Copy("1234"));
  EXPECT_FALSE(answer.meta.push);
  EXPECT_EQ(answer.data.size(), 3u);
}

TEST(StockRequestTest, HeadsArePairsOfLayoutAndDType) {
  // As captured: float32 row_sparse 1, float64 2, float32 compressed 3, float16 5.
  for (const auto& [head, layout, dtype] :
       {std::tuple{0, 0u, 0u}, {1, 1u, 0u}, {2, 0u, 1u}, {3, 2u, 0u}, {5, 0u, 2u}, {27, 0u, 6u}}) {
    ps::Message pull = Captured("pull request", false);
    pull.meta.head = head;
    const Result<StockCall> call = ParseStockCall(std::move(pull), kAll);
    ASSERT_TRUE(call.ok()) << head;
    EXPECT_EQ(static_cast<uint32_t>(call.value().layout), layout) << head;
    EXPECT_EQ(call.value().dtype, dtype) << head;
  }
  for (const int32_t head : {-1, 6, ps::kEmpty}) {  // 6 would be a layout 3
    ps::Message pull = Captured("pull request", false);
    pull.meta.head = head;
    EXPECT_FALSE(ParseStockCall(std::move(pull), kAll).ok()) << head;
  }
}

TEST(StockRequestTest, TheCapturedCompressedPartsAreUnderstood) {
  // 37 elements over two servers: 32 and 5.
  const StockRange range = StockRangeOf(1, 2);
  EXPECT_EQ(range.begin, 0x7fffffffffffffffu);
  EXPECT_EQ(range.end, 0xfffffffffffffffeu);
  EXPECT_EQ(StockRangeOf(0, 2).begin, 0u);
  StockAsk ask = StockTwoBit(0, 5, {std::byte{0}, std::byte{0xc0}, {}, {}});
  for (uint64_t& key : ask.keys) key += range.begin;
  const Result<StockCall> call = ParseStockCall(StockRequest(ask), range);
  ASSERT_TRUE(call.ok()) << call.status().message();
  EXPECT_EQ(call.value().key, 3u);
  EXPECT_EQ(call.value().num_coded, 5u);
}

TEST(StockRequestTest, RowsCountFromTheKeysOwn) {
  const StockCall call = MakeStockCall(StockRows(StockPull(0), {0, 7, 2}));
  ASSERT_EQ(call.num_rows(), 3u);
  EXPECT_EQ(call.row(0), 0u);
  EXPECT_EQ(call.row(1), 7u);
  StockCall answered = MakeStockCall(StockRows(StockPull(0), {0, 7, 2}));
  const ps::Message answer = MakeStockRowsAnswer(&answered, ps::Frame::Copy("rows"), 5);
  EXPECT_EQ(LengthsIn(answer), (std::vector<int32_t>{0, 5, 5, 5}));
}

TEST(StockRequestTest, ARequestThatNoStockWorkerSendsIsRefused) {
  const auto why = [](ps::Message message, const StockRange& range = kAll) {
    const Result<StockCall> call = ParseStockCall(std::move(message), range);
    return call.ok() ? "taken" : call.status().message();
  };
  ps::Message one_frame = Captured("push request", true);
  one_frame.data.resize(1);
  EXPECT_SNAPSHOT(why(std::move(one_frame)),
                  "a request of worker 1 makes no sense: 1 data frames, want 2 or 3");
  ps::Message four = Captured("push request", true);
  four.data.emplace_back();
  EXPECT_THAT(why(std::move(four)), HasSubstr("4 data frames"));
  for (const std::string bytes : {"", "1234567", "123456789"}) {
    ps::Message keys = Captured("pull request", false);
    keys.data[0] = ps::Frame::Copy(bytes);
    EXPECT_THAT(why(std::move(keys)), HasSubstr("bytes of keys")) << bytes;
  }
  ps::Message lengths = Captured("push request", true);
  lengths.data[2] = ps::Frame::Copy("12345678");
  EXPECT_THAT(why(std::move(lengths)), HasSubstr("8 bytes of lengths for 1 key"));
  ps::Message two = Captured("push request", true);
  two.data[0] = FrameOf({3, 4});
  two.data.pop_back();
  EXPECT_THAT(why(std::move(two)), HasSubstr("2 keys where there is 1"));
  EXPECT_THAT(why(Captured("pull request", false), {4, 9}),
              HasSubstr("key 3 is another server's, here they are at least 4 and less than 9"));
  ps::Message of_the_next = Captured("pull request", false);
  of_the_next.data[0] = FrameOf({StockRangeOf(1, 2).begin});
  EXPECT_THAT(why(std::move(of_the_next), StockRangeOf(0, 2)),
              HasSubstr("key 9223372036854775807 is another server's"));
  EXPECT_THAT(why(StockRequest(StockTwoBit(0, 17, {4, std::byte{}}))),
              HasSubstr("push of key 3 from worker 0: 4 bytes of codes for 17 elements"));
  StockAsk endless = StockTwoBit(0, UINT64_MAX, {4, std::byte{}});
  EXPECT_THAT(why(StockRequest(endless)), HasSubstr("bytes of codes for"));
}

TEST(StockRequestTest, TheEndSaysPullAndBringsNothing) {
  const ps::Message end = ps::MakeStockEnd(ps::WorkerId(1));
  EXPECT_TRUE(IsEnd(end));
  EXPECT_FALSE(end.meta.request);
  EXPECT_EQ(end.peer, ps::WorkerId(1));
}

}  // namespace
}  // namespace bs::server
