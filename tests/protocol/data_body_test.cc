// The bodies of data requests: their bytes on the wire, and whatever else a peer may send.
#include "protocol/data_body.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "codec/two_bit.h"
#include "ps-lite/wire/golden.h"

namespace bs::protocol {
namespace {

using ps::test::FromHex;
using ps::test::ToHex;

std::string HexOf(const ps::Body& body) { return ToHex(std::string(body.bytes())); }

// All that a push carries.
DataRequest Full() {
  return {.key = 7,
          .push_count = 12,
          .partition = 3,
          .offset_bytes = uint64_t{1} << 40U,
          .size_bytes = 4096,
          .partition_bytes = 1U << 20U,
          .dtype = 12,
          .mode = 1,
          .coding = codec::TwoBitCoding(0.25F),
          .learning_rate = 0.5,
          .weight_decay = 0.0,  // set, and not the optimizer's
          .rescale_grad = -2.0,
          .hosted = true,
          .layout_version = 3,
          .next_layout = std::string("a\0b", 3),
          .about = "c"};
}

TEST(DataBody, HasTheBytesOfTheProtocol) {
  EXPECT_EQ(HexOf(Encode(ps::Op::kPush, Full())),
            "b80607"
            "c0060c"
            "c80603"
            "d006808080808020"
            "d8068020"
            "e006808040"
            "e8060c"
            "900801"
            "9d080000803e"
            "c00701"
            "c907000000000000e03f"
            "d1070000000000000000"
            "d90700000000000000c0"
            "e00701"
            "e00803"
            "ea0803610062"
            "f2080163");
  EXPECT_EQ(HexOf(Encode(ps::Op::kPull, {.identity = {.key = 7, .count = 12, .index = 3},
                                         .offset_bytes = 4096,
                                         .size_bytes = 300,
                                         .partition_bytes = 64,
                                         .dtype = 12,
                                         .next_layout = "1"})),
            "b80607"
            "c0060c"
            "c80603"
            "d0068020"
            "d806ac02"
            "e00640"
            "e8060c"
            "ea080131");
}

TEST(DataBody, ExchangesHaveTheBytesOfTheProtocol) {
  const DataRequest request{.key = 7, .partition = 1, .size_bytes = 4, .terms = "t", .taken = "u"};
  const std::string take = "b80607c80601d80604aa090174";
  EXPECT_EQ(HexOf(Encode(ps::Op::kGive, request)), take);
  EXPECT_EQ(HexOf(Encode(ps::Op::kTake, request)), take);
  EXPECT_EQ(HexOf(Encode(ps::Op::kTaken, request)), "b80607c80601d80604b2090175");
  EXPECT_EQ(DecodeRequest(ps::Op::kTake, Encode(ps::Op::kTake, request)).value().terms, "t");
  EXPECT_EQ(DecodeRequest(ps::Op::kTaken, Encode(ps::Op::kTaken, request)).value().taken, "u");
  EXPECT_EQ(DecodeRequest(ps::Op::kQuit, Encode(ps::Op::kQuit, request)).value().terms, "t");
  EXPECT_EQ(DecodeRequest(ps::Op::kPush, Encode(ps::Op::kTake, request)).value().terms, "");
}

TEST(DataBody, ReadinessAndGrantsHaveTheBytesOfTheProtocol) {
  const ps::Body ready = Encode(ps::Op::kReady, DataRequest{.ready_number = 300, .ready = "r"});
  EXPECT_EQ(HexOf(ready),
            "c006ac02"
            "9a090172");
  EXPECT_EQ(DecodeRequest(ps::Op::kReady, ready).value().ready_number, 300U);
  EXPECT_EQ(DecodeRequest(ps::Op::kReady, ready).value().ready, "r");
  const ps::Body grants =
      Encode(ps::Op::kReady, DataResponse{.identity = {.count = 300}, .grants = "g"});
  EXPECT_EQ(HexOf(grants),
            "c006ac02"
            "a2090167");
  EXPECT_EQ(DecodeResponse(ps::Op::kReady, grants).value().grants, "g");
  EXPECT_TRUE(DataBodyRules().answers(grants, ready));
  EXPECT_EQ(DataBodyRules().describe(ps::Op::kReady, ready), "number=300");
}

TEST(DataBody, ComesBackAsItWas) {
  EXPECT_EQ(DecodeRequest(ps::Op::kPush, Encode(ps::Op::kPush, Full())).value(), Full());
  const DataResponse response{.identity = {.key = 7, .count = 12, .index = 3},
                              .offset_bytes = 4096,
                              .size_bytes = 300,
                              .partition_bytes = 64,
                              .dtype = 12,
                              .next_layout = "1"};
  EXPECT_EQ(DecodeResponse(ps::Op::kPull, Encode(ps::Op::kPull, response)).value(), response);
}

TEST(DataBody, WithNothingToSayIsEmpty) {
  EXPECT_TRUE(Encode(ps::Op::kPush, DataRequest{}).empty());
  EXPECT_TRUE(Encode(ps::Op::kPull, DataResponse{}).empty());
  EXPECT_EQ(DecodeRequest(ps::Op::kPush, {}).value(), DataRequest{});
  EXPECT_EQ(DecodeResponse(ps::Op::kPull, {}).value(), DataResponse{});
}

// Numbers of other ops stand where round and partition do, and mean one thing each.
TEST(DataBody, OfAnOptimizerOrAReleaseHasNumbersOfItsOwn) {
  const DataRequest optimizer{.optimizer_call = 5, .optimizer = "sgd"};
  EXPECT_EQ(HexOf(Encode(ps::Op::kOptimizer, optimizer)),
            "c00605"
            "fa0803736764");
  EXPECT_EQ(DecodeRequest(ps::Op::kOptimizer, ps::Body(FromHex("c00605fa0803736764"))).value(),
            optimizer);
  const DataRequest release{.key = 7, .num_partitions = 9, .oldest_layout = 2};
  EXPECT_EQ(HexOf(Encode(ps::Op::kRelease, release)),
            "b80607"
            "c80609"
            "e00802");
  EXPECT_EQ(DecodeRequest(ps::Op::kRelease, Encode(ps::Op::kRelease, release)).value(), release);
}

TEST(DataBody, OfAGiveBackCountsTurnsAndSaysWhetherTheKeyIsForgotten) {
  const DataRequest request{.key = 7, .turn = 3, .layout_version = 2};
  EXPECT_EQ(HexOf(Encode(ps::Op::kGiveBack, request)),
            "b80607"
            "c00603"
            "e00802");
  EXPECT_EQ(DecodeRequest(ps::Op::kGiveBack, Encode(ps::Op::kGiveBack, request)).value(), request);
  const DataResponse response{.identity = {.key = 7, .count = 3}, .given_back = true};
  EXPECT_EQ(HexOf(Encode(ps::Op::kGiveBack, response)),
            "b80607"
            "c00603"
            "800901");
  EXPECT_EQ(DecodeResponse(ps::Op::kGiveBack, Encode(ps::Op::kGiveBack, response)).value(),
            response);
  const DataResponse found{.layout_version = 2};
  EXPECT_EQ(DecodeResponse(ps::Op::kLookup, Encode(ps::Op::kLookup, found)).value(), found);
  const DataRequest release{.key = 7, .oldest_layout = 2, .given_back = true};
  EXPECT_EQ(DecodeRequest(ps::Op::kRelease, Encode(ps::Op::kRelease, release)).value(), release);
}

// Every member that some op has.
DataRequest OfAllOps() {
  DataRequest request = Full();
  request.round = 13;
  request.optimizer_call = 5;
  request.num_partitions = 9;
  request.tensor_bytes = 8192;
  request.oldest_layout = 4;
  request.optimizer = "sgd";
  return request;
}

TEST(DataBody, CarriesOnlyTheFieldsOfItsOp) {
  const auto carried = [](ps::Op op) { return DecodeRequest(op, Encode(op, OfAllOps())).value(); };
  EXPECT_EQ(carried(ps::Op::kPush), Full());
  DataRequest pull = Full();
  pull.about.clear();
  EXPECT_EQ(carried(ps::Op::kPull), pull);
  EXPECT_EQ(carried(ps::Op::kPushPull), pull);
  DataRequest lookup = pull;
  lookup.size_bytes = 0;
  lookup.tensor_bytes = 8192;
  EXPECT_EQ(carried(ps::Op::kLookup), lookup);
  EXPECT_EQ(carried(ps::Op::kDeclare), lookup);
  DataRequest optimizer = pull;
  optimizer.push_count = 0;
  optimizer.optimizer_call = 5;
  optimizer.optimizer = "sgd";
  EXPECT_EQ(carried(ps::Op::kOptimizer), optimizer);
  DataRequest release = pull;
  release.partition = 0;
  release.num_partitions = 9;
  release.layout_version = 0;
  release.oldest_layout = 4;
  EXPECT_EQ(carried(ps::Op::kRelease), release);
}

TEST(DataBody, OfAHostSaysForHowManyWorkersItStands) {
  const DataRequest push{.key = 7, .stands_for = 4, .answered_below = 300};
  EXPECT_EQ(HexOf(Encode(ps::Op::kPushPull, push)),
            "b80607"
            "880904"
            "9009ac02");
  EXPECT_EQ(DecodeRequest(ps::Op::kPushPull, Encode(ps::Op::kPushPull, push)).value(), push);
}

TEST(DataBody, CountsRoundsOrPushesByTheMode) {
  const DataRequest round{.round = 12};
  const DataRequest pushes{.push_count = 12, .mode = 1};
  EXPECT_EQ(HexOf(Encode(ps::Op::kPull, round)), "c0060c");
  EXPECT_EQ(HexOf(Encode(ps::Op::kPull, pushes)), "c0060cc00701");
  EXPECT_EQ(DecodeRequest(ps::Op::kPull, ps::Body(FromHex("c0060c"))).value(), round);
  // In any order.
  EXPECT_EQ(DecodeRequest(ps::Op::kPull, ps::Body(FromHex("c00701c0060c"))).value(), pushes);
  EXPECT_EQ(Encode(ps::Op::kPull, {.round = 13, .push_count = 12, .mode = 1}),
            Encode(ps::Op::kPull, pushes));
  EXPECT_EQ(IdentityOf(ps::Op::kPull, round).count, 12U);
  EXPECT_EQ(IdentityOf(ps::Op::kPull, pushes).count, 12U);
  EXPECT_FALSE(IsInitial(round));
  EXPECT_FALSE(IsInitial(pushes));
  EXPECT_TRUE(IsInitial({.mode = 1}));
}

// A long field of another op is skipped, so that a pull cannot make a server keep it.
TEST(DataBody, TextsOfOtherOpsAreSkipped) {
  const ps::Body texts(FromHex("f2080163fa0803736764"));
  EXPECT_EQ(DecodeRequest(ps::Op::kPush, texts).value(), (DataRequest{.about = "c"}));
  EXPECT_EQ(DecodeRequest(ps::Op::kOptimizer, texts).value(), (DataRequest{.optimizer = "sgd"}));
  for (const ps::Op op : {ps::Op::kDeclare, ps::Op::kLookup, ps::Op::kPull, ps::Op::kPushPull}) {
    EXPECT_EQ(DecodeRequest(op, texts).value(), DataRequest{});
  }
}

TEST(DataBody, AResponseHasTheBytesOfAPartitionOrOfATensor) {
  const DataResponse both{.size_bytes = 64, .tensor_bytes = 128};
  EXPECT_EQ(HexOf(Encode(ps::Op::kLookup, both)), "d8068001");
  EXPECT_EQ(HexOf(Encode(ps::Op::kPull, both)), "d80640");
  const ps::Body body(FromHex("d80640"));
  EXPECT_EQ(DecodeResponse(ps::Op::kLookup, body).value(), (DataResponse{.tensor_bytes = 64}));
  EXPECT_EQ(DecodeResponse(ps::Op::kPushPull, body).value(), (DataResponse{.size_bytes = 64}));
}

// No allocation: the longest body of a push without a codec's long parameters.
TEST(DataBody, OfAPushIsShort) {
  DataRequest push = Full();
  push.key = ~uint64_t{0};
  push.push_count = uint64_t{1} << 40U;
  push.partition = 1U << 20U;
  push.next_layout.clear();
  push.about.clear();
  EXPECT_EQ(Encode(ps::Op::kPush, push).memory(), 0U);
}

TEST(DataBody, ParametersOfACodecComeBackWhateverTheirLength) {
  for (size_t size = 0; size <= CodecParameters::kMostBytes; ++size) {
    const std::vector<std::byte> bytes(size, std::byte{0xa5});
    const DataRequest push{.coding = {.codec = 99, .parameters = CodecParameters(bytes)}};
    const auto read = DecodeRequest(ps::Op::kPush, Encode(ps::Op::kPush, push));
    EXPECT_EQ(read.value(), push) << size;
  }
  const DataRequest later{.coding = {.codec = 3, .sums = SumsTravel::kBf16, .later = true}};
  EXPECT_EQ(HexOf(Encode(ps::Op::kPush, later)), "900803a80802b00801");
  EXPECT_EQ(DecodeRequest(ps::Op::kPush, Encode(ps::Op::kPush, later)).value(), later);
  const DataRequest kept{.coding = {.codec = 4, .feedback = Feedback::kCorrected}, .ratio = 0.5F};
  EXPECT_EQ(HexOf(Encode(ps::Op::kPush, kept)), "900804b80802c5080000003f");
  EXPECT_EQ(DecodeRequest(ps::Op::kPush, Encode(ps::Op::kPush, kept)).value(), kept);
  const DataResponse sum{.coding = {.codec = 2}};
  EXPECT_EQ(DecodeResponse(ps::Op::kPull, Encode(ps::Op::kPull, sum)).value(), sum);
  // More than any codec has.
  const ps::Body longer(FromHex("900802a20819") + std::string(25, 'x'));
  EXPECT_TRUE(DecodeRequest(ps::Op::kPush, longer).value().coding.parameters.bytes().empty());
}

TEST(DataBody, SkipsUnknownFieldsAndOtherWireTypes) {
  // key as bytes, threshold as 64 bits, field 106 as bytes, field 150, a bool of two bytes
  const ps::Body odd(
      FromHex("ba060141"
              "99080000000000000000"
              "d2060141"
              "b00905"
              "e0078002"
              "c00604"));
  EXPECT_EQ(DecodeRequest(ps::Op::kPush, odd).value(), (DataRequest{.round = 4, .hosted = true}));
  EXPECT_EQ(DecodeResponse(ps::Op::kPull, odd).value(), (DataResponse{.identity = {.count = 4}}));
}

TEST(DataBody, BytesThatAreNoFieldsAreRefused) {
  for (const char* const hex : {"b8", "b806", "b806ff", "ea08056162", "0000", "bb06", "c90700"}) {
    const ps::Body body(FromHex(hex));
    EXPECT_EQ(DecodeRequest(ps::Op::kPush, body).status().code(), StatusCode::kInvalidArgument)
        << hex;
    EXPECT_EQ(DecodeResponse(ps::Op::kPull, body).status().code(), StatusCode::kInvalidArgument)
        << hex;
    EXPECT_FALSE(DataBodyRules().answers(body, body)) << hex;
  }
}

TEST(DataBody, AnAnswerIsAboutItsKeyRoundAndPartition) {
  const ps::BodyRules rules = DataBodyRules();
  const DataRequest asked{.key = 7, .round = 12, .partition = 2, .size_bytes = 64};
  const ps::Body request = Encode(ps::Op::kPull, asked);
  const RequestIdentity identity = IdentityOf(ps::Op::kPull, asked);
  EXPECT_TRUE(
      rules.answers(Encode(ps::Op::kPull, {.identity = identity, .size_bytes = 9}), request));
  const std::array<RequestIdentity, 3> others = {{{.key = 8, .count = 12, .index = 2},
                                                  {.key = 7, .count = 13, .index = 2},
                                                  {.key = 7, .count = 12, .index = 3}}};
  for (const RequestIdentity& other : others) {
    EXPECT_FALSE(rules.answers(Encode(ps::Op::kPull, {.identity = other}), request));
  }
}

TEST(DataBody, ARequestIsNamedByItsKeyRoundAndPartition) {
  const ps::BodyRules rules = DataBodyRules();
  const DataRequest asked{.key = 7, .round = 12, .partition = 2};
  for (const ps::Op op : {ps::Op::kPush, ps::Op::kPull, ps::Op::kPushPull}) {
    EXPECT_EQ(rules.describe(op, Encode(op, asked)), "key=7 round=12 partition=2");
  }
  EXPECT_EQ(rules.describe(ps::Op::kLookup, Encode(ps::Op::kLookup, asked)), "key=7");
  const DataRequest counted{.key = 7, .push_count = 12, .partition = 2, .mode = 1};
  EXPECT_EQ(rules.describe(ps::Op::kPush, Encode(ps::Op::kPush, counted)),
            "key=7 push_count=12 partition=2");
}

TEST(DataBody, APullThatRepeatsAPushPullSaysNothingOfTheNextLayout) {
  const ps::BodyRules rules = DataBodyRules();
  DataRequest both{.key = 7, .round = 12, .size_bytes = 64, .next_layout = "next"};
  const ps::Body pull = rules.as_pull(Encode(ps::Op::kPushPull, both));
  both.next_layout.clear();
  EXPECT_EQ(DecodeRequest(ps::Op::kPull, pull).value(), both);
}

TEST(DataBody, RandomBytesNeverAbort) {
  std::mt19937 random(1);
  const std::string good(Encode(ps::Op::kPush, Full()).bytes());
  const std::array<ps::Op, 4> ops = {ps::Op::kPush, ps::Op::kOptimizer, ps::Op::kRelease,
                                     ps::Op::kLookup};
  size_t read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (unsigned changes = random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % 4 == 0 ? random() % bytes.size() : bytes.size());
    const ps::Op op = ops.at(random() % ops.size());
    const auto request = DecodeRequest(op, ps::Body(bytes));
    EXPECT_EQ(request.ok(), DecodeResponse(op, ps::Body(bytes)).ok());
    if (!request.ok()) continue;
    ++read;
    EXPECT_TRUE(DecodeRequest(op, Encode(op, request.value())).ok());
  }
  EXPECT_GT(read, 1000U);
}

}  // namespace
}  // namespace bs::protocol
