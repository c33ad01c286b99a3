// KvServer: what makes sense is taken apart, what does not is refused by name, answers echo.
#include "ps/kv_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
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
  message.meta.extension.incarnation = 2;
  message.meta.extension.job = 9;
  message.meta.extension.body = Body("key 7");
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
  EXPECT_EQ(call.value().extension.body, Body("key 7"));
  EXPECT_EQ(call.value().payload.bytes().data(), bytes);
}

TEST(KvServer, AttachedWorkersHaveTheRankTheyStandBeside) {
  Message message = Request(Op::kPull);
  message.peer = AttachedId(3);
  const bs::Result<KvCall> call = ParseCall(std::move(message));
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call.value().worker_rank, 3);
}

TEST(KvServer, EmptyPartitionNeedsNoFrame) { EXPECT_TRUE(ParseCall(Request(Op::kPush)).ok()); }

struct BadCall {
  std::string name;
  std::string says;
  std::function<Message()> make;
};
void PrintTo(const BadCall& bad, std::ostream* out) { *out << bad.name; }

class KvServerRefuses : public ::testing::TestWithParam<BadCall> {};

TEST_P(KvServerRefuses, NamingTheSenderAndTheField) {
  const bs::Result<KvCall> call = ParseCall(GetParam().make());
  ASSERT_FALSE(call.ok());
  EXPECT_EQ(call.status().code(), bs::StatusCode::kInvalidArgument);
  EXPECT_THAT(call.status().message(), HasSubstr(GetParam().says));
}

Message With(Message message, const std::function<void(Message*)>& change) {
  change(&message);
  return message;
}

std::vector<BadCall> AllBadCalls() {
  const auto case_of = [](std::string name, std::string says, Op op, std::string payload,
                          std::function<void(Message*)> change) {
    return BadCall{std::move(name), std::move(says),
                   [=] { return With(Request(op, payload), change); }};
  };
  return {
      case_of("OfAServer", "server 0", Op::kPush, "a", [](Message* m) { m->peer = 8; }),
      case_of("OfNobody", "is no worker", Op::kPush, "a", [](Message* m) { m->peer = kEmpty; }),
      case_of("OfABadId", "is no worker", Op::kPush, "a", [](Message* m) { m->peer = -9; }),
      case_of("OfAnotherVersion", "worker 1: version=9", Op::kPush, "a",
              [](Message* m) { m->meta.extension.version = 9; }),
      case_of("Response", "request=0", Op::kPush, "a", [](Message* m) { m->meta.request = false; }),
      case_of("Control", "no request", Op::kPush, "a",
              [](Message* m) { m->meta.is_control = true; }),
      case_of("TwoFrames", "2 data frames", Op::kPush, "a",
              [](Message* m) { m->data.push_back(Frame::Copy("b")); }),
  };
}

INSTANTIATE_TEST_SUITE_P(All, KvServerRefuses, ::testing::ValuesIn(AllBadCalls()),
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
    EXPECT_EQ(answer.meta.extension.incarnation, 2);
    EXPECT_EQ(answer.meta.extension.job, 9U);
    EXPECT_EQ(answer.meta.extension.body, Body("the same"));
  }
  KvCall call_;
  const Body body_{"the same"};
};

TEST_F(Answers, ResponseCarriesThePayloadInPlace) {
  const std::string sum = "sum";
  const Message answer =
      MakeResponse(call_, body_, Frame::Borrow(std::as_bytes(std::span(sum)), [] {}));
  ExpectEcho(answer);
  EXPECT_EQ(answer.meta.extension.op, Op::kPull);
  EXPECT_EQ(answer.meta.extension.status, 0U);
  ASSERT_EQ(answer.data.size(), 1U);
  EXPECT_EQ(static_cast<const void*>(answer.data.front().bytes().data()), sum.data());
}

TEST_F(Answers, OfAPushPullGoesBothWays) {
  call_.extension.op = Op::kPushPull;
  const Message answer = MakeResponse(call_, body_, Frame());
  ExpectEcho(answer);
  EXPECT_TRUE(answer.meta.push);
}

TEST_F(Answers, EmptyPayloadIsNoFrame) {
  EXPECT_TRUE(MakeResponse(call_, body_, Frame()).data.empty());
}

TEST_F(Answers, ErrorCarriesCodeAndText) {
  const Message answer = MakeErrorResponse(call_, body_, bs::Status::NotFound("no key 7"));
  ExpectEcho(answer);
  EXPECT_EQ(answer.meta.extension.op, Op::kPull);
  EXPECT_EQ(answer.meta.extension.status, 6U);
  EXPECT_EQ(answer.meta.extension.text, "no key 7");
}

TEST_F(Answers, PendingNamesTheMissingWorker) {
  const Message answer = MakePendingResponse(call_, body_, "worker 0");
  ExpectEcho(answer);
  EXPECT_EQ(answer.meta.extension.op, Op::kPending);
  EXPECT_EQ(answer.meta.extension.text, "worker 0");
}

TEST_F(Answers, BusySaysThatItWasNotTakenAndWhy) {
  const Message answer = MakeBusyResponse(call_, body_, "9 bytes wait");
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
