// StoreKeys: integer keys of a stock MXNet store, chosen so that each lies on a given server.
//
// A stock worker keeps a small array of integer key k on server (k * 9973) mod S.  Pure; every
// worker that takes keys for the same servers in the same order gets the same keys.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace bs::backend {

class StoreKeys {
 public:
  // REQUIRES: num_servers > 0.
  explicit StoreKeys(uint32_t num_servers);
  // Returns a key of `server` that was not given out before, or nothing if there are no more.
  std::optional<int32_t> Take(uint32_t server);

 private:
  std::vector<int64_t> next_;  // by server
};

}  // namespace bs::backend
