// One stock server for each residue, all in one place.
#include "backend/kvstore/stock_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace bs::backend {
namespace {

constexpr Duration kByteTakes = std::chrono::nanoseconds(10);

}  // namespace

StoreFn StockStore::For(uint32_t worker, sim::SimExecutor* executor) {
  return [this, worker, executor](const StoreRequest& request, StoreDone done) {
    begun.push_back(request);
    begun.back().in = {};
    if (!fails.ok() && request.what == fails_what) {
      executor->Post([why = fails, done = std::move(done)] { done(why, {}); });
      return;
    }
    std::vector<float> in(request.in.size() / sizeof(float));
    if (!in.empty()) std::memcpy(in.data(), request.in.data(), request.in.size());
    const auto server = static_cast<uint32_t>(request.store_key) * 9973U % num_servers_;
    TimePoint& free = link_free_[{worker, server}];
    const Duration takes = kByteTakes * (64 + request.in.size() + clock_->Uniform(0, 500));
    free = std::max(free, clock_->Now()) + takes;
    executor->PostAt(free, [this, request, in = std::move(in),
                            from = Waiting{worker, executor, std::move(done)}]() mutable {
      Arrive(request, std::move(in), std::move(from));
    });
  };
}

void StockStore::Arrive(const StoreRequest& request, std::vector<float> in, Waiting from) {
  if (dead) return;
  Value& value = values_[request.store_key];
  if (request.what == StoreRequest::What::kPull) {
    // A stock server aborts when asked for what it does not have.
    ASSERT_EQ(value.stored.size() * sizeof(float), request.size_bytes);
    return Answer(std::move(from), request.store_key, value.stored);
  }
  if (value.stored.empty()) {
    ASSERT_EQ(request.what, StoreRequest::What::kPush);
    value.stored = std::move(in);
    return Answer(std::move(from), request.store_key, {});
  }
  ASSERT_EQ(request.what, StoreRequest::What::kPushPull);
  for (const Waiting& waiting : value.round) ASSERT_NE(waiting.worker, from.worker);
  value.merged.resize(in.size());
  for (size_t i = 0; i < in.size(); ++i) value.merged[i] += in[i];
  value.round.push_back(std::move(from));
  if (value.round.size() < num_workers_) return;
  value.stored = std::exchange(value.merged, {});
  for (Waiting& waiting : value.round) {
    Answer(std::move(waiting), request.store_key, value.stored);
  }
  value.round.clear();
}

void StockStore::Answer(Waiting to, int32_t key, const std::vector<float>& value) {
  std::vector<float>& out = outs_[{to.worker, key}];
  out = value;
  const Duration takes = kByteTakes * clock_->Uniform(1, 500);
  to.executor->PostAt(clock_->Now() + takes, [&out, done = std::move(to.done)] {
    done(Status::Ok(), std::as_bytes(std::span<const float>(out)));
  });
}

}  // namespace bs::backend
