// Workers and servers of a job whose gradients are coded, over a network that encodes every
// message.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/host/host_backend.h"
#include "backend/host_plan.h"
#include "backend/ps/ps_backend.h"
#include "codec/codec.h"
#include "protocol/bodies.h"
#include "protocol/rules.h"
#include "server/server.h"
#include "sim/sim_executor.h"
#include "sim/sim_network.h"
#include "worker/worker.h"

namespace bs::sim {

inline constexpr int32_t kNodes = 2;  // of each kind

// The hosts of workers, by rank; all servers are on another host.  Empty: there are kNodes workers,
// and no host is known.
using HostsOfWorkers = std::vector<int32_t>;

inline job::SharedView ViewWith(const job::Place& own, const HostsOfWorkers& hosts = {}) {
  if (hosts.empty()) return job::ShareView(own, kNodes, kNodes);
  job::View view = job::MakeView(own, static_cast<int32_t>(hosts.size()), kNodes);
  const int32_t of_servers = *std::max_element(hosts.begin(), hosts.end()) + 1;
  for (size_t rank = 0; rank < hosts.size(); ++rank) view.workers[rank].host = hosts[rank];
  for (job::Peer& server : view.servers) server.host = of_servers;
  view.hosts.resize(static_cast<size_t>(of_servers) + 1);
  return std::make_shared<const job::View>(std::move(view));
}

inline ps::Address AddressOf(bool server, int32_t rank) {
  return {server ? "server" : "worker", 1 + rank};
}

class CodedServer {
 public:
  CodedServer(SimClock* clock, SimNetwork* network, int32_t rank, const codec::Table* codecs,
              const HostsOfWorkers& hosts = {})
      : executor_(clock), transport_(network->MakeTransport(&executor_)), rank_(rank) {
    ServerOptions options;
    options.view = ViewWith({.role = job::Role::kServer, .rank = rank}, hosts);
    num_workers_ = options.view->num_workers();
    options.codecs = codecs;
    server_ = std::make_unique<Server>(
        options, &executor_, std::vector<ServerShard>{{.executor = &executor_, .numa_node = 0}},
        Server::Handler{
            .send = [this](ps::Message message) { transport_->Send(std::move(message)); }},
        Logger("", LogLevel::kOff));
    transport_->Start({.on_message =
                           [this](ps::Message message) {
                             const test::Asked about = test::About(message);
                             if (about.op == ps::Op::kPush && about.round > 0) {
                               pushed_bytes += message.data.empty() ? 0 : message.data[0].size();
                             }
                             server_->OnMessage(std::move(message));
                           },
                       .on_garbage = {},
                       .on_connected = {},
                       .on_disconnected = {}});
    transport_->Bind(AddressOf(true, rank), [](const Result<int32_t>&) {});
  }
  ~CodedServer() { transport_->Close(Duration(0)); }
  void Connect() {
    for (int32_t rank = 0; rank < num_workers_; ++rank) {
      transport_->Connect(ps::WorkerId(rank), AddressOf(false, rank), ps::ServerId(rank_));
    }
  }
  // The scheduler node tells the server, a while later, that a worker was lost.
  void NoteLost(int32_t rank, const Status& why) {
    executor_.PostAt(executor_.Now() + kNotice,
                     [this, rank, why] { server_->OnWorkerGone(rank, why); });
  }
  uint64_t pushed_bytes = 0;  // of gradients

 private:
  static constexpr Duration kNotice = std::chrono::seconds(2);

  SimExecutor executor_;
  const std::unique_ptr<ps::Transport> transport_;
  const int32_t rank_;
  int32_t num_workers_ = 0;
  std::unique_ptr<Server> server_;
};

class CodedWorker {
 public:
  CodedWorker(SimClock* clock, SimNetwork* network, int32_t rank, const codec::Table* codecs,
              uint64_t partition_bytes, const protocol::Rules& rules = protocol::Rules())
      : CodedWorker(clock, network, ViewWith({.rank = rank}), codecs, partition_bytes, rules) {}
  // The workers of a host add up.
  CodedWorker(SimClock* clock, SimNetwork* network, job::SharedView view,
              const codec::Table* codecs, uint64_t partition_bytes,
              const protocol::Rules& rules = protocol::Rules())
      : executor_(clock),
        network_(network),
        transport_(network->MakeTransport(&executor_)),
        view_(std::move(view)) {
    const Logger log("", LogLevel::kInfo, [this](LogLevel /*level*/, std::string_view line) {
      lines.emplace_back(line);
    });
    MakeBackend(codecs, rules);
    WorkerOptions options;
    options.view = view_;
    options.partition_bytes = partition_bytes;
    options.codecs = codecs;
    worker_ = std::make_unique<Worker>(
        options, &executor_, backend_.get(), [this](const Status& why) { failure = why; }, log,
        rules);
    transport_->Start({.on_message = [this](ps::Message m) { OnMessage(std::move(m)); },
                       .on_garbage = {},
                       .on_connected = {},
                       .on_disconnected = {}});
    transport_->Bind(AddressOf(false, view_->own.rank), [](const Result<int32_t>&) {});
  }
  ~CodedWorker() { transport_->Close(Duration(0)); }
  void Connect() {
    const int32_t own = ps::WorkerId(view_->own.rank);
    for (int32_t rank = 0; rank < kNodes; ++rank) {
      transport_->Connect(ps::ServerId(rank), AddressOf(true, rank), own);
    }
    for (const int32_t rank : view_->WorkersBeside(view_->own.rank)) {
      if (rank == view_->own.rank) continue;
      transport_->Connect(ps::WorkerId(rank), AddressOf(false, rank), own);
    }
  }
  // Nothing leaves this worker any more, and nothing reaches it.
  void Kill() { network_->Kill(transport_.get()); }
  Worker* worker() { return worker_.get(); }
  std::optional<Status> failure;
  std::vector<std::string> lines;  // of its log, from kInfo on
  // Called with each message that leaves, repeats included, if it is set.
  std::function<void(ps::Message*)> on_send;

 private:
  void MakeBackend(const codec::Table* codecs, const protocol::Rules& rules) {
    const Logger log("", LogLevel::kOff);
    const auto send = [this](ps::Message message) {
      if (on_send) on_send(&message);
      transport_->Send(std::move(message));
    };
    // Often enough that a network which loses a fifth of the exchanges answers in time.
    const ps::KvWorkerOptions requests{.retry_interval = std::chrono::milliseconds(200)};
    auto link = std::make_unique<backend::PsBackend>(
        backend::PsBackendOptions{.view = view_, .requests = requests}, &executor_, send, log);
    link_ = link.get();
    if (!backend::HostPlan(*view_).in_use()) {
      backend_ = std::move(link);
      return;
    }
    auto host = std::make_unique<backend::HostBackend>(
        backend::HostBackendOptions{.view = view_, .codecs = codecs, .requests = requests},
        std::move(link), &executor_, send, log, rules);
    host_ = host.get();
    backend_ = std::move(host);
  }
  void OnMessage(ps::Message message) {
    host_ != nullptr ? host_->OnMessage(std::move(message)) : link_->OnMessage(std::move(message));
  }

  SimExecutor executor_;
  SimNetwork* const network_;
  const std::unique_ptr<ps::Transport> transport_;
  const job::SharedView view_;
  std::unique_ptr<backend::Backend> backend_;
  backend::PsBackend* link_ = nullptr;    // the same, or behind it
  backend::HostBackend* host_ = nullptr;  // itself, if workers of the host add up
  std::unique_ptr<Worker> worker_;
};

}  // namespace bs::sim
