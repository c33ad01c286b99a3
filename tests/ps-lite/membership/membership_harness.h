// A simulated job for membership tests: a real Coordinator, real Members, and stand-in stock nodes.
//
// Every node has its own executor and transport on one simulated network; time moves only in Run.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/membership.h"
#include "sim/sim_executor.h"
#include "sim/sim_network.h"

namespace ps::test {

class Job;

// A Member and all that its owner heard.
class NativeNode {
 public:
  NativeNode(Job* job, const MembershipOptions& options);
  NativeNode(const NativeNode&) = delete;
  NativeNode& operator=(const NativeNode&) = delete;
  ~NativeNode();

  // All run on the node's executor a little later.
  void Start(bs::Duration delay = bs::Duration(0));
  void Barrier(int32_t group);
  void JoinFinalBarrier();
  // And closes once that is answered; a second call does nothing.
  void Leave(const std::string& reason = {});
  void Close();
  void ReportFailure(const bs::Status& why);
  void Send(int32_t peer, const std::string& text);
  void Kill();

  bool ready() const { return view.has_value(); }

  std::optional<View> view;
  std::optional<bs::Status> refused;  // on_ready's error
  std::vector<bs::Status> failures;
  std::vector<bs::Status> barriers;
  std::vector<std::string> ends;  // "failure", "shutdown" and "barrier", as they came
  std::optional<bs::Status> left;
  std::vector<int32_t> workers_left;
  std::vector<std::string> goodbyes;        // for calls that miss these workers
  std::vector<std::string> workers_vacant;  // "native 9"
  std::vector<std::string> data;            // "9: text"
  int shutdowns = 0;
  int calls_of_ready = 0;
  bool closed = false;
  ps::Transport* transport() { return transport_.get(); }

 private:
  Job* const job_;
  bool leave_called_ = false;
  bs::sim::SimExecutor executor_;
  const std::unique_ptr<Transport> transport_;
  Member member_;
};

// A stock process, as the protocol describes it.
class StockNode {
 public:
  StockNode(Job* job, Role role, const std::string& host, int32_t port, int32_t customers);
  StockNode(const StockNode&) = delete;
  StockNode& operator=(const StockNode&) = delete;
  ~StockNode();

  void Start(bs::Duration delay = bs::Duration(0));
  // One request for each customer; the start barrier is asked for without being told.
  void Barrier(int32_t group);
  void Send(int32_t peer, Meta meta, const std::string& text = "");
  void Kill();
  void Close();

  int32_t id = kEmpty;
  bool is_recovery = false;
  std::vector<Node> list;
  std::vector<int32_t> list_timestamps;
  int barrier_answers = 0;
  std::vector<Node> heartbeat_answers;
  std::vector<std::string> data;
  std::vector<std::string> words;  // why it is ended
  ps::Transport* transport() { return transport_.get(); }

 private:
  void OnMessage(const Message& message);
  void OnList(const Message& message);

  Job* const job_;
  const Role role_;
  const Address address_;
  const int32_t customers_;
  int32_t timestamp_ = 0;
  bs::sim::SimExecutor executor_;
  const std::unique_ptr<Transport> transport_;
};

class Job {
 public:
  explicit Job(uint64_t seed, const bs::sim::SimNetworkOptions& network = {});
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  // Set before nodes are made.
  MembershipOptions options;

  void StartCoordinator(bs::Duration delay = bs::Duration(0));
  void Abort(const bs::Status& why);
  void KillCoordinator();
  // Nodes are not started.
  // Port 0: an unused one.
  NativeNode* AddNative(Role role, const std::string& host = "10.0.0.1", int32_t port = 0);
  NativeNode* AddNative(const MembershipOptions& own);
  NativeNode* AddAttached(int32_t rank);
  StockNode* AddStock(Role role, const std::string& host = "10.0.0.9", int32_t port = 0,
                      int32_t customers = 1);
  // Starts the coordinator and all nodes at once.
  void StartAll();
  void Run(bs::Duration duration) { clock.RunUntil(clock.Now() + duration); }
  Transport* coordinator_transport() { return transport_.get(); }
  bool Logged(const std::string& part) const;
  int64_t CountLogged(const std::string& part) const;

  bs::sim::SimClock clock;
  bs::sim::SimNetwork network;
  std::vector<std::string> log;
  std::vector<std::unique_ptr<NativeNode>> natives;
  std::vector<std::unique_ptr<StockNode>> stocks;
  std::optional<bs::Status> finished;
  bs::TimePoint finished_at{};
  int calls_of_finished = 0;
  bs::Logger logger();
  int32_t NextPort() { return next_port_++; }

 private:
  int32_t next_port_ = 4711;
  bs::sim::SimExecutor executor_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Coordinator> coordinator_;
};

// Two workers and two servers, all native and there.
class FourNodes : public ::testing::Test {
 protected:
  explicit FourNodes(bs::Duration rejoin_timeout = bs::Duration(0)) {
    job.options.num_servers = 2;
    job.options.rejoin_timeout = rejoin_timeout;
    w0 = job.AddNative(Role::kWorker, "10.0.0.9");
    w1 = job.AddNative(Role::kWorker, "10.0.0.8");
    s0 = job.AddNative(Role::kServer, "10.0.0.7");
    s1 = job.AddNative(Role::kServer, "10.0.0.6");
    job.StartAll();
    job.Run(std::chrono::seconds(1));
    EXPECT_TRUE(w0->ready() && w1->ready() && s0->ready() && s1->ready());
  }
  Job job{13};
  NativeNode* w0;
  NativeNode* w1;
  NativeNode* s0;
  NativeNode* s1;
};

}  // namespace ps::test
