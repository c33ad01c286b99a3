// Benches: parts of a server on simulated time, for tests.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/fake_host.h"
#include "server/server.h"
#include "server/state/shard_state.h"
#include "server/support.h"
#include "server/sync/slot.h"

namespace bs::server {

using Refusal = std::pair<StatusCode, std::string>;

// A part of a server that handles requests of workers.
class RequestBench : public HostedBench {
 public:
  virtual ~RequestBench() = default;

  // Hands the request to the part.
  virtual void Post(const Ask& ask) = 0;
  // Returns the responses to a request, in order.
  std::vector<ps::Message> Do(const Ask& ask);
  // Expects that a request is served.
  void DoOk(const Ask& ask);
  // Returns the only response to a request; it has no payload.
  Refusal Refused(const Ask& ask) { return RefusalIn(Do(ask)); }

 protected:
  // Returns the messages that the part sends; here without any delay.
  virtual std::vector<ps::Message> Responses() { return outbox.All(); }
  static Refusal RefusalIn(const std::vector<ps::Message>& responses);
};

// A partition of a synchronous key.
class SlotBench : public RequestBench {
 public:
  struct Options {
    int32_t num_workers = 1;
    bool deterministic = true;
    uint64_t hold_bytes = 0;
    uint32_t num_buffers = 2;
    int32_t server_rank = 0;
    SlotId id{7, 0};
    uint64_t first_round = 0;
    std::vector<int32_t> hosts{};  // of the workers; empty: each has its own
  };
  explicit SlotBench(const Options& options);
  explicit SlotBench(int32_t num_workers) : SlotBench(Options{.num_workers = num_workers}) {}

  void Post(const Ask& ask) override;
  // Returns a response with a sum, which comes without delay.
  ps::Message PullNow(int32_t rank, uint64_t round, uint64_t size_bytes);
  // Every worker pushes `values` in the order of ranks; worker 0 alone in round 0.
  void Round(uint64_t round, const std::vector<float>& values);
  void Gone(int32_t rank);

  ShardState state;
  std::optional<Slot> slot;
};

// A server; `executor` is its dispatcher's.
class ServerBench : public RequestBench {
 public:
  explicit ServerBench(const ServerOptions& options, size_t num_shards = 1);

  void Post(ps::Message message) { server_->OnMessage(std::move(message)); }
  void Post(const Ask& ask) override { Post(MakeRequest(ask)); }
  using RequestBench::Do;
  std::vector<ps::Message> Do(ps::Message message);
  using RequestBench::Refused;
  Refusal Refused(ps::Message message) { return RefusalIn(Do(std::move(message))); }

  Server& server() { return *server_; }

  std::map<size_t, int> answers_by_shard;  // by the shard whose executor sends
  int stops = 0;
  int failures = 0;
  std::vector<std::string> violations;
  std::vector<std::string> warnings;  // without the time

 private:
  std::vector<ps::Message> Responses() override { return Settle(); }
  void Send(ps::Message message);

  std::vector<std::unique_ptr<sim::SimExecutor>> shards_;
  std::optional<Server> server_;  // ends first
};

}  // namespace bs::server
