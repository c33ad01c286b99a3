// Workers and servers of a job whose gradients are coded, over a network that encodes every
// message.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

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

inline ps::Address AddressOf(bool server, int32_t rank) {
  return {server ? "server" : "worker", 1 + rank};
}

class CodedServer {
 public:
  CodedServer(SimClock* clock, SimNetwork* network, int32_t rank, const codec::Table* codecs)
      : executor_(clock), transport_(network->MakeTransport(&executor_)), rank_(rank) {
    ServerOptions options;
    options.view = job::ShareView({.role = job::Role::kServer, .rank = rank}, kNodes, kNodes);
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
    for (int32_t rank = 0; rank < kNodes; ++rank) {
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
  std::unique_ptr<Server> server_;
};

class CodedWorker {
 public:
  CodedWorker(SimClock* clock, SimNetwork* network, int32_t rank, const codec::Table* codecs,
              uint64_t partition_bytes, const protocol::Rules& rules = protocol::Rules())
      : executor_(clock),
        network_(network),
        transport_(network->MakeTransport(&executor_)),
        rank_(rank),
        backend_(
            {.view = job::ShareView({.rank = rank}, kNodes, kNodes),
             // Often enough that a network which loses a fifth of the exchanges answers in time.
             .requests = {.retry_interval = std::chrono::milliseconds(200)}},
            &executor_,
            [this](ps::Message m) {
              if (on_send) on_send(&m);
              transport_->Send(std::move(m));
            },
            Logger("", LogLevel::kOff)) {
    WorkerOptions options;
    options.view = job::ShareView({.rank = rank}, kNodes, kNodes);
    options.partition_bytes = partition_bytes;
    options.codecs = codecs;
    worker_ = std::make_unique<Worker>(
        options, &executor_, &backend_, [this](const Status& why) { failure = why; },
        Logger("", LogLevel::kOff), rules);
    transport_->Start({.on_message = [this](ps::Message m) { backend_.OnMessage(std::move(m)); },
                       .on_garbage = {},
                       .on_connected = {},
                       .on_disconnected = {}});
    transport_->Bind(AddressOf(false, rank), [](const Result<int32_t>&) {});
  }
  ~CodedWorker() { transport_->Close(Duration(0)); }
  void Connect() {
    for (int32_t rank = 0; rank < kNodes; ++rank) {
      transport_->Connect(ps::ServerId(rank), AddressOf(true, rank), ps::WorkerId(rank_));
    }
  }
  // Nothing leaves this worker any more, and nothing reaches it.
  void Kill() { network_->Kill(transport_.get()); }
  Worker* worker() { return worker_.get(); }
  std::optional<Status> failure;
  // Called with each message that leaves, repeats included, if it is set.
  std::function<void(ps::Message*)> on_send;

 private:
  SimExecutor executor_;
  SimNetwork* const network_;
  const std::unique_ptr<ps::Transport> transport_;
  const int32_t rank_;
  backend::PsBackend backend_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace bs::sim
