// Texts about settings of RDMA.
#include "config/rdma_rules.h"

#include <algorithm>
#include <array>

namespace bs::config {

std::string WhyNoRdmaOf(std::string_view value) {
  if (value != "ucx" && value != "fabric") return "";
  const std::string library = value == "ucx" ? "UCX" : "libfabric";
  return library +
         " is not supported, as it queues messages by itself and the urgent ones would wait; "
         "want ibverbs";
}

bool IsPlainTcp(const Config& config) {
  return config.transport == "tcp" && !config.local_ipc && config.secret.empty();
}

Status CheckRdma(const Config& config) {
  if (!config.RequiresRdma()) return Status::Ok();
  const std::string given = "DMLC_ENABLE_RDMA=" + config.rdma;
  if (!config.secret_file.empty()) {
    return Status::InvalidArgument(given +
                                   ": RDMA does not encrypt, and BYTESCHEDULER_SECRET_FILE is "
                                   "set; unset one of both");
  }
  if (config.transport != "tcp") {
    return Status::InvalidArgument(given + ": RDMA goes beside our own sockets; unset " +
                                   "BYTESCHEDULER_TRANSPORT=" + config.transport);
  }
  if (config.local_ipc) {
    return Status::InvalidArgument(given + ": DMLC_LOCAL=1 talks through files; unset one of both");
  }
  return Status::Ok();
}

bool IsRdmaOfByteps(std::string_view name) {
  constexpr std::array<std::string_view, 2> kNames = {"BYTEPS_ENABLE_IPC", "BYTEPS_PRINT_RDMA_LOG"};
  return name.starts_with("BYTEPS_RDMA_") || name.starts_with("BYTEPS_UCX_") ||
         std::ranges::find(kNames, name) != kNames.end();
}

std::string LineOnByteps(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string line;
  for (const std::string& name : names) line += (line.empty() ? "" : ", ") + name;
  return line + (names.size() == 1 ? " has" : " have") +
         " no effect here: BYTESCHEDULER_RDMA_SLOTS and BYTESCHEDULER_RDMA_WINDOW bound what is "
         "under way on a link, and nodes of one host share memory (BYTESCHEDULER_SHARED_MEMORY)";
}

}  // namespace bs::config
