// EndedExchanges: which outcomes stay, and until when.
#include "server/exchange/ended_exchanges.h"

#include <gtest/gtest.h>

namespace bs::server {
namespace {

constexpr size_t kLeast = EndedExchanges::kLeast;

// Ends so many further exchanges of worker 1, which need nothing.
void EndMore(EndedExchanges* ended, size_t count, const Status& outcome = Status::Ok()) {
  static Key next = 1U << 20U;
  for (size_t i = 0; i < count; ++i) ended->Add(++next, outcome, {});
}

TEST(EndedExchanges, AKnownOutcomeStays) {
  EndedExchanges ended(2);
  EXPECT_EQ(ended.Find(7), nullptr);
  ended.Add(7, Status::Cancelled("first"), {{0, 3}});
  ended.Add(7, Status::Ok(), {{0, 3}});
  ASSERT_NE(ended.Find(7), nullptr);
  EXPECT_EQ(ended.Find(7)->message(), "first");
  EXPECT_EQ(ended.size(), 1U);
}

TEST(EndedExchanges, ASuccessStaysUntilItsWorkersHaveTheirAnswers) {
  EndedExchanges ended(2);
  ended.Add(7, Status::Ok(), {{0, 5}, {1, 9}});
  EndMore(&ended, kLeast);
  EXPECT_NE(ended.Find(7), nullptr);
  ended.NoteAnswers(0, 6);
  ended.NoteAnswers(1, 9);
  EXPECT_NE(ended.Find(7), nullptr) << "request 9 of worker 1 may come again";
  ended.NoteAnswers(1, 10);
  EXPECT_EQ(ended.Find(7), nullptr);
  EXPECT_TRUE(ended.IsAnswered(1, 9));
  EXPECT_FALSE(ended.IsAnswered(1, 10));
}

TEST(EndedExchanges, TheLatestStayThoughNoWorkerNeedsThem) {
  EndedExchanges ended(1);
  ended.Add(7, Status::Ok(), {});
  EndMore(&ended, kLeast - 1);
  EXPECT_NE(ended.Find(7), nullptr);
  EndMore(&ended, 1);
  EXPECT_EQ(ended.Find(7), nullptr);
}

TEST(EndedExchanges, AFailureWaitsForWorkersThatHaveNotGotIt) {
  EndedExchanges ended(2);
  ended.Add(7, Status::Cancelled("late"), {{0, 5}, {1, 0}});
  ended.NoteAnswers(0, 6);
  EndMore(&ended, kLeast, Status::Cancelled("another"));
  EndMore(&ended, kLeast);
  ASSERT_NE(ended.Find(7), nullptr) << "worker 1 has not asked";
  ended.NoteRequest(7, 1, 4);
  ended.NoteAnswers(1, 4);
  EXPECT_NE(ended.Find(7), nullptr);
  ended.NoteAnswers(1, 5);
  EXPECT_EQ(ended.Find(7), nullptr);
}

TEST(EndedExchanges, AWorkerThatIsGoneIsNotWaitedFor) {
  EndedExchanges ended(2);
  ended.Add(7, Status::Cancelled("late"), {{1, 0}});
  EndMore(&ended, kLeast, Status::Cancelled("another"));
  EXPECT_NE(ended.Find(7), nullptr);
  ended.OnWorkerGone(1);
  EXPECT_EQ(ended.Find(7), nullptr);
}

TEST(EndedExchanges, ARankOutsideOfTheTermsIsWaitedForToo) {
  EndedExchanges ended(3);
  ended.Add(7, Status::Cancelled("workers differ"), {{0, 1}});
  ended.NoteRequest(7, 2, 8);
  ended.NoteAnswers(0, 2);
  EndMore(&ended, kLeast, Status::Cancelled("another"));
  EXPECT_NE(ended.Find(7), nullptr);
  ended.NoteAnswers(2, 9);
  EXPECT_EQ(ended.Find(7), nullptr);
}

TEST(EndedExchanges, AnIdleWorkerKeepsItsOwnOutcomesAlone) {
  EndedExchanges ended(3);
  ended.Add(7, Status::Ok(), {{0, 5}, {2, 1}});  // worker 2 sends nothing more
  ended.NoteAnswers(0, 6);
  EndMore(&ended, 4 * kLeast);
  EXPECT_NE(ended.Find(7), nullptr);
  EXPECT_LE(ended.size(), 2 * kLeast + 1) << "its own too";
  ended.NoteAnswers(2, 2);
  EXPECT_EQ(ended.Find(7), nullptr);
}

}  // namespace
}  // namespace bs::server
