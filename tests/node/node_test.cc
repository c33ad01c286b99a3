// Nodes by themselves: they end in good order whatever the moment.
#include "node/node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/numa.h"
#include "membership/control_body.h"
#include "node/patience.h"
#include "node/worker/ps_worker.h"
#include "ps-lite/transport/loop_world.h"
#include "transport/tcp/tcp_transport.h"
#include "wire/control.h"

namespace bs::node {
namespace {

Config MakeConfig(const std::string& role, int32_t root_port) {
  const Result<Config> config = ConfigFromProcess({{"DMLC_ROLE", role},
                                                   {"DMLC_NUM_WORKER", "1"},
                                                   {"DMLC_NUM_SERVER", "1"},
                                                   {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                                                   {"DMLC_PS_ROOT_PORT", std::to_string(root_port)},
                                                   {"BYTESCHEDULER_SERVER_THREADS", "3"},
                                                   {"BYTESCHEDULER_LOG_LEVEL", "off"}});
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.value();
}

TEST(SchedulerNode, ListensWhenStartReturns) {
  const auto node = SchedulerNode::Start(MakeConfig("scheduler", 0));
  ASSERT_TRUE(node.ok()) << node.status().ToString();
  EXPECT_GT(node.value()->port(), 0);
  EXPECT_FALSE(node.value()->outcome().Get().has_value());
}

// A scheduler node's response to a node with other settings.
ps::Meta AskedBy(ps::test::TransportNode* node, int32_t own_port, int32_t scheduler_port) {
  ps::Message message;
  message.peer = ps::kSchedulerId;
  message.meta = ps::NativeControl(ps::Command::kAddNode, ps::Op::kRegister, 1);
  message.meta.control.nodes = {{ps::Role::kWorker, ps::kEmpty, "127.0.0.1", own_port, false, 0}};
  message.meta.extension.body = ps::Encode(ps::MemberBody{.settings = "DMLC_NUM_WORKER=77\n"});
  node->Connect(ps::kSchedulerId, {"127.0.0.1", scheduler_port}, ps::kEmpty);
  node->Send(std::move(message));
  EXPECT_TRUE(node->AwaitMessages(1));
  return node->TakeMessages().at(0).meta;
}

TEST(SchedulerNode, EachHasANumberOfItsOwn) {
  std::set<uint64_t> numbers{0};
  for (int i = 0; i < 2; ++i) {
    const auto scheduler = SchedulerNode::Start(MakeConfig("scheduler", 0));
    ASSERT_TRUE(scheduler.ok()) << scheduler.status().ToString();
    ps::test::LoopWorld world([](LoopThread* loop, size_t /*number*/) {
      return ps::MakeTcpTransport(loop, {}, Logger());
    });
    ps::test::TransportNode node(&world);
    const Result<int32_t> port = node.Bind(world.AnyAddress());
    ASSERT_TRUE(port.ok());
    const ps::Meta said = AskedBy(&node, port.value(), scheduler.value()->port());
    EXPECT_NE(said.extension.status, 0U);
    numbers.insert(ps::DecodeSchedulerBody(said.extension.op, said.extension.body).value().job);
  }
  EXPECT_EQ(numbers.size(), 3U) << "two, and neither 0";
}

TEST(SchedulerNode, AnAbortedJobEndsWithTheReason) {
  const auto node = SchedulerNode::Start(MakeConfig("scheduler", 0));
  ASSERT_TRUE(node.ok()) << node.status().ToString();
  node.value()->Close("it got SIGTERM");
  const std::optional<Status> outcome = node.value()->outcome().Get();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code(), StatusCode::kUnavailable);
  EXPECT_NE(outcome->message().find("it got SIGTERM"), std::string::npos) << outcome->message();
}

TEST(SchedulerNode, RefusesAPortInUseWithTheRemedy) {
  const auto first = SchedulerNode::Start(MakeConfig("scheduler", 0));
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  const auto second = SchedulerNode::Start(MakeConfig("scheduler", first.value()->port()));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(),
            "tcp://127.0.0.1:" + std::to_string(first.value()->port()) +
                ": the port is in use: end what listens there (a job that still runs?), or give "
                "all nodes of this job another DMLC_PS_ROOT_PORT");
}

TEST(ServerNode, MayBeClosedBeforeAnyAnswer) {
  const auto scheduler = SchedulerNode::Start(MakeConfig("scheduler", 0));
  ASSERT_TRUE(scheduler.ok());
  const auto server = ServerNode::Start(MakeConfig("server", scheduler.value()->port()));
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server.value()->port(), 0);
  server.value()->Close("it got SIGTERM");
  ASSERT_TRUE(server.value()->outcome().Get().has_value());
  EXPECT_FALSE(server.value()->outcome().Get()->ok());
}

TEST(WorkerNode, JoinsSumsAndLeaves) {
  const auto scheduler = SchedulerNode::Start(MakeConfig("scheduler", 0));
  ASSERT_TRUE(scheduler.ok());
  const int32_t port = scheduler.value()->port();
  const auto server = ServerNode::Start(MakeConfig("server", port));
  const auto worker = StartPsWorker(MakeConfig("worker", port), -1);
  ASSERT_TRUE(server.ok() && worker.ok());
  WorkerNode& node = *worker.value();
  ASSERT_TRUE(node.joined().WaitFor(kPatience));
  ASSERT_TRUE(node.joined().Get()->ok()) << node.joined().Get()->ToString();
  EXPECT_EQ(node.rank(), 0);
  EXPECT_EQ(node.view()->num_workers(), 1);
  EXPECT_EQ(node.view()->num_servers(), 1);
  std::array<std::byte, 8> value{};
  Outcome declared;
  node.worker()->Broadcast(1, DType::kUint8, value,
                           [&](Status status) { declared.Set(std::move(status)); });
  ASSERT_TRUE(declared.WaitFor(kPatience));
  EXPECT_TRUE(declared.Get()->ok()) << declared.Get()->ToString();
  EXPECT_TRUE(node.Close(kPatience).ok());
  ASSERT_TRUE(server.value()->outcome().WaitFor(kPatience));
  EXPECT_TRUE(server.value()->outcome().Get()->ok());
  server.value()->Close("not told: the job is over");
  ASSERT_TRUE(scheduler.value()->outcome().WaitFor(kPatience));
  EXPECT_TRUE(scheduler.value()->outcome().Get()->ok());
}

TEST(ServerNode, SaysAtOnceWhenTheSchedulerNodesNameIsUnknown) {
  Config config = MakeConfig("server", 9);
  config.root_uri = "nosuch.invalid";
  config.node_host = "127.0.0.1";
  config.log_level = "warning";
  testing::internal::CaptureStderr();
  const auto server = ServerNode::Start(config);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_NE(said.find("DMLC_PS_ROOT_URI=nosuch.invalid: the name of the scheduler node's host "
                      "cannot be resolved ("),
            std::string::npos)
      << said;
}

TEST(Nodes, AddressesThatAreNotOursAreRefusedNamingTheSetting) {
  Config config = MakeConfig("server", 9);
  config.node_host = "192.0.2.9";
  const auto server = ServerNode::Start(config);
  ASSERT_FALSE(server.ok());
  EXPECT_TRUE(server.status().message().starts_with("DMLC_NODE_HOST=192.0.2.9: no address of"))
      << server.status().message();
  config = MakeConfig("scheduler", 0);
  config.root_uri = "nosuch.invalid";
  const auto scheduler = SchedulerNode::Start(config);
  ASSERT_FALSE(scheduler.ok());
  EXPECT_TRUE(scheduler.status().message().starts_with(
      "DMLC_PS_ROOT_URI=nosuch.invalid: the name cannot be resolved"))
      << scheduler.status().message();
}

TEST(WorkerNode, ATimelineThatCannotBeWrittenIsRefusedBeforeItJoins) {
  Config config = MakeConfig("worker", 9);
  config.timeline = "/nosuch/t.json";
  const auto worker = StartPsWorker(config, -1);
  ASSERT_FALSE(worker.ok());
  EXPECT_TRUE(worker.status().message().starts_with("BYTESCHEDULER_TIMELINE=/nosuch/t.json: "))
      << worker.status().message();
}

// The core of each thread of this process whose name begins with `prefix`; -1 for a thread that is
// not pinned.
std::vector<int> CoresOfThreads(const std::string& prefix) {
  std::vector<int> cores;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "status");
    std::string name;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Name:\t")) name = line.substr(6);
      if (!line.starts_with("Cpus_allowed_list:\t") || !name.starts_with(prefix)) continue;
      const std::string list = line.substr(19);
      const bool one = list.find_first_not_of("0123456789") == std::string::npos;
      cores.push_back(one ? std::stoi(list) : -1);
    }
  }
  return cores;
}

bool CanPin() {
  bool can = false;
  std::thread([&can] { can = PinThisThread(DiscoverNumaNodes().front().cores.front()); }).join();
  return can;
}

TEST(ServerNode, PinsEachShardToACoreOfItsOwn) {
  if (!CanPin()) GTEST_SKIP() << "this system does not let threads be pinned";
  std::set<int> allowed;
  size_t fewest = SIZE_MAX;
  const std::vector<NumaNode> nodes = DiscoverNumaNodes();
  for (const NumaNode& node : nodes) {
    allowed.insert(node.cores.begin(), node.cores.end());
    fewest = std::min(fewest, node.cores.size());
  }
  const size_t shards = nodes.size() * fewest;  // as many on each node as there are cores for
  const auto scheduler = SchedulerNode::Start(MakeConfig("scheduler", 0));
  const int32_t port = scheduler.value()->port();
  Config config = MakeConfig("server", port);
  config.server_threads = static_cast<int32_t>(shards);
  const auto server = ServerNode::Start(config);
  const auto worker = StartPsWorker(MakeConfig("worker", port), -1);
  ASSERT_TRUE(worker.value()->joined().WaitFor(kPatience));
  // A thread pins itself before its first task; nothing tells when.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::vector<int> cores;
  do {
    std::this_thread::yield();
    cores = CoresOfThreads("bs-shard-");
  } while ((cores.size() != shards || std::count(cores.begin(), cores.end(), -1) > 0) &&
           std::chrono::steady_clock::now() < deadline);
  ASSERT_EQ(cores.size(), shards);
  const std::set<int> distinct(cores.begin(), cores.end());
  EXPECT_EQ(distinct.size(), shards) << "two shards share a core";
  EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), distinct.begin(), distinct.end()));
}

// Returns what a whole job with one key writes to stderr.
std::string SaidByAJob(const std::string& level, int32_t verbose) {
  testing::internal::CaptureStderr();
  const auto with_level = [&](const std::string& role, int32_t port) {
    Config config = MakeConfig(role, port);
    config.log_level = level;
    config.verbose = verbose;
    return config;
  };
  {
    const auto scheduler = SchedulerNode::Start(with_level("scheduler", 0));
    const int32_t port = scheduler.value()->port();
    const auto server = ServerNode::Start(with_level("server", port));
    const auto worker = StartPsWorker(with_level("worker", port), -1);
    EXPECT_TRUE(worker.value()->joined().WaitFor(kPatience));
    std::array<std::byte, 8> value{};
    Outcome declared;
    worker.value()->worker()->Broadcast(7, DType::kUint8, value,
                                        [&](Status status) { declared.Set(std::move(status)); });
    EXPECT_TRUE(declared.WaitFor(kPatience));
    EXPECT_TRUE(worker.value()->Close(kPatience).ok());
    EXPECT_TRUE(server.value()->outcome().WaitFor(kPatience));
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Log, LevelDebugShowsRegistrationConnectionsAndPlacement) {
  const std::string said = SaidByAJob("debug", 0);
  for (const char* line :
       {"DEBUG server: registering server 127.0.0.1:", "DEBUG server: registered as server 0 (",
        "DEBUG worker: worker 0 (", "DEBUG worker: connected to server 0 at 127.0.0.1:",
        "DEBUG worker 0: key=7: 8 bytes of uint8 in 1 partition; server 0 has 1"}) {
    EXPECT_NE(said.find(line), std::string::npos) << line << " is not in\n" << said;
  }
}

TEST(Log, PsVerboseShowsTheNetworkButNotTheKeys) {
  const std::string said = SaidByAJob("info", 1);
  EXPECT_NE(said.find("DEBUG worker: connected to server 0 at"), std::string::npos) << said;
  EXPECT_EQ(said.find("key=7"), std::string::npos) << said;
}

TEST(Log, LevelInfoShowsNoneOfThat) {
  const std::string said = SaidByAJob("info", 0);
  EXPECT_NE(said.find("INFO scheduler: all nodes are there"), std::string::npos) << said;
  EXPECT_EQ(said.find("DEBUG"), std::string::npos) << said;
}

TEST(WorkerNode, AnImpossibleInterfaceIsRefusedAtTheStart) {
  Config config = MakeConfig("worker", 9);
  config.interface = "nosuch";
  const auto node = StartPsWorker(config, -1);
  ASSERT_FALSE(node.ok());
  EXPECT_EQ(node.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace bs::node
