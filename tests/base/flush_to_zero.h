// FlushToZero: a thread that takes subnormals for 0, as a library built with -ffast-math leaves it.
#pragma once

#ifdef __SSE2__
#include <gtest/gtest.h>
#include <xmmintrin.h>

namespace bs {

// Of the calling thread, until the end of this object.  Its calls must leave that as it is.
class FlushToZero {
 public:
  FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kBits); }
  ~FlushToZero() {
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before_);
    EXPECT_EQ(after & kBits, kBits) << "a call has changed the thread's setting";
  }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  static constexpr unsigned kBits = 0x8040;  // flush to zero, and denormals are zero

  const unsigned before_;
};

}  // namespace bs
#endif
