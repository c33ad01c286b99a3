// Rules: decisions of a server that a test takes back to show the need for them.
#pragma once

#include <cstdint>

namespace bs::server {

// A server asks each question once, when it is made.
class Rules {
 public:
  Rules() = default;
  Rules(const Rules&) = delete;
  Rules& operator=(const Rules&) = delete;
  virtual ~Rules() = default;

  // The buffers for sums of a partition: 1 or 2
  // (docs/design/decisions/0002-two-buffers-and-a-round-number.md).
  virtual uint32_t num_buffers() const { return 2; }
};

}  // namespace bs::server
