// The simulated job: wiring of the nodes, and what a stock node does.
#include "ps-lite/membership/membership_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace ps::test {

NativeNode::NativeNode(Job* job, const MembershipOptions& options)
    : job_(job),
      executor_(&job->clock),
      transport_(job->network.MakeTransport(&executor_)),
      member_(options, transport_.get(), &executor_, job->logger()) {}

NativeNode::~NativeNode() { member_.Close(bs::Duration(0)); }

void NativeNode::Start(bs::Duration delay) {
  Member::Handler handler;
  handler.on_ready = [this](bs::Result<View> result) {
    ++calls_of_ready;
    if (result.ok()) {
      view = result.value();
    } else {
      refused = result.status();
    }
  };
  handler.on_message = [this](const Message& message) {
    const std::string text(message.data.empty() ? "" : message.data.front().text());
    data.push_back(std::to_string(message.peer) + ": " + text);
  };
  handler.on_worker_left = [this](int32_t rank, const bs::Status& why) {
    workers_left.push_back(rank);
    goodbyes.push_back(why.ToString());
  };
  handler.on_worker_vacant = [this](int32_t id, bool native) {
    workers_vacant.push_back((native ? "native " : "stock ") + std::to_string(id));
  };
  handler.on_failure = [this](const bs::Status& why) {
    failures.push_back(why);
    ends.emplace_back("failure");
  };
  handler.on_shutdown = [this] {
    ++shutdowns;
    ends.emplace_back("shutdown");
    Leave();
  };
  executor_.PostAt(executor_.Now() + delay, [this, handler] { member_.Start(handler); });
}

void NativeNode::Barrier(int32_t group) {
  executor_.Post([this, group] {
    member_.Barrier(group, [this](const bs::Status& status) {
      barriers.push_back(status);
      ends.emplace_back("barrier");
    });
  });
}

void NativeNode::JoinFinalBarrier() {
  executor_.Post([this] { member_.JoinFinalBarrier(); });
}

void NativeNode::Leave(const std::string& reason) {
  executor_.Post([this, reason] {
    if (std::exchange(leave_called_, true)) return;
    member_.Leave(reason, [this](const bs::Status& status) {
      EXPECT_FALSE(left.has_value());
      left = status;
      Close();
    });
  });
}

void NativeNode::Close() {
  executor_.Post([this] {
    member_.Close(std::chrono::seconds(1));
    closed = true;
  });
}

void NativeNode::ReportFailure(const bs::Status& why) {
  executor_.Post([this, why] { member_.ReportFailure(why); });
}

void NativeNode::Send(int32_t peer, const std::string& text) {
  Message message;
  message.peer = peer;
  message.meta.extension.version = kExtensionVersion;
  message.meta.extension.sequence = 1;
  message.meta.extension.incarnation = static_cast<uint16_t>(view ? view->incarnation : 0);
  message.meta.extension.job = JobMark(view ? view->job : 0);
  message.data.push_back(Frame::Copy(text));
  member_.Send(std::move(message));
}

void NativeNode::Kill() { job_->network.Kill(transport_.get()); }

StockNode::StockNode(Job* job, Role role, const std::string& host, int32_t port, int32_t customers)
    : job_(job),
      role_(role),
      address_{host, port},
      customers_(customers),
      executor_(&job->clock),
      transport_(job->network.MakeTransport(&executor_)) {}

StockNode::~StockNode() { transport_->Close(bs::Duration(0)); }

void StockNode::Start(bs::Duration delay) {
  executor_.PostAt(executor_.Now() + delay, [this] {
    Transport::Handler handler;
    handler.on_message = [this](const Message& message) { OnMessage(message); };
    transport_->Start(handler);
    transport_->Bind(address_, [](const bs::Result<int32_t>& port) { EXPECT_TRUE(port.ok()); });
    transport_->Connect(kSchedulerId, job_->options.root, kEmpty);
    for (int32_t customer = 0; customer < customers_; ++customer) {
      Meta meta;
      meta.is_control = true;
      meta.control.command = Command::kAddNode;
      meta.control.nodes = {{role_, kEmpty, address_.host, address_.port, false, customer}};
      Send(kSchedulerId, meta);
    }
  });
}

void StockNode::OnMessage(const Message& message) {
  EXPECT_FALSE(message.meta.native()) << "a stock node got a native message";
  if (!message.meta.is_control) {
    data.push_back(std::to_string(message.peer) + ": " + message.meta.body);
    return;
  }
  EXPECT_FALSE(message.meta.request);
  if (message.meta.control.command == Command::kAck) {
    words.push_back(message.meta.body);
    return;
  }
  EXPECT_EQ(message.peer, kSchedulerId);
  switch (message.meta.control.command) {
    case Command::kAddNode:
      OnList(message);
      return;
    case Command::kBarrier:
      EXPECT_EQ(message.meta.app_id, 0);
      ++barrier_answers;
      return;
    case Command::kHeartbeat:
      heartbeat_answers.push_back(message.meta.control.nodes.at(0));
      return;
    default:
      ADD_FAILURE() << "a stock node would not know this command";
  }
}

void StockNode::OnList(const Message& message) {
  EXPECT_TRUE(list.empty()) << "a stock node must get the list once";
  list = message.meta.control.nodes;
  list_timestamps.push_back(message.meta.timestamp);
  for (const Node& node : list) {
    if (node.hostname != address_.host || node.port != address_.port) continue;
    id = node.id;
    is_recovery = node.is_recovery;
  }
  ASSERT_NE(id, kEmpty);
  for (const Node& node : list) {
    if (node.role != role_) transport_->Connect(node.id, {node.hostname, node.port}, id);
  }
  if (!is_recovery) Barrier(kEveryone);
}

void StockNode::Barrier(int32_t group) {
  executor_.Post([this, group] {
    for (int32_t customer = 0; customer < customers_; ++customer) {
      Meta meta;
      meta.is_control = true;
      meta.control.command = Command::kBarrier;
      meta.control.barrier_group = group;
      meta.request = true;
      meta.app_id = 0;
      meta.customer_id = customer;
      Send(kSchedulerId, meta);
    }
  });
}

void StockNode::Send(int32_t peer, Meta meta, const std::string& text) {
  Message message;
  message.peer = peer;
  meta.timestamp = timestamp_++;
  message.meta = std::move(meta);
  if (!text.empty()) message.data.push_back(Frame::Copy(text));
  transport_->Send(std::move(message));
}

void StockNode::Kill() { job_->network.Kill(transport_.get()); }

void StockNode::Close() {
  executor_.Post([this] { transport_->Close(bs::Duration(0)); });
}

Job::Job(uint64_t seed, const bs::sim::SimNetworkOptions& network_options)
    : clock(seed), network(&clock, network_options), executor_(&clock) {
  options.root = {"10.0.0.100", 9091};
  options.num_workers = 2;
  options.num_servers = 1;
}

Job::~Job() {
  natives.clear();
  stocks.clear();
  coordinator_.reset();
  transport_.reset();
}

bs::Logger Job::logger() {
  return {"", bs::LogLevel::kDebug,
          [this](bs::LogLevel, std::string_view line) { log.emplace_back(line); }};
}

void Job::StartCoordinator(bs::Duration delay) {
  coordinator_.reset();
  transport_ = network.MakeTransport(&executor_);
  coordinator_ = std::make_unique<Coordinator>(options, transport_.get(), &executor_, logger());
  Coordinator::Handler handler;
  handler.on_listening = [this](int32_t port) { EXPECT_EQ(port, options.root.port); };
  handler.on_finished = [this](const bs::Status& status) {
    ++calls_of_finished;
    finished = status;
    finished_at = clock.Now();
    coordinator_->Close(std::chrono::seconds(1));
  };
  executor_.PostAt(clock.Now() + delay, [this, handler] { coordinator_->Start(handler); });
}

void Job::Abort(const bs::Status& why) {
  executor_.Post([this, why] { coordinator_->Abort(why); });
}

void Job::KillCoordinator() { network.Kill(transport_.get()); }

NativeNode* Job::AddNative(Role role, const std::string& host, int32_t port) {
  MembershipOptions own = options;
  own.role = role;
  own.node_host = host;
  own.node_port = port == 0 ? NextPort() : port;
  return AddNative(own);
}

NativeNode* Job::AddNative(const MembershipOptions& own) {
  natives.push_back(std::make_unique<NativeNode>(this, own));
  return natives.back().get();
}

NativeNode* Job::AddAttached(int32_t rank) {
  MembershipOptions own = options;
  own.role = Role::kWorker;
  own.node_host = "10.0.0.2";
  own.attach = true;
  own.wanted_rank = rank;
  return AddNative(own);
}

StockNode* Job::AddStock(Role role, const std::string& host, int32_t port, int32_t customers) {
  const int32_t real_port = port == 0 ? NextPort() : port;
  stocks.push_back(std::make_unique<StockNode>(this, role, host, real_port, customers));
  return stocks.back().get();
}

void Job::StartAll() {
  StartCoordinator();
  for (const auto& node : natives) node->Start();
  for (const auto& node : stocks) node->Start();
}

int64_t Job::CountLogged(const std::string& part) const {
  return std::count_if(log.begin(), log.end(), [&](const std::string& line) {
    return line.find(part) != std::string::npos;
  });
}

bool Job::Logged(const std::string& part) const { return CountLogged(part) > 0; }

}  // namespace ps::test
