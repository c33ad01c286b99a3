// Residual: the part of a tensor's gradients that codes could not express.
//
// Untouched memory stays the system's own page of zeros.  So the elements that another worker of
// the host codes take no memory here.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/check.h"

namespace bs::worker {

class Residual {
 public:
  bool empty() const { return count_ == 0; }
  // A float32 for each of the tensor's `count` elements: zeros, unless it has as many already.  A
  // worker without memory for that ends.
  std::span<float> Of(size_t count) {
    if (count != count_) {
      values_.reset(static_cast<float*>(std::calloc(count, sizeof(float))));
      count_ = count;
      BS_CHECK(values_ != nullptr);
    }
    return {values_.get(), count_};
  }
  void Clear() {
    values_.reset();
    count_ = 0;
  }

 private:
  struct Free {
    void operator()(float* values) const { std::free(values); }
  };
  std::unique_ptr<float, Free> values_;
  size_t count_ = 0;
};

}  // namespace bs::worker
