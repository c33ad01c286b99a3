// Config: every setting there is, read from the environment once, checked, with its origin.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace bs {

// Returns the value of a name, if it is set.  ConfigFromProcess() reads the environment; tests pass
// a map.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

// A row of the table of settings.
struct SettingInfo {
  std::string_view name;  // "BYTESCHEDULER_CREDIT"
  // "bytes", "seconds", "count", "flag", "text", "host", "address", "rate", "choice a|b"
  std::string_view kind;
  std::string_view unit;      // "" if none
  std::string_view fallback;  // default, as a user would write it; "required" if there is none
  std::string_view scope;     // "process", "job" (must be equal on all nodes)
  std::string_view sentence;  // its effect, for docs/user/settings.md
  bool for_experts = false;   // only to debug or to tune by hand
};
std::span<const SettingInfo> AllSettings();

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): a process has one; related ones meet.
struct Config {
  // DMLC_*, with MXNet's names and meanings.
  std::string role;  // "worker", "server", "scheduler"
  int32_t num_workers = 0;
  int32_t num_servers = 0;
  std::string root_uri;
  int32_t root_port = 0;
  std::string node_host;
  std::string interface;
  int32_t node_port = 0;
  int32_t worker_id = -1;  // the rank that this worker asks for; -1: any
  int32_t server_id = -1;  // the same of a server
  bool local_ipc = false;
  bool use_kubernetes = false;
  bool servers_in_workers = false;  // DMLC_NUM_SERVER is 0; num_servers is then num_workers
  int32_t water_mark = 0;           // 0: our own default
  int32_t verbose = 0;              // 1 or more: the network logs at level debug
  // The user's own values; heartbeat_interval and heartbeat_timeout below hold the values in force.
  Duration ps_heartbeat_interval{};
  Duration ps_heartbeat_timeout{};
  int32_t bigarray_bound = 0;  // MXNet's: elements of an array that lies on one stock server
  // BYTESCHEDULER_*.
  uint64_t partition_bytes = 0;
  uint64_t credit_bytes = 0;
  bool partition_or_credit_given = false;  // either is set, so the link is not measured
  bool scheduling = true;
  std::string priority;      // "measured", "caller"
  std::string tuning;        // "on", "off", "once"; read by the Python side, as is tuning_cache
  std::string tuning_cache;  // a file; empty: the usual file
  Duration rendezvous_timeout{};
  Duration timeout{};
  Duration straggler_timeout{};
  Duration heartbeat_interval{};
  Duration heartbeat_timeout{};
  Duration rejoin_timeout{};
  int32_t server_threads = 0;  // 0: all cores but the first of each NUMA node
  bool deterministic = false;
  std::string local_sums;      // "1", "0", "nccl"
  bool waiting_given = false;  // waiting_bytes is set
  bool spin_given = false;     // spin is set
  uint64_t hold_bytes = 0;
  int32_t max_staleness = -1;  // below 0: no bound
  uint64_t unsent_bytes = 0;
  Duration link_ahead{};       // of bytes that the kernel holds for other hosts; 0: no bound
  uint64_t link_rate = 0;      // bits a second of this host's link, each way; 0: not stated
  uint64_t waiting_bytes = 0;  // for one peer
  uint64_t shared_bytes = 0;   // with one peer of this host; 0: none
  uint64_t fusion_bytes = 0;   // of small messages in a fused message; 0: each alone
  Duration spin{};             // of bs-io with nothing to do, at most; 0: it sleeps at once
  std::string log_level;
  bool debug = false;     // all lines to a file too
  std::string timeline;   // empty: none
  std::string metrics;    // empty: none; served by the Python side
  std::string transport;  // "tcp", "zmq"
  std::string secret_file;
  std::string secret;  // the content of secret_file, by ConfigFromProcess; empty: no secret
  // RDMA beside TCP.
  std::string rdma = "0";   // "0", "1", "ibverbs" (as 1), "auto"
  std::string rdma_device;  // "mlx5_0", "mlx5_0:1"; empty: the device of this node's address
  int32_t rdma_gid = -1;    // index in the port's table; -1: the index of this node's address
  int32_t rdma_traffic_class = 0;
  int32_t rdma_service_level = 0;
  uint64_t rdma_window_bytes = 0;  // of READs from one peer; 0: as the link needs
  uint64_t rdma_slot_bytes = 0;
  int32_t rdma_slots = 0;  // for each peer
  uint64_t rdma_bounce_bytes = 0;
  uint64_t rdma_pinned_bytes = 0;  // registered where it lies; 0: half of what is available
  // Names of BytePS's RDMA that ConfigFromProcess found; they have no effect.
  std::vector<std::string> byteps_rdma_names;
  // Read by the Python side.
  Duration grace{};  // to save and end after a signal
  // For the process that hosts a server; read by the Python side.
  std::string pickles;              // "allow-list", "refuse"
  std::string trusted_modules;      // names with commas between
  std::string backend;              // "auto", "native", "kvstore", "passthrough"; read by Python
  uint64_t min_compress_bytes = 0;  // smaller tensors go plain; read by Python
  std::string comm;                 // "auto", "servers", "direct", "mpi", "nccl"
  std::string tf_op;                // TensorFlow's operations, compiled ahead; Python loads them
  // The numbers of processes that launchers of MPI gave this process, by variable.
  std::map<std::string, std::string, std::less<>> mpi_sizes{};

  // True if a node that cannot use RDMA must not start.
  bool RequiresRdma() const { return rdma == "1" || rdma == "ibverbs"; }

  // Returns the settings that every node of the job must share, as "name=value\n" lines.
  std::string JobSettings() const;
};

// Parses and checks all settings.  `names` are the names in the environment that start with
// BYTESCHEDULER_; the error for an unknown name proposes the nearest known name.  A setting with an
// empty value counts as not set.  Errors: kInvalidArgument in the style "BYTESCHEDULER_CREDIT=8Q:
// want bytes, such as 8388608 or 8MiB".
Result<Config> ParseConfig(const Lookup& lookup, const std::vector<std::string>& names);
// Reads the process's environment and the secret's file; `overrides` win over the environment.  An
// empty override hides a name of the environment, also a name that is unknown.
Result<Config> ConfigFromProcess(const std::map<std::string, std::string>& overrides);
// A setting in force, for printing.  The origin is "default", "environment", "argument", "not set",
// or the name of the setting that replaces it.
struct SettingValue {
  std::string name, value, origin;
};
// Never fails: malformed values stand as they were given.
std::vector<SettingValue> DescribeConfig(const std::map<std::string, std::string>& overrides);

// Parses "4MiB", "512K" or "1048576" into bytes; K, M, G and KB, MB, GB are powers of 1024 too.
Result<uint64_t> ParseBytes(std::string_view text);
// Parses "5", "0.5", "5s", "500ms" or "2m"; a bare number counts seconds.
Result<Duration> ParseDuration(std::string_view text);

}  // namespace bs
