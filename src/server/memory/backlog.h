// Backlog: how many bytes of requests each worker has waiting for the threads of a server's shards.
//
// Requests may come faster than sums are made: some cost their sender next to nothing, and a worker
// that ignores credit and answers is not slowed down by them.  No worker may fill the memory so.
// All workers together may have little more than most_bytes waiting.  Beyond that, a request is
// taken only if less than an equal share of most_bytes waits for its sender.  So no worker is
// refused because of another worker's requests.
//
// Take: on the dispatcher's executor.  Done: any thread.  Never fails, never blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bs::server {

class Backlog {
 public:
  // REQUIRES: workers > 0.
  Backlog(int32_t workers, uint64_t most_bytes)
      : most_bytes_(most_bytes), of_worker_(static_cast<size_t>(workers)) {}

  // Counts a request of that worker until Done; false if it may not wait, which counts nothing.
  bool Take(int32_t rank, uint64_t size_bytes) {
    std::atomic<uint64_t>& own = of_worker_[static_cast<size_t>(rank)];
    // Relaxed, as below: these are numbers and guard nothing.
    const bool full = all_.load(std::memory_order_relaxed) + size_bytes > most_bytes_;
    if (full && own.load(std::memory_order_relaxed) >= share_bytes()) return false;
    all_.fetch_add(size_bytes, std::memory_order_relaxed);
    own.fetch_add(size_bytes, std::memory_order_relaxed);
    return true;
  }
  void Done(int32_t rank, uint64_t size_bytes) {
    all_.fetch_sub(size_bytes, std::memory_order_relaxed);
    of_worker_[static_cast<size_t>(rank)].fetch_sub(size_bytes, std::memory_order_relaxed);
  }
  uint64_t bytes() const { return all_.load(std::memory_order_relaxed); }
  // Why a request of `rank` is not taken, for people: goes behind its description.
  std::string Why(int32_t rank) const;

 private:
  uint64_t share_bytes() const { return most_bytes_ / of_worker_.size(); }

  const uint64_t most_bytes_;
  std::atomic<uint64_t> all_ = 0;
  std::vector<std::atomic<uint64_t>> of_worker_;  // by rank
};

}  // namespace bs::server
