// The lines of offers: what is written is read again, and nothing else is taken.
#include "transport/rdma/rdma_offer.h"

#include <gtest/gtest.h>

#include <string>

namespace ps::test {
namespace {

RdmaOffer Example() {
  RdmaOffer offer{.address = {.layer = RdmaLayer::kEthernet,
                              .lid = 0,
                              .number = 0x00abcd,
                              .first_packet = 0xffffff},
                  .mtu_bytes = 1024,
                  .reads = 16,
                  .slots = 64,
                  .slot_bytes = 8192};
  offer.address.gid[15] = std::byte{0x0a};
  offer.token[0] = std::byte{0xfe};
  return offer;
}

TEST(RdmaOfferTest, AWrittenOfferIsReadBack) {
  for (const RdmaLayer layer : {RdmaLayer::kEthernet, RdmaLayer::kInfiniBand}) {
    RdmaOffer offer = Example();
    offer.address.layer = layer;
    offer.address.lid = layer == RdmaLayer::kInfiniBand ? 26 : 0;
    const auto read = ParseRdmaOffer(TextOf(offer));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read.value(), offer);
  }
  EXPECT_EQ(TextOf(Example()),
            "1 eth 0000000000000000000000000000000a 0 43981 16777215 1024 16 64 8192 "
            "fe000000000000000000000000000000");
}

TEST(RdmaOfferTest, NonsenseIsRefused) {
  const std::string good = TextOf(Example());
  const auto with = [&](const std::string& from, const std::string& to) {
    return std::string(good).replace(good.find(from), from.size(), to);
  };
  for (const std::string& bad :
       {std::string(), good + " 1", good + " ", with(" eth", ""), with("1 eth", "2 eth"),
        with("eth", "iwarp"), with("000a 0", "00a 0"), with("000a 0", "000g 0"),
        with(" 43981", " 16777216"), with(" 43981", " -1"), with(" 1024", " 1000"),
        with(" 1024", " 8192"), with(" 16 ", " 0 "), with(" 16 ", " 17 "), with(" 64 ", " 3 "),
        with(" 64 ", " 4294967360 "), with(" 8192", " 512"), with(" 8192", " 1048577"),
        with("fe00", "fe0")}) {
    const auto read = ParseRdmaOffer(bad);
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.status().code(), bs::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ps::test
