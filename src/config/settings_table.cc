// The rows, one for each setting.  docs/design/architecture.md lists the further steps for a new
// setting.
#include "config/settings_table.h"

#include <array>

namespace bs::config {
namespace {

constexpr auto kRows = std::to_array<SettingRow>({
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
    {{"DMLC_PS_ROOT_URI", "host", "", "required", "process",
      "address or host name of the scheduler node"},
     &Config::root_uri},
    {{"DMLC_PS_ROOT_PORT", "count", "", "required", "process",
      "port of the scheduler node; the scheduler itself may take 0 for any free one"},
     &Config::root_port,
     "0",
     "65535"},
    {{"DMLC_NODE_HOST", "host", "", "", "process",
      "address or host name at which the others reach this worker or server"},
     &Config::node_host},
    {{"DMLC_INTERFACE", "text", "", "", "process",
      "without DMLC_NODE_HOST: the address of this network interface, or of the first whose name "
      "starts so"},
     &Config::interface},
    {{"DMLC_PORT", "count", "", "0", "process",
      "port of a server or of a native worker; 0 takes any free one"},
     &Config::node_port,
     "0",
     "65535"},
    {{"DMLC_WORKER_ID", "count", "", "-1", "process",
      "rank that this worker asks for; -1: what its launcher says in RANK, OMPI_COMM_WORLD_RANK, "
      "PMI_RANK or SLURM_PROCID, if it started as many processes as there are workers, else any "
      "(docs/user/running.md)"},
     &Config::worker_id,
     "-1",
     "16383"},
    {{"DMLC_SERVER_ID", "count", "", "-1", "process", "rank that this server asks for; -1: any"},
     &Config::server_id,
     "-1",
     "16383"},
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
      "MXNet's: its servers share out larger arrays; partitions sent through them stay smaller"},
     &Config::bigarray_bound,
     "2",
     "2000000000"},
    {{"BYTESCHEDULER_PARTITION", "bytes", "bytes", "auto", "process",
      "the largest partition of a tensor; rank 0's decides; auto begins with 128KiB, and if "
      "BYTESCHEDULER_CREDIT is auto too, the link decides once rank 0 has measured it "
      "(docs/user/tuning.md)"},
     &Config::partition_bytes,
     "4KiB",
     "1GiB",
     "128KiB"},
    {{"BYTESCHEDULER_CREDIT", "bytes", "bytes", "auto", "process",
      "bytes to a server without its response, or one partition; those of tensors up to 16 KiB "
      "count until the network has them; auto begins with 512KiB, and if BYTESCHEDULER_PARTITION "
      "is "
      "auto too, "
      "the link decides once rank 0 has measured it (docs/user/tuning.md)"},
     &Config::credit_bytes,
     "1",
     "64GiB",
     "512KiB"},
    {{"BYTESCHEDULER_TUNING", "choice on|off|once", "", "on", "process",
      "on: rank 0 looks for faster partitions and credit while the job trains, and again when "
      "steps take another time; once: only at the start; with our servers. Where it is not set and "
      "BYTESCHEDULER_PARTITION or _CREDIT is, these stay (docs/user/tuning.md)"},
     &Config::tuning},
    {{"BYTESCHEDULER_TUNING_CACHE", "text", "", "", "process",
      "file in which rank 0 remembers what it found, for each model and cluster; without it "
      "bytescheduler/tuning.json in XDG_CACHE_HOME or ~/.cache"},
     &Config::tuning_cache},
    {{"BYTESCHEDULER_SCHEDULING", "flag", "", "1", "process",
      "1: the most urgent partition goes first; 0: the first ready goes first"},
     &Config::scheduling},
    {{"BYTESCHEDULER_PRIORITY", "choice measured|caller", "", "measured", "process",
      "priorities: corrected by the order in which gradients become ready, or the caller's own"},
     &Config::priority},
    {{"BYTESCHEDULER_SECRET_FILE", "text", "", "", "process",
      "file with the secret that all nodes of the job share: traffic is encrypted, and no other "
      "node is let in (docs/operate/security.md)"},
     &Config::secret_file},
    {{"BYTESCHEDULER_TRANSPORT", "choice tcp|zmq", "", "tcp", "process",
      "what carries plain TCP: our own sockets (tcp) or libzmq (zmq), which speak the same "
      "protocol and meet in one job; ipc files and encryption are always libzmq's"},
     &Config::transport},
    {{"DMLC_ENABLE_RDMA", "choice 0|1|ibverbs|auto", "", "0", "process",
      "gradients and sums go by RDMA: with 1, or ibverbs, a node that cannot does not start; with "
      "auto they go by TCP then (docs/user/rdma.md)"},
     &Config::rdma},
    {{"BYTESCHEDULER_RDMA_DEVICE", "text", "", "", "process",
      "RDMA device, such as mlx5_0, or device and port, such as mlx5_0:1; if not set, the one that "
      "has the address of this node"},
     &Config::rdma_device},
    {{"BYTESCHEDULER_RDMA_GID", "count", "", "-1", "process",
      "index of the address (GID) in the port's table; -1: the one of this node's address"},
     &Config::rdma_gid,
     "-1",
     "65535"},
    {{"BYTESCHEDULER_RDMA_TC", "count", "", "0", "process",
      "traffic class of packets of RDMA: four times the DSCP that the switches know"},
     &Config::rdma_traffic_class,
     "0",
     "255"},
    {{"BYTESCHEDULER_RDMA_SL", "count", "", "0", "process",
      "service level of packets of RDMA, on InfiniBand"},
     &Config::rdma_service_level,
     "0",
     "7"},
    {{"BYTESCHEDULER_RDMA_WINDOW", "bytes", "bytes", "0", "process",
      "what a node reads by RDMA from one peer at a time, at least 4 KiB: nothing can overtake "
      "that; 0: as much as the link needs, between 128 KiB and 1 MiB"},
     &Config::rdma_window_bytes,
     "0",
     "64MiB"},
    {{"BYTESCHEDULER_RDMA_SLOT", "bytes", "bytes", "8KiB", "process",
      "the longest message that is sent by RDMA at once; longer ones are announced, and the "
      "receiver reads them"},
     &Config::rdma_slot_bytes,
     "1KiB",
     "64KiB"},
    {{"BYTESCHEDULER_RDMA_SLOTS", "count", "", "64", "process",
      "how many messages of that length a node has memory for, for each peer"},
     &Config::rdma_slots,
     "8",
     "4096"},
    {{"BYTESCHEDULER_RDMA_BOUNCE", "bytes", "bytes", "8MiB", "process",
      "memory for what the RDMA device cannot read where it lies, and is copied"},
     &Config::rdma_bounce_bytes,
     "1MiB",
     "1GiB"},
    {{"BYTESCHEDULER_RDMA_PINNED", "bytes", "bytes", "0", "process",
      "gradients and sums that the RDMA device may use where they lie, at most; what is more is "
      "copied; 0: half of the memory that is left at the start"},
     &Config::rdma_pinned_bytes,
     "0",
     "16384GiB"},
    {{"BYTESCHEDULER_TIMEOUT", "seconds", "s", "60s", "process",
      "how long to wait for the others at the start, and for a response"},
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
    {{"BYTESCHEDULER_REJOIN_TIMEOUT", "seconds", "s", "0", "job",
      "how long the others go on without a worker that was lost, until another has taken its place "
      "(docs/operate/reliability.md); 0: the job ends at once"},
     &Config::rejoin_timeout,
     "0",
     "24h"},
    {{"BYTESCHEDULER_GRACE", "seconds", "s", "25s", "process",
      "how long the workers of bslaunch may save after SIGTERM, SIGINT, SIGHUP or SIGALRM, and how "
      "long the scheduler node and servers wait for them (docs/user/checkpoints.md); 0: no time"},
     &Config::grace,
     "0",
     "8760h"},
    {{"BYTESCHEDULER_SERVER_THREADS", "count", "", "0", "process",
      "summing threads of a server; 0: one for each core, less one core of each NUMA node, and no "
      "more than a quota of the control group allows; if that is one, bs-io sums what has up to "
      "1 MiB"},
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
      "or none (docs/operate/security.md)"},
     &Config::pickles},
    {{"BYTESCHEDULER_TRUSTED_MODULES", "text", "", "", "process",
      "Python modules, with commas between, that pickled optimizers may use on a server"},
     &Config::trusted_modules},
    {{"BYTESCHEDULER_LINK_RATE", "rate", "bits a second", "0", "process",
      "what the link of this host carries each way, such as 10gbit, for the shares of servers "
      "(docs/design/placement.md); a host where it is 0 counts as fast as the fastest that states "
      "one"},
     &Config::link_rate,
     "0",
     "100tbit"},
    {{"BYTESCHEDULER_UNSENT", "bytes", "bytes", "16KiB", "process",
      "bytes that the kernel may hold unsent for one connection (TCP_NOTSENT_LOWAT); 0 leaves it"},
     &Config::unsent_bytes,
     "0",
     "1GiB"},
    {{"BYTESCHEDULER_AHEAD", "seconds", "s", "4ms", "process",
      "how long the link may take for what the kernel holds for other hosts, besides a round trip: "
      "nothing can overtake that (docs/design/scale.md); 0: as much as TCP takes; less than 1 ms "
      "counts as 1 ms"},
     &Config::link_ahead,
     "0",
     "1s"},
    {{"BYTESCHEDULER_WAITING", "bytes", "bytes", "8GiB", "process",
      "bytes that may wait to be sent to one peer before it counts as lost: values for one of "
      "MXNet's own workers or of dist_async, and 1 KiB for every message "
      "(docs/operate/reliability.md); if not set, no more than half of the memory that is "
      "left at the start"},
     &Config::waiting_bytes,
     "1MiB",
     "1024GiB"},
    {{"BYTESCHEDULER_FUSION", "bytes", "bytes", "16KiB", "process",
      "small tensors that wait to be sent to the same node travel in one message of at most this "
      "many bytes (16KiB at most) and BYTESCHEDULER_PARTITION "
      "(docs/design/decisions/0005-small-tensors-travel-together.md); 0: each travels alone"},
     &Config::fusion_bytes,
     "0",
     "16KiB"},
    {{"BYTESCHEDULER_SHARED_MEMORY", "bytes", "bytes", "8MiB", "process",
      "the most memory that a node shares with each peer of the same host and user, for what it "
      "sends it; 0: everything goes through sockets "
      "(docs/design/decisions/0006-shared-memory.md)"},
     &Config::shared_bytes,
     "0",
     "256MiB"},
    {{"BYTESCHEDULER_SPIN", "seconds", "s", "0.2ms", "process",
      "how long bs-io may look for work before it sleeps, where its last pauses were no longer "
      "than that and it had little to do between them "
      "(docs/design/decisions/0009-network-thread-spins.md); 0: it sleeps at once, as it does "
      "where not "
      "set and the control group allows less than two processors"},
     &Config::spin,
     "0",
     "10ms"},
    {{"BYTESCHEDULER_LOG_LEVEL", "choice debug|info|warning|error|off", "", "info", "process",
      "the least important lines that go to stderr"},
     &Config::log_level},
    {{"BYTESCHEDULER_DEBUG", "flag", "", "0", "process",
      "1: all lines of the engine's log, also those of level debug, are appended to "
      "bytescheduler.log in the working directory besides"},
     &Config::debug},
    {{"BYTESCHEDULER_TIMELINE", "text", "", "", "process",
      "file to write a timeline to, -r or -s and the rank before its extension "
      "(docs/user/timeline.md)"},
     &Config::timeline},
    {{"BYTESCHEDULER_METRICS", "address", "", "", "process",
      "PORT or HOST:PORT at which this process shows metrics, the next free port if it is taken, 0 "
      "for any; without a host on this machine only (docs/operate/metrics.md)"},
     &Config::metrics},
    {{"BYTESCHEDULER_BACKEND", "choice auto|native|kvstore|passthrough", "", "auto", "process",
      "what carries the bytes: our servers (native), the wrapped store in partitions that we "
      "schedule (kvstore), the wrapped store as it is (passthrough); auto is native where the "
      "scheduler node and the servers are ours, else kvstore"},
     &Config::backend},
});

constexpr auto kInfos = [] {
  std::array<SettingInfo, kRows.size()> infos{};
  for (size_t i = 0; i < kRows.size(); ++i) infos.at(i) = kRows.at(i).info;
  return infos;
}();

}  // namespace

std::span<const SettingRow> SettingRows() { return kRows; }

}  // namespace bs::config

namespace bs {

std::span<const SettingInfo> AllSettings() { return config::kInfos; }

}  // namespace bs
