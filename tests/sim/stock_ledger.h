// StockLedger: the pushes of the workers in a simulated job of stock stores, in all incarnations.
//
// For a synchronous job it knows how many rounds of each key on each server have a push of each
// worker.  So the successor of a lost worker can push what is owed.  For a dist_async job it knows
// the pushes of lost workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace bs::sim {

class StockLedger {
 public:
  // A worker that was lost: of how many rounds of each key it knew that they count, and how many it
  // had pushed.
  struct Life {
    std::vector<uint64_t> answered;
    std::vector<uint64_t> pushed;
  };

  StockLedger(int32_t num_workers, size_t num_keys)
      : lost(static_cast<size_t>(num_workers)), num_keys_(num_keys) {}

  // A push of `round` goes out.
  void OnSent(int32_t worker, int32_t timestamp, size_t key, uint64_t round);
  // Something came to a server.
  void OnReceived(int32_t server, int32_t worker, int32_t timestamp);
  // Another takes the worker's place; what the lost one has sent never comes any more.
  void Forget(int32_t worker);
  // The server knows of the loss, and forgets what of the lost one is in no round.
  void OnVacant(int32_t server, int32_t worker);
  // So many rounds on the server have a push of the worker.
  uint64_t counted(int32_t server, int32_t worker, size_t key) const;

  std::vector<std::vector<Life>> lost;  // by rank

 private:
  const size_t num_keys_;
  std::map<std::pair<int32_t, int32_t>, std::pair<size_t, uint64_t>> sent_;
  std::map<std::tuple<int32_t, int32_t, size_t>, uint64_t> counted_;  // server, worker, key
};

}  // namespace bs::sim
