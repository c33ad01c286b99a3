// The table of settings and the only reader of the environment.
#include "bytescheduler/config.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <variant>

#include "api/parse.h"
#include "api/secret.h"

namespace bs {
namespace {

constexpr std::string_view kPrefix = "BYTESCHEDULER_";
constexpr std::string_view kRequired = "required";

using Field = std::variant<std::string Config::*, int32_t Config::*, bool Config::*,
                           uint64_t Config::*, Duration Config::*>;

// A setting: what people read about it, where it goes, and what it may be.
struct Row {
  SettingInfo info;
  Field field;
  // Inclusive, in the words of the setting; empty: no bound.
  std::string_view smallest = "";
  std::string_view largest = "";
};

constexpr auto kRows = std::to_array<Row>({
    {{"DMLC_ROLE", "choice worker|server|scheduler", "", "required", "process",
      "what this process is in the job"},
     &Config::role},
    {{"DMLC_NUM_WORKER", "count", "", "required", "job", "how many workers the job has"},
     &Config::num_workers,
     "1",
     "16384"},
    {{"DMLC_NUM_SERVER", "count", "", "required", "job", "how many servers the job has"},
     &Config::num_servers,
     "1",
     "16384"},
    {{"DMLC_PS_ROOT_URI", "text", "", "required", "process",
      "address or host name of the scheduler node"},
     &Config::root_uri},
    {{"DMLC_PS_ROOT_PORT", "count", "", "required", "process",
      "port of the scheduler node; the scheduler itself may take 0 for any free one"},
     &Config::root_port,
     "0",
     "65535"},
    {{"DMLC_NODE_HOST", "text", "", "", "process",
      "address or host name at which the others reach this worker or server"},
     &Config::node_host},
    {{"DMLC_INTERFACE", "text", "", "", "process",
      "without DMLC_NODE_HOST: the address of the first network interface whose name starts so"},
     &Config::interface},
    {{"DMLC_PORT", "count", "", "0", "process",
      "port of a server or of a native worker; 0 takes any free one"},
     &Config::node_port,
     "0",
     "65535"},
    {{"DMLC_LOCAL", "flag", "", "0", "process",
      "talk through ipc files in /tmp instead of tcp; for jobs on one host"},
     &Config::local_ipc},
    {{"DMLC_USE_KUBERNETES", "flag", "", "0", "process",
      "the scheduler listens on all addresses instead of DMLC_PS_ROOT_URI"},
     &Config::use_kubernetes},
    {{"DMLC_PS_WATER_MARK", "count", "messages", "0", "process",
      "messages that leave the queue ahead of the network, for each peer; 0 is our own choice: one "
      "large or several small ones. A larger number weakens priorities"},
     &Config::water_mark,
     "0",
     "1000000"},
    {{"PS_VERBOSE", "count", "", "0", "process",
      "1 or more: the network and the membership log at level debug"},
     &Config::verbose,
     "0",
     "9"},
    {{"PS_HEARTBEAT_INTERVAL", "seconds", "s", "0", "process",
      "stands for BYTESCHEDULER_HEARTBEAT_INTERVAL where that is not set; 0 is ours"},
     &Config::ps_heartbeat_interval,
     "0",
     "1h"},
    {{"PS_HEARTBEAT_TIMEOUT", "seconds", "s", "0", "process",
      "stands for BYTESCHEDULER_HEARTBEAT_TIMEOUT where that is not set; 0 is ours"},
     &Config::ps_heartbeat_timeout,
     "0",
     "24h"},
    {{"MXNET_KVSTORE_BIGARRAY_BOUND", "count", "elements", "1000000", "process",
      "MXNet's: its servers share out larger arrays; pieces sent through them stay smaller"},
     &Config::bigarray_bound,
     "2",
     "2000000000"},
    {{"BYTESCHEDULER_PARTITION", "bytes", "bytes", "128KiB", "process",
      "the largest piece of a tensor; rank 0's decides; if not set, more on fast stock servers"},
     &Config::partition_bytes,
     "4KiB",
     "1GiB"},
    {{"BYTESCHEDULER_CREDIT", "bytes", "bytes", "512KiB", "process",
      "bytes to a server without its answer, or one piece; if not set, more on fast stock ones"},
     &Config::credit_bytes,
     "1",
     "64GiB"},
    {{"BYTESCHEDULER_SCHEDULING", "flag", "", "1", "process",
      "1: the most urgent piece goes first; 0: the first ready goes first"},
     &Config::scheduling},
    {{"BYTESCHEDULER_PRIORITY", "choice measured|caller", "", "caller", "process",
      "priorities: corrected by the order in which gradients become ready, or the caller's own"},
     &Config::priority},
    {{"BYTESCHEDULER_SECRET_FILE", "text", "", "", "process",
      "file with the secret that all nodes of the job share: traffic is encrypted, and nobody else "
      "is let in (docs/security.md)"},
     &Config::secret_file},
    {{"BYTESCHEDULER_TRANSPORT", "choice tcp|zmq", "", "tcp", "process",
      "what carries plain TCP: our own sockets (tcp) or libzmq (zmq), which speak the same "
      "protocol and meet in one job; ipc files and encryption are always libzmq's"},
     &Config::transport},
    {{"BYTESCHEDULER_TIMEOUT", "seconds", "s", "60s", "process",
      "how long to wait for the others at the start, and for an answer"},
     &Config::timeout,
     "1ms",
     "168h"},
    {{"BYTESCHEDULER_STRAGGLER_TIMEOUT", "seconds", "s", "30m", "process",
      "how long a sum or a barrier may wait for another worker that is alive but does not come"},
     &Config::straggler_timeout,
     "1ms",
     "168h"},
    {{"BYTESCHEDULER_HEARTBEAT_INTERVAL", "seconds", "s", "1s", "process",
      "how often a node says that it is alive"},
     &Config::heartbeat_interval,
     "1ms",
     "1h"},
    {{"BYTESCHEDULER_HEARTBEAT_TIMEOUT", "seconds", "s", "30s", "process",
      "a node that is silent for so long is lost"},
     &Config::heartbeat_timeout,
     "2ms",
     "24h"},
    {{"BYTESCHEDULER_SERVER_THREADS", "count", "", "0", "process",
      "summing threads of a server; 0: one for each core, less one core of each NUMA node"},
     &Config::server_threads,
     "0",
     "4096"},
    {{"BYTESCHEDULER_DETERMINISTIC", "flag", "", "0", "job",
      "1: always sum in the order of the workers' ranks, however much memory that holds back"},
     &Config::deterministic},
    {{"BYTESCHEDULER_HOLD", "bytes", "bytes", "64MiB", "process",
      "contributions that a summing thread holds back to sum them in the order of ranks"},
     &Config::hold_bytes,
     "0",
     "1024GiB"},
    {{"BYTESCHEDULER_MAX_STALENESS", "count", "", "-1", "job",
      "dist_async: how many pushes of a key a worker may be ahead of the slowest before it waits; "
      "-1: as many as it likes"},
     &Config::max_staleness,
     "-1",
     "1000000000"},
    {{"BYTESCHEDULER_PICKLES", "choice allow-list|refuse", "", "allow-list", "process",
      "optimizers that come to a server pickled: those of MXNet and BYTESCHEDULER_TRUSTED_MODULES, "
      "or none (docs/security.md)"},
     &Config::pickles},
    {{"BYTESCHEDULER_TRUSTED_MODULES", "text", "", "", "process",
      "Python modules, with commas between, that pickled optimizers may use on a server"},
     &Config::trusted_modules},
    {{"BYTESCHEDULER_UNSENT", "bytes", "bytes", "16KiB", "process",
      "bytes that the kernel may hold unsent for one connection (TCP_NOTSENT_LOWAT); 0 leaves it"},
     &Config::unsent_bytes,
     "0",
     "1GiB"},
    {{"BYTESCHEDULER_LOG_LEVEL", "choice debug|info|warning|error|off", "", "info", "process",
      "the least important lines that go to stderr"},
     &Config::log_level},
    {{"BYTESCHEDULER_TIMELINE", "text", "", "", "process",
      "file to write a timeline to, -r or -s and the rank before its extension (docs/timeline.md)"},
     &Config::timeline},
    {{"BYTESCHEDULER_BACKEND", "choice auto|native|kvstore|passthrough", "", "auto", "process",
      "who carries the bytes: our servers (native), the wrapped store in pieces that we schedule "
      "(kvstore), the wrapped store as it is (passthrough); auto is kvstore unless bslaunch says "
      "native"},
     &Config::backend},
});

constexpr auto kInfos = [] {
  std::array<SettingInfo, kRows.size()> infos{};
  for (size_t i = 0; i < kRows.size(); ++i) infos.at(i) = kRows.at(i).info;
  return infos;
}();

const Row* FindRow(std::string_view name) {
  const auto* const row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.info.name == name; });
  return row == kRows.end() ? nullptr : row;
}

// "NAME=VALUE: want bytes, such as 8388608 or 8MiB".
Status Malformed(const Row& row, const std::string& text, const std::string& want) {
  return Status::InvalidArgument(std::string(row.info.name) + "=" + text + ": " + want);
}

Status OutOfRange(const Row& row, const std::string& text) {
  return Malformed(row, text,
                   "want " + std::string(row.smallest) + " to " + std::string(row.largest));
}

// For types with bounds; those of the table itself the tests prove to be well-formed.
template <typename Parse, typename T>
Status AssignInRange(const Row& row, const std::string& text, Parse parse, T* out) {
  const auto value = parse(text);
  if (!value.ok()) return Malformed(row, text, value.status().message());
  if (!row.largest.empty() &&
      (value.value() < parse(row.smallest).value() || value.value() > parse(row.largest).value())) {
    return OutOfRange(row, text);
  }
  *out = static_cast<T>(value.value());
  return Status::Ok();
}

// One overload for each type of field: parses `text` into `out` or says what it should be.
Status Assign(const Row& row, const std::string& text, std::string* out) {
  constexpr std::string_view kChoice = "choice ";
  if (row.info.kind.starts_with(kChoice)) {
    const std::string_view words = row.info.kind.substr(kChoice.size());
    if (!api::IsOneOf(text, words)) {
      return Malformed(row, text, "want one of " + std::string(words));
    }
  }
  *out = text;
  return Status::Ok();
}

Status Assign(const Row& row, const std::string& text, bool* out) {
  const std::optional<bool> value = api::ParseFlag(text);
  if (!value) return Malformed(row, text, "want 0 or 1");
  *out = *value;
  return Status::Ok();
}

Status Assign(const Row& row, const std::string& text, int32_t* out) {
  return AssignInRange(row, text, api::ParseCount, out);
}

Status Assign(const Row& row, const std::string& text, uint64_t* out) {
  return AssignInRange(row, text, ParseBytes, out);
}

Status Assign(const Row& row, const std::string& text, Duration* out) {
  return AssignInRange(row, text, ParseDuration, out);
}

// A name that is set to nothing counts as not set, as shells make it easy to write.
std::optional<std::string> Find(const Lookup& lookup, std::string_view name) {
  std::optional<std::string> text = lookup(name);
  return text && !text->empty() ? text : std::nullopt;
}

Status Unknown(std::string_view name) {
  std::vector<std::string_view> names;
  names.reserve(kRows.size());
  for (const Row& row : kRows) names.push_back(row.info.name);
  const std::string_view nearest = api::NearestName(name, names);
  return Status::InvalidArgument(std::string(name) + " is no setting" +
                                 (nearest.empty()
                                      ? std::string("; docs/settings.md lists them")
                                      : "; did you mean " + std::string(nearest) + "?"));
}

Status Missing(const Lookup& lookup) {
  std::string missing;
  for (const Row& row : kRows) {
    if (row.info.fallback != kRequired || Find(lookup, row.info.name)) continue;
    missing += (missing.empty() ? "" : "; ") + std::string(row.info.name) + " is not set (" +
               std::string(row.info.sentence) + ")";
  }
  return missing.empty() ? Status::Ok() : Status::InvalidArgument(missing);
}

// What rows alone cannot say.
Status CheckTogether(const Config& config) {
  if (config.root_port == 0 && config.role != "scheduler") {
    return Status::InvalidArgument(
        "DMLC_PS_ROOT_PORT=0: only the scheduler may take any free port; want the one it took");
  }
  if (config.heartbeat_timeout <= config.heartbeat_interval) {
    return Status::InvalidArgument(
        "BYTESCHEDULER_HEARTBEAT_TIMEOUT is not longer than BYTESCHEDULER_HEARTBEAT_INTERVAL: "
        "every node would be lost");
  }
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

// The setting of ps-lite that stands for one of ours where that is not set; "" if there is none.
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
  if (info.fallback == kRequired) return {name, "", "not set"};
  return {name, std::string(info.fallback), "default"};
}

std::map<std::string, std::string> ReadEnvironment() {
  std::map<std::string, std::string> values;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != text.npos) values.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return values;
}

}  // namespace

std::span<const SettingInfo> AllSettings() { return kInfos; }

std::string Config::JobSettings() const {
  std::string lines;
  for (const Row& row : kRows) {
    if (row.info.scope != "job") continue;
    const std::string value =
        std::visit([this](auto field) { return api::Write(this->*field); }, row.field);
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
  for (const Row& row : kRows) {
    const std::string text = Find(lookup, row.info.name).value_or(std::string(row.info.fallback));
    Status status =
        std::visit([&](auto field) { return Assign(row, text, &(config.*field)); }, row.field);
    if (!status.ok()) return status;
  }
  ApplyPsHeartbeats(lookup, &config);
  config.pieces_given =
      Find(lookup, "BYTESCHEDULER_PARTITION") || Find(lookup, "BYTESCHEDULER_CREDIT");
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
  if (const Status wrong = api::LoadSecret(&config.value()); !wrong.ok()) return wrong;
  return config;
}

std::vector<SettingValue> DescribeConfig(const std::map<std::string, std::string>& overrides) {
  const std::map<std::string, std::string> environment = ReadEnvironment();
  std::vector<SettingValue> values;
  for (const SettingInfo& info : kInfos) {
    values.push_back(ValueOf(info, environment, overrides));
    const std::string stand_in = StandInFor(info.name);
    if (stand_in.empty() || values.back().origin != "default") continue;
    const SettingValue given = ValueOf(FindRow(stand_in)->info, environment, overrides);
    const Result<Duration> time = ParseDuration(given.value);
    if (time.ok() && time.value() > Duration::zero()) {
      values.back() = {std::string(info.name), given.value, stand_in};
    }
  }
  return values;
}

}  // namespace bs
