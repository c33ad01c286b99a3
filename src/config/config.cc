// Reads, checks and describes settings; the only reader of the environment.
#include "config/config.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <variant>

#include "base/count_of.h"
#include "config/launcher_rank.h"
#include "config/parse.h"
#include "config/rdma_rules.h"
#include "config/secret.h"
#include "config/settings_table.h"

namespace bs {
namespace {

constexpr std::string_view kPrefix = "BYTESCHEDULER_";

using Row = config::SettingRow;

const Row* FindRow(std::string_view name) {
  const std::span<const Row> rows = config::SettingRows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.info.name == name; });
  return row == rows.end() ? nullptr : &*row;
}

// "NAME=VALUE: want bytes, such as 8388608 or 8MiB".
Status Malformed(const Row& row, const std::string& text, const std::string& want) {
  return Status::InvalidArgument(std::string(row.info.name) + "=" + config::Printable(text) + ": " +
                                 want);
}

Status OutOfRange(const Row& row, const std::string& text) {
  return Malformed(row, text,
                   "want " + std::string(row.smallest) + " to " + std::string(row.largest));
}

// For types with bounds; tests prove that the bounds in the table are well-formed.
template <typename Parse, typename T>
Status AssignInRange(const Row& row, const std::string& given, Parse parse, T* out) {
  const bool automatic = !row.automatic.empty() && given == config::kAutomatic;
  const std::string text = automatic ? std::string(row.automatic) : given;
  const auto value = parse(text);
  if (!value.ok()) return Malformed(row, text, value.status().message());
  if (!row.largest.empty() &&
      (value.value() < parse(row.smallest).value() || value.value() > parse(row.largest).value())) {
    return OutOfRange(row, text);
  }
  *out = static_cast<T>(value.value());
  return Status::Ok();
}

// A flag as a number; "": the text is no flag.
std::string NumberOfFlag(const std::string& text) {
  const std::optional<bool> value = config::ParseFlag(text);
  return value ? std::to_string(static_cast<int>(*value)) : "";
}

// An overload for each type of field: parses `text` into `out` or says how it should look.
Status Assign(const Row& row, const std::string& text, std::string* out) {
  constexpr std::string_view kChoice = "choice ";
  if (row.info.kind.starts_with(kChoice)) {
    const std::string_view words = row.info.kind.substr(kChoice.size());
    if (row.info.name == "DMLC_ENABLE_RDMA") {
      const std::string why = config::WhyNoRdmaOf(text);
      if (!why.empty()) return Malformed(row, text, why);
    }
    // A switch with more words takes those of a flag too.
    const std::string number = words.starts_with("1|0|") ? NumberOfFlag(text) : "";
    if (number.empty() && !config::IsOneOf(text, words)) {
      return Malformed(row, text, "want one of " + std::string(words));
    }
    *out = number.empty() ? text : number;
    return Status::Ok();
  }
  if (row.info.kind == "address" && !text.empty() && !config::IsAddress(text)) {
    return Malformed(row, text, "want PORT or HOST:PORT, such as 18600 or 0.0.0.0:18600");
  }
  if (row.info.kind == "host" && !text.empty()) {
    const bool root = row.info.name == "DMLC_PS_ROOT_URI";
    const std::string why = config::WhyNoHost(text, root ? "DMLC_PS_ROOT_PORT" : "DMLC_PORT");
    if (!why.empty()) return Malformed(row, text, why);
    *out = config::Unbracketed(text);
    return Status::Ok();
  }
  *out = text;
  return Status::Ok();
}

Status Assign(const Row& row, const std::string& text, bool* out) {
  const std::optional<bool> value = config::ParseFlag(text);
  if (!value) return Malformed(row, text, "want 0 or 1");
  *out = *value;
  return Status::Ok();
}

Status Assign(const Row& row, const std::string& text, int32_t* out) {
  return AssignInRange(row, text, config::ParseCount, out);
}

Status Assign(const Row& row, const std::string& text, uint64_t* out) {
  return row.info.kind == "rate" ? AssignInRange(row, text, config::ParseRate, out)
                                 : AssignInRange(row, text, ParseBytes, out);
}

Status Assign(const Row& row, const std::string& text, Duration* out) {
  return AssignInRange(row, text, ParseDuration, out);
}

// Another name of a setting, of BytePS, which counts where its own is not set; "" if it has none.
std::string_view BytepsName(std::string_view name) {
  return name == "BYTESCHEDULER_MIN_COMPRESS" ? "BYTEPS_MIN_COMPRESS_BYTES" : "";
}

// A name that is set to nothing counts as not set, as shells make it easy to write.
std::optional<std::string> Find(const Lookup& lookup, std::string_view name) {
  std::optional<std::string> text = lookup(name);
  return text && !text->empty() ? text : std::nullopt;
}

// The name of the row's setting under which it is set; its own if none is.
std::string_view NameInUse(const Lookup& lookup, const Row& row) {
  const std::string_view other = BytepsName(row.info.name);
  const bool is_other = !other.empty() && !Find(lookup, row.info.name) && Find(lookup, other);
  return is_other ? other : row.info.name;
}

Status Unknown(std::string_view name) {
  std::vector<std::string_view> names;
  names.reserve(config::SettingRows().size());
  for (const Row& row : config::SettingRows()) names.push_back(row.info.name);
  const std::string_view nearest = config::NearestName(name, names);
  return Status::InvalidArgument(std::string(name) + " is no setting" +
                                 (nearest.empty()
                                      ? std::string("; bytescheduler config lists them")
                                      : "; did you mean " + std::string(nearest) + "?"));
}

Status Missing(const Lookup& lookup) {
  std::string missing;
  for (const Row& row : config::SettingRows()) {
    if (row.info.fallback != config::kRequired || Find(lookup, row.info.name)) continue;
    missing += (missing.empty() ? "" : "; ") + std::string(row.info.name) + " is not set (" +
               std::string(row.info.sentence) + ")";
  }
  return missing.empty() ? Status::Ok() : Status::InvalidArgument(missing);
}

Status NoSuchRank(const std::string& name, int32_t rank, int32_t count, const std::string& role) {
  return Status::InvalidArgument(name + "=" + std::to_string(rank) + ": the job has " +
                                 CountOf(count, role) + ", so want 0 to " +
                                 std::to_string(count - 1));
}

// MXNet's own store carries the bytes.
bool IsOfStore(const Config& config) {
  return config.backend == "kvstore" || config.backend == "passthrough";
}

// A library of the machine sends the sums, and encrypts nothing.
bool IsOfLibrary(const Config& config) { return config.comm == "mpi" || config.comm == "nccl"; }

Status CheckLocalSums(const Config& config) {
  if (config.local_sums != "nccl") return Status::Ok();
  const std::string begin = "BYTESCHEDULER_LOCAL_SUMS=nccl beside ";
  if (IsOfLibrary(config)) {
    return Status::InvalidArgument(begin + "BYTESCHEDULER_COMM=" + config.comm +
                                   ", with which a library sums over all workers: unset one of "
                                   "them");
  }
  if (config.rejoin_timeout > Duration::zero()) {
    return Status::InvalidArgument(begin +
                                   "BYTESCHEDULER_REJOIN_TIMEOUT: NCCL loses its connections with "
                                   "a worker; unset one of them");
  }
  if (!config.secret_file.empty()) {
    return Status::InvalidArgument(begin +
                                   "BYTESCHEDULER_SECRET_FILE: NCCL sends sums unencrypted; unset "
                                   "one of them");
  }
  if (!IsOfStore(config)) return Status::Ok();
  return Status::InvalidArgument(begin + "BYTESCHEDULER_BACKEND=" + config.backend +
                                 ", with which MXNet's own store carries the bytes: unset one of "
                                 "them");
}

// Rules between several settings, which the rows of the table cannot hold.
Status CheckTogether(const Config& config) {
  if (config.root_port == 0 && config.role != "scheduler") {
    return Status::InvalidArgument(
        "DMLC_PS_ROOT_PORT=0: only the scheduler may take any free port; want the one it took");
  }
  if (config.role == "worker" && config.worker_id >= config.num_workers) {
    return NoSuchRank("DMLC_WORKER_ID", config.worker_id, config.num_workers, "worker");
  }
  if (config.role == "server" && config.server_id >= config.num_servers) {
    return NoSuchRank("DMLC_SERVER_ID", config.server_id, config.num_servers, "server");
  }
  if (config.heartbeat_timeout <= config.heartbeat_interval) {
    return Status::InvalidArgument(
        "BYTESCHEDULER_HEARTBEAT_TIMEOUT is not longer than BYTESCHEDULER_HEARTBEAT_INTERVAL: "
        "every node would be lost");
  }
  if (IsOfStore(config) && config.comm != config::kAutomatic) {
    return Status::InvalidArgument(
        "BYTESCHEDULER_COMM=" + config.comm + " beside BYTESCHEDULER_BACKEND=" + config.backend +
        ", with which MXNet's own store carries the bytes: unset one of them");
  }
  if (const Status wrong = CheckLocalSums(config); !wrong.ok()) return wrong;

  if (IsOfLibrary(config) && !config.secret_file.empty()) {
    return Status::InvalidArgument(
        "BYTESCHEDULER_SECRET_FILE beside BYTESCHEDULER_COMM=" + config.comm +
        ", whose library sends sums unencrypted: set BYTESCHEDULER_COMM=direct, or unset the "
        "secret on a network that is trusted");
  }
  return config::CheckRdma(config);
}

// DMLC_NUM_SERVER=0: each worker's process hosts a server, which it starts with the true count.
Status ApplyHostedServers(Config* config) {
  if (config->num_servers > 0) return Status::Ok();
  if (config->role == "server") {
    return Status::InvalidArgument(
        "DMLC_ROLE=server: in a job with DMLC_NUM_SERVER=0 each worker's process hosts a server, "
        "and none has a process of its own");
  }
  if (config->rejoin_timeout > Duration::zero()) {
    return Status::InvalidArgument(
        "BYTESCHEDULER_REJOIN_TIMEOUT: with DMLC_NUM_SERVER=0 a lost worker takes the server with "
        "it that its process hosts, so none can join again; unset it, or start servers");
  }
  if (IsOfStore(*config)) {
    return Status::InvalidArgument("BYTESCHEDULER_BACKEND=" + config->backend +
                                   ": with DMLC_NUM_SERVER=0 workers host servers of ours, which "
                                   "MXNet's own store cannot use; unset it, or start servers");
  }
  config->num_servers = config->num_workers;
  config->servers_in_workers = true;
  return Status::Ok();
}

void ApplyPsHeartbeats(const Lookup& lookup, Config* config) {
  if (config->ps_heartbeat_interval > Duration::zero() &&
      !Find(lookup, "BYTESCHEDULER_HEARTBEAT_INTERVAL")) {
    config->heartbeat_interval = config->ps_heartbeat_interval;
  }
  if (config->ps_heartbeat_timeout > Duration::zero() &&
      !Find(lookup, "BYTESCHEDULER_HEARTBEAT_TIMEOUT")) {
    config->heartbeat_timeout = config->ps_heartbeat_timeout;
  }
}

// Workers only: a scheduler node or a server has no rank by which its launcher could call it.
Status ApplyLauncherRank(const Lookup& lookup, Config* config) {
  if (config->role != "worker" || config->worker_id >= 0) return Status::Ok();
  const auto found = config::FindLauncherRank(lookup, config->num_workers);
  if (!found.ok()) return found.status();
  if (found.value()) config->worker_id = found.value()->rank;
  return Status::Ok();
}

void ApplyMpiSizes(const Lookup& lookup, Config* config) {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (std::optional<std::string> size = Find(lookup, name)) config->mpi_sizes[name] = *size;
  }
}

// NCCL goes by this variable before it goes by its caller's choice.
Status CheckNccl(const Lookup& lookup, const Config& config) {
  const std::string blocks = Find(lookup, "NCCL_COMM_BLOCKING").value_or("0");
  const bool uses_nccl = config.comm == "nccl" || config.local_sums == "nccl";
  if (!uses_nccl || std::strtoll(blocks.c_str(), nullptr, 0) != 1) return Status::Ok();
  return Status::InvalidArgument(
      "NCCL_COMM_BLOCKING=" + config::Printable(blocks) +
      ": calls of NCCL that block hide the loss of a worker; unset it, or set " +
      (config.comm == "nccl" ? "BYTESCHEDULER_COMM=direct" : "BYTESCHEDULER_LOCAL_SUMS=1"));
}

// The setting of ps-lite that replaces the setting `name` where that is not set; "" if there is
// none.
std::string StandInFor(std::string_view name) {
  if (name == "BYTESCHEDULER_HEARTBEAT_INTERVAL") return "PS_HEARTBEAT_INTERVAL";
  if (name == "BYTESCHEDULER_HEARTBEAT_TIMEOUT") return "PS_HEARTBEAT_TIMEOUT";
  return "";
}

// A setting as it was given, or its default.
SettingValue ValueOf(const SettingInfo& info, const std::map<std::string, std::string>& environment,
                     const std::map<std::string, std::string>& overrides) {
  const std::string name(info.name);
  const auto given = overrides.find(name);  // set to nothing, it hides the environment's
  if (given != overrides.end() && !given->second.empty()) return {name, given->second, "argument"};
  const auto set = environment.find(name);
  if (given == overrides.end() && set != environment.end() && !set->second.empty()) {
    return {name, set->second, "environment"};
  }
  const auto byteps = environment.find(std::string(BytepsName(name)));
  if (given == overrides.end() && byteps != environment.end() && !byteps->second.empty()) {
    return {name, byteps->second, byteps->first};
  }
  if (info.fallback == config::kRequired) return {name, "", "not set"};
  return {name, std::string(info.fallback), "default"};
}

// Shows the launcher's rank where that stands for DMLC_WORKER_ID.
void DescribeLauncherRank(const std::map<std::string, std::string>& environment,
                          std::vector<SettingValue>* values) {
  const auto value_of = [&](std::string_view name) {
    return std::find_if(values->begin(), values->end(),
                        [name](const SettingValue& value) { return value.name == name; });
  };
  const auto worker_id = value_of("DMLC_WORKER_ID");
  const Result<int64_t> num_workers = config::ParseCount(value_of("DMLC_NUM_WORKER")->value);
  if (worker_id->origin != "default" || value_of("DMLC_ROLE")->value != "worker") return;
  if (!num_workers.ok()) return;
  const Lookup lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto set = environment.find(std::string(name));
    return set == environment.end() ? std::nullopt : std::optional(set->second);
  };
  const auto found = config::FindLauncherRank(lookup, static_cast<int32_t>(num_workers.value()));
  if (!found.ok() || !found.value()) return;
  *worker_id = {worker_id->name, std::to_string(found.value()->rank),
                std::string(found.value()->variable)};
}

// The process's environment as it is now.
std::map<std::string, std::string> ReadEnvironment() {
  std::map<std::string, std::string> values;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    values.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return values;
}

}  // namespace

std::string Config::JobSettings() const {
  std::string lines;
  for (const Row& row : config::SettingRows()) {
    if (row.info.scope != "job") continue;
    const std::string value =
        std::visit([this](auto field) { return config::Write(this->*field); }, row.field);
    lines.append(row.info.name).append("=").append(value).append("\n");
  }
  return lines;
}

Result<Config> ParseConfig(const Lookup& lookup, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (FindRow(name) == nullptr) return Unknown(name);
  }
  if (Status missing = Missing(lookup); !missing.ok()) return missing;
  Config config;
  for (Row row : config::SettingRows()) {
    row.info.name = NameInUse(lookup, row);  // errors name it
    const std::string text = Find(lookup, row.info.name).value_or(std::string(row.info.fallback));
    if (const std::string damage = config::DamageOf(text); !damage.empty()) {
      return Malformed(row, text, damage);
    }
    Status status =
        std::visit([&](auto field) { return Assign(row, text, &(config.*field)); }, row.field);
    if (!status.ok()) return status;
  }
  ApplyPsHeartbeats(lookup, &config);
  const bool waits_as_told = Find(lookup, "BYTESCHEDULER_TIMEOUT").has_value() &&
                             !Find(lookup, "BYTESCHEDULER_RENDEZVOUS_TIMEOUT").has_value();
  if (waits_as_told) config.rendezvous_timeout = config.timeout;
  if (Status status = ApplyLauncherRank(lookup, &config); !status.ok()) return status;
  ApplyMpiSizes(lookup, &config);
  if (Status status = CheckNccl(lookup, config); !status.ok()) return status;
  const auto chosen = [&](std::string_view name) {
    return Find(lookup, name).value_or(std::string(config::kAutomatic)) != config::kAutomatic;
  };
  config.partition_or_credit_given =
      chosen("BYTESCHEDULER_PARTITION") || chosen("BYTESCHEDULER_CREDIT");
  config.spin_given = Find(lookup, "BYTESCHEDULER_SPIN").has_value();
  config.waiting_given = Find(lookup, "BYTESCHEDULER_WAITING").has_value();
  if (Status status = ApplyHostedServers(&config); !status.ok()) return status;
  if (Status status = CheckTogether(config); !status.ok()) return status;
  return config;
}

Result<Config> ConfigFromProcess(const std::map<std::string, std::string>& overrides) {
  std::map<std::string, std::string> values = ReadEnvironment();
  for (const auto& [name, value] : overrides) values[name] = value;
  std::vector<std::string> names;
  for (const auto& [name, value] : values) {
    const bool ours = name.starts_with(kPrefix) || overrides.contains(name);
    if (ours && !value.empty()) names.push_back(name);
  }
  const Lookup lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto it = values.find(std::string(name));
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
  Result<Config> config = ParseConfig(lookup, names);
  if (!config.ok()) return config;
  if (const Status wrong = config::LoadSecret(&config.value()); !wrong.ok()) return wrong;
  for (const auto& [name, value] : values) {
    if (!value.empty() && config::IsRdmaOfByteps(name))
      config.value().byteps_rdma_names.push_back(name);
  }
  return config;
}

std::vector<SettingValue> DescribeConfig(const std::map<std::string, std::string>& overrides) {
  const std::map<std::string, std::string> environment = ReadEnvironment();
  std::vector<SettingValue> values;
  for (const SettingInfo& info : AllSettings()) {
    values.push_back(ValueOf(info, environment, overrides));
    const std::string stand_in = StandInFor(info.name);
    if (stand_in.empty() || values.back().origin != "default") continue;
    const SettingValue given = ValueOf(FindRow(stand_in)->info, environment, overrides);
    const Result<Duration> time = ParseDuration(given.value);
    if (time.ok() && time.value() > Duration::zero()) {
      values.back() = {std::string(info.name), given.value, stand_in};
    }
  }
  DescribeLauncherRank(environment, &values);
  return values;
}

}  // namespace bs
