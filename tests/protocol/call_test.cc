// Calls: what makes sense is taken apart, what does not is refused by name, answers echo.
#include "protocol/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "codec/two_bit.h"
#include "protocol/bodies.h"

namespace bs::protocol {
namespace {

using ::testing::HasSubstr;

ps::Message Request(ps::Op op, const std::string& payload = "") {
  ps::Message message;
  message.peer = ps::WorkerId(1);
  message.meta.request = true;
  message.meta.customer_id = 0;
  message.meta.timestamp = 5;
  message.meta.priority = -2;
  message.meta.extension.version = ps::kExtensionVersion;
  message.meta.extension.op = op;
  message.meta.extension.sequence = 77;
  message.meta.extension.body =
      Encode(op, {.key = 7, .round = 3, .partition = 1, .size_bytes = payload.size()});
  if (!payload.empty()) message.data.push_back(ps::Frame::Copy(payload));
  return message;
}

Result<Call> Parse(ps::Message message) { return ParseCall(std::move(message), codec::Builtin()); }

using Change = std::function<void(DataRequest*)>;

ps::Message With(ps::Message message, const Change& change) {
  test::ChangeRequest(&message, change);
  return message;
}

TEST(Call, IsTakenApartWithItsPayloadInPlace) {
  ps::Message message = Request(ps::Op::kPush, "abcd");
  const std::byte* const bytes = message.data.front().bytes().data();
  const Result<Call> call = Parse(std::move(message));
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call.value().worker_rank, 1);
  EXPECT_EQ(call.value().extension.sequence, 77U);
  EXPECT_EQ(call.value().request.key, 7U);
  EXPECT_EQ(call.value().request.round, 3U);
  EXPECT_EQ(call.value().request.partition, 1U);
  EXPECT_EQ(call.value().payload.bytes().data(), bytes);
}

TEST(Call, ACodedPushHasTwoBitsForEachElementInWholeWords) {
  for (const uint64_t elements : {0U, 1U, 16U, 17U, 37U}) {
    const Result<Call> call = Parse(With(
        Request(ps::Op::kPush, std::string((elements + 15) / 16 * 4, 'x')), [&](DataRequest* body) {
          body->coding = codec::TwoBitCoding(0.5F);
          body->size_bytes = 4 * elements;
        }));
    EXPECT_TRUE(call.ok()) << call.status().ToString();
  }
}

TEST(Call, BetweenWorkersOfAHostTheCodingIsThatOfTheirSum) {
  const auto make = [](const std::string& payload, const Coding& coding) {
    return With(Request(ps::Op::kPushPull, payload), [&](DataRequest* body) {
      body->coding = coding;
      body->size_bytes = 8;
    });
  };
  const Coding bf16{.codec = 3, .sums = SumsTravel::kSame};
  const Result<Call> call = ParseCallOfHost(make("plain888", bf16), codec::Builtin());
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call.value().request.coding, bf16);
  EXPECT_THAT(Parse(make("plain888", bf16)).status().message(),
              HasSubstr("size_bytes=8, compressed to bf16, but the payload has 8 bytes"))
      << "at a server";
  EXPECT_THAT(ParseCallOfHost(make("code", bf16), codec::Builtin()).status().message(),
              HasSubstr("size_bytes=8 but the payload has 4 bytes"));
  EXPECT_THAT(ParseCallOfHost(make("plain888", {.codec = 9}), codec::Builtin()).status().message(),
              HasSubstr("codec=9 is none"));
}

TEST(Call, AnnouncesTheBytesOfItsPayload) {
  const auto announced = [](ps::Op op, uint64_t size_bytes, const Coding& coding = {}) {
    const ps::Message message = With(Request(op), [&](DataRequest* body) {
      body->size_bytes = body->tensor_bytes = size_bytes;
      body->partition_bytes = 1U << 20U;
      body->coding = coding;
    });
    return AnnouncedBytes(message.meta.extension, codec::Builtin());
  };
  const uint64_t large = uint64_t{3} << 30U;
  EXPECT_EQ(announced(ps::Op::kPush, large), large);
  EXPECT_EQ(announced(ps::Op::kPushPull, large), large);
  EXPECT_EQ(announced(ps::Op::kGive, large), large);
  EXPECT_EQ(announced(ps::Op::kTake, large), large) << "it may give too";
  EXPECT_EQ(announced(ps::Op::kPush, large, codec::TwoBitCoding(0.5F)), large / 16);
  EXPECT_EQ(announced(ps::Op::kPush, large, {.codec = 9}), large);
  EXPECT_EQ(announced(ps::Op::kDeclare, uint64_t{1} << 40U), uint64_t{2} << 20U);
  EXPECT_GT(announced(ps::Op::kDeclare, std::numeric_limits<uint64_t>::max()), large);
  EXPECT_EQ(announced(ps::Op::kOptimizer, 0), uint64_t{32} << 20U);
  for (const ps::Op op :
       {ps::Op::kPull, ps::Op::kLookup, ps::Op::kRelease, ps::Op::kNone, static_cast<ps::Op>(99)}) {
    EXPECT_EQ(announced(op, large), 0U);
  }
  ps::Extension broken{.op = ps::Op::kPush, .body = ps::Body("\xb8\x06")};
  EXPECT_EQ(AnnouncedBytes(broken, codec::Builtin()), 0U);
}

TEST(Call, AnEmptyPartitionNeedsNoFrame) { EXPECT_TRUE(Parse(Request(ps::Op::kPush)).ok()); }

TEST(Call, ADeclarationNamesAServerForEachPartition) {
  EXPECT_TRUE(Parse(With(Request(ps::Op::kDeclare, "001122"), [](DataRequest* body) {
                body->tensor_bytes = 2500;
                body->partition_bytes = 1000;
              })).ok());
}

struct BadCall {
  std::string name;
  std::string says;
  std::function<ps::Message()> make;
};
void PrintTo(const BadCall& bad, std::ostream* out) { *out << bad.name; }

class CallRefuses : public ::testing::TestWithParam<BadCall> {};

TEST_P(CallRefuses, NamingTheSenderAndTheField) {
  const Result<Call> call = Parse(GetParam().make());
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(call.status().message(), HasSubstr(GetParam().says));
  EXPECT_THAT(call.status().message(), HasSubstr("worker 1: key=7"));
}

std::vector<BadCall> AllBadCalls() {
  const auto case_of = [](std::string name, std::string says, ps::Op op, std::string payload,
                          Change change) {
    return BadCall{std::move(name), std::move(says),
                   [=] { return With(Request(op, payload), change); }};
  };
  const auto nothing = [](DataRequest*) {};
  const auto two_bits_of = [](float threshold) {
    return [threshold](DataRequest* body) { body->coding = codec::TwoBitCoding(threshold); };
  };
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  using Op = ps::Op;
  return {
      case_of("UnknownOp", "op=9999", static_cast<Op>(9999), "a", nothing),
      case_of("PendingOp", "is no request", Op::kPending, "", nothing),
      case_of("WrongSize", "size_bytes=12 but the payload has 1 byte", Op::kPush, "a",
              [](DataRequest* body) { body->size_bytes = 12; }),
      case_of("UnknownCodec", "codec=9 is none", Op::kPush, "a",
              [](DataRequest* body) { body->coding.codec = 9; }),
      case_of("NoThreshold", "threshold 0: want a finite", Op::kPush, "abcd",
              [](DataRequest* body) { body->coding.codec = codec::TwoBitCodec().id; }),
      case_of("ThresholdThatIsNoNumber", "threshold nan: want a finite", Op::kPush, "abcd",
              two_bits_of(nan)),
      case_of("EndlessThreshold", "threshold inf: want a finite", Op::kPush, "abcd",
              two_bits_of(infinity)),
      case_of("CodedSize",
              "size_bytes=68, compressed to two bits with threshold 1, but the payload has 4 bytes",
              Op::kPush, "abcd",
              [](DataRequest* body) {
                body->coding = codec::TwoBitCoding(1);
                body->size_bytes = 68;
              }),
      case_of("PushPullWithoutPayload", "push: size_bytes=4 but the payload has 0 bytes",
              Op::kPushPull, "", [](DataRequest* body) { body->size_bytes = 4; }),
      case_of("HugeSize", "too large", Op::kPull, "",
              [](DataRequest* body) { body->size_bytes = kHuge; }),
      case_of("HugeOffset", "too large", Op::kPush, "abcd",
              [](DataRequest* body) { body->offset_bytes = kHuge - 2; }),
      case_of("HugeTensor", "tensor_bytes=18446744073709551615 is too large", Op::kLookup, "",
              [](DataRequest* body) { body->tensor_bytes = kHuge; }),
      case_of("PullWithPayload", "where none belongs", Op::kPull, "a", nothing),
      case_of("LookupWithPayload", "where none belongs", Op::kLookup, "a", nothing),
      case_of("ReleaseWithPayload", "where none belongs", Op::kRelease, "a", nothing),
      case_of("UncutDeclaration", "partition_bytes=0", Op::kDeclare, "00", nothing),
      case_of("ShortDeclaration", "2 bytes for 3 partitions", Op::kDeclare, "00",
              [](DataRequest* body) {
                body->tensor_bytes = 2500;
                body->partition_bytes = 1000;
              }),
      case_of("AbsurdDeclaration", "declare", Op::kDeclare, "00",
              [](DataRequest* body) {
                body->tensor_bytes = kHuge / 2;
                body->partition_bytes = 1;
              }),
  };
}

INSTANTIATE_TEST_SUITE_P(All, CallRefuses, ::testing::ValuesIn(AllBadCalls()),
                         [](const auto& param) { return param.param.name; });

TEST(Call, ABodyThatIsNoneIsRefused) {
  ps::Message message = Request(ps::Op::kPush, "a");
  message.meta.extension.body = ps::Body("\xb8\x06");
  const Result<Call> call = Parse(std::move(message));
  EXPECT_EQ(call.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(call.status().message(), HasSubstr("worker 1"));
}

TEST(Call, ASenderThatIsNoWorkerIsRefused) {
  ps::Message message = Request(ps::Op::kPush, "a");
  message.peer = ps::ServerId(0);
  EXPECT_THAT(Parse(std::move(message)).status().message(), HasSubstr("is no worker"));
}

class Answers : public ::testing::Test {
 protected:
  void SetUp() override { call_ = std::move(Parse(Request(ps::Op::kPull)).value()); }
  static void ExpectEcho(const ps::Message& answer) {
    EXPECT_EQ(answer.peer, ps::WorkerId(1));
    EXPECT_EQ(answer.meta.extension.sequence, 77U);
    EXPECT_EQ(test::ResponseIn(answer).identity,
              (RequestIdentity{.key = 7, .count = 3, .index = 1}));
  }
  Call call_;
};

TEST_F(Answers, AResponseSaysHowManyBytesItHas) {
  const ps::Message answer = MakeResponse(call_, ps::Frame::Copy(std::string("sum")));
  ExpectEcho(answer);
  EXPECT_EQ(test::ResponseIn(answer).size_bytes, 3U);
  EXPECT_EQ(answer.data.at(0).text(), "sum");
}

TEST_F(Answers, AResponseCarriesItsBody) {
  const ps::Message answer = MakeResponse(call_, {.size_bytes = 9, .next_layout = "next"}, {});
  ExpectEcho(answer);
  EXPECT_EQ(test::ResponseIn(answer).size_bytes, 9U);
  EXPECT_EQ(test::ResponseIn(answer).next_layout, "next");
}

TEST_F(Answers, ErrorPendingAndBusyEchoTheCallToo) {
  ExpectEcho(MakeErrorResponse(call_, Status::NotFound("no key 7")));
  ExpectEcho(MakePendingResponse(call_, "worker 0"));
  ExpectEcho(MakeBusyResponse(call_, "9 bytes wait"));
  EXPECT_EQ(MakeErrorResponse(call_, Status::NotFound("no key 7")).meta.extension.text, "no key 7");
}

TEST(Unchecked, HasTheFieldsOfItsBodyUnlessThatIsMalformed) {
  ps::KvCall envelope;
  envelope.extension = Request(ps::Op::kPush).meta.extension;
  EXPECT_EQ(Unchecked(std::move(envelope)).request.key, 7U);
  envelope = {};
  envelope.extension.body = ps::Body("\xb8\x06");
  EXPECT_EQ(Unchecked(std::move(envelope)).request.key, 0U);
}

}  // namespace
}  // namespace bs::protocol
