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
#include <utility>

#include "base/types.h"

namespace bs::server {

class ForgottenKeys {
 public:
  static constexpr size_t kMost = size_t{1} << 14U;

  // Layout versions of `key` below `first` are over.  May throw std::bad_alloc.
  void Add(Key key, uint32_t first) {
    order_.push_back({key, ++additions_});
    Last& last = last_[key];
    last = {std::max(last.first_layout, first), additions_};
    while (last_.size() > kMost || order_.size() > 2 * kMost) {
      const auto [earliest, addition] = order_.front();
      order_.pop_front();
      const auto known = last_.find(earliest);
      if (known != last_.end() && known->second.addition == addition) last_.erase(known);
    }
  }
  // Returns true if `layout_version` of `key` is known to be over.
  bool IsOver(Key key, uint32_t layout_version) const {
    const auto known = last_.find(key);
    return known != last_.end() && layout_version < known->second.first_layout;
  }

 private:
  struct Last {
    uint32_t first_layout = 0;
    uint64_t addition = 0;  // the latest of the key
  };

  std::unordered_map<Key, Last> last_;
  std::deque<std::pair<Key, uint64_t>> order_;  // of additions
  uint64_t additions_ = 0;
};

}  // namespace bs::server
