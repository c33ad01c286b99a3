// Reads the variables in which launchers tell a process its rank.
#include "config/launcher_rank.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/count_of.h"
#include "config/parse.h"

namespace bs::config {
namespace {

struct Launcher {
  std::string_view rank;
  std::array<std::string_view, 2> sizes;  // the first that is set counts the processes
};

// The documented variables of each launcher; bslaunch's own variables are in
// bytescheduler/_started/environments.py.
constexpr auto kLaunchers = std::to_array<Launcher>({
    {"RANK", {"WORLD_SIZE", ""}},
    {"OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE", ""}},
    {"PMI_RANK", {"PMI_SIZE", ""}},
    {"SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
});

// Only torchrun sets it, for the processes that it starts itself.
constexpr std::string_view kTorchrunMark = "TORCHELASTIC_RUN_ID";

std::string Find(const Lookup& lookup, std::string_view name) {
  return name.empty() ? "" : lookup(name).value_or("");
}

// Slurm sets SLURM_PROCID=0 for a batch script too, and its children inherit it.
bool IsBatchScript(const Lookup& lookup) {
  return Find(lookup, "ENVIRONMENT") == "BATCH" && Find(lookup, "SLURM_STEP_ID").empty();
}

bool StartedTheWorkers(const Launcher& launcher, const Lookup& lookup, int32_t num_workers) {
  if (launcher.rank == "SLURM_PROCID" && IsBatchScript(lookup)) return false;
  for (const std::string_view name : launcher.sizes) {
    const std::string size = Find(lookup, name);
    if (!size.empty()) return size == std::to_string(num_workers);
  }
  return true;
}

}  // namespace

Result<std::optional<LauncherRank>> FindLauncherRank(const Lookup& lookup, int32_t num_workers) {
  std::optional<LauncherRank> found;
  const bool by_torchrun = !Find(lookup, kTorchrunMark).empty() && !Find(lookup, "RANK").empty();
  for (const Launcher& launcher : kLaunchers) {
    if (by_torchrun && launcher.rank != "RANK") continue;
    const std::string text = Find(lookup, launcher.rank);
    if (text.empty() || !StartedTheWorkers(launcher, lookup, num_workers)) continue;
    const std::string given = std::string(launcher.rank) + "=" + Printable(text);
    const Result<int64_t> rank = ParseCount(text);
    if (!rank.ok() || rank.value() < 0 || rank.value() >= num_workers) {
      return Status::InvalidArgument(given + ": the job has " + CountOf(num_workers, "worker") +
                                     ", so want 0 to " + std::to_string(num_workers - 1) +
                                     "; unset it, or set DMLC_WORKER_ID");
    }
    const auto number = static_cast<int32_t>(rank.value());
    if (found && found->rank != number) {
      return Status::InvalidArgument(std::string(found->variable) + "=" +
                                     std::to_string(found->rank) + " and " + given +
                                     " contradict each other: unset one, or set DMLC_WORKER_ID");
    }
    if (!found) found = LauncherRank{launcher.rank, number};
  }
  return found;
}

}  // namespace bs::config
