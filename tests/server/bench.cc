// Benches: parts of a server on simulated time, for tests.
#include "server/bench.h"

#include <gtest/gtest.h>

namespace bs::server {

std::vector<ps::Message> RequestBench::Do(const Ask& ask) {
  Post(ask);
  return Responses();
}

void RequestBench::DoOk(const Ask& ask) {
  const std::vector<ps::Message> responses = Do(ask);
  EXPECT_FALSE(responses.empty());
  for (const ps::Message& response : responses) {
    EXPECT_EQ(CodeOf(response), StatusCode::kOk) << TextOf(response);
  }
}

Refusal RequestBench::RefusalIn(const std::vector<ps::Message>& responses) {
  EXPECT_EQ(responses.size(), 1u);
  if (responses.size() != 1) return {};
  EXPECT_TRUE(responses[0].data.empty());
  return {CodeOf(responses[0]), TextOf(responses[0])};
}

SlotBench::SlotBench(const Options& options) {
  job::View view = job::MakeView({.role = job::Role::kServer, .rank = options.server_rank},
                                 options.num_workers, 3);
  for (size_t rank = 0; rank < options.hosts.size(); ++rank) {
    view.workers.at(rank).host = options.hosts[rank];
  }
  state.view = std::make_shared<const job::View>(std::move(view));
  state.num_buffers = options.num_buffers;
  state.deterministic = options.deterministic;
  state.hold_bytes = options.hold_bytes;
  state.send = outbox.sender();
  state.executor = &executor;
  slot.emplace(&state, options.id, options.first_round);
}

void SlotBench::Post(const Ask& ask) {
  protocol::Call call = MakeCall(ask);
  ask.op == ps::Op::kPull ? slot->Pull(call) : slot->Push(call);
}

ps::Message SlotBench::PullNow(int32_t rank, uint64_t round, uint64_t size_bytes) {
  std::vector<ps::Message> responses = Do(Pull(rank, round, size_bytes));
  EXPECT_EQ(responses.size(), 1u);
  if (responses.empty() || responses[0].data.empty()) return {};
  return std::move(responses[0]);
}

void SlotBench::Round(uint64_t round, const std::vector<float>& values) {
  const int32_t pushers = round == 0 ? 1 : state.view->num_workers();
  for (int32_t rank = 0; rank < pushers; ++rank) DoOk(Push(rank, round, Floats(values)));
}

void SlotBench::Gone(int32_t rank) {
  state.gone.resize(static_cast<size_t>(state.view->num_workers()));
  state.gone[static_cast<size_t>(rank)] =
      Status::Unavailable("worker " + std::to_string(rank) + " left");
  slot->OnWorkerGone(rank);
}

ServerBench::ServerBench(const ServerOptions& options, size_t num_shards) {
  std::vector<ServerShard> shards;
  for (size_t i = 0; i < num_shards; ++i) {
    shards_.push_back(std::make_unique<sim::SimExecutor>(&clock));
    shards.push_back({shards_.back().get(), 0});
  }
  server_.emplace(options, &executor, shards,
                  Server::Handler{.send = [this](ps::Message message) { Send(std::move(message)); },
                                  .on_stop = [this] { ++stops; },
                                  .on_failure = [this](const Status&) { ++failures; },
                                  .on_violation =
                                      [this](int32_t peer, const std::string& what) {
                                        violations.push_back(ps::DescribeId(peer) + ": " + what);
                                      }},
                  Logger("", LogLevel::kWarning, [this](LogLevel, std::string_view line) {
                    warnings.emplace_back(line.substr(line.find("WARNING")));
                  }));
}

std::vector<ps::Message> ServerBench::Do(ps::Message message) {
  Post(std::move(message));
  return Settle();
}

void ServerBench::Send(ps::Message message) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i]->IsCurrent()) ++answers_by_shard[i];
  }
  outbox.sender()(std::move(message));
}

}  // namespace bs::server
