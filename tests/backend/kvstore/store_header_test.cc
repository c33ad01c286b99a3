// The header that rank 0 publishes: through floats and back.
#include "backend/kvstore/store_header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace bs::backend {
namespace {

TEST(StoreHeader, ComesBackAsItWas) {
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  for (const StoreHeader& header :
       {StoreHeader{}, StoreHeader{kAll, kAll, kAll, 12, 16},
        StoreHeader{0x0123456789abcdefULL, 411041792, uint64_t{512} << 10U, 2, 1}}) {
    const std::vector<std::byte> bytes = Encode(header);
    EXPECT_EQ(bytes.size(), kStoreHeaderBytes);
    EXPECT_EQ(DecodeStoreHeader(bytes), header);
  }
}

TEST(StoreHeader, BytesThatAreNoHeaderAreRefused) {
  std::vector<std::byte> bytes = Encode({1, 2, 3, 0});
  EXPECT_FALSE(DecodeStoreHeader({}));
  EXPECT_FALSE(DecodeStoreHeader(std::span(bytes).first(60)));
  for (size_t at = 0; at <= 13; ++at) {
    std::vector<std::byte> wrong = bytes;
    const float number = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(wrong.data() + at * sizeof(number), &number, sizeof(number));
    EXPECT_FALSE(DecodeStoreHeader(wrong)) << at;
  }
}

}  // namespace
}  // namespace bs::backend
