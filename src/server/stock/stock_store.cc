// Takes requests of stock MXNet workers and spreads their keys over the shards.
#include "server/stock/stock_store.h"

#include <atomic>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/count_of.h"
#include "ps/kv_server.h"

namespace bs::server {
namespace {

constexpr int kMostDropsTold = 20;
// Requests of rounds to come, for each shard.
constexpr uint64_t kMaxQueuedBytes = uint64_t{4} << 30U;

// Tells the owner, on its executor, of the first failure only.  Any thread.
std::function<void(const Status&)> TellOnce(Executor* dispatcher,
                                            std::function<void(Status)> on_failure) {
  return [dispatcher, on_failure = std::move(on_failure),
          told = std::make_shared<std::atomic<bool>>(false)](const Status& why) {
    if (!on_failure || told->exchange(true)) return;
    dispatcher->Post([on_failure, why] { on_failure(why); });
  };
}

// The threshold of "1,0.500000", which says two bits; 0 if it is no such thing.
float ThresholdOf(std::string_view body) {
  constexpr std::string_view kTwoBit = "1,";
  if (!body.starts_with(kTwoBit)) return 0;
  float threshold = 0;
  const char* const end = body.data() + body.size();
  const auto [rest, error] = std::from_chars(body.data() + kTwoBit.size(), end, threshold);
  const bool good = error == std::errc() && rest == end && std::isfinite(threshold);
  return good ? threshold : 0;
}

}  // namespace

StockStore::StockStore(const ServerOptions& options, Executor* dispatcher,
                       const std::vector<ServerShard>& shards, StockWays ways, const Logger& log)
    : options_(options),
      send_(std::move(ways.send)),
      bounds_(ways.bounds),
      range_(StockRangeOf(options.view->own.rank, options.view->num_servers())),
      fail_(TellOnce(dispatcher, std::move(ways.on_failure))),
      log_(log),
      optimizers_(
          dispatcher, ways.hosted, send_,
          [this](const HostedUpdates::Optimizer& optimizer) {
            Configure([optimizer](StockState* state) { state->optimizer = optimizer; });
          },
          fail_, options.straggler_timeout) {
  BS_CHECK(!shards.empty() && options.view->num_servers() > 0);
  for (const ServerShard& shard : shards) {
    StockState state{MakeShardBase(options, shard, send_, ways.hosted, bounds_)};
    state.max_queued_bytes = kMaxQueuedBytes;
    state.straggler_timeout = options.straggler_timeout;
    state.fail = fail_;
    state.log = log;
    handles_.push_back({shard.executor, std::make_shared<StockShard>(std::move(state)), 0});
  }
}

void StockStore::OnData(ps::Message message) {
  if (!IsWorker(message.peer)) {
    return Drop(ps::DescribeId(message.peer) + " is no worker that this job counts");
  }
  if (failed_) return send_(ps::MakeStockEnd(message.peer));
  used_ = true;
  Result<StockCall> call = ParseStockCall(std::move(message), range_);
  // Any answer would say that it was done; without an answer its sender would wait for ever.
  if (!call.ok()) return fail_(call.status());
  const ShardHandle<StockShard>* const handle = HandleOf(call.value());
  if (handle == nullptr) return;
  const int32_t rank = call.value().worker_rank;
  if (PostCall(*handle, bounds_.backlog.get(), rank, &call.value())) return;
  fail_(Status::ResourceExhausted(DescribeStockCall(call.value()) + ": " +
                                  bounds_.backlog->Why(rank) +
                                  ": wait for some of it (mx.nd.waitall) before asking for more"));
}

void StockStore::OnWorkerVacant(int32_t id) {
  optimizers_.Forget(id);
  for (const ShardHandle<StockShard>& handle : handles_) {
    handle.executor->Post([shard = handle.shard, id] { shard->OnWorkerVacant(id); });
  }
}

void StockStore::SetSynchronous() {
  Configure([](StockState* state) { state->synchronous = true; });
}

void StockStore::SetWide() {
  Configure([](StockState* state) { state->wide = true; });
}

void StockStore::SetCompression(const std::string& body, int32_t worker_id) {
  const float threshold = ThresholdOf(body);
  if (!(threshold > 0)) {
    return fail_(Status::InvalidArgument(
        "gradient compression '" + body + "' of " + ps::DescribeId(worker_id) +
        " is none that a server can read: want two bits and a threshold above 0"));
  }
  Configure([threshold](StockState* state) { state->threshold = threshold; });
}

void StockStore::SetOptimizer(const ps::Message& request) {
  if (!IsWorker(request.peer)) {
    return Drop("the optimizer of " + ps::DescribeId(request.peer) +
                ", which is no worker that this job counts");
  }
  used_ = true;
  optimizers_.Handle(request);
}

// Workers that wrap their store use it for commands and barriers only; they learn the reason
// natively, and must live to tell it.
void StockStore::Fail(const Status& why) {
  if (std::exchange(failed_, true) || !used_) return;
  for (int32_t rank = 0; rank < options_.view->num_workers(); ++rank) {
    send_(ps::MakeStockWord(ps::WorkerId(rank), why.message()));
    send_(ps::MakeStockEnd(ps::WorkerId(rank)));
  }
}

bool StockStore::IsWorker(int32_t id) const {
  const int32_t rank = ps::RankOf(id);
  return options_.view->has_worker(rank) && id == ps::WorkerId(rank);
}

void StockStore::Drop(const std::string& why) {
  if (++num_dropped_ > kMostDropsTold) return;
  log_.Warning("dropped: " + why +
               (num_dropped_ == kMostDropsTold ? "; no more of these will be told" : ""));
}

ShardHandle<StockShard>* StockStore::HandleOf(const StockCall& call) {
  auto known = handle_of_.find(call.key);
  if (known == handle_of_.end()) {
    if (handle_of_.size() >= options_.max_stock_keys) {
      fail_(Status::ResourceExhausted(DescribeStockCall(call) + ": there are " +
                                      CountOf(options_.max_stock_keys, "key") +
                                      " already, and no room for more"));
      return nullptr;
    }
    const size_t handle = LeastLoaded(handles_, handles_.size());
    known = handle_of_.emplace(call.key, handle).first;
    handles_[handle].load_bytes += call.values.size();
  }
  return &handles_[known->second];
}

void StockStore::Configure(const std::function<void(StockState*)>& change) {
  for (const ShardHandle<StockShard>& handle : handles_) {
    handle.executor->Post([shard = handle.shard, change] { shard->Configure(change); });
  }
}

}  // namespace bs::server
