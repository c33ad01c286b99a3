// Thousands of jobs that exchange values, with deaths, and the mistakes that they find.
#include "sim/exchange/exchange_job.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace bs::sim {
namespace {

std::string RunJob(const ExchangeJobOptions& options, uint64_t seed) {
  return ExchangeJob(options, seed).Run();
}

TEST(ExchangeJob, EndsWellWhateverTheNetworkDoes) {
  for (uint64_t seed = 0; seed < BS_EXCHANGE_SEEDS; ++seed) {
    ASSERT_EQ(RunJob(DrawExchanges(seed), seed), "") << "seed " << seed;
  }
}

// The victim dies at each message in turn.
TEST(ExchangeJob, NamesALostWorkerAtWhateverMessageItDies) {
  uint64_t jobs = 0;
  for (uint64_t seed = 0; jobs < BS_EXCHANGE_SEEDS; ++seed) {
    ExchangeJobOptions options = DrawExchanges(seed);
    ExchangeJob whole(options, seed);
    ASSERT_EQ(whole.Run(), "");
    options.victim = static_cast<int32_t>(seed) % options.num_workers;
    for (options.death_at = 1; options.death_at <= whole.num_messages();
         options.death_at += 1 + whole.num_messages() / 40) {
      ++jobs;
      ASSERT_EQ(RunJob(options, seed), "") << "seed " << seed << " message " << options.death_at;
    }
  }
}

// One worker states another reduction, or another root, with the same home: that follows from the
// key.
ExchangeJobOptions DrawMistake(uint64_t seed) {
  ExchangeJobOptions options = DrawExchanges(seed);
  ExchangePlan& plan = options.plans.front();
  plan.givers.clear();
  for (int32_t rank = 0; rank < options.num_workers; ++rank) plan.givers.push_back(rank);
  plan.takers = plan.givers;
  plan.reduction = Reduction::kSum;
  plan.mistaken_rank = static_cast<int32_t>(seed) % options.num_workers;
  plan.mistake = static_cast<ExchangePlan::Mistake>(seed / 7 % 2);
  return options;
}

TEST(ExchangeJob, TellsAllWorkersThatTheyDiffer) {
  for (uint64_t seed = 0; seed < BS_EXCHANGE_SEEDS / 4; ++seed) {
    const ExchangeJobOptions options = DrawMistake(seed);
    ExchangeJob job(options, seed);
    ASSERT_EQ(job.Run(), "") << "seed " << seed;
    EXPECT_EQ(job.num_refused(), static_cast<uint64_t>(options.num_workers)) << "seed " << seed;
  }
}

bool IsFoundOut(const protocol::Rules& rules, ExchangeJobOptions (*draw)(uint64_t)) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    ExchangeJobOptions options = draw(seed);
    options.rules = &rules;
    if (!RunJob(options, seed).empty()) return true;
  }
  return false;
}

class EndsEarly final : public protocol::Rules {
  bool exchanges_wait_for_all_givers() const override { return false; }
};

TEST(ExchangeMutants, AResultBeforeAllHaveGivenIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(EndsEarly(), DrawExchanges));
}

class GoesEarly final : public protocol::Rules {
  bool exchanges_stay_until_all_takers_have_them() const override { return false; }
};

TEST(ExchangeMutants, AResultThatGoesBeforeAllHaveItIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(GoesEarly(), DrawExchanges));
}

class AnyTerms final : public protocol::Rules {
  bool exchanges_compare_terms() const override { return false; }
};

TEST(ExchangeMutants, TermsThatAreNotComparedAreFoundOut) {
  EXPECT_TRUE(IsFoundOut(AnyTerms(), DrawMistake));
}

class CountsTwice final : public protocol::Rules {
  bool exchanges_count_contributions_once() const override { return false; }
};

TEST(ExchangeMutants, ARepeatThatCountsTwiceIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(CountsTwice(), DrawExchanges));
}

class BeginsAgain final : public protocol::Rules {
  bool exchanges_stay_over() const override { return false; }
};

TEST(ExchangeMutants, ALateRepeatThatBeginsAnExchangeIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(BeginsAgain(), DrawExchanges));
}

class WrongHome final : public protocol::Rules {
  bool exchanges_go_to_their_home() const override { return false; }
};

TEST(ExchangeMutants, AShardThatGoesToTheWrongPlaceIsFoundOut) {
  EXPECT_TRUE(IsFoundOut(WrongHome(), DrawExchanges));
}

}  // namespace
}  // namespace bs::sim
