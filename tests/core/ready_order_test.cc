// ReadyOrder: what is learned from regular, irregular and misleading steps, and what is not.
#include "core/ready_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace bs::core {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Verdict = ReadyOrder::Verdict;

using Keys = std::vector<Key>;

// A training process: tells what it calls, and what becomes ready.
class Trainer {
 public:
  explicit Trainer(std::map<Key, Priority> priorities) : priorities_(std::move(priorities)) {}

  // `calls` in their order; each is then ready in its turn of `ready`, a key as often as it is
  // called, `apart` after the one before.
  void Step(const Keys& calls, const Keys& ready, Duration apart = std::chrono::milliseconds(1)) {
    std::map<Key, std::vector<uint64_t>> stamps;
    for (const Key key : calls) stamps[key].push_back(++called_);
    now_ += std::chrono::milliseconds(10);
    for (const Key key : ready) {
      now_ += apart;
      order_.Note({.key = key, .priority = priorities_.at(key), .called = stamps.at(key).front()},
                  now_);
      stamps.at(key).erase(stamps.at(key).begin());
    }
  }
  void Steps(int count, const Keys& calls, const Keys& ready,
             Duration apart = std::chrono::milliseconds(1)) {
    for (int i = 0; i < count; ++i) Step(calls, ready, apart);
  }
  // A Step whose groups each become ready in one moment.
  void StepOfMoments(const Keys& calls, const std::vector<Keys>& moments) {
    const uint64_t before = called_;
    called_ += calls.size();
    for (const Keys& moment : moments) {
      now_ += std::chrono::milliseconds(1);
      for (const Key key : moment) {
        const auto turn = std::find(calls.begin(), calls.end(), key) - calls.begin();
        now_ += std::chrono::microseconds(30);
        order_.Note({.key = key,
                     .priority = priorities_.at(key),
                     .called = before + 1 + static_cast<uint64_t>(turn)},
                    now_);
      }
    }
  }
  // A Step in which the keys in `there` are ready when called for; each call takes a millisecond.
  void StepWithSomeThere(const Keys& calls, const Keys& there, const Keys& ready) {
    const uint64_t before = called_;
    called_ += calls.size();
    const auto note = [&](Key key, bool at_once) {
      const auto turn = std::find(calls.begin(), calls.end(), key) - calls.begin();
      now_ += std::chrono::milliseconds(1);
      order_.Note({.key = key,
                   .priority = priorities_.at(key),
                   .called = before + 1 + static_cast<uint64_t>(turn),
                   .at_once = at_once},
                  now_);
    };
    for (const Key key : calls) {
      if (std::find(there.begin(), there.end(), key) != there.end()) note(key, true);
    }
    for (const Key key : ready) note(key, false);
  }
  // Steps of a caller that runs ahead: each number names the step of the key that becomes ready.
  void StepsAhead(const Keys& calls, const std::vector<std::pair<size_t, Key>>& ready) {
    for (const auto& [step, key] : ready) {
      const auto turn = std::find(calls.begin(), calls.end(), key) - calls.begin();
      now_ += std::chrono::milliseconds(1);
      order_.Note({.key = key,
                   .priority = priorities_.at(key),
                   .called = 1 + step * calls.size() + static_cast<uint64_t>(turn)},
                  now_);
    }
  }
  void SetPriority(Key key, Priority priority) { priorities_[key] = priority; }

  const ReadyOrder& order() const { return order_; }
  // The keys of `keys`, the most urgent first, by the numbers that count after the lesson.
  Keys Urgency(Keys keys) const {
    std::map<Key, Priority> numbers = priorities_;
    for (const Renumbered& number : order_.Learn().numbers) {
      EXPECT_EQ(numbers.at(number.key), number.callers);
      numbers[number.key] = number.measured;
    }
    std::map<Priority, Keys, std::greater<>> sorted;
    for (const Key key : keys) sorted[numbers.at(key)].push_back(key);
    keys.clear();
    for (const auto& [number, equal] : sorted) keys.insert(keys.end(), equal.begin(), equal.end());
    return keys;
  }

 private:
  std::map<Key, Priority> priorities_;
  uint64_t called_ = 0;
  TimePoint now_{};
  ReadyOrder order_;
};

std::map<Key, Priority> Negated(const Keys& keys) {
  std::map<Key, Priority> priorities;
  for (const Key key : keys) priorities[key] = -static_cast<Priority>(key);
  return priorities;
}

Keys Reversed(Keys keys) {
  std::reverse(keys.begin(), keys.end());
  return keys;
}

Keys Five() { return {0, 1, 2, 3, 4}; }

TEST(ReadyOrder, LastToBeReadyBecomesTheMostUrgentWithTheNumbersOfTheCaller) {
  const Keys forward = {0, 3, 4, 1, 2};  // the names conv0, conv1, conv2, conv10, conv11, sorted
  Trainer trainer(Negated(Five()));
  trainer.Steps(5, Five(), Reversed(forward));
  ASSERT_TRUE(trainer.order().complete());
  const ReadyOrder::Lesson lesson = trainer.order().Learn();
  EXPECT_EQ(lesson.verdict, Verdict::kRenumbered);
  EXPECT_EQ(lesson.num_learned, 5U);
  EXPECT_EQ(lesson.num_moved, 4U);
  EXPECT_THAT(lesson.numbers, UnorderedElementsAre(Renumbered{3, -3, -1}, Renumbered{4, -4, -2},
                                                   Renumbered{1, -1, -3}, Renumbered{2, -2, -4}));
  EXPECT_EQ(trainer.Urgency(Five()), forward);
}

TEST(ReadyOrder, WantsToBeToldOfFiveSteps) {
  Trainer trainer(Negated(Five()));
  trainer.Steps(4, Five(), Reversed(Five()));
  EXPECT_FALSE(trainer.order().complete());
  trainer.Step(Five(), Reversed(Five()));
  EXPECT_TRUE(trainer.order().complete());
}

TEST(ReadyOrder, FirstStepDoesNotCount) {
  const Keys forward = {2, 0, 4, 1, 3};
  Trainer trainer(Negated(Five()));
  trainer.Step(Five(), forward);
  trainer.Steps(4, Five(), Reversed(forward));
  EXPECT_EQ(trainer.Urgency(Five()), forward);
}

TEST(ReadyOrder, RightNumbersAreLeftAlone) {
  Trainer trainer(Negated(Five()));
  trainer.Steps(5, Five(), Reversed(Five()));
  EXPECT_EQ(trainer.order().Learn().verdict, Verdict::kCallersIsRight);
  EXPECT_THAT(trainer.order().Learn().numbers, IsEmpty());
}

// A weight and its bias become ready together, in any order.
TEST(ReadyOrder, NeighboursThatChangePlacesDoNotContradictTheCaller) {
  Trainer trainer(Negated(Five()));
  trainer.Steps(5, Five(), {4, 2, 3, 0, 1});
  EXPECT_EQ(trainer.order().Learn().verdict, Verdict::kCallersIsRight);
}

// Gradient clipping waits for all gradients; then a loop calls for the first parameter first.
TEST(ReadyOrder, OrderOfTheCallsTellsNothing) {
  Trainer trainer(Negated(Five()));
  trainer.Steps(5, Five(), Five());
  EXPECT_EQ(trainer.order().Learn().verdict, Verdict::kAsCalled);
  EXPECT_THAT(trainer.order().Learn().numbers, IsEmpty());
}

TEST(ReadyOrder, FewOvertakersAmongGradientsThatWereThereTellNothing) {
  Keys calls(20);
  for (Key i = 0; i < calls.size(); ++i) calls[i] = i;
  Keys ready = calls;
  for (size_t i = 0; i + 1 < ready.size(); i += 2) std::swap(ready[i], ready[i + 1]);
  Trainer trainer(Negated(calls));
  trainer.Steps(5, calls, ready);
  EXPECT_EQ(trainer.order().Learn().verdict, Verdict::kAsCalled);
}

// The copy of a large gradient takes longer than those of all others.
TEST(ReadyOrder, OneThatIsLateAmongGradientsThatWereThereTellsNothing) {
  for (Key size = 3; size <= 10; ++size) {
    Keys calls(size);
    for (Key i = 0; i < size; ++i) calls[i] = i;
    for (const Key late : {Key{0}, size / 2}) {
      Keys ready = calls;
      std::erase(ready, late);
      ready.push_back(late);
      Trainer trainer(Negated(calls));
      trainer.Steps(5, calls, ready);
      EXPECT_EQ(trainer.order().Learn().verdict, Verdict::kAsCalled) << late << " of " << size;
    }
  }
}

// MXNet makes the gradients of a hybridized block in one piece.
TEST(ReadyOrder, OrderWithinAMomentTellsNothing) {
  const Keys calls = {0, 1, 2, 3, 4, 5};
  Trainer trainer(Negated(calls));
  trainer.Steps(5, calls, {1, 4, 0, 3, 5, 2}, std::chrono::microseconds(30));
  EXPECT_THAT(trainer.order().Learn().numbers, IsEmpty());
}

// Two pieces; the numbers of the caller are wrong between them, and right within.
TEST(ReadyOrder, MomentsAreOrderedAndTheCallerOrdersWithin) {
  const Keys calls = {0, 1, 2, 3, 4, 5};
  Trainer trainer({{0, -3}, {1, -4}, {2, -5}, {3, 0}, {4, -1}, {5, -2}});
  for (int i = 0; i < 5; ++i) trainer.StepOfMoments(calls, {{4, 3, 5}, {1, 0, 2}});
  EXPECT_EQ(trainer.Urgency(calls), calls);
}

// Two branches that become ready in turns have one mean place.
TEST(ReadyOrder, KeysThatAreReadyBeforeTheirCallAreOfOneMoment) {
  const Keys ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Trainer right(Negated(ten));
  Trainer wrong(Negated(ten));
  for (int i = 0; i < 5; ++i) {
    right.StepWithSomeThere(ten, {6, 7, 8, 9}, {5, 4, 3, 2, 1, 0});
    wrong.StepWithSomeThere(ten, {2, 4, 8, 9}, {3, 1, 7, 5, 6, 0});
  }
  EXPECT_EQ(right.order().Learn().verdict, Verdict::kCallersIsRight);
  EXPECT_EQ(wrong.Urgency(ten), (Keys{0, 6, 5, 7, 1, 3, 2, 4, 8, 9}));
}

TEST(ReadyOrder, EqualPlacesLeaveTheOrderOfTheCaller) {
  const Keys calls = {5, 4, 3, 2, 1, 0};
  Trainer trainer({{0, 0}, {1, -1}, {2, -2}, {3, -3}, {4, -4}, {5, -5}});
  for (int i = 0; i < 3; ++i) {
    trainer.Step(calls, {0, 1, 2, 3, 5, 4});
    trainer.Step(calls, {0, 2, 1, 3, 4, 5});
  }
  EXPECT_EQ(trainer.Urgency(calls), (Keys{4, 5, 3, 1, 2, 0}));
}

// A sum that a blocking call waits for in the forward is ready first.
TEST(ReadyOrder, KeyThatTheCallerMarkedAsUrgentStaysUrgent) {
  const Keys calls = {9, 0, 1, 2, 3, 4};
  Trainer trainer({{9, 1}, {0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}});
  trainer.Steps(5, calls, {9, 3, 4, 1, 2, 0});
  EXPECT_EQ(trainer.order().Learn().num_learned, 5U);
  EXPECT_EQ(trainer.Urgency(calls), (Keys{9, 0, 2, 1, 4, 3}));
}

TEST(ReadyOrder, EqualNumbersBecomeDistinctNumbersAroundThem) {
  Trainer trainer({{0, -7}, {1, -7}, {2, -7}, {3, -7}, {4, -7}});
  trainer.Steps(5, Five(), {4, 2, 3, 0, 1});
  EXPECT_THAT(trainer.order().Learn().numbers,
              UnorderedElementsAre(Renumbered{1, -7, -5}, Renumbered{0, -7, -6},
                                   Renumbered{2, -7, -8}, Renumbered{4, -7, -9}));
}

TEST(ReadyOrder, DistinctNumbersStayWithinTheirRange) {
  for (const Priority at : {std::numeric_limits<Priority>::min(), 0}) {
    const Keys keys = {0, 1, 2, 3};
    Trainer trainer({{0, at}, {1, at}, {2, at}, {3, at}});
    trainer.Steps(5, keys, {3, 2, 1, 0});
    EXPECT_EQ(trainer.Urgency({3, 2, 1, 0}), (Keys{0, 1, 2, 3})) << at;
    EXPECT_EQ(trainer.order().Learn().numbers.size(), 3U) << at;
    for (const Renumbered& number : trainer.order().Learn().numbers) {
      EXPECT_LE(number.measured, 0) << at;
    }
  }
}

// Some of the caller's numbers are equal: two trainers, each with numbers from 0 on.
TEST(ReadyOrder, NumbersOfTwoTrainersAreSharedOutAsTheyAre) {
  Trainer trainer({{0, 0}, {1, -1}, {2, -2}, {10, 0}, {11, -1}, {12, -2}});
  trainer.Steps(5, {10, 11, 12, 0, 1, 2}, {1, 2, 0, 11, 12, 10});
  std::multiset<Priority> measured;
  std::multiset<Priority> callers;
  for (const Renumbered& number : trainer.order().Learn().numbers) {
    callers.insert(number.callers);
    measured.insert(number.measured);
  }
  EXPECT_FALSE(measured.empty());
  EXPECT_EQ(measured, callers);
  const Keys needed = {10, 12, 11, 0, 2, 1};
  EXPECT_EQ(trainer.Urgency(needed), needed);
}

TEST(ReadyOrder, BranchesThatBecomeReadyInTurnsGetTheirMeanPlace) {
  const Keys keys = {0, 1, 2, 3, 4, 5};
  Trainer trainer(Negated({5, 4, 3, 2, 1, 0}));
  const Keys once = {0, 5, 1, 4, 2, 3};
  const Keys again = {0, 1, 5, 2, 4, 3};
  for (int i = 0; i < 3; ++i) {
    trainer.Step(Reversed(keys), once);
    trainer.Step(Reversed(keys), again);
  }
  const Keys urgency = trainer.Urgency(keys);
  EXPECT_EQ(urgency.front(), 3U);
  EXPECT_EQ(urgency.back(), 0U);
  const auto place = [&](Key key) { return std::find(urgency.begin(), urgency.end(), key); };
  EXPECT_LT(place(4), place(5));  // as within each branch
  EXPECT_LT(place(2), place(1));
}

TEST(ReadyOrder, KeyThatComesTwiceAfterAllOtherKeysIsOfTheSameStep) {
  const Keys calls = {0, 1, 2, 3, 4, 4};
  Trainer trainer(Negated(Five()));
  trainer.Steps(8, calls, {3, 1, 2, 0, 4, 4});
  EXPECT_EQ(trainer.order().Learn().num_learned, 5U);
  EXPECT_EQ(trainer.Urgency(Five()), (Keys{4, 0, 2, 1, 3}));
}

// A layer that is left out keeps its gradient, which is ready before those of the step before where
// the caller does not wait for them.
TEST(ReadyOrder, KeyThatIsReadyBeforeTheEarlierStepHasEndedIsOfItsOwnStep) {
  const Keys forward = {3, 0, 4, 1, 2};
  std::vector<std::pair<size_t, Key>> ready;
  for (size_t step = 0; step < 6; ++step) {
    for (const Key key : Reversed(forward)) {
      if (key != 1 || step % 3 != 2) ready.emplace_back(step, key);
      if (key == 1 && step % 3 == 1) ready.emplace_back(step + 1, key);
    }
  }
  Trainer trainer(Negated(Five()));
  trainer.StepsAhead(Five(), ready);
  EXPECT_EQ(trainer.order().Learn().num_learned, 5U);
  EXPECT_EQ(trainer.Urgency(Five()), forward);
}

// Key 9 is pushed twice in each step; its last time counts.
TEST(ReadyOrder, SharedParametersComeTwiceInAStep) {
  const Keys calls = {9, 1, 2, 3, 9};
  Trainer trainer({{9, 0}, {1, -1}, {2, -2}, {3, -3}});
  trainer.Steps(8, calls, {3, 9, 1, 9, 2});
  EXPECT_EQ(trainer.order().Learn().num_learned, 4U);
  EXPECT_EQ(trainer.Urgency({1, 2, 3, 9}), (Keys{2, 9, 1, 3}));
}

TEST(ReadyOrder, KeysOfSomeStepsKeepTheirNumber) {
  const Keys calls = {0, 1, 2, 3, 4, 7};
  Trainer trainer(Negated(calls));
  const Keys ready = {1, 4, 0, 3, 2};
  for (int i = 0; i < 6; ++i) {
    Keys with = ready;
    if (i % 3 == 0) with.insert(with.begin() + 2, 7);
    trainer.Step(calls, with);
  }
  const ReadyOrder::Lesson lesson = trainer.order().Learn();
  EXPECT_EQ(lesson.num_learned, 5U);
  for (const Renumbered& number : lesson.numbers) EXPECT_NE(number.key, 7U);
  EXPECT_EQ(trainer.Urgency(Five()), Reversed(ready));
}

// BucketingModule and GANs use one part of the model in one step and another in the next.
TEST(ReadyOrder, SubModelsThatTakeTurnsAreLearnedTogether) {
  const Keys first = {0, 1, 2};
  const Keys second = {10, 11, 12};
  Trainer trainer({{0, -2}, {1, 0}, {2, -1}, {10, -3}, {11, -4}, {12, -5}});
  for (int i = 0; i < 6; ++i) {
    trainer.Step(Reversed({1, 2, 0}), {1, 2, 0});
    trainer.Step(Reversed({10, 11, 12}), {10, 11, 12});
  }
  EXPECT_TRUE(trainer.order().complete());
  EXPECT_EQ(trainer.order().Learn().num_learned, 6U);
  EXPECT_EQ(trainer.Urgency(first), (Keys{0, 2, 1}));
  EXPECT_EQ(trainer.Urgency(second), (Keys{12, 11, 10}));
}

TEST(ReadyOrder, KeyWithAChangedNumberKeepsTheNumberOfTheCaller) {
  const Keys ready = {3, 1, 4, 2, 0};
  Trainer trainer(Negated(Five()));
  trainer.Steps(2, Five(), ready);
  trainer.SetPriority(2, 5);
  trainer.Steps(3, Five(), ready);
  const ReadyOrder::Lesson lesson = trainer.order().Learn();
  EXPECT_EQ(lesson.num_learned, 4U);
  for (const Renumbered& number : lesson.numbers) EXPECT_NE(number.key, 2U);
}

TEST(ReadyOrder, NewKeysAreWaitedFor) {
  Trainer trainer(Negated({0, 1, 2, 3, 4, 5}));
  trainer.Steps(4, Five(), Reversed(Five()));
  trainer.Step({5}, {5});  // the 21st note
  trainer.Steps(10, Five(), Reversed(Five()));
  EXPECT_FALSE(trainer.order().complete());
  trainer.Steps(8, Five(), Reversed(Five()));
  EXPECT_TRUE(trainer.order().complete());
}

TEST(ReadyOrder, SingleSumBeforeTheTrainingEndsNothing) {
  Trainer trainer(Negated({0, 1, 2, 3, 4, 99}));
  trainer.Steps(30, {99}, {99});
  EXPECT_FALSE(trainer.order().complete());
  const Keys ready = {3, 1, 4, 2, 0};
  while (!trainer.order().complete()) trainer.Step(Five(), ready);
  EXPECT_EQ(trainer.Urgency(Five()), Reversed(ready));
}

TEST(ReadyOrder, NothingIsLearnedOfKeysThatNeverRecur) {
  std::map<Key, Priority> priorities;
  for (Key key = 0; key < ReadyOrder::kMostNotes; ++key) priorities[key] = 0;
  Trainer trainer(std::move(priorities));
  for (Key key = 0; key < ReadyOrder::kMostNotes; ++key) {
    ASSERT_FALSE(trainer.order().complete());
    trainer.Step({key}, {key});
  }
  EXPECT_TRUE(trainer.order().complete());
  EXPECT_EQ(trainer.order().Learn().verdict, Verdict::kUnsteady);
}

TEST(ReadyOrder, NothingIsLearnedOfNothing) {
  EXPECT_FALSE(ReadyOrder().complete());
  EXPECT_EQ(ReadyOrder().Learn().verdict, Verdict::kUnsteady);
}

// The order in which `forward` becomes ready, but for neighbours that change places by chance.
Keys Jittered(const Keys& forward, std::mt19937* random) {
  Keys ready = Reversed(forward);
  for (size_t i = (*random)() % 2; i + 1 < ready.size(); i += 2) {
    if ((*random)() % 2 == 0) std::swap(ready[i], ready[i + 1]);
  }
  return ready;
}

// The largest number of places between a key of the one and of the other.
std::ptrdiff_t LargestMove(const Keys& from, const Keys& to) {
  std::ptrdiff_t largest = 0;
  for (auto at = from.begin(); at != from.end(); ++at) {
    const std::ptrdiff_t now = std::find(to.begin(), to.end(), *at) - to.begin();
    largest = std::max(largest, std::abs(now - (at - from.begin())));
  }
  return largest;
}

TEST(ReadyOrder, NoiseAmongNeighboursAveragesOut) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Keys calls(40);
    for (Key i = 0; i < calls.size(); ++i) calls[i] = i;
    Keys forward = calls;
    std::shuffle(forward.begin(), forward.end(), random);
    Trainer trainer(Negated(calls));
    while (!trainer.order().complete()) trainer.Step(calls, Jittered(forward, &random));
    EXPECT_LE(LargestMove(forward, trainer.Urgency(calls)), 2) << "seed " << seed;
  }
}

}  // namespace
}  // namespace bs::core
