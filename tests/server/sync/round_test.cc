#include "server/sync/round.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace bs::server {
namespace {

class HasView {
 protected:
  explicit HasView(int32_t num_workers) : view_(job::MakeView({}, num_workers, 1)) {}
  const job::View view_;
};

// The rules for a job of so many workers.
class Rounds : private HasView, public RoundState {
 public:
  explicit Rounds(int32_t num_workers, uint32_t num_buffers = 2, Round first = 0)
      : HasView(num_workers), RoundState(&view_, num_buffers, first) {}
};

void Complete(RoundState* rounds, int32_t num_workers) {
  const Round round = rounds->current();
  for (int32_t rank = 0; rank < (round == 0 ? 1 : num_workers); ++rank) {
    ASSERT_EQ(rounds->Push(rank, round), PushVerdict::kTake);
    rounds->Contributed(rank);
  }
  ASSERT_EQ(rounds->current(), round + 1);
}

TEST(RankSetTest, KeepsAnyRanksOfAnyNumberOfWorkers) {
  for (const int32_t num_workers : {1, 2, 63, 64, 65, 128, 129, 1024}) {
    const job::View view = job::MakeView({}, num_workers, 1);
    RankSet ranks(&view);
    std::set<int32_t> expected;
    for (int32_t rank = num_workers - 1; rank >= 0; rank -= 3) {
      ranks.Add(rank);
      expected.insert(rank);
    }
    for (int32_t rank = 0; rank < num_workers; ++rank) {
      EXPECT_EQ(ranks.has(rank), expected.contains(rank)) << rank << " of " << num_workers;
    }
    ranks.Clear();
    for (int32_t rank = 0; rank < num_workers; ++rank) EXPECT_FALSE(ranks.has(rank)) << rank;
    ranks.Add(num_workers - 1);
    EXPECT_TRUE(ranks.has(num_workers - 1)) << "also after it was cleared";
    EXPECT_EQ(ranks.view().num_workers(), num_workers);
  }
}

TEST(RoundTest, IsSmall) {
  EXPECT_LE(sizeof(RoundState), 40u) << "a server keeps one for each partition";
}

TEST(RoundTest, ThereIsASumBetweenTheFirstContributionAndTheLast) {
  Rounds rounds(2);
  Complete(&rounds, 2);
  EXPECT_FALSE(rounds.has_sum()) << "that was of round 0";
  EXPECT_EQ(rounds.Push(0, 1), PushVerdict::kTake);
  EXPECT_EQ(rounds.Push(1, 1), PushVerdict::kTake);
  EXPECT_FALSE(rounds.has_sum()) << "taken is not summed";
  EXPECT_FALSE(rounds.Contributed(1));
  EXPECT_TRUE(rounds.has_sum());
  EXPECT_TRUE(rounds.Contributed(0));
  EXPECT_FALSE(rounds.has_sum());
}

TEST(RoundTest, AContributionOfAHostStandsForItsWorkers) {
  Rounds rounds(4);
  Complete(&rounds, 4);
  const std::vector<int32_t> host = {0, 2};
  EXPECT_EQ(rounds.Push(host, 1), PushVerdict::kTake);
  EXPECT_EQ(rounds.Push(host, 1), PushVerdict::kDuplicate);
  EXPECT_EQ(rounds.Missing(), "workers 1, 3");
  EXPECT_FALSE(rounds.Contributed(0, 2));
  EXPECT_EQ(rounds.Push(1, 1), PushVerdict::kTake);
  EXPECT_FALSE(rounds.Contributed(1));
  EXPECT_EQ(rounds.Push(3, 1), PushVerdict::kTake);
  EXPECT_TRUE(rounds.Contributed(3));
  EXPECT_EQ(rounds.Judge(host, 1), PushVerdict::kDuplicate) << "of a round that is over";
}

TEST(RoundTest, AHostDoesNotContributeForAWorkerThatContributedAlone) {
  Rounds rounds(3);
  Complete(&rounds, 3);
  EXPECT_EQ(rounds.Push(2, 1), PushVerdict::kTake);
  EXPECT_EQ(rounds.Push(std::vector<int32_t>{1, 2}, 1), PushVerdict::kRefuse);
  EXPECT_EQ(rounds.Missing(), "workers 0, 1") << "nothing of it counts";
  EXPECT_EQ(rounds.Push(std::vector<int32_t>{1, 3}, 1), PushVerdict::kRefuse) << "no such worker";
}

TEST(RoundTest, ManyWorkersCompleteTheirRounds) {
  for (const int32_t num_workers : {63, 64, 65, 128, 129}) {
    Rounds rounds(num_workers);
    for (int i = 0; i < 4; ++i) Complete(&rounds, num_workers);
    EXPECT_EQ(rounds.Push(num_workers - 1, 4), PushVerdict::kTake);
    EXPECT_EQ(rounds.Push(num_workers - 1, 4), PushVerdict::kDuplicate);
    EXPECT_FALSE(rounds.has(num_workers - 2));
    EXPECT_EQ(rounds.Push(num_workers, 4), PushVerdict::kRefuse);
  }
}

TEST(RoundTest, RoundZeroIsCompleteWithRankZeroAlone) {
  Rounds rounds(3);
  EXPECT_EQ(rounds.Pull(0), PullVerdict::kWait);
  EXPECT_EQ(rounds.Push(0, 0), PushVerdict::kTake);
  EXPECT_TRUE(rounds.open());
  EXPECT_TRUE(rounds.Contributed(0));
  EXPECT_FALSE(rounds.open());
  EXPECT_EQ(rounds.Pull(0), PullVerdict::kReady);
  EXPECT_EQ(rounds.current(), 1u);
}

TEST(RoundTest, RoundsBeforeTheFirstAreAnothersAndTheFirstNeedsAllWorkers) {
  Rounds rounds(2, 2, 5);
  EXPECT_EQ(rounds.current(), 5u);
  EXPECT_FALSE(rounds.begun());
  for (const Round round : {0, 3, 4, 6}) {
    EXPECT_EQ(rounds.Push(0, round), PushVerdict::kRefuse);
    EXPECT_EQ(rounds.Pull(round), PullVerdict::kRefuse);
  }
  EXPECT_EQ(rounds.Pull(5), PullVerdict::kWait);
  EXPECT_EQ(rounds.Push(1, 5), PushVerdict::kTake);
  EXPECT_TRUE(rounds.begun());
  EXPECT_FALSE(rounds.Contributed(1));
  EXPECT_EQ(rounds.Push(0, 5), PushVerdict::kTake);
  EXPECT_TRUE(rounds.Contributed(0));
  EXPECT_TRUE(rounds.begun());
  EXPECT_EQ(rounds.Pull(5), PullVerdict::kReady);
  EXPECT_EQ(rounds.Push(0, 4), PushVerdict::kRefuse) << "not a repeat";
  EXPECT_EQ(rounds.Pull(4), PullVerdict::kRefuse) << "nothing is there";
}

TEST(RoundTest, OnlyRankZeroMayPushRoundZero) {
  Rounds rounds(2);
  EXPECT_EQ(rounds.Push(1, 0), PushVerdict::kRefuse);
  EXPECT_FALSE(rounds.open());
  Complete(&rounds, 2);
  EXPECT_EQ(rounds.Push(1, 0), PushVerdict::kRefuse) << "also later";
}

TEST(RoundTest, ARoundNeedsEveryWorkerOnce) {
  Rounds rounds(3);
  Complete(&rounds, 3);
  EXPECT_EQ(rounds.Push(2, 1), PushVerdict::kTake);
  EXPECT_EQ(rounds.Push(2, 1), PushVerdict::kDuplicate) << "taken, though not summed yet";
  EXPECT_FALSE(rounds.Contributed(2));
  EXPECT_EQ(rounds.Push(2, 1), PushVerdict::kDuplicate);
  EXPECT_EQ(rounds.Push(0, 1), PushVerdict::kTake);
  EXPECT_FALSE(rounds.Contributed(0));
  EXPECT_EQ(rounds.Missing(), "worker 1");
  EXPECT_EQ(rounds.Push(1, 1), PushVerdict::kTake);
  EXPECT_EQ(rounds.Pull(1), PullVerdict::kWait) << "taken is not summed";
  EXPECT_TRUE(rounds.Contributed(1));
  EXPECT_EQ(rounds.Pull(1), PullVerdict::kReady);
}

TEST(RoundTest, RepeatsOfFinishedRoundsAreDuplicates) {
  Rounds rounds(2);
  for (int i = 0; i < 5; ++i) Complete(&rounds, 2);
  EXPECT_EQ(rounds.Push(1, 4), PushVerdict::kDuplicate);
  EXPECT_EQ(rounds.Push(1, 1), PushVerdict::kDuplicate);
  EXPECT_EQ(rounds.Push(0, 0), PushVerdict::kDuplicate);
}

TEST(RoundTest, JudgeChangesNothing) {
  Rounds rounds(2);
  EXPECT_EQ(rounds.Judge(0, 0), PushVerdict::kTake);
  EXPECT_EQ(rounds.Judge(0, 0), PushVerdict::kTake);
  EXPECT_FALSE(rounds.open());
}

TEST(RoundTest, RanksAndRoundsThatMakeNoSenseAreRefused) {
  Rounds rounds(2);
  EXPECT_EQ(rounds.Push(-1, 0), PushVerdict::kRefuse);
  EXPECT_EQ(rounds.Push(2, 0), PushVerdict::kRefuse);
  EXPECT_EQ(rounds.Push(INT32_MAX, 0), PushVerdict::kRefuse);
  EXPECT_EQ(rounds.Push(0, 1), PushVerdict::kRefuse);
  EXPECT_EQ(rounds.Push(0, UINT64_MAX), PushVerdict::kRefuse);
  EXPECT_EQ(rounds.Pull(1), PullVerdict::kRefuse);
  EXPECT_EQ(rounds.Pull(UINT64_MAX), PullVerdict::kRefuse);
}

TEST(RoundTest, ASumIsReadableUntilTheRoundAfterNextBegins) {
  Rounds rounds(2);
  for (int i = 0; i < 4; ++i) Complete(&rounds, 2);  // 0 to 3
  EXPECT_EQ(rounds.Pull(3), PullVerdict::kReady);
  EXPECT_EQ(rounds.Pull(2), PullVerdict::kReady);
  EXPECT_EQ(rounds.Pull(1), PullVerdict::kRefuse);
  EXPECT_EQ(rounds.Push(1, 4), PushVerdict::kTake);
  EXPECT_EQ(rounds.Pull(3), PullVerdict::kReady);
  EXPECT_EQ(rounds.Pull(2), PullVerdict::kRefuse) << "round 4 writes into its buffer";
}

TEST(RoundTest, OneBufferIsReadWhileTheNextRoundIsWritten) {
  Rounds rounds(2, 1);
  Complete(&rounds, 2);
  Complete(&rounds, 2);
  EXPECT_EQ(rounds.Push(0, 2), PushVerdict::kTake);
  EXPECT_EQ(rounds.Pull(1), PullVerdict::kReady);
  EXPECT_EQ(rounds.buffer_of(1), rounds.buffer_of(2));
}

TEST(RoundTest, MissingNamesTheWorkersThatAreWaitedFor) {
  Rounds rounds(4);
  EXPECT_EQ(rounds.Missing(), "worker 0");
  Complete(&rounds, 4);
  EXPECT_EQ(rounds.Missing(), "workers 0, 1, 2, 3");
  EXPECT_EQ(rounds.Push(2, 1), PushVerdict::kTake);
  EXPECT_EQ(rounds.Push(0, 1), PushVerdict::kTake);
  EXPECT_EQ(rounds.Missing(), "workers 1, 3");
  EXPECT_TRUE(rounds.has(2));
  EXPECT_TRUE(rounds.needs(3));
  EXPECT_FALSE(rounds.needs(2));
  EXPECT_FALSE(rounds.needs(4));

  Rounds many(1000);
  Complete(&many, 1000);
  EXPECT_EQ(many.Missing(), "workers 0, 1, 2, 3, 4, 5, 6, 7 and 992 more");
}

TEST(RoundDeathTest, AContributionThatWasNotTakenIsAMistakeOfOurs) {
  Rounds rounds(2);
  EXPECT_DEATH(rounds.Contributed(0), "check failed");
}

// The same rules said naively: sets of who is in, and which round last wrote each buffer.
class Reference {
 public:
  explicit Reference(int32_t num_workers) : num_workers_(num_workers) {}

  PushVerdict Push(int32_t rank, Round round) {
    if (rank < 0 || rank >= num_workers_ || (round == 0 && rank != 0)) return PushVerdict::kRefuse;
    for (Round earlier = 0; earlier < round; ++earlier) {
      if (!IsComplete(earlier)) return PushVerdict::kRefuse;
    }
    if (taken_[round].count(rank) != 0) return PushVerdict::kDuplicate;
    taken_[round].insert(rank);
    written_by_[round % 2] = round;
    return PushVerdict::kTake;
  }
  PullVerdict Pull(Round round) {
    for (Round earlier = 0; earlier < round; ++earlier) {
      if (!IsComplete(earlier)) return PullVerdict::kRefuse;
    }
    if (!IsComplete(round)) return PullVerdict::kWait;
    return written_by_[round % 2] == round ? PullVerdict::kReady : PullVerdict::kRefuse;
  }
  void Contributed(int32_t rank, Round round) { summed_[round].insert(rank); }
  bool IsComplete(Round round) {
    return summed_[round].size() == (round == 0 ? 1 : static_cast<size_t>(num_workers_));
  }

 private:
  const int32_t num_workers_;
  std::map<Round, std::set<int32_t>> taken_;
  std::map<Round, std::set<int32_t>> summed_;
  std::map<Round, Round> written_by_;
};

class RoundModelTest : public testing::TestWithParam<int32_t> {};

TEST_P(RoundModelTest, AgreesWithTheNaiveReference) {
  const int32_t num_workers = GetParam();
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Rounds rounds(num_workers);
    Reference reference(num_workers);
    std::vector<int32_t> unsummed;  // taken in the current round
    for (int step = 0; step < 1000; ++step) {
      const auto rank = static_cast<int32_t>(random() % static_cast<uint32_t>(num_workers + 1));
      const Round back = random() % 4;
      const Round round = rounds.current() + 1 >= back ? rounds.current() + 1 - back : 0;
      ASSERT_EQ(rounds.Pull(round), reference.Pull(round)) << "round " << round;
      const PushVerdict verdict = rounds.Push(rank, round);
      ASSERT_EQ(verdict, reference.Push(rank, round)) << "round " << round << " rank " << rank;
      if (verdict == PushVerdict::kTake) unsummed.push_back(rank);
      if (!unsummed.empty() && random() % 2 == 0) {
        const Round current = rounds.current();
        const bool complete = rounds.Contributed(unsummed.back());
        reference.Contributed(unsummed.back(), current);
        unsummed.pop_back();
        ASSERT_EQ(complete, reference.IsComplete(current));
      }
    }
    EXPECT_GT(rounds.current(), 5u) << "the walk got nowhere";
  }
}
INSTANTIATE_TEST_SUITE_P(Workers, RoundModelTest, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace bs::server
