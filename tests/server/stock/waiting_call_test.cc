#include "server/stock/waiting_call.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/stock/stock_support.h"

namespace bs::server {
namespace {

class WaitingCallTest : public testing::Test {
 protected:
  // 1 KiB, and what it carries.
  WaitingCall Of(size_t body_bytes) {
    StockCall call = MakeStockCall(StockPull(0));
    call.keys = ps::Frame();
    call.meta.body.assign(body_bytes, 'x');
    return {&all_bytes_, std::move(call)};
  }
  uint64_t all_bytes_ = 0;
};

TEST_F(WaitingCallTest, CountsWithItsPayloadUntilItHasItsTurnOrIsDropped) {
  {
    WaitingCall first = Of(100);
    const WaitingCall second = Of(0);
    EXPECT_EQ(all_bytes_, 2048U + 100);
    first->meta.body.clear();  // whatever becomes of it
    first.EndWait();
    first.EndWait();
    EXPECT_EQ(all_bytes_, 1024U);
  }
  EXPECT_EQ(all_bytes_, 0U);
}

TEST_F(WaitingCallTest, CountsOnceWhereverItIsMoved) {
  std::vector<WaitingCall> calls;
  for (size_t i = 0; i < 5; ++i) calls.push_back(Of(i));
  EXPECT_EQ(all_bytes_, 5 * 1024U + 10);
  calls[0] = std::move(calls[4]);
  EXPECT_EQ(all_bytes_, 4 * 1024U + 10);
  EXPECT_EQ(calls[0]->meta.body.size(), 4U);
  calls.erase(calls.begin() + 1, calls.end());
  EXPECT_EQ(all_bytes_, 1024U + 4);
  calls.clear();
  EXPECT_EQ(all_bytes_, 0U);
}

}  // namespace
}  // namespace bs::server
