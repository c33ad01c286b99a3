// Job: a whole job in this process through the C API: a scheduler node, servers, workers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bytescheduler/c_api.h"

namespace bs::test {

using Settings = std::vector<std::pair<std::string, std::string>>;

inline constexpr int kFloat32 = 0;
// Long for any machine; a job that works never waits so long.
inline constexpr int kPatienceMs = 60'000;

struct NodeCloser {
  void operator()(bs_node* node) const { bs_node_close(node, "the test ended"); }
};
using NodePtr = std::unique_ptr<bs_node, NodeCloser>;

struct WorkerCloser {
  void operator()(bs_worker* worker) const { bs_worker_close(worker, 0, nullptr); }
};
using WorkerPtr = std::unique_ptr<bs_worker, WorkerCloser>;

struct WaiterFree {
  void operator()(bs_waiter* waiter) const { bs_waiter_free(waiter); }
};
using WaiterPtr = std::unique_ptr<bs_waiter, WaiterFree>;

using Floats = std::vector<float>;

// Declares `key`, or copies another root's `value` again.  `value` and `waiter` outlive it.
inline bs_operation MakeBroadcast(bs_operation_kind kind, uint64_t key, Floats* value,
                                  bs_waiter* waiter) {
  bs_operation operation = bs_operation_init(kind);
  operation.key = key;
  operation.out = value->data();
  operation.size_bytes = value->size() * sizeof(float);
  operation.done = bs_waiter_done;
  operation.context = waiter;
  return operation;
}

// `waiter` counts both ends of it.  `in`, `out` and `waiter` outlive them.
inline bs_operation MakePushPull(uint64_t key, const Floats& in, Floats* out, bs_waiter* waiter) {
  bs_operation operation = MakeBroadcast(BS_PUSH_PULL, key, out, waiter);
  operation.in = in.data();
  operation.pushed = bs_waiter_done;
  return operation;
}

// REQUIRES: the worker has joined.
inline bs_view ViewOf(const bs_worker* worker) {
  bs_view view{};
  view.size = sizeof(view);
  bs_error error{};
  EXPECT_EQ(bs_worker_view(worker, &view, nullptr, 0, &error), 0) << error.message;
  return view;
}

class Job {
 public:
  // `extra` are settings of every node, `of_role` those of one role only.
  Job(int num_workers, int num_servers, Settings extra = {},
      std::map<std::string, Settings> of_role = {})
      : num_workers_(num_workers),
        num_servers_(num_servers),
        extra_(std::move(extra)),
        of_role_(std::move(of_role)) {}

  // A scheduler on any free port; the other roles find it.
  void StartScheduler() {
    scheduler = StartNode("scheduler");
    ASSERT_NE(scheduler, nullptr);
    port_ = bs_node_port(scheduler.get());
    ASSERT_GT(port_, 0);
  }

  NodePtr StartNode(const std::string& role) {
    bs_node* node = nullptr;
    bs_error error{};
    const std::vector<bs_setting> rows = Rows(role);
    EXPECT_EQ(bs_node_start(rows.data(), rows.size(), &node, &error), 0) << error.message;
    return NodePtr(node);
  }

  WorkerPtr StartWorker() {
    bs_worker* worker = nullptr;
    bs_error error{};
    const std::vector<bs_setting> rows = Rows("worker");
    EXPECT_EQ(bs_worker_start(rows.data(), rows.size(), -1, &worker, &error), 0) << error.message;
    return WorkerPtr(worker);
  }

  // Everything, joined; workers in the order of their ranks.
  void StartAll() {
    StartScheduler();
    for (int i = 0; i < num_servers_; ++i) servers.push_back(StartNode("server"));
    std::vector<WorkerPtr> started;
    for (int i = 0; i < num_workers_; ++i) started.push_back(StartWorker());
    workers.resize(started.size());
    for (WorkerPtr& worker : started) {
      bs_error error{};
      ASSERT_EQ(bs_worker_ready(worker.get(), kPatienceMs, &error), 1);
      ASSERT_EQ(error.code, 0) << error.message;
      const int rank = ViewOf(worker.get()).rank;
      ASSERT_TRUE(rank >= 0 && rank < num_workers_);
      workers.at(static_cast<size_t>(rank)) = std::move(worker);
    }
  }

  // The settings of a role, pointing into this object until the next call.
  std::vector<bs_setting> Rows(const std::string& role) {
    texts_ = {{"DMLC_ROLE", role},
              {"DMLC_NUM_WORKER", std::to_string(num_workers_)},
              {"DMLC_NUM_SERVER", std::to_string(num_servers_)},
              {"DMLC_PS_ROOT_URI", root_uri},
              {"DMLC_PS_ROOT_PORT", std::to_string(port_)},
              {"BYTESCHEDULER_LOG_LEVEL", "error"}};
    texts_.insert(texts_.end(), extra_.begin(), extra_.end());
    const Settings& own = of_role_[role];
    texts_.insert(texts_.end(), own.begin(), own.end());
    std::vector<bs_setting> rows;
    rows.reserve(texts_.size());
    for (const auto& [name, value] : texts_) rows.push_back({name.c_str(), value.c_str()});
    return rows;
  }

  int port() const { return port_; }

  std::string root_uri = "127.0.0.1";
  NodePtr scheduler;
  std::vector<NodePtr> servers;
  std::vector<WorkerPtr> workers;

 private:
  const int num_workers_;
  const int num_servers_;
  const Settings extra_;
  std::map<std::string, Settings> of_role_;
  int port_ = 0;
  Settings texts_;
};

// Waits for everything a waiter counts; its first error.
inline bs_error Await(const bs_waiter* waiter) {
  bs_error error{};
  if (bs_waiter_wait(waiter, kPatienceMs, &error) != 1) {
    error.code = -1;
    std::strcpy(error.message, "nothing came");
  }
  return error;
}

inline int Broadcast(bs_worker* worker, uint64_t key, Floats* value, bs_waiter* waiter) {
  const bs_operation operation = MakeBroadcast(BS_BROADCAST, key, value, waiter);
  return bs_worker_start_operation(worker, &operation, nullptr);
}

inline int PushPull(bs_worker* worker, uint64_t key, const Floats& in, Floats* out,
                    bs_waiter* waiter, const bs_coding& coding = {}) {
  bs_operation operation = MakePushPull(key, in, out, waiter);
  operation.coding = coding;
  return bs_worker_start_operation(worker, &operation, nullptr);
}

// The coding of a user who gives a codec's name and one option.
inline bs_coding CodingOf(const char* type, const char* option, const std::string& value) {
  const bs_setting row{option, value.c_str()};
  bs_coding coding{};
  bs_error error{};
  EXPECT_EQ(bs_coding_parse(type, &row, 1, &coding, &error), 0) << error.message;
  return coding;
}

// Broadcasts rank 0's value to all of the job.
inline void BroadcastAll(Job* job, uint64_t key, std::vector<Floats>* values) {
  const WaiterPtr waiter(bs_waiter_new(job->workers.size()));
  for (size_t i = 0; i < job->workers.size(); ++i) {
    ASSERT_EQ(Broadcast(job->workers[i].get(), key, &values->at(i), waiter.get()), 0);
  }
  const bs_error error = Await(waiter.get());
  ASSERT_EQ(error.code, 0) << error.message;
}

inline void CloseWorkers(Job* job) {
  std::vector<std::thread> closers;
  for (WorkerPtr& worker : job->workers) {
    if (worker == nullptr) continue;
    closers.emplace_back(
        [w = worker.release()] { EXPECT_EQ(bs_worker_close(w, 10'000, nullptr), 0); });
  }
  for (std::thread& closer : closers) closer.join();
}

inline void ExpectEndedWell(bs_node* node) {
  bs_error error{};
  ASSERT_EQ(bs_node_wait(node, kPatienceMs, &error), 1);
  EXPECT_EQ(error.code, 0) << error.message;
}

// Servers first: the scheduler node ends when it has seen them go.
inline void ExpectAllEndedWell(Job* job) {
  for (NodePtr& server : job->servers) {
    ExpectEndedWell(server.get());
    server.reset();
  }
  ExpectEndedWell(job->scheduler.get());
}

}  // namespace bs::test
