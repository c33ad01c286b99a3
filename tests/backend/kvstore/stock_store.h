// StockStore: a synchronous stock store, on simulated time.
//
// It answers a push-pull when every worker has sent one, and a pull or a key's first push at once.
// Requests of one worker to one server arrive in order; each byte takes its time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "backend/kvstore/kvstore_backend.h"
#include "sim/sim_executor.h"

namespace bs::backend {

class StockStore {
 public:
  StockStore(sim::SimClock* clock, uint32_t num_workers, uint32_t num_servers)
      : clock_(clock), num_workers_(num_workers), num_servers_(num_servers) {}

  // The store of `worker`, which lives on `executor`.
  StoreFn For(uint32_t worker, sim::SimExecutor* executor);

  // Operations of this kind end with it.
  StoreRequest::What fails_what = StoreRequest::What::kPull;
  Status fails;
  // From now on no server hears anything.
  bool dead = false;
  std::vector<StoreRequest> begun;  // `in` is not valid

 private:
  struct Waiting {
    uint32_t worker;
    sim::SimExecutor* executor;
    StoreDone done;
  };
  struct Value {
    std::vector<float> stored, merged;
    std::vector<Waiting> round;
  };

  void Arrive(const StoreRequest& request, std::vector<float> in, Waiting from);
  void Answer(Waiting to, int32_t key, const std::vector<float>& value);

  sim::SimClock* const clock_;
  const uint32_t num_workers_, num_servers_;
  std::map<std::pair<uint32_t, uint32_t>, TimePoint> link_free_;     // worker and server
  std::map<std::pair<uint32_t, int32_t>, std::vector<float>> outs_;  // worker and key
  std::map<int32_t, Value> values_;
};

}  // namespace bs::backend
