#include "membership/stock/resends.h"

#include <gtest/gtest.h>

namespace ps {
namespace {

Message Request(int32_t number, int32_t customer_id = 0) {
  Message message;
  message.peer = 8;
  message.meta.request = true;
  message.meta.app_id = 0;
  message.meta.customer_id = customer_id;
  message.meta.timestamp = number;
  return message;
}

Message Control(Command command, int32_t number) {
  Message message = Request(number);
  message.meta.is_control = true;
  message.meta.control.command = command;
  return message;
}

bool Fresh(Resends* resends, const Message& message) { return resends->Take(message, 1).fresh; }

TEST(Resends, ANewMessageIsHandledAndNotAcknowledged) {
  Resends resends;
  for (const int32_t number : {0, 1, 5, 3, 2, 4}) {
    const Resends::Verdict verdict = resends.Take(Request(number), 1);
    EXPECT_TRUE(verdict.fresh) << number;
    EXPECT_FALSE(verdict.ack) << number;
  }
}

TEST(Resends, ARepeatIsNotHandledButAcknowledgedAsIsAllThatComesThen) {
  Resends resends;
  EXPECT_TRUE(Fresh(&resends, Request(1)));
  const Resends::Verdict repeat = resends.Take(Request(1), 1);
  EXPECT_FALSE(repeat.fresh);
  ASSERT_TRUE(repeat.ack);
  EXPECT_TRUE(repeat.ack->is_control);
  EXPECT_EQ(repeat.ack->control.command, Command::kAck);
  // Captured from stock nodes: sender 8, receiver 1, application 0, number 1, a request.
  EXPECT_EQ(repeat.ack->control.signature, 0x80100000003U);
  EXPECT_EQ(repeat.ack->timestamp, kEmpty);
  EXPECT_TRUE(resends.Take(Request(2), 1).ack);
}

TEST(Resends, OfAnIdAbove255TheLowestByteIsAcknowledged) {
  Resends resends;
  Message barrier = Request(1);
  barrier.peer = WorkerId(129);
  EXPECT_TRUE(Fresh(&resends, barrier));
  const Resends::Verdict repeat = resends.Take(barrier, 1);
  ASSERT_TRUE(repeat.ack);
  // With this a stock worker 267 sends its barrier no more; with the whole id it goes on.
  EXPECT_EQ(repeat.ack->control.signature, 0xb0100000003U);
  barrier.peer -= 256;
  EXPECT_TRUE(Fresh(&resends, barrier));
}

TEST(Resends, APeerThatAcknowledgesIsAcknowledged) {
  Resends resends;
  const Resends::Verdict heard = resends.Take(Control(Command::kAck, kEmpty), 1);
  EXPECT_FALSE(heard.fresh);
  EXPECT_FALSE(heard.ack);
  Message response = Request(7);
  response.meta.request = false;
  response.meta.app_id = kEmpty;
  const Resends::Verdict verdict = resends.Take(response, 0x109);
  EXPECT_TRUE(verdict.fresh);
  ASSERT_TRUE(verdict.ack);
  EXPECT_EQ(verdict.ack->control.signature, 0xffff'08'09'0000000eU);
}

TEST(Resends, PeersStoresAndControlMessagesCountForThemselves) {
  Resends resends;
  Message of_another = Request(1);
  of_another.peer = 10;
  EXPECT_TRUE(Fresh(&resends, Request(1)));
  EXPECT_TRUE(Fresh(&resends, Request(1, 1)));
  EXPECT_TRUE(Fresh(&resends, Control(Command::kBarrier, 1)));
  EXPECT_TRUE(Fresh(&resends, of_another));
  EXPECT_FALSE(Fresh(&resends, Request(1, 1)));
  EXPECT_FALSE(Fresh(&resends, Control(Command::kBarrier, 1)));
}

TEST(Resends, RepeatsAreKnownAsFarBackAsTheWindow) {
  Resends resends;
  constexpr auto kWindow = static_cast<int32_t>(Resends::kWindow);
  for (const int32_t number : {0, 1, 2, kWindow}) EXPECT_TRUE(Fresh(&resends, Request(number)));
  EXPECT_FALSE(Fresh(&resends, Request(1)));
  EXPECT_FALSE(Fresh(&resends, Request(2)));
  EXPECT_TRUE(Fresh(&resends, Request(3)));
  EXPECT_TRUE(Fresh(&resends, Request(0))) << "out of the window";
  EXPECT_TRUE(Fresh(&resends, Request(5 * kWindow + 2)));
  EXPECT_TRUE(Fresh(&resends, Request(4 * kWindow + 3)));
  EXPECT_FALSE(Fresh(&resends, Request(4 * kWindow + 3)));
}

TEST(Resends, AMessageWithoutANumberIsNeverARepeat) {
  Resends resends;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Fresh(&resends, Request(kEmpty)));
    EXPECT_TRUE(Fresh(&resends, Request(-1)));
  }
}

TEST(Resends, ManyCountersOfAPeerTakeNoMemoryAndStopNoMessage) {
  Resends resends;
  for (int32_t customer = 0; customer < 100; ++customer) {
    EXPECT_TRUE(Fresh(&resends, Request(1, customer)));
  }
  EXPECT_FALSE(Fresh(&resends, Request(1, 0)));
  EXPECT_TRUE(Fresh(&resends, Request(1, 99))) << "not followed";
}

}  // namespace
}  // namespace ps
