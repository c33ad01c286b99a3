// The rows, one for each setting.  docs/design/architecture.md lists the further steps for a new
// setting.
#include "config/settings_table.h"

#include <array>

namespace bs::config {
namespace {

constexpr bool kForExperts = true;

constexpr auto kRows = std::to_array<SettingRow>({
    {{"DMLC_ROLE", "choice worker|server|scheduler", "", "required", "process",
      "role of this process in the job"},
     &Config::role},
    {{"DMLC_NUM_WORKER", "count", "", "required", "job", "how many workers the job has"},
     &Config::num_workers,
     "1",
     "16384"},
    {{"DMLC_NUM_SERVER", "count", "", "required", "job",
      "how many servers the job has; 0: each worker hosts one (docs/user/direct.md)"},
     &Config::num_servers,
     "0",
     "16384"},
    {{"DMLC_PS_ROOT_URI", "host", "", "required", "process",
      "address or host name of the scheduler node"},
     &Config::root_uri},
    {{"DMLC_PS_ROOT_PORT", "count", "", "required", "process",
      "port of the scheduler node; on the scheduler node itself, 0 means any free port"},
     &Config::root_port,
     "0",
     "65535"},
    {{"DMLC_NODE_HOST", "host", "", "", "process",
      "address or host name at which other nodes reach this worker or server"},
     &Config::node_host},
    {{"DMLC_INTERFACE", "text", "", "", "process",
      "network interface whose address this node uses if DMLC_NODE_HOST is not set; the beginning "
      "of a name selects the first interface whose name begins so"},
     &Config::interface},
    {{"DMLC_PORT", "count", "", "0", "process",
      "port of a server or of a native worker; 0: any free port"},
     &Config::node_port,
     "0",
     "65535"},
    {{"DMLC_WORKER_ID", "count", "", "-1", "process",
      "rank that this worker asks for; -1: the rank in RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or "
      "SLURM_PROCID if the launcher started as many processes as the job has workers, else any "
      "rank (docs/user/running.md)"},
     &Config::worker_id,
     "-1",
     "16383"},
    {{"DMLC_SERVER_ID", "count", "", "-1", "process",
      "rank that this server asks for; -1: any rank"},
     &Config::server_id,
     "-1",
     "16383"},
    {{"DMLC_LOCAL", "flag", "", "0", "process",
      "nodes talk through ipc files in /tmp instead of TCP; for jobs on a single host"},
     &Config::local_ipc},
    {{"DMLC_USE_KUBERNETES", "flag", "", "0", "process",
      "the scheduler listens on all addresses instead of DMLC_PS_ROOT_URI"},
     &Config::use_kubernetes},
    {{"DMLC_PS_WATER_MARK", "count", "messages", "0", "process",
      "messages for each peer that may leave the priority queue before the network takes them; a "
      "larger number weakens priorities; 0: a large message or several small messages",
      kForExperts},
     &Config::water_mark,
     "0",
     "1000000"},
    {{"PS_VERBOSE", "count", "", "0", "process",
      "1 or more: the network and the membership log at level debug", kForExperts},
     &Config::verbose,
     "0",
     "9"},
    {{"PS_HEARTBEAT_INTERVAL", "seconds", "s", "0", "process",
      "used if BYTESCHEDULER_HEARTBEAT_INTERVAL is not set; 0: the default of that setting",
      kForExperts},
     &Config::ps_heartbeat_interval,
     "0",
     "1h"},
    {{"PS_HEARTBEAT_TIMEOUT", "seconds", "s", "0", "process",
      "used if BYTESCHEDULER_HEARTBEAT_TIMEOUT is not set; 0: the default of that setting",
      kForExperts},
     &Config::ps_heartbeat_timeout,
     "0",
     "24h"},
    {{"MXNET_KVSTORE_BIGARRAY_BOUND", "count", "elements", "1000000", "process",
      "MXNet's servers share out larger arrays; partitions that travel through MXNet's servers "
      "stay smaller",
      kForExperts},
     &Config::bigarray_bound,
     "2",
     "2000000000"},
    {{"BYTESCHEDULER_PARTITION", "bytes", "bytes", "auto", "process",
      "largest partition of a tensor; the value of rank 0 counts; auto begins with 128KiB, and if "
      "BYTESCHEDULER_CREDIT is auto too, the link decides once rank 0 has measured it "
      "(docs/user/tuning.md)"},
     &Config::partition_bytes,
     "4KiB",
     "1GiB",
     "128KiB"},
    {{"BYTESCHEDULER_CREDIT", "bytes", "bytes", "auto", "process",
      "most bytes on their way to a server without a response, but at least one partition; tensors "
      "up to 16 KiB count only until the network takes them; auto begins with 512KiB, and if "
      "BYTESCHEDULER_PARTITION is auto too, the link decides once rank 0 has measured it "
      "(docs/user/tuning.md)"},
     &Config::credit_bytes,
     "1",
     "64GiB",
     "512KiB"},
    {{"BYTESCHEDULER_TUNING", "choice on|off|once", "", "on", "process",
      "on: rank 0 searches for a faster partition and credit while the job trains, and again when "
      "the time of a step changes; once: only at the start; works with our servers; if it is not "
      "set, a given BYTESCHEDULER_PARTITION or BYTESCHEDULER_CREDIT turns it off "
      "(docs/user/tuning.md)"},
     &Config::tuning},
    {{"BYTESCHEDULER_TUNING_CACHE", "text", "", "", "process",
      "file in which rank 0 keeps its tuning results for each model and cluster; if not set, "
      "bytescheduler/tuning.json in XDG_CACHE_HOME or ~/.cache"},
     &Config::tuning_cache},
    {{"BYTESCHEDULER_SCHEDULING", "flag", "", "1", "process",
      "1: the most urgent partition goes first; 0: the first ready partition goes first",
      kForExperts},
     &Config::scheduling},
    {{"BYTESCHEDULER_PRIORITY", "choice measured|caller", "", "measured", "process",
      "measured: the order in which gradients become ready corrects the caller's priorities; "
      "caller: the caller's priorities stay",
      kForExperts},
     &Config::priority},
    {{"BYTESCHEDULER_SECRET_FILE", "text", "", "", "process",
      "file with the secret that all nodes of the job share: traffic is encrypted, and a node "
      "without the secret is refused (docs/operate/security.md)"},
     &Config::secret_file},
    {{"BYTESCHEDULER_TRANSPORT", "choice tcp|zmq", "", "tcp", "process",
      "carrier of plain TCP: our own sockets (tcp) or libzmq (zmq), which speak the same protocol "
      "and may meet in a job; libzmq always carries ipc files and encrypted traffic",
      kForExperts},
     &Config::transport},
    {{"DMLC_ENABLE_RDMA", "choice 0|1|ibverbs|auto", "", "0", "process",
      "gradients and sums travel by RDMA; 1 or ibverbs: a node that cannot use RDMA does not "
      "start; auto: such a node uses TCP (docs/user/rdma.md)"},
     &Config::rdma},
    {{"BYTESCHEDULER_RDMA_DEVICE", "text", "", "", "process",
      "RDMA device, such as mlx5_0, or device and port, such as mlx5_0:1; if not set, the device "
      "that has the address of this node"},
     &Config::rdma_device},
    {{"BYTESCHEDULER_RDMA_GID", "count", "", "-1", "process",
      "index of the RDMA address (GID) in the table of the port; -1: the index of this node's "
      "address",
      kForExperts},
     &Config::rdma_gid,
     "-1",
     "65535"},
    {{"BYTESCHEDULER_RDMA_TC", "count", "", "0", "process",
      "traffic class of RDMA packets: four times the DSCP that the switches know", kForExperts},
     &Config::rdma_traffic_class,
     "0",
     "255"},
    {{"BYTESCHEDULER_RDMA_SL", "count", "", "0", "process",
      "service level of RDMA packets, on InfiniBand", kForExperts},
     &Config::rdma_service_level,
     "0",
     "7"},
    {{"BYTESCHEDULER_RDMA_WINDOW", "bytes", "bytes", "0", "process",
      "most bytes that a node reads from a peer by RDMA at a time, at least 4 KiB; a more urgent "
      "message cannot overtake them; 0: as much as the link needs, between 128 KiB and 1 MiB",
      kForExperts},
     &Config::rdma_window_bytes,
     "0",
     "64MiB"},
    {{"BYTESCHEDULER_RDMA_SLOT", "bytes", "bytes", "8KiB", "process",
      "longest message that is sent by RDMA at once; a longer message is announced, and the "
      "receiver reads it",
      kForExperts},
     &Config::rdma_slot_bytes,
     "1KiB",
     "64KiB"},
    {{"BYTESCHEDULER_RDMA_SLOTS", "count", "", "64", "process",
      "number of messages of BYTESCHEDULER_RDMA_SLOT bytes for which a node has memory, for each "
      "peer",
      kForExperts},
     &Config::rdma_slots,
     "8",
     "4096"},
    {{"BYTESCHEDULER_RDMA_BOUNCE", "bytes", "bytes", "8MiB", "process",
      "memory for copies of data that the RDMA device cannot read in place", kForExperts},
     &Config::rdma_bounce_bytes,
     "1MiB",
     "1GiB"},
    {{"BYTESCHEDULER_RDMA_PINNED", "bytes", "bytes", "0", "process",
      "most memory that the RDMA device may register; larger gradients are copied; 0: half of the "
      "memory that is available at the start",
      kForExperts},
     &Config::rdma_pinned_bytes,
     "0",
     "16384GiB"},
    {{"BYTESCHEDULER_RENDEZVOUS_TIMEOUT", "seconds", "s", "5m", "process",
      "how long a node waits for the other nodes at the start; if only BYTESCHEDULER_TIMEOUT is "
      "set, "
      "that counts"},
     &Config::rendezvous_timeout,
     "1ms",
     "168h"},
    {{"BYTESCHEDULER_TIMEOUT", "seconds", "s", "60s", "process",
      "how long a node waits for a response"},
     &Config::timeout,
     "1ms",
     "168h"},
    {{"BYTESCHEDULER_STRAGGLER_TIMEOUT", "seconds", "s", "30m", "process",
      "how long a sum or a barrier waits for a worker that is alive but does not arrive"},
     &Config::straggler_timeout,
     "1ms",
     "168h"},
    {{"BYTESCHEDULER_HEARTBEAT_INTERVAL", "seconds", "s", "1s", "process",
      "time between two heartbeats of a node", kForExperts},
     &Config::heartbeat_interval,
     "1ms",
     "1h"},
    {{"BYTESCHEDULER_HEARTBEAT_TIMEOUT", "seconds", "s", "30s", "process",
      "a node that is silent for this long counts as lost"},
     &Config::heartbeat_timeout,
     "2ms",
     "24h"},
    {{"BYTESCHEDULER_REJOIN_TIMEOUT", "seconds", "s", "0", "job",
      "how long the other nodes go on without a lost worker until a new worker takes its place "
      "(docs/operate/reliability.md); 0: the job ends at once"},
     &Config::rejoin_timeout,
     "0",
     "24h"},
    {{"BYTESCHEDULER_GRACE", "seconds", "s", "25s", "process",
      "how long the workers of bslaunch may save after SIGTERM, SIGINT, SIGHUP or SIGALRM; the "
      "scheduler node and the servers wait as long for them (docs/user/checkpoints.md); 0: no "
      "time"},
     &Config::grace,
     "0",
     "8760h"},
    {{"BYTESCHEDULER_SERVER_THREADS", "count", "", "0", "process",
      "summing threads of a server; 0: a thread for each core, less one core of each NUMA node, "
      "within the quota of the control group; if that leaves a single thread, bs-io sums values of "
      "up to 1 MiB",
      kForExperts},
     &Config::server_threads,
     "0",
     "4096"},
    {{"BYTESCHEDULER_DETERMINISTIC", "flag", "", "0", "job",
      "1: sums always follow the order of the workers' ranks, however much memory that needs; MPI "
      "and NCCL choose their own order"},
     &Config::deterministic},
    {{"BYTESCHEDULER_LOCAL_SUMS", "choice 1|0|nccl", "", "1", "job",
      "1: in a job of several hosts the workers of a host add up synchronous keys, and one copy "
      "crosses the link (docs/user/direct.md); nccl: NCCL does so for tensors of PyTorch on GPUs "
      "(docs/user/collectives.md); 0: each worker sends its own"},
     &Config::local_sums},
    {{"BYTESCHEDULER_HOLD", "bytes", "bytes", "64MiB", "process",
      "most bytes of contributions that a summing thread holds back to sum them in the order of "
      "ranks; codes of compressed gradients always wait",
      kForExperts},
     &Config::hold_bytes,
     "0",
     "1024GiB"},
    {{"BYTESCHEDULER_MAX_STALENESS", "count", "", "-1", "job",
      "dist_async: how many pushes of a key a worker may be ahead of the slowest worker before it "
      "waits; -1: no limit"},
     &Config::max_staleness,
     "-1",
     "1000000000"},
    {{"BYTESCHEDULER_PICKLES", "choice allow-list|refuse", "", "allow-list", "process",
      "allow-list: a server accepts pickled optimizers of MXNet and of "
      "BYTESCHEDULER_TRUSTED_MODULES; refuse: it accepts no pickled optimizer "
      "(docs/operate/security.md)"},
     &Config::pickles},
    {{"BYTESCHEDULER_TRUSTED_MODULES", "text", "", "", "process",
      "Python modules, separated by commas, that pickled optimizers may use on a server"},
     &Config::trusted_modules},
    {{"BYTESCHEDULER_LINK_RATE", "rate", "bits a second", "0", "process",
      "rate of this host's link in each direction, such as 10gbit, for the shares of servers "
      "(docs/design/placement.md); 0: the fastest rate that a host of the job states"},
     &Config::link_rate,
     "0",
     "100tbit"},
    {{"BYTESCHEDULER_UNSENT", "bytes", "bytes", "16KiB", "process",
      "bytes that the kernel may hold unsent for each connection (TCP_NOTSENT_LOWAT); 0: the limit "
      "of the kernel",
      kForExperts},
     &Config::unsent_bytes,
     "0",
     "1GiB"},
    {{"BYTESCHEDULER_AHEAD", "seconds", "s", "4ms", "process",
      "how long the link may need, besides a round trip, for bytes that the kernel holds for other "
      "hosts; an urgent message cannot overtake these bytes (docs/design/scale.md); 0: as many "
      "bytes as TCP takes; less than 1 ms counts as 1 ms",
      kForExperts},
     &Config::link_ahead,
     "0",
     "1s"},
    {{"BYTESCHEDULER_WAITING", "bytes", "bytes", "8GiB", "process",
      "most bytes that may wait for a peer before that peer counts as lost: values for a worker of "
      "MXNet or of dist_async, and 1 KiB for every message (docs/operate/reliability.md); if not "
      "set, at most half of the memory that is available at the start",
      kForExperts},
     &Config::waiting_bytes,
     "1MiB",
     "1024GiB"},
    {{"BYTESCHEDULER_FUSION", "bytes", "bytes", "16KiB", "process",
      "small tensors that wait for the same node travel in a message of at most this many bytes "
      "and BYTESCHEDULER_PARTITION (docs/design/decisions/0005-small-tensors-travel-together.md); "
      "0: each tensor travels alone",
      kForExperts},
     &Config::fusion_bytes,
     "0",
     "16KiB"},
    {{"BYTESCHEDULER_SHARED_MEMORY", "bytes", "bytes", "8MiB", "process",
      "most memory that a node shares with each peer of the same host and user, to send data "
      "through it; 0: all data goes through sockets (docs/design/decisions/0006-shared-memory.md)",
      kForExperts},
     &Config::shared_bytes,
     "0",
     "256MiB"},
    {{"BYTESCHEDULER_SPIN", "seconds", "s", "0.2ms", "process",
      "how long bs-io may look for work before it sleeps, if its last pauses were no longer and it "
      "had little work between them (docs/design/decisions/0009-network-thread-spins.md); 0: bs-io "
      "sleeps at once, as it does by default where the control group allows less than two "
      "processors",
      kForExperts},
     &Config::spin,
     "0",
     "10ms"},
    {{"BYTESCHEDULER_LOG_LEVEL", "choice debug|info|warning|error|off", "", "info", "process",
      "lowest level of the lines that go to stderr"},
     &Config::log_level},
    {{"BYTESCHEDULER_DEBUG", "flag", "", "0", "process",
      "1: the engine also appends all its log lines, including level debug, to bytescheduler.log "
      "in the working directory"},
     &Config::debug},
    {{"BYTESCHEDULER_TIMELINE", "text", "", "", "process",
      "file for the timeline; its name gets -r or -s and the rank before the extension "
      "(docs/user/timeline.md)"},
     &Config::timeline},
    {{"BYTESCHEDULER_METRICS", "address", "", "", "process",
      "PORT or HOST:PORT at which this process shows metrics; if the port is taken, the next free "
      "port; 0: any free port; without HOST, only on this machine (docs/operate/metrics.md)"},
     &Config::metrics},
    {{"BYTESCHEDULER_BACKEND", "choice auto|native|kvstore|passthrough", "", "auto", "process",
      "carrier of gradients and sums: our servers (native), the wrapped store in partitions that "
      "we schedule (kvstore), or the wrapped store as it is (passthrough); auto: native if the "
      "scheduler node and the servers are ours, else kvstore"},
     &Config::backend},
    {{"BYTESCHEDULER_MIN_COMPRESS", "bytes", "bytes", "64KiB", "process",
      "smaller tensors travel uncompressed; not with {'type': '2bit'}; equal on all workers "
      "(docs/user/compression.md); BYTEPS_MIN_COMPRESS_BYTES stands for it"},
     &Config::min_compress_bytes,
     "0",
     "1024GiB"},
    {{"BYTESCHEDULER_COMM", "choice auto|servers|direct|mpi|nccl", "", "auto", "job",
      "where gradients are summed: in processes of their own (servers), in a server that each "
      "worker hosts (direct), by the MPI library of the mpirun that has started the workers (mpi), "
      "or by NCCL on the GPUs that have PyTorch's tensors (nccl); auto: servers if the job has "
      "any, else direct (docs/user/collectives.md)"},
     &Config::comm},
    {{"BYTESCHEDULER_TF_OP", "text", "", "", "process",
      "file with the operations for TensorFlow, as python -m bytescheduler.tensorflow.build --out "
      "FILE makes it; without it they are compiled at the first import (docs/user/tensorflow.md)"},
     &Config::tf_op},
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
