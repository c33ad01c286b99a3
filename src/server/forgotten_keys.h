// ForgottenKeys: the latest keys that all workers have given back, with the layout version that a
// declaration of each may have now.  It shows late repeats of requests from before.
//
// Not thread-safe; never blocks.  Bounded: of more keys the earliest go, as repeats come within
// minutes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "base/types.h"

namespace bs::server {

class ForgottenKeys {
 public:
  static constexpr size_t kMost = 256;

  // Layout versions of `key` below `first` are over.  May throw std::bad_alloc.
  void Add(Key key, uint32_t first) {
    const auto [known, is_new] = first_.try_emplace(key, first);
    known->second = std::max(known->second, first);
    if (!is_new) return;
    order_.push_back(key);
    if (order_.size() <= kMost) return;
    first_.erase(order_.front());
    order_.pop_front();
  }
  // Returns true if `layout_version` of `key` is known to be over.
  bool IsOver(Key key, uint32_t layout_version) const {
    const auto known = first_.find(key);
    return known != first_.end() && layout_version < known->second;
  }

 private:
  std::unordered_map<Key, uint32_t> first_;
  std::deque<Key> order_;
};

}  // namespace bs::server
