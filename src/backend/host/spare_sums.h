// SpareSums: memory of rounds that are over, for the sums of later rounds.
//
// The system clears each page that it gives, and takes a process's address space apart to get pages
// back.  So the memory of a sum is kept, up to kMostBytes of all sums.  Confined to the worker's
// executor.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "server/memory/sum_ref.h"

namespace bs::backend {

class SpareSums {
 public:
  // A link of 1 Gbit/s carries as much in half a second.
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20U;

  // Sums go to workers of lower ranks than `num_readers`.
  explicit SpareSums(int32_t num_readers) : num_readers_(num_readers) {}

  // Memory with any content.  May throw std::bad_alloc.
  server::SumRef Take(uint64_t size_bytes);
  // Keeps memory of Take, unless an answer still shows it.  It may be empty.
  void Keep(server::SumRef sum, uint64_t size_bytes);
  // Take needs no new memory.
  bool Has(uint64_t size_bytes) const { return sums_.contains(size_bytes); }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  const int32_t num_readers_;
  uint64_t size_bytes_ = 0;
  std::unordered_map<uint64_t, std::vector<server::SumRef>> sums_;  // by size
};

}  // namespace bs::backend
