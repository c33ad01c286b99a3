// KvServer: what makes sense is taken apart, what does not is refused by name, answers echo.
#include "ps/kv_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace ps {
namespace {

using ::testing::HasSubstr;

Message Request(Op op, const std::string& payload = "") {
  Message message;
  message.peer = WorkerId(1);
  message.meta.request = true;
  message.meta.customer_id = 0;
  message.meta.timestamp = 5;
  message.meta.priority = -2;
  message.meta.extension.version = kExtensionVersion;
  message.meta.extension.op = op;
  message.meta.extension.sequence = 77;
  message.meta.extension.key = 7;
  message.meta.extension.round = 3;
  message.meta.extension.part = 1;
  message.meta.extension.size_bytes = payload.size();
  if (!payload.empty()) message.data.push_back(Frame::Copy(payload));
  return message;
}

TEST(KvServer, PushIsTakenApartWithItsPayloadInPlace) {
  Message message = Request(Op::kPush, "abcd");
  const std::byte* const bytes = message.data.front().bytes().data();
  const bs::Result<KvCall> call = ParseCall(std::move(message));
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ(call.value().worker_id, WorkerId(1));
  EXPECT_EQ(call.value().worker_rank, 1);
  EXPECT_EQ(call.value().timestamp, 5);
  EXPECT_EQ(call.value().priority, -2);
  EXPECT_EQ(call.value().extension.key, 7U);
  EXPECT_EQ(call.value().payload.bytes().data(), bytes);
}

TEST(KvServer, CodedPushHasTwoBitsForEachElementInWholeWords) {
  for (const uint64_t elements : {0U, 1U, 16U, 17U, 37U}) {
    Message message = Request(Op::kPush, std::string((elements + 15) / 16 * 4, 'x'));
    message.meta.extension.codec = Codec::kTwoBit;
    message.meta.extension.threshold = 0.5F;
    message.meta.extension.size_bytes = 4 * elements;
    const bs::Result<KvCall> call = ParseCall(std::move(message));
    EXPECT_TRUE(call.ok()) << call.status().ToString();
  }
}

TEST(KvServer, ARequestMayHaveTheBytesThatItsFieldsTellOrLittle) {
  const auto most = [](Op op, uint64_t size_bytes, Codec codec = Codec::kNone) {
    Message message = Request(op);
    message.meta.extension.size_bytes = size_bytes;
    message.meta.extension.part_bytes = 1 << 20;
    message.meta.extension.codec = codec;
    return MostRequestBytes(message.meta);
  };
  const uint64_t little = uint64_t{64} << 10U;
  const uint64_t large = uint64_t{3} << 30U;
  EXPECT_EQ(most(Op::kPush, large), large);
  EXPECT_EQ(most(Op::kPushPull, large), large);
  EXPECT_EQ(most(Op::kPush, large, Codec::kTwoBit), large / 16);
  EXPECT_EQ(most(Op::kPush, std::numeric_limits<uint64_t>::max()), uint64_t{4} << 30U);
  EXPECT_EQ(most(Op::kDeclare, uint64_t{1} << 40U), uint64_t{2} << 20U);
  EXPECT_EQ(most(Op::kDeclare, std::numeric_limits<uint64_t>::max()), uint64_t{4} << 30U);
  EXPECT_EQ(most(Op::kOptimizer, 0), uint64_t{32} << 20U);
  for (const Op op : {Op::kPull, Op::kLookup, Op::kRelease, Op::kNone, static_cast<Op>(99)}) {
    EXPECT_EQ(most(op, large), little);
  }
  Meta meta;
  EXPECT_EQ(MostRequestBytes(meta), uint64_t{5} << 30U);  // of MXNet's own workers
  meta.is_control = true;
  EXPECT_EQ(MostRequestBytes(meta), little);
}

TEST(KvServer, AttachedWorkersHaveTheRankTheyStandBeside) {
  Message message = Request(Op::kPull);
  message.peer = AttachedId(3);
  const bs::Result<KvCall> call = ParseCall(std::move(message));
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call.value().worker_rank, 3);
}

TEST(KvServer, EmptyPartitionNeedsNoFrame) { EXPECT_TRUE(ParseCall(Request(Op::kPush)).ok()); }

TEST(KvServer, DeclarationNamesAServerForEachPartition) {
  Message message = Request(Op::kDeclare, "001122");
  message.meta.extension.size_bytes = 2500;
  message.meta.extension.part_bytes = 1000;
  EXPECT_TRUE(ParseCall(std::move(message)).ok());
}

struct Nonsense {
  std::string name;
  std::string says;
  std::function<Message()> make;
};
void PrintTo(const Nonsense& nonsense, std::ostream* out) { *out << nonsense.name; }

class KvServerRefuses : public ::testing::TestWithParam<Nonsense> {};

TEST_P(KvServerRefuses, NamingTheSenderAndTheField) {
  const bs::Result<KvCall> call = ParseCall(GetParam().make());
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.status().code(), bs::StatusCode::kInvalidArgument);
  EXPECT_THAT(call.status().message(), HasSubstr(GetParam().says));
  EXPECT_THAT(call.status().message(), HasSubstr("key=7"));
}

Message With(Message message, const std::function<void(Message*)>& change) {
  change(&message);
  return message;
}

std::vector<Nonsense> AllNonsense() {
  const auto case_of = [](std::string name, std::string says, Op op, std::string payload,
                          std::function<void(Message*)> change) {
    return Nonsense{std::move(name), std::move(says),
                    [=] { return With(Request(op, payload), change); }};
  };
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  return {
      case_of("OfAServer", "server 0", Op::kPush, "a", [](Message* m) { m->peer = 8; }),
      case_of("OfNobody", "is no worker", Op::kPush, "a", [](Message* m) { m->peer = kEmpty; }),
      case_of("OfABadId", "is no worker", Op::kPush, "a", [](Message* m) { m->peer = -9; }),
      case_of("OfAnotherVersion", "worker 1: key=7: version=9", Op::kPush, "a",
              [](Message* m) { m->meta.extension.version = 9; }),
      case_of("Response", "request=0", Op::kPush, "a", [](Message* m) { m->meta.request = false; }),
      case_of("Control", "no request", Op::kPush, "a",
              [](Message* m) { m->meta.is_control = true; }),
      case_of("UnknownOp", "op=9999", Op::kPush, "a",
              [](Message* m) { m->meta.extension.op = static_cast<Op>(9999); }),
      case_of("PendingOp", "is no request", Op::kPending, "", [](Message*) {}),
      case_of("WrongSize", "size_bytes=12 but the payload has 1 bytes", Op::kPush, "a",
              [](Message* m) { m->meta.extension.size_bytes = 12; }),
      case_of("UnknownCodec", "codec=9 is none", Op::kPush, "a",
              [](Message* m) {
                m->meta.extension.codec = static_cast<Codec>(9);  // NOLINT(*EnumCastOutOfRange)
              }),
      case_of("NoThreshold", "threshold=0.000000, want a finite", Op::kPush, "abcd",
              [](Message* m) { m->meta.extension.codec = Codec::kTwoBit; }),
      case_of("ThresholdThatIsNoNumber", "threshold=nan, want a finite", Op::kPush, "abcd",
              [](Message* m) {
                m->meta.extension.codec = Codec::kTwoBit;
                m->meta.extension.threshold = std::numeric_limits<float>::quiet_NaN();
              }),
      case_of("EndlessThreshold", "threshold=inf, want a finite", Op::kPush, "abcd",
              [](Message* m) {
                m->meta.extension.codec = Codec::kTwoBit;
                m->meta.extension.threshold = std::numeric_limits<float>::infinity();
              }),
      case_of("CodedSize", "size_bytes=68 in two bits an element but the payload has 4 bytes",
              Op::kPush, "abcd",
              [](Message* m) {
                m->meta.extension.codec = Codec::kTwoBit;
                m->meta.extension.threshold = 1;
                m->meta.extension.size_bytes = 68;
              }),
      case_of("PushPullWithoutPayload", "push: size_bytes=4 but the payload has 0 bytes",
              Op::kPushPull, "", [](Message* m) { m->meta.extension.size_bytes = 4; }),
      case_of("HugeSize", "too large", Op::kPull, "",
              [=](Message* m) { m->meta.extension.size_bytes = huge; }),
      case_of("HugeOffset", "too large", Op::kPush, "abcd",
              [=](Message* m) { m->meta.extension.offset_bytes = huge - 2; }),
      case_of("PullWithPayload", "where none belongs", Op::kPull, "a", [](Message*) {}),
      case_of("LookupWithPayload", "where none belongs", Op::kLookup, "a", [](Message*) {}),
      case_of("ReleaseWithPayload", "where none belongs", Op::kRelease, "a", [](Message*) {}),
      case_of("TwoFrames", "2 data frames", Op::kPush, "a",
              [](Message* m) { m->data.push_back(Frame::Copy("b")); }),
      case_of("UncutDeclaration", "part_bytes=0", Op::kDeclare, "00", [](Message*) {}),
      case_of("ShortDeclaration", "2 bytes for 3 partitions", Op::kDeclare, "00",
              [](Message* m) {
                m->meta.extension.size_bytes = 2500;
                m->meta.extension.part_bytes = 1000;
              }),
      case_of("AbsurdDeclaration", "declare", Op::kDeclare, "00",
              [=](Message* m) {
                m->meta.extension.size_bytes = huge / 2;
                m->meta.extension.part_bytes = 1;
              }),
  };
}

INSTANTIATE_TEST_SUITE_P(All, KvServerRefuses, ::testing::ValuesIn(AllNonsense()),
                         [](const auto& param) { return param.param.name; });

class Answers : public ::testing::Test {
 protected:
  void SetUp() override { call_ = std::move(ParseCall(Request(Op::kPull)).value()); }
  void ExpectEcho(const Message& answer) const {
    EXPECT_EQ(answer.peer, WorkerId(1));
    EXPECT_FALSE(answer.meta.request);
    EXPECT_FALSE(answer.meta.is_control);
    EXPECT_TRUE(answer.meta.pull);
    EXPECT_EQ(answer.meta.customer_id, 0);
    EXPECT_EQ(answer.meta.timestamp, 5);
    EXPECT_EQ(answer.meta.priority, -2);
    EXPECT_EQ(answer.meta.extension.version, kExtensionVersion);
    EXPECT_EQ(answer.meta.extension.sequence, 77U);
    EXPECT_EQ(answer.meta.extension.key, 7U);
    EXPECT_EQ(answer.meta.extension.round, 3U);
    EXPECT_EQ(answer.meta.extension.part, 1U);
  }
  KvCall call_;
};

TEST_F(Answers, ResponseCarriesThePayloadInPlace) {
  const std::string sum = "sum";
  const Message answer = MakeResponse(call_, Frame::Borrow(std::as_bytes(std::span(sum)), [] {}));
  ExpectEcho(answer);
  EXPECT_EQ(answer.meta.extension.op, Op::kPull);
  EXPECT_EQ(answer.meta.extension.status, 0U);
  EXPECT_EQ(answer.meta.extension.size_bytes, 3U);
  ASSERT_EQ(answer.data.size(), 1U);
  EXPECT_EQ(static_cast<const void*>(answer.data.front().bytes().data()), sum.data());
}

TEST_F(Answers, OfAPushPullGoesBothWays) {
  call_.extension.op = Op::kPushPull;
  const Message answer = MakeResponse(call_, Frame());
  ExpectEcho(answer);
  EXPECT_TRUE(answer.meta.push);
}

TEST_F(Answers, EmptyPayloadIsNoFrame) { EXPECT_TRUE(MakeResponse(call_, Frame()).data.empty()); }

TEST_F(Answers, ErrorCarriesCodeAndText) {
  const Message answer = MakeErrorResponse(call_, bs::Status::NotFound("no key 7"));
  ExpectEcho(answer);
  EXPECT_EQ(answer.meta.extension.op, Op::kPull);
  EXPECT_EQ(answer.meta.extension.status, 6U);
  EXPECT_EQ(answer.meta.extension.text, "no key 7");
}

TEST_F(Answers, PendingSaysForWhom) {
  const Message answer = MakePendingResponse(call_, "worker 0");
  ExpectEcho(answer);
  EXPECT_EQ(answer.meta.extension.op, Op::kPending);
  EXPECT_EQ(answer.meta.extension.text, "worker 0");
}

TEST_F(Answers, BusySaysThatItWasNotTakenAndWhy) {
  const Message answer = MakeBusyResponse(call_, "9 bytes wait");
  ExpectEcho(answer);
  EXPECT_EQ(answer.meta.extension.op, Op::kPending);
  EXPECT_EQ(answer.meta.extension.status,
            static_cast<uint32_t>(bs::StatusCode::kResourceExhausted));
  EXPECT_EQ(answer.meta.extension.text, "the server: 9 bytes wait");
}

TEST(CommandResponse, EchoesHeadCustomerAndTimestampAndIsAStockMessage) {
  Message request;
  request.peer = WorkerId(0);
  request.meta.head = 3;
  request.meta.simple_app = true;
  request.meta.request = true;
  request.meta.app_id = 0;
  request.meta.customer_id = 0;
  request.meta.timestamp = 9;
  const Message answer = MakeCommandResponse(request, "body");
  EXPECT_EQ(answer.peer, WorkerId(0));
  EXPECT_FALSE(answer.meta.native());
  EXPECT_FALSE(answer.meta.request);
  EXPECT_TRUE(answer.meta.simple_app);
  EXPECT_EQ(answer.meta.head, 3);
  EXPECT_EQ(answer.meta.app_id, 0);
  EXPECT_EQ(answer.meta.customer_id, 0);
  EXPECT_EQ(answer.meta.timestamp, 9);
  EXPECT_EQ(answer.meta.body, "body");
  EXPECT_TRUE(answer.data.empty());
}

}  // namespace
}  // namespace ps
