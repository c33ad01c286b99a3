// Keys of a stock store: each on its server, none twice, an end.
#include "backend/kvstore/store_keys.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace bs::backend {
namespace {

TEST(StoreKeys, EachKeyLiesOnItsServerAndIsGivenOnce) {
  for (const uint32_t servers : {1U, 2U, 3U, 7U, 64U}) {
    StoreKeys keys(servers);
    std::set<int32_t> seen;
    for (uint32_t i = 0; i < 100; ++i) {
      const uint32_t server = i % servers;
      const auto key = keys.Take(server);
      ASSERT_TRUE(key);
      EXPECT_EQ(static_cast<uint32_t>(*key) * 9973U % servers, server);
      EXPECT_TRUE(seen.insert(*key).second);
    }
  }
}

TEST(StoreKeys, EveryWorkerGetsTheSame) {
  StoreKeys one(3);
  StoreKeys other(3);
  for (const uint32_t server : {0U, 2U, 2U, 1U, 0U})
    EXPECT_EQ(one.Take(server), other.Take(server));
}

TEST(StoreKeys, EndsBeforeTheProductOverflows) {
  StoreKeys keys(1);
  int64_t last = 0;
  while (const auto key = keys.Take(0)) last = *key;
  EXPECT_GT(last, 200000);
  EXPECT_LE(last * 9973, std::numeric_limits<int32_t>::max());
}

}  // namespace
}  // namespace bs::backend
