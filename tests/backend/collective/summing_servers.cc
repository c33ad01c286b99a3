// Answers when the contributions stand for all workers.
#include "backend/collective/summing_servers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/backend_before.h"

namespace bs::backend::collective {

class SummingServers::Worker final : public Backend {
 public:
  Worker(SummingServers* servers, Executor* executor) : servers_(servers), executor_(executor) {}

  uint32_t num_destinations() const override { return 1; }
  void Place(std::span<Partition>, std::span<const Partition>) override {}
  uint32_t DestinationOf(Key) const override { return 0; }
  void Declare(const protocol::Tensor&, Done done) override { done(Status::Ok()); }
  void Lookup(const protocol::Tensor& asked,
              UniqueFunction<void(Result<protocol::Tensor>)> done) override {
    done(asked);
  }
  void Start(const protocol::Tensor& tensor, Exchange exchange) override {
    servers_->Take(executor_, tensor.key, std::move(exchange));
  }
  void Release(const protocol::Tensor&, bool, Done done) override { done(Status::Ok()); }
  void SetOptimizer(OptimizerText, uint64_t, Done done) override { done(Status::Ok()); }
  std::optional<PartitionAndCredit> TakeFitting() override { return std::nullopt; }
  void Fail(const Status& status) override { servers_->Fail(executor_, status); }
  void Measure(Metrics*) const override {}

 private:
  SummingServers* const servers_;
  Executor* const executor_;
};

std::unique_ptr<Backend> SummingServers::Join(Executor* executor) {
  return std::make_unique<Worker>(this, executor);
}

void SummingServers::Take(Executor* executor, Key key, Exchange exchange) {
  if (!why_.ok()) return RefuseLater(executor, std::move(exchange), why_);
  ++num_contributions_;
  contributed_bytes_ += exchange.in.size();
  if (!holds_)
    executor->Post([released = std::move(exchange.released)] { released(Status::Ok()); });
  const auto id = std::tuple(key, exchange.partition.index, exchange.round);
  Sum& sum = sums_[id];
  sum.stood_for += std::max<uint32_t>(exchange.stands_for, 1);
  sum.contributions.push_back({executor, std::move(exchange)});
  if (sum.stood_for < num_workers_ || holds_) return;
  Answer(std::move(sums_.extract(id).mapped()));
}

void SummingServers::Answer(Sum sum) {
  std::vector<float> total(sum.contributions.front().exchange.in.size() / sizeof(float));
  for (const Contribution& contribution : sum.contributions) {
    std::vector<float> values(total.size());
    std::memcpy(values.data(), contribution.exchange.in.data(), values.size() * sizeof(float));
    std::ranges::transform(total, values, total.begin(), std::plus());
  }
  for (Contribution& contribution : sum.contributions) {
    Executor* const executor = contribution.executor;
    executor->Post([exchange = std::move(contribution.exchange), total] {
      std::memcpy(exchange.out.data(), total.data(), exchange.out.size());
      exchange.sent(Status::Ok());
      exchange.summed(Status::Ok(), {});
    });
  }
}

void SummingServers::Fail(Executor* executor, const Status& status) {
  for (auto& [id, sum] : sums_) {
    for (Contribution& contribution : sum.contributions) {
      if (contribution.executor != executor || !contribution.exchange.summed) continue;
      RefuseLater(executor, std::exchange(contribution.exchange, {}), status);
    }
  }
}

}  // namespace bs::backend::collective
