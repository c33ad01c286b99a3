// Scheduler: priority, ties, credit, and a random comparison with a model that is plainly right.
#include "core/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <list>
#include <random>
#include <vector>

namespace bs::core {
namespace {

constexpr Priority kMin = std::numeric_limits<Priority>::min();
constexpr Priority kMax = std::numeric_limits<Priority>::max();

Item Make(Priority priority, uint32_t index, uint64_t size_bytes = 1, void* token = nullptr) {
  return {.priority = priority, .size_bytes = size_bytes, .token = token, .index = index};
}

// Takes everything that may start; returns the indices.
std::vector<uint32_t> TakeAll(Scheduler* scheduler) {
  std::vector<uint32_t> indices;
  while (const std::optional<Item> item = scheduler->Next()) indices.push_back(item->index);
  return indices;
}

TEST(Scheduler, LargerPriorityGoesFirst) {
  Scheduler scheduler(1000);
  scheduler.Submit(Make(-5, 0));
  scheduler.Submit(Make(3, 1));
  scheduler.Submit(Make(0, 2));
  scheduler.Submit(Make(kMin, 3));
  scheduler.Submit(Make(kMax, 4));
  scheduler.Submit(Make(-1, 5));
  scheduler.Submit(Make(1 << 20, 6));
  scheduler.Submit(Make(-(1 << 20), 7));
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{4, 6, 1, 2, 5, 0, 7, 3}));
}

TEST(Scheduler, EqualPrioritiesGoInOrderOfSubmission) {
  Scheduler scheduler(1000);
  for (uint32_t i = 0; i < 10; ++i) scheduler.Submit(Make(i % 2 == 0 ? 1 : kMin, i));
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{0, 2, 4, 6, 8, 1, 3, 5, 7, 9}));
}

TEST(Scheduler, UrgentItemOvertakesQueuedItems) {
  Scheduler scheduler(1);
  for (uint32_t i = 0; i < 5; ++i) scheduler.Submit(Make(0, i));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  scheduler.Submit(Make(1, 99));
  scheduler.Return(1);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{99});
  EXPECT_EQ(scheduler.queued(), 4U);
}

TEST(Scheduler, ItemComesBackAsItWasSubmitted) {
  Scheduler scheduler(1000);
  int token = 0;
  scheduler.Submit(Make(-12345, 7, 890, &token));
  const std::optional<Item> item = scheduler.Next();
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->priority, -12345);
  EXPECT_EQ(item->index, 7U);
  EXPECT_EQ(item->size_bytes, 890U);
  EXPECT_EQ(item->token, &token);
  EXPECT_FALSE(scheduler.Next().has_value());
}

TEST(Scheduler, CreditBoundsTheBytesInFlight) {
  Scheduler scheduler(250);
  for (uint32_t i = 0; i < 4; ++i) scheduler.Submit(Make(0, i, 100));
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(scheduler.in_flight_bytes(), 200U);
  scheduler.Return(100);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{2});
  scheduler.Return(100);
  scheduler.Return(100);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{3});
  scheduler.Return(100);
  EXPECT_EQ(scheduler.in_flight_bytes(), 0U);
}

TEST(Scheduler, ALargerCreditLetsMoreGoAndASmallerCreditWaitsForItemsInFlight) {
  Scheduler scheduler(100);
  for (uint32_t i = 0; i < 5; ++i) scheduler.Submit(Make(0, i, 100));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  scheduler.SetCredit(300);
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{1, 2}));
  scheduler.SetCredit(100);
  scheduler.Return(100);
  scheduler.Return(100);
  EXPECT_TRUE(TakeAll(&scheduler).empty());
  scheduler.Return(100);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{3});
}

TEST(Scheduler, CreditMayBeUsedToTheLastByte) {
  Scheduler scheduler(200);
  for (uint32_t i = 0; i < 3; ++i) scheduler.Submit(Make(0, i, 100));
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{0, 1}));
}

TEST(Scheduler, HeadIsNotSkippedForASmallerItemBehindIt) {
  Scheduler scheduler(100);
  scheduler.Submit(Make(2, 0, 60));
  scheduler.Submit(Make(1, 1, 60));
  scheduler.Submit(Make(0, 2, 10));  // would fit beside the first
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  scheduler.Return(60);
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{1, 2}));
}

TEST(Scheduler, SmallItemsHaveAReserveBesideTheCredit) {
  Scheduler scheduler(3200);
  scheduler.Submit(Make(0, 0, 3200));
  scheduler.Submit(Make(0, 1, 3200));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  for (uint32_t i = 2; i < 4; ++i) scheduler.Submit(Make(1, i, 200));
  scheduler.Submit(Make(1, 4, 10));
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{2, 3})) << "an eighth of the credit";
  EXPECT_EQ(scheduler.in_flight_bytes(), 3600U);
  scheduler.Return(200);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{4});
  scheduler.Return(3200);
  EXPECT_TRUE(TakeAll(&scheduler).empty()) << "for others what is in the reserve counts";
}

TEST(Scheduler, MayHaveNoReserve) {
  Scheduler scheduler(1000, /*small_reserve=*/false);
  scheduler.Submit(Make(0, 0, 1000));
  scheduler.Submit(Make(9, 1, 1));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{1});
  scheduler.Return(1);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  scheduler.Submit(Make(9, 2, 1));
  EXPECT_TRUE(TakeAll(&scheduler).empty());
}

TEST(Scheduler, TheReserveIsForSmallItemsAtTheHead) {
  Scheduler scheduler(3200);
  scheduler.Submit(Make(0, 0, 3200));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  scheduler.Submit(Make(1, 1, 201));  // more than a sixteenth
  scheduler.Submit(Make(0, 2, 100));
  EXPECT_TRUE(TakeAll(&scheduler).empty());
}

TEST(Scheduler, OneItemLargerThanTheCreditMayGoAlone) {
  Scheduler scheduler(10);
  scheduler.Submit(Make(0, 0, 1000));
  scheduler.Submit(Make(0, 1, 1000));
  scheduler.Submit(Make(0, 2, 0));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  EXPECT_EQ(scheduler.in_flight_bytes(), 1000U);
  scheduler.Return(1000);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{1});
  scheduler.Return(1000);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{2});
}

TEST(Scheduler, LargeItemWaitsForAnEmptyLinkEvenBehindAnEmptyItem) {
  Scheduler scheduler(10);
  scheduler.Submit(Make(1, 0, 0));
  scheduler.Submit(Make(0, 1, 11));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
  scheduler.Return(0);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{1});
}

TEST(Scheduler, HugeSizesDoNotOverflowTheCredit) {
  Scheduler scheduler(UINT64_MAX);
  scheduler.Submit(Make(0, 0, UINT64_MAX - 1));
  scheduler.Submit(Make(0, 1, 2));
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{0});
}

TEST(Scheduler, RemoveTakesOutOneTokenAndKeepsTheOrderOfTheRest) {
  Scheduler scheduler(1000);
  int a = 0;
  int b = 0;
  for (uint32_t i = 0; i < 6; ++i) {
    scheduler.Submit(Make(static_cast<Priority>(i / 3), i, 1, i % 2 == 0 ? &a : &b));
  }
  EXPECT_EQ(scheduler.Remove(&a), 3U);
  EXPECT_EQ(scheduler.Remove(&a), 0U);
  EXPECT_EQ(scheduler.queued(), 3U);
  EXPECT_EQ(TakeAll(&scheduler), (std::vector<uint32_t>{3, 5, 1}));
}

TEST(Scheduler, ClearLeavesItemsInFlight) {
  Scheduler scheduler(2);
  for (uint32_t i = 0; i < 5; ++i) scheduler.Submit(Make(0, i));
  TakeAll(&scheduler);
  EXPECT_EQ(scheduler.Clear(), 3U);
  EXPECT_EQ(scheduler.queued(), 0U);
  EXPECT_EQ(scheduler.in_flight_bytes(), 2U);
  scheduler.Submit(Make(0, 9));
  scheduler.Return(1);
  EXPECT_EQ(TakeAll(&scheduler), std::vector<uint32_t>{9});
}

TEST(SchedulerDeathTest, BrokenPromisesAbort) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(Scheduler(0), "check failed: credit_bytes > 0");
  Scheduler scheduler(10);
  EXPECT_DEATH(scheduler.Return(0), "check failed");
  scheduler.Submit(Make(0, 0, 5));
  TakeAll(&scheduler);
  EXPECT_DEATH(scheduler.Return(6), "check failed");
}

// The rules as one would write them for a reader, slow and obvious.
class Model {
 public:
  explicit Model(uint64_t credit_bytes) : credit_bytes_(credit_bytes) {}

  void Submit(const Item& item) {
    auto it = queue_.begin();
    while (it != queue_.end() && it->priority >= item.priority) ++it;
    queue_.insert(it, item);
  }
  std::optional<Item> Next() {
    if (queue_.empty()) return std::nullopt;
    const Item head = queue_.front();
    const uint64_t reserve_bytes = head.size_bytes <= credit_bytes_ / 16 ? credit_bytes_ / 8 : 0;
    if (!flight_.empty() && in_flight_bytes() + head.size_bytes > credit_bytes_ + reserve_bytes)
      return std::nullopt;
    queue_.pop_front();
    flight_.push_back(head.size_bytes);
    return head;
  }
  // Acknowledges the partition at `position` of those in flight; returns its size.
  uint64_t Return(size_t position) {
    const uint64_t size_bytes = flight_.at(position);
    flight_.erase(flight_.begin() + static_cast<std::ptrdiff_t>(position));
    return size_bytes;
  }
  size_t Remove(const void* token) {
    return queue_.remove_if([token](const Item& item) { return item.token == token; });
  }
  size_t queued() const { return queue_.size(); }
  uint64_t queued_bytes() const {
    uint64_t sum = 0;
    for (const Item& item : queue_) sum += item.size_bytes;
    return sum;
  }
  size_t num_in_flight() const { return flight_.size(); }
  uint64_t in_flight_bytes() const {
    uint64_t sum = 0;
    for (const uint64_t size_bytes : flight_) sum += size_bytes;
    return sum;
  }

 private:
  const uint64_t credit_bytes_;
  std::list<Item> queue_;
  std::vector<uint64_t> flight_;
};

Priority RandomPriority(std::mt19937* random) {
  switch ((*random)() % 4) {
    case 0:
      return static_cast<Priority>((*random)() % 5) - 2;  // ties
    case 1:
      return -static_cast<Priority>((*random)() % 300);  // layers
    case 2:
      return static_cast<Priority>((*random)());  // anything
    default:
      return (*random)() % 2 == 0 ? kMin : kMax;
  }
}

class SchedulerAndModel : public ::testing::TestWithParam<uint32_t> {
 protected:
  SchedulerAndModel() : random_(GetParam()) {}

  void Submit() {
    const Item item = Make(RandomPriority(&random_), count_++, random_() % 400,
                           &tokens_.at(random_() % tokens_.size()));
    scheduler_.Submit(item);
    model_.Submit(item);
  }
  void Next() {
    const std::optional<Item> real = scheduler_.Next();
    const std::optional<Item> expected = model_.Next();
    ASSERT_EQ(real.has_value(), expected.has_value());
    if (!real.has_value()) return;
    ASSERT_EQ(real->index, expected->index);
    ASSERT_EQ(real->priority, expected->priority);
    ASSERT_EQ(real->size_bytes, expected->size_bytes);
    ASSERT_EQ(real->token, expected->token);
  }
  void Return() {
    if (model_.num_in_flight() == 0) return;
    scheduler_.Return(model_.Return(random_() % model_.num_in_flight()));
  }
  void Remove() {
    const void* const token = &tokens_.at(random_() % tokens_.size());
    ASSERT_EQ(scheduler_.Remove(token), model_.Remove(token));
  }
  void Step() {
    const uint64_t choice = random_() % 200;
    // Waves, so that the queue gets deep and runs empty again and again.
    const uint64_t submits = (count_ / 500) % 2 == 0 ? 110 : 20;
    if (choice == 0) return Remove();
    if (choice < submits) return Submit();
    if (choice < 160) return Next();
    Return();
  }

  std::mt19937 random_;
  uint32_t count_ = 0;
  std::vector<int> tokens_ = std::vector<int>(20);
  Scheduler scheduler_{300};
  Model model_{300};
};

TEST_P(SchedulerAndModel, Agree) {
  for (int i = 0; i < 20000; ++i) {
    Step();
    ASSERT_FALSE(HasFatalFailure()) << "seed " << GetParam() << " step " << i;
    ASSERT_EQ(scheduler_.queued(), model_.queued());
    ASSERT_EQ(scheduler_.queued_bytes(), model_.queued_bytes());
    ASSERT_EQ(scheduler_.in_flight_bytes(), model_.in_flight_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerAndModel, ::testing::Range(1U, 9U));

}  // namespace
}  // namespace bs::core
