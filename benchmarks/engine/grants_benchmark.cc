// The processor time of the leader of a library's operations, for each tensor and rank.
//
//   grants_benchmark RANKS TENSORS STEPS PAUSE_US
//
// A whole job of real nodes in this process: a scheduler node, a server that leads, and workers
// whose library ends each operation at once.  In each step every worker sums all tensors, one after
// another, PAUSE_US apart; 0: all at once.  The program prints one line of JSON.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/notification.h"
#include "node/network.h"
#include "node/node.h"
#include "node/worker/ps_worker.h"
#include "transport/rdma/rdma_options.h"

namespace {

using bs::Status;
using bs::backend::collective::Collective;
using bs::backend::collective::Piece;
using bs::node::WorkerNode;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr size_t kTensorBytes = 4096;
constexpr int kWarmUps = 3;

void CheckOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "grants_benchmark: %s\n", status.ToString().c_str());
  std::exit(1);
}

// A library whose operations end at once, without the other ranks.
class InstantLibrary final : public Collective {
 public:
  explicit InstantLibrary(bs::Executor* executor) : executor_(executor) {}

  void Begin(std::vector<Piece> /*pieces*/, bs::DType /*dtype*/, uint64_t sequence,
             Done done) override {
    num_begun_ = sequence + 1;
    executor_->Post([done = std::move(done)] { done(Status::Ok()); });
  }
  void TellBegun(bs::UniqueFunction<void(uint64_t)> told) override {
    executor_->Post([told = std::move(told), begun = num_begun_] { told(begun); });
  }
  void Abort(const Status& /*status*/) override {}

 private:
  bs::Executor* const executor_;
  uint64_t num_begun_ = 0;
};

bs::Config Configure(const std::string& role, int ranks, int32_t port) {
  bs::Result<bs::Config> config =
      bs::ConfigFromProcess({{"DMLC_ROLE", role},
                             {"DMLC_NUM_WORKER", std::to_string(ranks)},
                             {"DMLC_NUM_SERVER", "1"},
                             {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                             {"DMLC_PS_ROOT_PORT", std::to_string(port)},
                             {"BYTESCHEDULER_SERVER_THREADS", "1"}});
  CheckOk(config.status());
  return std::move(config.value());
}

// The network threads of this process.
std::set<std::string> NetworkThreads() {
  std::set<std::string> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (name == "bs-io") threads.insert(task.path().string());
  }
  return threads;
}

// The time for which a thread has had a processor.
double SecondsOf(const std::string& thread) {
  std::ifstream file(thread + "/schedstat");
  double nanoseconds = 0;
  file >> nanoseconds;
  return nanoseconds / 1e9;
}

// The calls of one worker, each on a thread of its own, as a framework makes them.
class Caller {
 public:
  Caller(WorkerNode* node, int tensors) : node_(node), tensors_(tensors) {
    memory_.resize(2 * kTensorBytes * static_cast<size_t>(tensors));
  }

  void Declare() {
    for (int i = 0; i < tensors_; ++i) {
      bs::Notification declared;
      node_->worker()->Broadcast(static_cast<bs::Key>(i), bs::DType::kFloat32, Out(i),
                                 [&](const Status& status) {
                                   CheckOk(status);
                                   declared.Notify();
                                 });
      declared.Wait();
    }
  }
  void Step(std::chrono::microseconds pause) {
    std::vector<bs::Notification> summed(static_cast<size_t>(tensors_));
    for (int i = tensors_ - 1; i >= 0; --i) {
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      node_->worker()->PushPull(
          static_cast<bs::Key>(i), {.priority = -i}, In(i), Out(i), [](const Status&) {},
          [done = &summed[static_cast<size_t>(i)]](const Status& status) {
            CheckOk(status);
            done->Notify();
          });
    }
    for (const bs::Notification& done : summed) done.Wait();
  }

 private:
  std::span<std::byte> Out(int tensor) {
    return std::span(memory_).subspan(2 * kTensorBytes * static_cast<size_t>(tensor), kTensorBytes);
  }
  std::span<const std::byte> In(int tensor) {
    return std::span(memory_).subspan(2 * kTensorBytes * static_cast<size_t>(tensor) + kTensorBytes,
                                      kTensorBytes);
  }

  WorkerNode* const node_;
  const int tensors_;
  std::vector<std::byte> memory_;
};

// All callers at the same time.
template <typename Act>
void OnEach(std::vector<Caller>* callers, const Act& act) {
  std::vector<std::jthread> threads;
  threads.reserve(callers->size());
  for (Caller& caller : *callers) threads.emplace_back([&] { act(&caller); });
}

int Run(int ranks, int tensors, int steps, std::chrono::microseconds pause) {
  auto scheduler = bs::node::SchedulerNode::Start(Configure("scheduler", ranks, 0));
  CheckOk(scheduler.status());
  const int32_t port = scheduler.value()->port();
  const std::set<std::string> before = NetworkThreads();
  auto server = bs::node::ServerNode::Start(Configure("server", ranks, port));
  CheckOk(server.status());
  std::set<std::string> leader = NetworkThreads();
  std::erase_if(leader, [&](const std::string& thread) { return before.contains(thread); });
  std::vector<std::unique_ptr<WorkerNode>> nodes;
  const bs::Config config = Configure("worker", ranks, port);
  for (int i = 0; i < ranks; ++i) {
    auto options = bs::node::MakeMembershipOptions(config, ps::Role::kWorker);
    CheckOk(options.status());
    nodes.push_back(bs::node::StartPsWorker(
        config, options.value(), {},
        [](const bs::node::LibraryPlace& place) -> bs::Result<std::unique_ptr<Collective>> {
          return std::unique_ptr<Collective>(std::make_unique<InstantLibrary>(place.executor));
        }));
  }
  std::vector<Caller> callers;
  for (const auto& node : nodes) {
    node->joined().WaitFor(kPatience);
    CheckOk(node->joined().Get().value_or(Status::DeadlineExceeded("it has not joined")));
    callers.emplace_back(node.get(), tensors);
  }
  OnEach(&callers, [](Caller* caller) { caller->Declare(); });
  for (int i = 0; i < kWarmUps; ++i) OnEach(&callers, [&](Caller* c) { c->Step(pause); });
  const double begin = SecondsOf(*leader.begin());
  for (int i = 0; i < steps; ++i) OnEach(&callers, [&](Caller* c) { c->Step(pause); });
  const double seconds = SecondsOf(*leader.begin()) - begin;
  std::printf(
      "{\"ranks\": %d, \"tensors\": %d, \"steps\": %d, \"pause_us\": %d, "
      "\"leader_us\": %.3f}\n",
      ranks, tensors, steps, static_cast<int>(pause.count()),
      seconds * 1e6 / ranks / tensors / steps);
  for (const auto& node : nodes) CheckOk(node->Close(kPatience));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "grants_benchmark RANKS TENSORS STEPS PAUSE_US\n");
    return 2;
  }
  return Run(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]),
             std::chrono::microseconds(std::atoi(argv[4])));
}
