// Ranks that launchers give: which of them are the workers', and what is refused.
#include "config/launcher_rank.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/snapshot.h"

namespace bs::config {
namespace {

using Environment = std::map<std::string, std::string>;

Result<std::optional<LauncherRank>> RankIn(const Environment& environment) {
  const Lookup lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto set = environment.find(std::string(name));
    return set == environment.end() ? std::nullopt : std::optional(set->second);
  };
  return FindLauncherRank(lookup, 3);
}

// -1: none.
int32_t RankOf(const Environment& environment) {
  const auto found = RankIn(environment);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() && found.value() ? found.value()->rank : -1;
}

std::string WhyNot(const Environment& environment) {
  return RankIn(environment).status().message();
}

TEST(LauncherRank, EachLauncherGivesOne) {
  EXPECT_EQ(RankOf({{"RANK", "2"}}), 2);
  EXPECT_EQ(RankOf({{"RANK", "0"}, {"WORLD_SIZE", "3"}}), 0);
  EXPECT_EQ(RankOf({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}}), 1);
  EXPECT_EQ(RankOf({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}), 1);
  EXPECT_EQ(RankOf({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "3"}}), 2);
  EXPECT_EQ(RankOf({}), -1);
  EXPECT_EQ(RankOf({{"RANK", ""}}), -1);
}

TEST(LauncherRank, OfAnotherNumberOfProcessesIsNotTheWorkers) {
  EXPECT_EQ(RankOf({{"RANK", "0"}, {"WORLD_SIZE", "8"}}), -1);
  EXPECT_EQ(RankOf({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "6"}}), -1);
  EXPECT_EQ(RankOf({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "3"}}),
            -1);
  EXPECT_EQ(RankOf({{"RANK", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}), 2);
}

TEST(LauncherRank, OfABatchScriptIsNone) {
  EXPECT_EQ(RankOf({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}, {"ENVIRONMENT", "BATCH"}}), -1);
  EXPECT_EQ(RankOf({{"SLURM_PROCID", "1"},
                    {"SLURM_NTASKS", "3"},
                    {"ENVIRONMENT", "BATCH"},
                    {"SLURM_STEP_ID", "0"}}),
            1);
}

TEST(LauncherRank, TwoThatAgreeAreOne) {
  EXPECT_EQ(RankOf({{"PMI_RANK", "1"}, {"SLURM_PROCID", "1"}}), 1);
  EXPECT_SNAPSHOT(WhyNot({{"RANK", "2"}, {"PMI_RANK", "0"}}),
                  "RANK=2 and PMI_RANK=0 contradict each other: unset one, or set DMLC_WORKER_ID");
}

TEST(LauncherRank, OfTorchrunCountsAlone) {
  const Environment slurm = {
      {"RANK", "2"}, {"WORLD_SIZE", "3"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}};
  EXPECT_FALSE(RankIn(slurm).ok());
  Environment both = slurm;
  both["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(RankOf(both), 2);
  both.erase("RANK");  // a script has unset torchrun's number
  EXPECT_EQ(RankOf(both), 0);
}

TEST(LauncherRank, OutOfRangeOrNoNumberIsRefused) {
  for (const char* const wrong : {"3", "-1", "first", "1.0", "99999999999999999999"}) {
    EXPECT_EQ(WhyNot({{"PMI_RANK", wrong}}),
              "PMI_RANK=" + std::string(wrong) +
                  ": the job has 3 workers, so want 0 to 2; unset it, or set DMLC_WORKER_ID");
  }
}

}  // namespace
}  // namespace bs::config
