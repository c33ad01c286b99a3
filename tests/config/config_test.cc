// Every setting: its default, what it takes, and the words with which it refuses.
#include "config/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/snapshot.h"
#include "base/types.h"

namespace bs {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Values = std::map<std::string, std::string>;

Values Required() {
  return {{"DMLC_ROLE", "worker"},
          {"DMLC_NUM_WORKER", "2"},
          {"DMLC_NUM_SERVER", "3"},
          {"DMLC_PS_ROOT_URI", "10.0.0.1"},
          {"DMLC_PS_ROOT_PORT", "9000"}};
}

Result<Config> Parse(const Values& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) {
    if (name.starts_with("BYTESCHEDULER_")) names.push_back(name);
  }
  return ParseConfig(
      [&](std::string_view name) -> std::optional<std::string> {
        const auto it = values.find(std::string(name));
        return it == values.end() ? std::nullopt : std::optional(it->second);
      },
      names);
}

Result<Config> ParseWith(const std::string& name, const std::string& value) {
  Values values = Required();
  values[name] = value;
  return Parse(values);
}

std::string ErrorWith(const std::string& name, const std::string& value) {
  const Result<Config> config = ParseWith(name, value);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
  return config.status().message();
}

TEST(Config, DefaultsMatchTheTable) {
  const Result<Config> parsed = Parse(Required());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const Config& config = parsed.value();
  EXPECT_EQ(config.role, "worker");
  EXPECT_EQ(config.num_workers, 2);
  EXPECT_EQ(config.num_servers, 3);
  EXPECT_EQ(config.root_uri, "10.0.0.1");
  EXPECT_EQ(config.root_port, 9000);
  EXPECT_EQ(config.node_host, "");
  EXPECT_EQ(config.interface, "");
  EXPECT_EQ(config.node_port, 0);
  EXPECT_FALSE(config.local_ipc);
  EXPECT_FALSE(config.use_kubernetes);
  EXPECT_EQ(config.water_mark, 0);
  EXPECT_EQ(config.verbose, 0);
  EXPECT_EQ(config.partition_bytes, 128U << 10);
  EXPECT_EQ(config.credit_bytes, 512U << 10);
  EXPECT_TRUE(config.scheduling);
  EXPECT_EQ(config.priority, "measured");
  EXPECT_EQ(config.rdma, "0");
  EXPECT_EQ(Config().rdma, "0");
  EXPECT_FALSE(config.RequiresRdma());
  EXPECT_EQ(config.rdma_gid, -1);
  EXPECT_EQ(config.rdma_window_bytes, 0U);
  EXPECT_EQ(config.rdma_slot_bytes, 8U << 10);
  EXPECT_EQ(config.rdma_slots, 64);
  EXPECT_EQ(config.rdma_bounce_bytes, 8U << 20);
  EXPECT_EQ(config.rdma_pinned_bytes, 0U);
  EXPECT_EQ(config.timeout, seconds(60));
  EXPECT_EQ(config.straggler_timeout, minutes(30));
  EXPECT_EQ(config.heartbeat_interval, seconds(1));
  EXPECT_EQ(config.heartbeat_timeout, seconds(30));
  EXPECT_EQ(config.server_threads, 0);
  EXPECT_FALSE(config.deterministic);
  EXPECT_EQ(config.hold_bytes, 64U << 20);
  EXPECT_EQ(config.unsent_bytes, 16U << 10);
  EXPECT_EQ(config.link_ahead, milliseconds(4));
  EXPECT_EQ(config.waiting_bytes, uint64_t{8} << 30U);
  EXPECT_FALSE(config.waiting_given);
  EXPECT_EQ(config.shared_bytes, 8U << 20U);
  EXPECT_EQ(config.log_level, "info");
  EXPECT_EQ(config.transport, "tcp");
  EXPECT_EQ(config.backend, "auto");
  EXPECT_EQ(config.comm, "auto");
}

TEST(Config, KnowsWhetherTheUserHasSaidHowLargePartitionsAre) {
  EXPECT_FALSE(Parse(Required()).value().partition_or_credit_given);
  EXPECT_FALSE(ParseWith("BYTESCHEDULER_CREDIT", "").value().partition_or_credit_given);
  EXPECT_FALSE(ParseWith("BYTESCHEDULER_CREDIT", "auto").value().partition_or_credit_given);
  EXPECT_EQ(ParseWith("BYTESCHEDULER_CREDIT", "auto").value().credit_bytes, kFirstCreditBytes);
  EXPECT_EQ(Parse(Required()).value().partition_bytes, kFirstPartitionBytes);
  EXPECT_FALSE(ParseWith("BYTESCHEDULER_HOLD", "auto").ok());
  EXPECT_TRUE(ParseWith("BYTESCHEDULER_CREDIT", "512KiB").value().partition_or_credit_given);
  EXPECT_TRUE(ParseWith("BYTESCHEDULER_PARTITION", "128KiB").value().partition_or_credit_given);
}

struct Good {
  const char* name;
  const char* value;
  bool (*arrived)(const Config&);
};

TEST(Config, ASecretFileThatIsNotThereIsRefused) {
  Values values = Required();
  values["BYTESCHEDULER_SECRET_FILE"] = "/no/such/secret";
  const Result<Config> config = ConfigFromProcess(values);
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
  EXPECT_SNAPSHOT(
      config.status().message(),
      "BYTESCHEDULER_SECRET_FILE=/no/such/secret: cannot open it: No such file or directory");
}

TEST(Config, EveryRowReachesItsField) {
  const std::vector<Good> rows = {
      {"DMLC_ROLE", "scheduler", [](const Config& c) { return c.role == "scheduler"; }},
      {"DMLC_NUM_WORKER", "7", [](const Config& c) { return c.num_workers == 7; }},
      {"DMLC_NUM_SERVER", "8", [](const Config& c) { return c.num_servers == 8; }},
      {"DMLC_PS_ROOT_URI", "localhost", [](const Config& c) { return c.root_uri == "localhost"; }},
      {"DMLC_PS_ROOT_PORT", "65535", [](const Config& c) { return c.root_port == 65535; }},
      {"DMLC_NODE_HOST", "n1", [](const Config& c) { return c.node_host == "n1"; }},
      {"DMLC_INTERFACE", "eth", [](const Config& c) { return c.interface == "eth"; }},
      {"DMLC_PORT", "4711", [](const Config& c) { return c.node_port == 4711; }},
      {"DMLC_WORKER_ID", "1", [](const Config& c) { return c.worker_id == 1; }},
      {"DMLC_SERVER_ID", "2", [](const Config& c) { return c.server_id == 2; }},
      {"DMLC_LOCAL", "1", [](const Config& c) { return c.local_ipc; }},
      {"DMLC_USE_KUBERNETES", "1", [](const Config& c) { return c.use_kubernetes; }},
      {"DMLC_PS_WATER_MARK", "9", [](const Config& c) { return c.water_mark == 9; }},
      {"MXNET_KVSTORE_BIGARRAY_BOUND", "500",
       [](const Config& c) { return c.bigarray_bound == 500; }},
      {"PS_VERBOSE", "2", [](const Config& c) { return c.verbose == 2; }},
      {"PS_HEARTBEAT_INTERVAL", "3",
       [](const Config& c) { return c.heartbeat_interval == seconds(3); }},
      {"PS_HEARTBEAT_TIMEOUT", "20",
       [](const Config& c) { return c.heartbeat_timeout == seconds(20); }},
      {"BYTESCHEDULER_PARTITION", "4KiB",
       [](const Config& c) { return c.partition_bytes == 4096; }},
      {"BYTESCHEDULER_CREDIT", "1", [](const Config& c) { return c.credit_bytes == 1; }},
      {"BYTESCHEDULER_TUNING", "once", [](const Config& c) { return c.tuning == "once"; }},
      {"BYTESCHEDULER_TUNING_CACHE", "c.json",
       [](const Config& c) { return c.tuning_cache == "c.json"; }},
      {"BYTESCHEDULER_SCHEDULING", "0", [](const Config& c) { return !c.scheduling; }},
      {"BYTESCHEDULER_SECRET_FILE", "/etc/secret",
       [](const Config& c) { return c.secret_file == "/etc/secret" && c.secret.empty(); }},
      {"BYTESCHEDULER_PRIORITY", "measured",
       [](const Config& c) { return c.priority == "measured"; }},
      {"BYTESCHEDULER_TRANSPORT", "zmq", [](const Config& c) { return c.transport == "zmq"; }},
      {"DMLC_ENABLE_RDMA", "ibverbs", [](const Config& c) { return c.RequiresRdma(); }},
      {"DMLC_ENABLE_RDMA", "1", [](const Config& c) { return c.RequiresRdma(); }},
      {"DMLC_ENABLE_RDMA", "auto",
       [](const Config& c) { return c.rdma == "auto" && !c.RequiresRdma(); }},
      {"BYTESCHEDULER_RDMA_DEVICE", "mlx5_0:1",
       [](const Config& c) { return c.rdma_device == "mlx5_0:1"; }},
      {"BYTESCHEDULER_RDMA_GID", "3", [](const Config& c) { return c.rdma_gid == 3; }},
      {"BYTESCHEDULER_RDMA_TC", "104", [](const Config& c) { return c.rdma_traffic_class == 104; }},
      {"BYTESCHEDULER_RDMA_SL", "3", [](const Config& c) { return c.rdma_service_level == 3; }},
      {"BYTESCHEDULER_RDMA_WINDOW", "1MiB",
       [](const Config& c) { return c.rdma_window_bytes == 1U << 20; }},
      {"BYTESCHEDULER_RDMA_SLOT", "16KiB",
       [](const Config& c) { return c.rdma_slot_bytes == 16U << 10; }},
      {"BYTESCHEDULER_RDMA_SLOTS", "128", [](const Config& c) { return c.rdma_slots == 128; }},
      {"BYTESCHEDULER_RDMA_BOUNCE", "64MiB",
       [](const Config& c) { return c.rdma_bounce_bytes == 64U << 20; }},
      {"BYTESCHEDULER_RDMA_PINNED", "4GiB",
       [](const Config& c) { return c.rdma_pinned_bytes == uint64_t{4} << 30; }},
      {"BYTESCHEDULER_TIMEOUT", "500ms",
       [](const Config& c) { return c.timeout == milliseconds(500); }},
      {"BYTESCHEDULER_TIMEOUT", "500ms",
       [](const Config& c) { return c.rendezvous_timeout == milliseconds(500); }},
      {"BYTESCHEDULER_RENDEZVOUS_TIMEOUT", "2m",
       [](const Config& c) {
         return c.rendezvous_timeout == minutes(2) && c.timeout == minutes(1);
       }},
      {"BYTESCHEDULER_STRAGGLER_TIMEOUT", "5m",
       [](const Config& c) { return c.straggler_timeout == minutes(5); }},
      {"BYTESCHEDULER_HEARTBEAT_INTERVAL", "0.25",
       [](const Config& c) { return c.heartbeat_interval == milliseconds(250); }},
      {"BYTESCHEDULER_REJOIN_TIMEOUT", "10m",
       [](const Config& c) { return c.rejoin_timeout == minutes(10); }},
      {"BYTESCHEDULER_GRACE", "2m", [](const Config& c) { return c.grace == minutes(2); }},
      {"BYTESCHEDULER_HEARTBEAT_TIMEOUT", "10s",
       [](const Config& c) { return c.heartbeat_timeout == seconds(10); }},
      {"BYTESCHEDULER_SERVER_THREADS", "4", [](const Config& c) { return c.server_threads == 4; }},
      {"BYTESCHEDULER_DETERMINISTIC", "1", [](const Config& c) { return c.deterministic; }},
      {"BYTESCHEDULER_LOCAL_SUMS", "nccl", [](const Config& c) { return c.local_sums == "nccl"; }},
      {"BYTESCHEDULER_MIN_COMPRESS", "1KiB",
       [](const Config& c) { return c.min_compress_bytes == 1024; }},
      {"BYTEPS_MIN_COMPRESS_BYTES", "100",
       [](const Config& c) { return c.min_compress_bytes == 100; }},
      {"BYTESCHEDULER_HOLD", "0", [](const Config& c) { return c.hold_bytes == 0; }},
      {"BYTESCHEDULER_MAX_STALENESS", "4", [](const Config& c) { return c.max_staleness == 4; }},
      {"BYTESCHEDULER_LINK_RATE", "2.5Gbit/s",
       [](const Config& c) { return c.link_rate == 2'500'000'000; }},
      {"BYTESCHEDULER_LINK_RATE", "300mbit",
       [](const Config& c) { return c.link_rate == 300'000'000; }},
      {"BYTESCHEDULER_LINK_RATE", "10G",
       [](const Config& c) { return c.link_rate == 10'000'000'000; }},
      {"BYTESCHEDULER_LINK_RATE", "1Tbps",
       [](const Config& c) { return c.link_rate == 1'000'000'000'000; }},
      {"BYTESCHEDULER_LINK_RATE", "0", [](const Config& c) { return c.link_rate == 0; }},
      {"BYTESCHEDULER_UNSENT", "0", [](const Config& c) { return c.unsent_bytes == 0; }},
      {"BYTESCHEDULER_WAITING", "1MiB",
       [](const Config& c) { return c.waiting_given && c.waiting_bytes == 1U << 20U; }},
      {"BYTESCHEDULER_SHARED_MEMORY", "1MiB",
       [](const Config& c) { return c.shared_bytes == 1U << 20U; }},
      {"BYTESCHEDULER_FUSION", "4KiB", [](const Config& c) { return c.fusion_bytes == 4096; }},
      {"BYTESCHEDULER_AHEAD", "2ms",
       [](const Config& c) { return c.link_ahead == milliseconds(2); }},
      {"BYTESCHEDULER_SPIN", "1ms", [](const Config& c) { return c.spin == milliseconds(1); }},
      {"BYTESCHEDULER_LOG_LEVEL", "off", [](const Config& c) { return c.log_level == "off"; }},
      {"BYTESCHEDULER_PICKLES", "refuse", [](const Config& c) { return c.pickles == "refuse"; }},
      {"BYTESCHEDULER_TRUSTED_MODULES", "a,b",
       [](const Config& c) { return c.trusted_modules == "a,b"; }},
      {"BYTESCHEDULER_BACKEND", "native", [](const Config& c) { return c.backend == "native"; }},
      {"BYTESCHEDULER_COMM", "direct", [](const Config& c) { return c.comm == "direct"; }},
      {"BYTESCHEDULER_TF_OP", "op.so", [](const Config& c) { return c.tf_op == "op.so"; }},
      {"BYTESCHEDULER_DEBUG", "1", [](const Config& c) { return c.debug; }},
      {"BYTESCHEDULER_METRICS", "0.0.0.0:0",
       [](const Config& c) { return c.metrics == "0.0.0.0:0"; }},
      {"BYTESCHEDULER_TIMELINE", "t.json", [](const Config& c) { return c.timeline == "t.json"; }},
  };
  std::set<std::string_view> tested;
  for (const Good& row : rows) {
    const Result<Config> config = ParseWith(row.name, row.value);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_TRUE(row.arrived(config.value())) << row.name;
    tested.insert(row.name);
  }
  for (const SettingInfo& info : AllSettings()) {
    EXPECT_TRUE(tested.contains(info.name)) << info.name << " has no test";
  }
}

struct Bad {
  const char* name;
  const char* value;
  const char* want;
};

TEST(Config, EveryRowRefusesInTheSameWords) {
  const char* const kBytes = "want bytes, such as 8388608 or 8MiB";
  const char* const kRate =
      "want bits a second, such as 300mbit or 2.5gbit; 10G and 10Gbps are bits too";
  const char* const kTime = "want a time, such as 5, 0.5, 500ms, 5s or 2m";
  const char* const kWhole = "want a whole number";
  const char* const kFlag = "want 0 or 1";
  const std::vector<Bad> rows = {
      {"DMLC_ROLE", "master", "want one of worker|server|scheduler"},
      {"DMLC_NUM_WORKER", "two", kWhole},
      {"DMLC_NUM_WORKER", "0", "want 1 to 16384"},
      {"DMLC_NUM_SERVER", "-1", "want 0 to 16384"},
      {"DMLC_NUM_SERVER", "1x", kWhole},
      {"DMLC_PS_ROOT_PORT", "65536", "want 0 to 65535"},
      {"DMLC_PS_ROOT_URI", "tcp://a", "want an address or a host name, without tcp://"},
      {"DMLC_NODE_HOST", "a b", "want an address or a host name"},
      {"DMLC_PORT", "http", kWhole},
      {"DMLC_WORKER_ID", "first", kWhole},
      {"DMLC_WORKER_ID", "2", "the job has 2 workers, so want 0 to 1"},
      {"DMLC_SERVER_ID", "-2", "want -1 to 16383"},
      {"DMLC_LOCAL", "maybe", kFlag},
      {"DMLC_USE_KUBERNETES", "2", kFlag},
      {"DMLC_PS_WATER_MARK", "-5", "want 0 to 1000000"},
      {"MXNET_KVSTORE_BIGARRAY_BOUND", "1", "want 2 to 2000000000"},
      {"PS_VERBOSE", "much", kWhole},
      {"PS_HEARTBEAT_INTERVAL", "soon", kTime},
      {"PS_HEARTBEAT_TIMEOUT", "never", kTime},
      {"BYTESCHEDULER_PARTITION", "4095", "want 4KiB to 1GiB"},
      {"BYTESCHEDULER_PARTITION", "2GiB", "want 4KiB to 1GiB"},
      {"BYTESCHEDULER_CREDIT", "8Q", kBytes},
      {"BYTESCHEDULER_CREDIT", "0", "want 1 to 64GiB"},
      {"BYTESCHEDULER_TUNING", "1", "want one of on|off|once"},
      {"BYTESCHEDULER_SCHEDULING", "fifo", kFlag},
      {"BYTESCHEDULER_PRIORITY", "layer", "want one of measured|caller"},
      {"BYTESCHEDULER_TRANSPORT", "rdma", "want one of tcp|zmq"},
      {"DMLC_ENABLE_RDMA", "yes", "want one of 0|1|ibverbs|auto"},
      {"BYTESCHEDULER_RDMA_GID", "-2", "want -1 to 65535"},
      {"BYTESCHEDULER_RDMA_TC", "256", "want 0 to 255"},
      {"BYTESCHEDULER_RDMA_SL", "8", "want 0 to 7"},
      {"BYTESCHEDULER_RDMA_WINDOW", "65MiB", "want 0 to 64MiB"},
      {"BYTESCHEDULER_RDMA_SLOT", "128KiB", "want 1KiB to 64KiB"},
      {"BYTESCHEDULER_RDMA_SLOTS", "7", "want 8 to 4096"},
      {"BYTESCHEDULER_RDMA_BOUNCE", "0", "want 1MiB to 1GiB"},
      {"BYTESCHEDULER_RDMA_PINNED", "16385GiB", "want 0 to 16384GiB"},
      {"BYTESCHEDULER_RENDEZVOUS_TIMEOUT", "0", "want 1ms to 168h"},
      {"BYTESCHEDULER_TIMEOUT", "0", "want 1ms to 168h"},
      {"BYTESCHEDULER_TIMEOUT", "a minute", kTime},
      {"BYTESCHEDULER_STRAGGLER_TIMEOUT", "1000h", "want 1ms to 168h"},
      {"BYTESCHEDULER_HEARTBEAT_INTERVAL", "0", "want 1ms to 1h"},
      {"BYTESCHEDULER_HEARTBEAT_TIMEOUT", "1ms", "want 2ms to 24h"},
      {"BYTESCHEDULER_REJOIN_TIMEOUT", "25h", "want 0 to 24h"},
      {"BYTESCHEDULER_GRACE", "8761h", "want 0 to 8760h"},
      {"BYTESCHEDULER_SERVER_THREADS", "4097", "want 0 to 4096"},
      {"BYTESCHEDULER_DETERMINISTIC", "sure", kFlag},
      {"BYTESCHEDULER_LOCAL_SUMS", "some", "want one of 1|0|nccl"},
      {"BYTESCHEDULER_MIN_COMPRESS", "few", kBytes},
      {"BYTEPS_MIN_COMPRESS_BYTES", "few", kBytes},
      {"BYTESCHEDULER_HOLD", "64X", kBytes},
      {"BYTESCHEDULER_MAX_STALENESS", "-2", "want -1 to 1000000000"},
      {"BYTESCHEDULER_LINK_RATE", "1000", kRate},
      {"BYTESCHEDULER_LINK_RATE", "10GB/s", kRate},
      {"BYTESCHEDULER_LINK_RATE", "-1gbit", kRate},
      {"BYTESCHEDULER_LINK_RATE", "gbit", kRate},
      {"BYTESCHEDULER_LINK_RATE", "1.2.3gbit", kRate},
      {"BYTESCHEDULER_LINK_RATE", "101tbit", "want 0 to 100tbit"},
      {"BYTESCHEDULER_UNSENT", "2GiB", "want 0 to 1GiB"},
      {"BYTESCHEDULER_WAITING", "1KiB", "want 1MiB to 1024GiB"},
      {"BYTESCHEDULER_SHARED_MEMORY", "1GiB", "want 0 to 256MiB"},
      {"BYTESCHEDULER_FUSION", "17KiB", "want 0 to 16KiB"},
      {"BYTESCHEDULER_SPIN", "1s", "want 0 to 10ms"},
      {"BYTESCHEDULER_AHEAD", "2s", "want 0 to 1s"},
      {"BYTESCHEDULER_LOG_LEVEL", "loud", "want one of debug|info|warning|error|off"},
      {"BYTESCHEDULER_PICKLES", "maybe", "want one of allow-list|refuse"},
      {"BYTESCHEDULER_DEBUG", "file.log", "want 0 or 1"},
      {"BYTESCHEDULER_METRICS", "yes", "want PORT or HOST:PORT, such as 18600 or 0.0.0.0:18600"},
      {"BYTESCHEDULER_METRICS", "65536", "want PORT or HOST:PORT, such as 18600 or 0.0.0.0:18600"},
      {"BYTESCHEDULER_BACKEND", "mpi", "want one of auto|native|kvstore|passthrough"},
      {"BYTESCHEDULER_COMM", "gloo", "want one of auto|servers|direct|mpi|nccl"},
  };
  std::set<std::string_view> tested;
  for (const Bad& row : rows) {
    EXPECT_EQ(ErrorWith(row.name, row.value),
              std::string(row.name) + "=" + row.value + ": " + row.want);
    tested.insert(row.name);
  }
  for (const SettingInfo& info : AllSettings()) {
    EXPECT_TRUE(info.kind == "text" || tested.contains(info.name)) << info.name << " has no test";
  }
}

TEST(Config, AHostIsAnAddressOrANameAndNothingElse) {
  const std::string want = "want an address or a host name";
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"127.0.0.1:1234", want + " only; the port belongs into DMLC_PS_ROOT_PORT"},
      {"node1:1234", want + " only; the port belongs into DMLC_PS_ROOT_PORT"},
      {"[::1]:1234", want + " only; the port belongs into DMLC_PS_ROOT_PORT"},
      {"tcp://node1", want + ", without tcp://"},
      {"http://node1:80/", want + ", without http://"},
      {"10.0.0.256", want + "; this is no IPv4 address"},
      {"fd00::1::2", want + "; this is no IPv6 address"},
      {"fe80::1%eth0", want +
                           "; this one is link-local, which other nodes cannot use: take a global "
                           "or a unique local one (fd00::/8)"},
      {"10.0.0.1,10.0.0.2", want},
      {"$HOST", want},
  };
  for (const auto& [text, sentence] : rows) {
    EXPECT_EQ(ErrorWith("DMLC_PS_ROOT_URI", text), "DMLC_PS_ROOT_URI=" + text + ": " + sentence);
  }
  EXPECT_TRUE(
      ErrorWith("DMLC_NODE_HOST", "a:1").ends_with("only; the port belongs into DMLC_PORT"));
  for (const char* host : {"::1", "fd00::1", "10.0.0.1", "mx-job_scheduler-0.svc", "localhost"}) {
    EXPECT_EQ(ParseWith("DMLC_PS_ROOT_URI", host).value().root_uri, host);
  }
  EXPECT_EQ(ParseWith("DMLC_PS_ROOT_URI", "[::1]").value().root_uri, "::1");
  EXPECT_EQ(ParseWith("DMLC_NODE_HOST", "[fd00::1]").value().node_host, "fd00::1");
}

TEST(Config, QuotesAndCarriageReturnsInAValueAreNamed) {
  EXPECT_SNAPSHOT(
      ErrorWith("DMLC_PS_ROOT_PORT", "1234\r"),
      "DMLC_PS_ROOT_PORT=1234\\r: it has a carriage return, as files with Windows line ends "
      "give it: remove it (dos2unix FILE)");
  for (const char* name : {"DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_PS_ROOT_URI", "DMLC_INTERFACE"}) {
    EXPECT_NE(ErrorWith(name, "1\r").find("carriage return"), std::string::npos) << name;
    for (const char* text : {"\"1\"", "'1'", "\"1"}) {
      EXPECT_EQ(ErrorWith(name, text),
                std::string(name) + "=" + text +
                    ": the quotes are part of the value: write it without them (env files and "
                    "docker keep quotes)");
    }
    for (const char* text : {" 1", "1 ", "1\n", "\t1"}) {
      EXPECT_NE(ErrorWith(name, text).find(": blanks are part of the value"), std::string::npos);
    }
  }
  EXPECT_SNAPSHOT(ErrorWith("DMLC_ROLE", "a\x1b[2J"),
                  "DMLC_ROLE=a\\x1b[2J: want one of worker|server|scheduler");
}

TEST(Config, NamesAndExplainsEverySettingThatIsMissing) {
  Values values = Required();
  values.erase("DMLC_ROLE");
  EXPECT_SNAPSHOT(Parse(values).status().message(),
                  "DMLC_ROLE is not set (role of this process in the job)");
  values.erase("DMLC_NUM_SERVER");
  EXPECT_SNAPSHOT(
      Parse(values).status().message(),
      "DMLC_ROLE is not set (role of this process in the job); "
      "DMLC_NUM_SERVER is not set (how many servers the job has; 0: each worker hosts one "
      "(docs/user/direct.md))");
}

TEST(Config, SetToNothingCountsAsNotSet) {
  EXPECT_SNAPSHOT(ErrorWith("DMLC_ROLE", ""),
                  "DMLC_ROLE is not set (role of this process in the job)");
  const Result<Config> config = ParseWith("BYTESCHEDULER_CREDIT", "");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().credit_bytes, 512U << 10);
}

TEST(Config, UnknownNamesAreRefusedWithTheNearestOne) {
  EXPECT_SNAPSHOT(ErrorWith("BYTESCHEDULER_CREDIT_BYTES", "1"),
                  "BYTESCHEDULER_CREDIT_BYTES is no setting; bytescheduler config lists them");
  EXPECT_SNAPSHOT(ErrorWith("BYTESCHEDULER_CREDITS", "1"),
                  "BYTESCHEDULER_CREDITS is no setting; did you mean BYTESCHEDULER_CREDIT?");
  EXPECT_SNAPSHOT(ErrorWith("BYTESCHEDULER_PARTITON", "1"),
                  "BYTESCHEDULER_PARTITON is no setting; did you mean BYTESCHEDULER_PARTITION?");
}

TEST(Config, OnlyTheSchedulerTakesAnyFreePort) {
  EXPECT_SNAPSHOT(
      ErrorWith("DMLC_PS_ROOT_PORT", "0"),
      "DMLC_PS_ROOT_PORT=0: only the scheduler may take any free port; want the one it took");
  Values values = Required();
  values["DMLC_ROLE"] = "scheduler";
  values["DMLC_PS_ROOT_PORT"] = "0";
  EXPECT_TRUE(Parse(values).ok());
}

TEST(Config, WithoutServersOfTheirOwnThereAreAsManyAsWorkers) {
  for (const char* role : {"worker", "scheduler"}) {
    Values values = Required();
    values["DMLC_ROLE"] = role;
    values["DMLC_NUM_SERVER"] = "0";
    const Result<Config> config = Parse(values);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config.value().num_servers, 2);
    EXPECT_TRUE(config.value().servers_in_workers);
    // The hosted servers start with their true count, and all nodes must have equal lines.
    values["DMLC_NUM_SERVER"] = "2";
    EXPECT_EQ(config.value().JobSettings(), Parse(values).value().JobSettings());
  }
}

TEST(Config, SomeSettingsNeedServersOfTheirOwn) {
  const auto error_with = [](const std::string& name, const std::string& value) {
    Values values = Required();
    values["DMLC_NUM_SERVER"] = "0";
    values[name] = value;
    return Parse(values).status().message();
  };
  EXPECT_SNAPSHOT(
      error_with("DMLC_ROLE", "server"),
      "DMLC_ROLE=server: in a job with DMLC_NUM_SERVER=0 each worker's process hosts a server, "
      "and none has a process of its own");
  EXPECT_SNAPSHOT(
      error_with("BYTESCHEDULER_REJOIN_TIMEOUT", "30"),
      "BYTESCHEDULER_REJOIN_TIMEOUT: with DMLC_NUM_SERVER=0 a lost worker takes the server with "
      "it that its process hosts, so none can join again; unset it, or start servers");
  EXPECT_SNAPSHOT(error_with("BYTESCHEDULER_BACKEND", "kvstore"),
                  "BYTESCHEDULER_BACKEND=kvstore: with DMLC_NUM_SERVER=0 workers host servers of "
                  "ours, which MXNet's own store cannot use; unset it, or start servers");
  EXPECT_TRUE(error_with("BYTESCHEDULER_BACKEND", "passthrough").starts_with("BYTESCHEDULER_BACK"));
  EXPECT_EQ(error_with("BYTESCHEDULER_REJOIN_TIMEOUT", "0"), "");
  EXPECT_EQ(error_with("BYTESCHEDULER_BACKEND", "native"), "");
}

TEST(Config, OurHeartbeatNamesWinOverTheNamesOfPsLite) {
  Values values = Required();
  values["PS_HEARTBEAT_INTERVAL"] = "7";
  values["BYTESCHEDULER_HEARTBEAT_INTERVAL"] = "2";
  values["PS_HEARTBEAT_TIMEOUT"] = "0";
  const Result<Config> config = Parse(values);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().heartbeat_interval, seconds(2));
  EXPECT_EQ(config.value().heartbeat_timeout, seconds(30));
}

TEST(Config, AHeartbeatTimeoutMustLeaveTimeForOneHeartbeat) {
  EXPECT_SNAPSHOT(
      ErrorWith("BYTESCHEDULER_HEARTBEAT_INTERVAL", "30"),
      "BYTESCHEDULER_HEARTBEAT_TIMEOUT is not longer than BYTESCHEDULER_HEARTBEAT_INTERVAL: "
      "every node would be lost");
}

TEST(Config, AWayOfSumsIsRefusedBesideAStoreOfMXNets) {
  for (const std::string backend : {"kvstore", "passthrough"}) {
    for (const std::string comm : {"servers", "direct", "mpi", "nccl"}) {
      Values values = Required();
      values["BYTESCHEDULER_BACKEND"] = backend;
      values["BYTESCHEDULER_COMM"] = comm;
      EXPECT_EQ(Parse(values).status().message(),
                "BYTESCHEDULER_COMM=" + comm + " beside BYTESCHEDULER_BACKEND=" + backend +
                    ", with which MXNet's own store carries the bytes: unset one of them");
      values["BYTESCHEDULER_COMM"] = "auto";
      EXPECT_TRUE(Parse(values).ok());
      values["BYTESCHEDULER_COMM"] = comm;
      values["BYTESCHEDULER_BACKEND"] = "native";
      EXPECT_TRUE(Parse(values).ok());
    }
  }
}

TEST(Config, NcclWithinAHostGoesWithServersAlone) {
  Values values = Required();
  values["BYTESCHEDULER_LOCAL_SUMS"] = "nccl";
  EXPECT_TRUE(Parse(values).ok());
  values["BYTESCHEDULER_COMM"] = "nccl";
  EXPECT_SNAPSHOT(Parse(values).status().message(),
                  "BYTESCHEDULER_LOCAL_SUMS=nccl beside BYTESCHEDULER_COMM=nccl, with which a "
                  "library sums over all workers: unset one of them");
  values["BYTESCHEDULER_COMM"] = "direct";
  EXPECT_TRUE(Parse(values).ok());
  values["BYTESCHEDULER_REJOIN_TIMEOUT"] = "10s";
  EXPECT_SNAPSHOT(Parse(values).status().message(),
                  "BYTESCHEDULER_LOCAL_SUMS=nccl beside BYTESCHEDULER_REJOIN_TIMEOUT: NCCL loses "
                  "its connections with a worker; unset one of them");
  values.erase("BYTESCHEDULER_REJOIN_TIMEOUT");
  values.erase("BYTESCHEDULER_COMM");
  values["BYTESCHEDULER_BACKEND"] = "kvstore";
  EXPECT_SNAPSHOT(Parse(values).status().message(),
                  "BYTESCHEDULER_LOCAL_SUMS=nccl beside BYTESCHEDULER_BACKEND=kvstore, with which "
                  "MXNet's own store carries the bytes: unset one of them");
}

TEST(Config, ASecretIsRefusedBesideALibraryThatEncryptsNothing) {
  for (const std::string comm : {"mpi", "nccl"}) {
    Values values = Required();
    values["BYTESCHEDULER_COMM"] = comm;
    values["BYTESCHEDULER_SECRET_FILE"] = "job.secret";
    EXPECT_EQ(Parse(values).status().message(),
              "BYTESCHEDULER_SECRET_FILE beside BYTESCHEDULER_COMM=" + comm +
                  ", whose library sends sums unencrypted: set BYTESCHEDULER_COMM=direct, or unset "
                  "the secret on a network that is trusted");
    values["BYTESCHEDULER_COMM"] = "direct";
    EXPECT_TRUE(Parse(values).ok());
  }
}

TEST(Config, JobSettingsAreExactlyTheRowsOfThatScope) {
  const Result<Config> config = ParseWith("BYTESCHEDULER_DETERMINISTIC", "yes");
  ASSERT_TRUE(config.ok());
  EXPECT_SNAPSHOT(config.value().JobSettings(),
                  "DMLC_NUM_WORKER=2\nDMLC_NUM_SERVER=3\nBYTESCHEDULER_REJOIN_TIMEOUT=0ns\n"
                  "BYTESCHEDULER_DETERMINISTIC=1\nBYTESCHEDULER_LOCAL_SUMS=1\n"
                  "BYTESCHEDULER_MAX_STALENESS=-1\nBYTESCHEDULER_COMM=auto\n");
}

TEST(Config, EveryDefaultIsAValueThatItsOwnRowTakes) {
  for (const SettingInfo& info : AllSettings()) {
    if (info.fallback == "required" || info.fallback.empty()) continue;
    EXPECT_TRUE(ParseWith(std::string(info.name), std::string(info.fallback)).ok()) << info.name;
  }
}

TEST(ConfigFromProcess, ArgumentsWinAndUnknownArgumentsAreRefused) {
  Values overrides = Required();
  overrides["BYTESCHEDULER_CREDIT"] = "3MiB";
  const Result<Config> config = ConfigFromProcess(overrides);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config.value().credit_bytes, 3U << 20);
  overrides["DMLC_ROLL"] = "worker";
  EXPECT_SNAPSHOT(ConfigFromProcess(overrides).status().message(),
                  "DMLC_ROLL is no setting; did you mean DMLC_ROLE?");
}

TEST(ConfigFromProcess, AnUnknownNameThatIsSetToNothingIsNotSet) {
  ASSERT_EQ(setenv("BYTESCHEDULER_CREDITS", "1", 1), 0);
  Values overrides = Required();
  const std::string refused = ConfigFromProcess(overrides).status().message();
  overrides["BYTESCHEDULER_CREDITS"] = "";
  const Result<Config> hidden = ConfigFromProcess(overrides);
  ASSERT_EQ(unsetenv("BYTESCHEDULER_CREDITS"), 0);
  EXPECT_SNAPSHOT(refused,
                  "BYTESCHEDULER_CREDITS is no setting; did you mean BYTESCHEDULER_CREDIT?");
  EXPECT_TRUE(hidden.ok()) << hidden.status().ToString();
}

TEST(ConfigFromProcess, NamesOfBytepsRdmaAreFound) {
  ASSERT_EQ(setenv("BYTEPS_RDMA_RX_DEPTH", "512", 1), 0);
  ASSERT_EQ(setenv("BYTEPS_ENABLE_IPC", "", 1), 0);
  const Result<Config> config = ConfigFromProcess(Required());
  ASSERT_EQ(unsetenv("BYTEPS_RDMA_RX_DEPTH"), 0);
  ASSERT_EQ(unsetenv("BYTEPS_ENABLE_IPC"), 0);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config.value().byteps_rdma_names, std::vector<std::string>{"BYTEPS_RDMA_RX_DEPTH"});
}

TEST(DescribeConfig, SaysWhereEachValueComesFrom) {
  ASSERT_EQ(setenv("BYTESCHEDULER_HOLD", "1MiB", 1), 0);
  std::map<std::string, SettingValue> values;
  for (const SettingValue& value : DescribeConfig({{"BYTESCHEDULER_CREDIT", "nonsense"}})) {
    values[value.name] = value;
  }
  ASSERT_EQ(unsetenv("BYTESCHEDULER_HOLD"), 0);
  EXPECT_EQ(values.size(), AllSettings().size());
  EXPECT_EQ(values["BYTESCHEDULER_CREDIT"].value, "nonsense");
  EXPECT_EQ(values["BYTESCHEDULER_CREDIT"].origin, "argument");
  EXPECT_EQ(values["BYTESCHEDULER_HOLD"].value, "1MiB");
  EXPECT_EQ(values["BYTESCHEDULER_HOLD"].origin, "environment");
  EXPECT_EQ(values["BYTESCHEDULER_PARTITION"].value, "auto");
  EXPECT_EQ(values["BYTESCHEDULER_PARTITION"].origin, "default");
}

std::map<std::string, SettingValue> Described(const std::map<std::string, std::string>& given) {
  std::map<std::string, SettingValue> values;
  for (const SettingValue& value : DescribeConfig(given)) values[value.name] = value;
  return values;
}

TEST(DescribeConfig, ShowsTheHeartbeatsInForce) {
  auto values = Described({{"PS_HEARTBEAT_INTERVAL", "3"},
                           {"PS_HEARTBEAT_TIMEOUT", "9"},
                           {"BYTESCHEDULER_HEARTBEAT_TIMEOUT", "20s"}});
  EXPECT_EQ(values["BYTESCHEDULER_HEARTBEAT_INTERVAL"].value, "3");
  EXPECT_EQ(values["BYTESCHEDULER_HEARTBEAT_INTERVAL"].origin, "PS_HEARTBEAT_INTERVAL");
  EXPECT_EQ(values["BYTESCHEDULER_HEARTBEAT_TIMEOUT"].value, "20s");
  EXPECT_EQ(values["BYTESCHEDULER_HEARTBEAT_TIMEOUT"].origin, "argument");
  values = Described({{"PS_HEARTBEAT_INTERVAL", "0"}, {"PS_HEARTBEAT_TIMEOUT", "soon"}});
  EXPECT_EQ(values["BYTESCHEDULER_HEARTBEAT_INTERVAL"].origin, "default");
  EXPECT_EQ(values["BYTESCHEDULER_HEARTBEAT_TIMEOUT"].origin, "default");
}

TEST(Config, ALauncherGivesARankToWorkersThatAskForNone) {
  EXPECT_EQ(ParseWith("RANK", "1").value().worker_id, 1);
  EXPECT_EQ(Parse(Required()).value().worker_id, -1);
  EXPECT_SNAPSHOT(ErrorWith("RANK", "2"),
                  "RANK=2: the job has 2 workers, so want 0 to 1; unset it, or set DMLC_WORKER_ID");
  Values values = Required();
  values["RANK"] = "2";
  values["DMLC_WORKER_ID"] = "0";
  EXPECT_EQ(Parse(values).value().worker_id, 0);
  values["DMLC_ROLE"] = "server";
  values["DMLC_SERVER_ID"] = "3";
  EXPECT_SNAPSHOT(Parse(values).status().message(),
                  "DMLC_SERVER_ID=3: the job has 3 servers, so want 0 to 2");
}

TEST(Config, LaunchersOfMpiGiveTheNumberOfProcesses) {
  EXPECT_TRUE(Parse(Required()).value().mpi_sizes.empty());
  EXPECT_EQ(ParseWith("PMI_SIZE", "2").value().mpi_sizes,
            (std::map<std::string, std::string, std::less<>>{{"PMI_SIZE", "2"}}));
  EXPECT_EQ(ParseWith("OMPI_COMM_WORLD_SIZE", "2").value().mpi_sizes.count("OMPI_COMM_WORLD_SIZE"),
            1U);
}

TEST(Config, NcclDoesNotBlock) {
  Values values = Required();
  values["NCCL_COMM_BLOCKING"] = "1";
  EXPECT_TRUE(Parse(values).ok());
  values["DMLC_NUM_SERVER"] = "0";
  values["BYTESCHEDULER_COMM"] = "nccl";
  EXPECT_SNAPSHOT(Parse(values).status().message(),
                  "NCCL_COMM_BLOCKING=1: calls of NCCL that block hide the loss of a worker; unset "
                  "it, or set BYTESCHEDULER_COMM=direct");
  values["BYTESCHEDULER_COMM"] = "auto";
  values["BYTESCHEDULER_LOCAL_SUMS"] = "nccl";
  EXPECT_SNAPSHOT(Parse(values).status().message(),
                  "NCCL_COMM_BLOCKING=1: calls of NCCL that block hide the loss of a worker; unset "
                  "it, or set BYTESCHEDULER_LOCAL_SUMS=1");
  values["NCCL_COMM_BLOCKING"] = "0";
  EXPECT_TRUE(Parse(values).ok()) << Parse(values).status().message();
}

TEST(DescribeConfig, ShowsTheRankOfALauncher) {
  ASSERT_EQ(setenv("PMI_RANK", "1", 1), 0);
  Values given = Required();
  auto values = Described(given);
  EXPECT_EQ(values["DMLC_WORKER_ID"].value, "1");
  EXPECT_EQ(values["DMLC_WORKER_ID"].origin, "PMI_RANK");
  given["DMLC_WORKER_ID"] = "0";
  EXPECT_EQ(Described(given)["DMLC_WORKER_ID"].origin, "argument");
  given["DMLC_WORKER_ID"] = "";
  given["DMLC_ROLE"] = "server";
  EXPECT_EQ(Described(given)["DMLC_WORKER_ID"].origin, "default");
  ASSERT_EQ(unsetenv("PMI_RANK"), 0);
}

TEST(DescribeConfig, SetToNothingIsTheDefault) {
  ASSERT_EQ(setenv("BYTESCHEDULER_HOLD", "1MiB", 1), 0);
  const auto values = Described({{"BYTESCHEDULER_HOLD", ""}});
  ASSERT_EQ(unsetenv("BYTESCHEDULER_HOLD"), 0);
  EXPECT_EQ(values.at("BYTESCHEDULER_HOLD").value, "64MiB");
  EXPECT_EQ(values.at("BYTESCHEDULER_HOLD").origin, "default");
}

}  // namespace
}  // namespace bs
