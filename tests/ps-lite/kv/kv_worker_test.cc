// KvWorker: one final answer for each request, repeats, deadlines, and payloads that are free
// again.
#include "ps/kv_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/snapshot.h"
#include "sim/sim_executor.h"

namespace ps {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// Bodies of these tests are words; an answer's begin as the request's.
constexpr BodyRules kWords{
    .answers = [](const Body& response,
                  const Body& request) { return response.bytes().starts_with(request.bytes()); },
    .describe = [](Op, const Body& request) { return std::string(request.bytes()); },
    .as_pull =
        [](const Body& push_pull) { return Body(std::string(push_pull.bytes()) + " as a pull"); },
};

class KvWorkerTest : public ::testing::Test {
 protected:
  struct Outcome {
    bs::Status status;
    std::string payload;
  };

  KvWorkerTest() { Make({}); }
  void Make(KvWorkerOptions options) {
    options.bodies = kWords;
    worker_.emplace(
        options, &executor_, [this](Message m) { sent_.push_back(std::move(m)); },
        bs::Logger("", bs::LogLevel::kDebug,
                   [this](bs::LogLevel, std::string_view l) { log_.emplace_back(l); }));
  }
  void TearDown() override {
    worker_->FailAll(bs::Status::Cancelled("end"));
    sent_.clear();
    Run(bs::Duration(0));
    EXPECT_EQ(worker_->pending(), 0U);
    worker_.reset();
  }
  // How the request ends; empty until it does.
  const std::optional<Outcome>& Send(Op op, uint64_t key, int32_t server = 1) {
    std::optional<Outcome>* const out = &outcomes_.emplace_back();
    KvRequest request;
    request.server = server;
    request.extension.op = op;
    request.extension.body = Body("key=" + std::to_string(key) + " round=12 partition=2");
    request.priority = -3;
    if (op == Op::kPush || op == Op::kPushPull) request.payload = std::as_bytes(std::span(bytes_));
    if (op == Op::kPushPull)
      request.left = [this, out] {
        EXPECT_FALSE(out->has_value()) << "left after done";
        ++left_;
      };
    if (op == Op::kPull) request.answer = std::as_writable_bytes(std::span(bytes_));
    worker_->Send(std::move(request), [out](const bs::Status& status, Message response) {
      EXPECT_FALSE(out->has_value()) << "done ran twice";
      const std::string payload(response.data.empty() ? "" : response.data.front().text());
      *out = Outcome{status, payload};
    });
    EXPECT_FALSE(out->has_value()) << "done ran inside Send";
    return *out;
  }
  // What the server says to the request `sent`.
  static Message AnswerTo(const Message& sent, Op op, const std::string& payload = "") {
    Message answer;
    answer.peer = sent.peer;
    answer.meta.extension.version = kExtensionVersion;
    answer.meta.extension.op = op;
    answer.meta.extension.sequence = sent.meta.extension.sequence;
    answer.meta.extension.incarnation = sent.meta.extension.incarnation;
    answer.meta.extension.body = sent.meta.extension.body;
    if (!payload.empty()) answer.data.push_back(Frame::Copy(payload));
    return answer;
  }
  void Answer(const Message& sent, Op op, const std::string& text = "", uint32_t status = 0) {
    Message answer = AnswerTo(sent, op);
    answer.meta.extension.text = text;
    answer.meta.extension.status = status;
    worker_->OnMessage(std::move(answer));
  }
  void MakeWithStragglerTimeout(bs::Duration timeout) {
    TearDown();
    KvWorkerOptions options;
    options.straggler_timeout = timeout;
    Make(options);
  }
  void Run(bs::Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  // Drops the copies that are "in the transport", which gives the payload back.
  void ReleaseAll() {
    for (Message& message : sent_) message.data.clear();
  }

  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor executor_{&clock_};
  std::array<char, 4> bytes_ = {'a', 'b', 'c', 'd'};
  std::vector<Message> sent_;
  int left_ = 0;  // how often a push-pull did
  std::vector<std::string> log_;
  std::deque<std::optional<Outcome>> outcomes_;
  std::optional<KvWorker> worker_;
};

TEST_F(KvWorkerTest, RequestCarriesItsBodyAndItsBytesWithoutACopy) {
  Send(Op::kPush, 7);
  ASSERT_EQ(sent_.size(), 1U);
  const Message& message = sent_.front();
  EXPECT_EQ(message.peer, ServerId(1));
  EXPECT_TRUE(message.meta.request);
  EXPECT_TRUE(message.meta.push);
  EXPECT_FALSE(message.meta.pull);
  EXPECT_EQ(message.meta.priority, -3);
  EXPECT_EQ(message.meta.app_id, 0);
  EXPECT_EQ(message.meta.extension.version, kExtensionVersion);
  EXPECT_EQ(message.meta.extension.body, Body("key=7 round=12 partition=2"));
  ASSERT_EQ(message.data.size(), 1U);
  EXPECT_EQ(static_cast<const void*>(message.data.front().bytes().data()), bytes_.data());
}

TEST_F(KvWorkerTest, RequestsMayGoToWorkers) {
  TearDown();
  KvWorkerOptions options;
  options.peers = Role::kWorker;
  options.first_sequence = 500;
  options.timeout = seconds(1);
  Make(options);
  EXPECT_EQ(worker_->first_open(), 500U);
  const std::optional<Outcome>& first = Send(Op::kPull, 7);
  const std::optional<Outcome>& second = Send(Op::kPull, 8);
  EXPECT_EQ(sent_.front().peer, WorkerId(1));
  EXPECT_EQ(worker_->first_open(), 500U);
  worker_->OnMessage(AnswerTo(sent_[1], Op::kPull, "sum"));
  EXPECT_EQ(worker_->first_open(), 500U) << "the first is open";
  Message wrong = AnswerTo(sent_[0], Op::kPull, "sum");
  wrong.peer = ServerId(1);
  worker_->OnMessage(std::move(wrong));
  EXPECT_EQ(worker_->first_open(), 500U) << "a server was not asked";
  worker_->OnMessage(AnswerTo(sent_[0], Op::kPull, "sum"));
  EXPECT_EQ(worker_->first_open(), 502U);
  Run(bs::Duration(0));
  EXPECT_TRUE(first->status.ok());
  EXPECT_TRUE(second->status.ok());
  const std::optional<Outcome>& late = Send(Op::kPull, 9);
  Run(seconds(1));
  EXPECT_SNAPSHOT(late->status.message(),
                  R"(pull key=9 round=12 partition=2 to worker 1: no response in 1 s (1 try))");
}

TEST_F(KvWorkerTest, ResponseEndsTheRequestWithItsPayload) {
  const std::optional<Outcome>& out = Send(Op::kPull, 7);
  worker_->OnMessage(AnswerTo(sent_.front(), Op::kPull, "sum"));
  EXPECT_FALSE(out.has_value());  // never inside a call
  Run(bs::Duration(0));
  ASSERT_TRUE(out.has_value());
  EXPECT_TRUE(out->status.ok());
  EXPECT_EQ(out->payload, "sum");
  EXPECT_EQ(worker_->pending(), 0U);
}

TEST_F(KvWorkerTest, TheAnswerOfTheRightSizeBelongsWhereTheRequestSays) {
  const auto& outcome = Send(Op::kPull, 7);
  const Message answer = AnswerTo(sent_.front(), Op::kPull);
  const auto landing = worker_->Place(ServerId(1), answer.meta, bytes_.size());
  ASSERT_NE(landing, nullptr);
  EXPECT_EQ(static_cast<const void*>(landing->bytes.data()), bytes_.data());
  EXPECT_EQ(landing->bytes.size(), bytes_.size());
  // A repeat that comes meanwhile must not write there too.
  EXPECT_EQ(worker_->Place(ServerId(1), answer.meta, bytes_.size()), nullptr);
  EXPECT_FALSE(landing->revoked);
  worker_->OnMessage(AnswerTo(sent_.front(), Op::kPull, "sums"));
  Run(bs::Duration(0));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_TRUE(outcome->status.ok());
}

TEST_F(KvWorkerTest, AnAnswerThatFitsNoRequestHasNoPlace) {
  Send(Op::kPull, 7);
  Send(Op::kPush, 8);
  const Meta good = AnswerTo(sent_[0], Op::kPull).meta;
  EXPECT_EQ(worker_->Place(ServerId(0), good, bytes_.size()), nullptr);
  EXPECT_EQ(worker_->Place(ServerId(1), good, bytes_.size() + 1), nullptr);
  Meta bad = good;
  bad.request = true;
  EXPECT_EQ(worker_->Place(ServerId(1), bad, bytes_.size()), nullptr);
  bad = good;
  bad.extension.status = 1;
  EXPECT_EQ(worker_->Place(ServerId(1), bad, bytes_.size()), nullptr);
  bad = good;
  bad.extension.op = Op::kPending;
  EXPECT_EQ(worker_->Place(ServerId(1), bad, bytes_.size()), nullptr);
  bad = good;
  bad.extension.sequence += 100;
  EXPECT_EQ(worker_->Place(ServerId(1), bad, bytes_.size()), nullptr);
  const Meta push = AnswerTo(sent_[1], Op::kPush).meta;
  EXPECT_EQ(worker_->Place(ServerId(1), push, bytes_.size()), nullptr);
}

// Sequences are small numbers, so those of another job's answers fit.
TEST_F(KvWorkerTest, AnAnswerToAnotherRequestIsDroppedByName) {
  const std::optional<Outcome>& out = Send(Op::kPull, 7);
  for (const Op op : {Op::kPull, Op::kPending}) {
    Message other = AnswerTo(sent_.front(), op, "sums");
    other.meta.extension.body = Body("key=7 round=13 partition=2");
    EXPECT_EQ(worker_->Place(ServerId(1), other.meta, bytes_.size()), nullptr);
    worker_->OnMessage(std::move(other));
  }
  Run(seconds(1));
  EXPECT_FALSE(out.has_value());
  EXPECT_THAT(log_, ::testing::Contains(::testing::HasSubstr(
                        "dropped a message from server 1: it answers another request")));
  worker_->OnMessage(AnswerTo(sent_.front(), Op::kPull, "sum"));
  Run(seconds(1));
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->payload, "sum");
}

TEST_F(KvWorkerTest, AnAnswerToAnEarlierIncarnationAnswersNothing) {
  Make({.incarnation = 3});
  const std::optional<Outcome>& out = Send(Op::kPull, 7);
  Message late = AnswerTo(sent_.front(), Op::kPull, "sums");
  late.meta.extension.incarnation = 2;
  EXPECT_EQ(worker_->Place(ServerId(1), late.meta, bytes_.size()), nullptr);
  worker_->OnMessage(std::move(late));
  Run(seconds(1));
  EXPECT_FALSE(out.has_value());
}

TEST_F(KvWorkerTest, ARequestSaysOfWhichJobAndIncarnationItIs) {
  Make({.incarnation = 3, .job = (uint64_t{5} << 32U) + 7});
  Send(Op::kPush, 7);
  EXPECT_EQ(sent_.front().meta.extension.incarnation, 3);
  EXPECT_EQ(sent_.front().meta.extension.job, 7U);
}

TEST_F(KvWorkerTest, MemoryIsRevokedBeforeTheRequestEnds) {
  const auto& outcome = Send(Op::kPull, 7);
  const auto landing =
      worker_->Place(ServerId(1), AnswerTo(sent_.front(), Op::kPull).meta, bytes_.size());
  ASSERT_NE(landing, nullptr);
  worker_->FailAll(bs::Status::Unavailable("lost server 1"));
  EXPECT_TRUE(landing->revoked);
  Run(bs::Duration(0));
  EXPECT_TRUE(outcome.has_value());
}

TEST_F(KvWorkerTest, DoneWaitsForADeviceThatStillWrites) {
  const auto& outcome = Send(Op::kPull, 7);
  const auto landing =
      worker_->Place(ServerId(1), AnswerTo(sent_.front(), Op::kPull).meta, bytes_.size());
  ASSERT_NE(landing, nullptr);
  landing->writes = 2;
  worker_->FailAll(bs::Status::Unavailable("lost server 1"));
  Run(seconds(1));
  EXPECT_FALSE(outcome.has_value()) << "the caller would use the memory again";
  landing->EndWrites(1);
  Run(seconds(1));
  EXPECT_FALSE(outcome.has_value());
  landing->EndWrites(1);
  Run(bs::Duration(0));
  EXPECT_TRUE(outcome.has_value());
}

TEST_F(KvWorkerTest, DoneWaitsUntilThePayloadIsFree) {
  const std::optional<Outcome>& out = Send(Op::kPush, 7);
  Answer(sent_.front(), Op::kPush);
  Run(seconds(1));
  EXPECT_FALSE(out.has_value());
  EXPECT_EQ(worker_->pending(), 1U);
  ReleaseAll();
  Run(bs::Duration(0));
  EXPECT_TRUE(out.has_value());
}

TEST_F(KvWorkerTest, LateAnswersToRepeatsAreDroppedQuietly) {
  const std::optional<Outcome>& out = Send(Op::kPull, 7);
  for (int i = 0; i < 3; ++i) worker_->OnMessage(AnswerTo(sent_.front(), Op::kPull, "sum"));
  Run(seconds(1));
  EXPECT_TRUE(out.has_value());
  EXPECT_TRUE(log_.empty());
}

TEST_F(KvWorkerTest, UnansweredRequestIsSentAgainWithTheSameSequence) {
  Send(Op::kPush, 7);
  ReleaseAll();
  Run(milliseconds(4900));
  EXPECT_EQ(sent_.size(), 1U);
  EXPECT_TRUE(log_.empty());
  Run(milliseconds(200));
  ASSERT_EQ(sent_.size(), 2U);
  ASSERT_EQ(log_.size(), 1U);
  EXPECT_THAT(log_.at(0), testing::EndsWith("DEBUG repeating push key=7 round=12 partition=2 to "
                                            "server 1 after 5 s, try 2"));
  EXPECT_EQ(sent_.at(0).meta.extension.sequence, sent_.at(1).meta.extension.sequence);
  EXPECT_EQ(sent_.at(1).data.size(), 1U);
}

TEST_F(KvWorkerTest, CopyThatHasNotLeftYetIsNotRepeated) {
  Send(Op::kPush, 7);
  Run(seconds(20));
  EXPECT_EQ(sent_.size(), 1U);
  ReleaseAll();
  Run(seconds(6));
  EXPECT_EQ(sent_.size(), 2U);
}

TEST_F(KvWorkerTest, SilenceEndsInAnErrorThatNamesEverything) {
  const std::optional<Outcome>& out = Send(Op::kPush, 7);
  for (int i = 0; i < 61; ++i) {
    ReleaseAll();
    Run(seconds(1));
  }
  ASSERT_TRUE(out.has_value());
  EXPECT_SNAPSHOT(
      out->status.ToString(),
      "kDeadlineExceeded: push key=7 round=12 partition=2 to server 1: no response in 60 s "
      "(5 tries)");
}

TEST_F(KvWorkerTest, PendingAnswersKeepARequestAliveUntilTheStragglerTimeout) {
  const std::optional<Outcome>& out = Send(Op::kPull, 7);
  for (int i = 0; i < 179; ++i) {
    Run(seconds(10));
    Answer(sent_.front(), Op::kPending, "worker 3");
  }
  EXPECT_FALSE(out.has_value());
  Run(seconds(11));
  ASSERT_TRUE(out.has_value());
  EXPECT_SNAPSHOT(
      out->status.ToString(),
      "kDeadlineExceeded: pull key=7 round=12 partition=2 to server 1: after 1800 s still "
      "waiting for worker 3");
}

TEST_F(KvWorkerTest, AShortStragglerTimeoutStillNamesTheMissingWorker) {
  MakeWithStragglerTimeout(seconds(2));
  const std::optional<Outcome>& told = Send(Op::kPull, 7);
  const std::optional<Outcome>& untold = Send(Op::kPull, 8);
  ReleaseAll();
  ASSERT_EQ(sent_.size(), 2U);
  Run(milliseconds(1100));
  ASSERT_EQ(sent_.size(), 4U) << "each is repeated before the end, though not due yet";
  Answer(sent_[2], Op::kPending, "worker 3");
  Run(seconds(1));
  EXPECT_THAT(told.value().status.message(),
              testing::HasSubstr("after 2 s still waiting for worker 3"));
  EXPECT_THAT(untold.value().status.message(),
              testing::HasSubstr("after 2 s still waiting for a response"));
}

TEST_F(KvWorkerTest, ARequestThatWaitsForEverHasNoStragglerTimeout) {
  MakeWithStragglerTimeout(seconds(2));
  std::optional<bs::Status> outcome;
  KvRequest request;
  request.server = 1;
  request.waits_for_ever = true;
  request.extension.op = Op::kTake;
  worker_->Send(std::move(request),
                [&](const bs::Status& status, const Message&) { outcome = status; });
  for (int i = 0; i < 100; ++i) {
    Run(seconds(1));
    Answer(sent_.front(), Op::kPending, "worker 3");
  }
  EXPECT_FALSE(outcome.has_value());
  Run(seconds(70));
  ASSERT_TRUE(outcome.has_value()) << "the server is silent";
}

TEST_F(KvWorkerTest, ServersRefusalIsTheOutcome) {
  const std::optional<Outcome>& out = Send(Op::kLookup, 7);
  Answer(sent_.front(), Op::kLookup, "key 7: wrong size", 1);
  Run(bs::Duration(0));
  EXPECT_EQ(out.value().status.ToString(), "kInvalidArgument: key 7: wrong size");
}

TEST_F(KvWorkerTest, StatusOfAnUnknownNumberIsAnError) {
  const std::optional<Outcome>& out = Send(Op::kLookup, 7);
  Answer(sent_.front(), Op::kLookup, "what", 4242);
  Run(bs::Duration(0));
  EXPECT_EQ(out.value().status.code(), bs::StatusCode::kInternal);
}

TEST_F(KvWorkerTest, ForeignMessagesAnswerNothing) {
  const std::optional<Outcome>& out = Send(Op::kPull, 7);
  Message other_server = AnswerTo(sent_.front(), Op::kPull);
  other_server.peer = ServerId(0);
  Message request = AnswerTo(sent_.front(), Op::kPull);
  request.meta.request = true;
  Message stock = AnswerTo(sent_.front(), Op::kPull);
  stock.meta.extension.version = 0;
  Message unknown = AnswerTo(sent_.front(), Op::kPull);
  unknown.meta.extension.sequence = 99;
  for (Message* message : {&other_server, &request, &stock, &unknown}) {
    worker_->OnMessage(std::move(*message));
  }
  worker_->OnMessage(AnswerTo(sent_.front(), Op::kPush));
  Run(seconds(1));
  EXPECT_FALSE(out.has_value());
  EXPECT_FALSE(log_.empty());
}

TEST_F(KvWorkerTest, FailAllEndsEverythingOnceItsPayloadIsFree) {
  const std::optional<Outcome>& push = Send(Op::kPush, 1);
  const std::optional<Outcome>& pull = Send(Op::kPull, 2);
  worker_->FailAll(bs::Status::Unavailable("lost server 1"));
  worker_->FailAll(bs::Status::Cancelled("a later reason"));
  Run(bs::Duration(0));
  EXPECT_FALSE(push.has_value());
  ASSERT_TRUE(pull.has_value());
  EXPECT_EQ(pull->status.message(), "lost server 1");
  const std::optional<Outcome>& later = Send(Op::kPush, 3);
  EXPECT_EQ(sent_.size(), 2U);
  ReleaseAll();
  Run(bs::Duration(0));
  EXPECT_EQ(push.value().status.message(), "lost server 1");
  EXPECT_EQ(later.value().status.message(), "lost server 1");
}

TEST_F(KvWorkerTest, FailToEndsTheRequestsToOneNode) {
  const std::optional<Outcome>& push = Send(Op::kPush, 1, 1);
  const std::optional<Outcome>& elsewhere = Send(Op::kPull, 2, 0);
  const std::optional<Outcome>& pull = Send(Op::kPull, 3, 1);
  worker_->FailTo(1, bs::Status::Unavailable("node 1 left"));
  Run(bs::Duration(0));
  EXPECT_FALSE(push.has_value()) << "its payload is in use";
  EXPECT_EQ(pull.value().status.message(), "node 1 left");
  EXPECT_FALSE(elsewhere.has_value());
  ReleaseAll();
  Run(bs::Duration(0));
  EXPECT_EQ(push.value().status.message(), "node 1 left");
  Answer(sent_[1], Op::kPull);
  Run(bs::Duration(0));
  EXPECT_TRUE(elsewhere.value().status.ok());
}

TEST_F(KvWorkerTest, FramesReleasedAfterTheWorkerIsGoneStillEndTheirRequests) {
  const std::optional<Outcome>& out = Send(Op::kPush, 1);
  worker_->FailAll(bs::Status::Cancelled("closed"));
  worker_.reset();
  ReleaseAll();
  Run(bs::Duration(0));
  EXPECT_EQ(out.value().status.code(), bs::StatusCode::kCancelled);
  Make({});
}

TEST_F(KvWorkerTest, APushPullHasLeftWhenItsPayloadIsOutOfUse) {
  const std::optional<Outcome>& out = Send(Op::kPushPull, 7);
  EXPECT_TRUE(sent_.at(0).meta.push && sent_.at(0).meta.pull);
  Run(bs::Duration(0));
  EXPECT_EQ(left_, 0);
  ReleaseAll();
  Run(bs::Duration(0));
  EXPECT_EQ(left_, 1);
  EXPECT_FALSE(out.has_value());
  // A repeat leaves unnoticed.
  Run(std::chrono::seconds(5));
  EXPECT_EQ(sent_.size(), 2U);
  ReleaseAll();
  worker_->OnMessage(AnswerTo(sent_.front(), Op::kPushPull, "sum"));
  Run(bs::Duration(0));
  EXPECT_EQ(left_, 1);
  EXPECT_EQ(out.value().payload, "sum");
}

TEST_F(KvWorkerTest, APushPullThatIsNeverSentHasLeftBeforeItEnds) {
  worker_->FailAll(bs::Status::Cancelled("closed"));
  const std::optional<Outcome>& out = Send(Op::kPushPull, 7);
  Run(bs::Duration(0));
  EXPECT_EQ(left_, 1);
  EXPECT_EQ(out.value().status.message(), "closed");
}

TEST_F(KvWorkerTest, APushPullThatTheServerHasIsRepeatedAsAPull) {
  const std::optional<Outcome>& out = Send(Op::kPushPull, 7);
  ReleaseAll();
  Run(std::chrono::seconds(5));
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[1].meta.extension.op, Op::kPushPull) << "the first may be lost";
  EXPECT_EQ(sent_[1].data.size(), 1U);
  ReleaseAll();
  Answer(sent_[1], Op::kPending, "worker 1");
  Run(std::chrono::seconds(10));
  ASSERT_EQ(sent_.size(), 3U);
  const Meta& meta = sent_[2].meta;
  EXPECT_EQ(meta.extension.op, Op::kPull);
  EXPECT_FALSE(meta.push);
  EXPECT_EQ(meta.extension.sequence, sent_[0].meta.extension.sequence);
  EXPECT_TRUE(sent_[2].data.empty());
  worker_->OnMessage(AnswerTo(sent_[2], Op::kPush, "odd"));
  Run(bs::Duration(0));
  EXPECT_FALSE(out.has_value());
  worker_->OnMessage(AnswerTo(sent_[2], Op::kPull, "sum"));
  Run(bs::Duration(0));
  EXPECT_EQ(out.value().payload, "sum");
}

TEST_F(KvWorkerTest, APullThatRepeatsAPushPullHasTheBodyOfAPull) {
  Send(Op::kPushPull, 7);
  ReleaseAll();
  Answer(sent_[0], Op::kPending, "worker 1");
  Run(std::chrono::seconds(10));
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[1].meta.extension.body, Body("key=7 round=12 partition=2 as a pull"));
}

TEST_F(KvWorkerTest, APushPullThatWasNotTakenIsRepeatedAsItWas) {
  const std::optional<Outcome>& out = Send(Op::kPushPull, 7);
  const auto full = static_cast<uint32_t>(bs::StatusCode::kResourceExhausted);
  Answer(sent_[0], Op::kPending, "the server: full", full);
  ReleaseAll();
  Run(std::chrono::seconds(5));
  ASSERT_EQ(sent_.size(), 2U);
  EXPECT_EQ(sent_[1].meta.extension.op, Op::kPushPull);
  EXPECT_EQ(sent_[1].data.size(), 1U);
  ReleaseAll();
  Answer(sent_[1], Op::kPending, "worker 1");
  Run(std::chrono::seconds(10));
  ASSERT_EQ(sent_.size(), 3U);
  EXPECT_EQ(sent_[2].meta.extension.op, Op::kPull);
  Answer(sent_[2], Op::kPending, "the server: full", full);  // it has what it has taken
  Run(std::chrono::seconds(20));
  ASSERT_EQ(sent_.size(), 4U);
  EXPECT_EQ(sent_[3].meta.extension.op, Op::kPull);
  worker_->OnMessage(AnswerTo(sent_[3], Op::kPull, "sum"));
  Run(bs::Duration(0));
  EXPECT_EQ(out.value().payload, "sum");
}

TEST_F(KvWorkerTest, ARequestThatIsNeverTakenEndsWithTheReasonOfTheServer) {
  MakeWithStragglerTimeout(seconds(90));
  const std::optional<Outcome>& out = Send(Op::kPush, 7);
  for (int i = 0; i < 9; ++i) {
    EXPECT_FALSE(out.has_value());
    ReleaseAll();
    Answer(sent_.back(), Op::kPending, "the server: full",
           static_cast<uint32_t>(bs::StatusCode::kResourceExhausted));
    Run(seconds(10));
  }
  EXPECT_THAT(out.value().status.message(),
              testing::HasSubstr("after 90 s still waiting for the server: full"));
}

TEST_F(KvWorkerTest, APushPullThatIsNotAnsweredIsNamed) {
  const std::optional<Outcome>& out = Send(Op::kPushPull, 7);
  ReleaseAll();
  for (int i = 0; i < 70; ++i) {
    Run(std::chrono::seconds(1));
    ReleaseAll();
  }
  EXPECT_THAT(
      out.value().status.message(),
      ::testing::HasSubstr("push-pull key=7 round=12 partition=2 to server 1: no response"));
}

TEST_F(KvWorkerTest, DoneMaySendTheNextRequest) {
  std::vector<int> order;
  KvRequest request;
  request.extension.op = Op::kPull;
  worker_->Send(std::move(request), [&](const bs::Status&, const Message&) {
    order.push_back(1);
    KvRequest next;
    next.extension.op = Op::kPull;
    worker_->Send(std::move(next), [&](const bs::Status&, const Message&) { order.push_back(2); });
  });
  worker_->OnMessage(AnswerTo(sent_.at(0), Op::kPull));
  Run(bs::Duration(0));
  worker_->OnMessage(AnswerTo(sent_.at(1), Op::kPull));
  Run(bs::Duration(0));
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST_F(KvWorkerTest, EachOfManyRequestsIsAnsweredExactlyOnceInAnyOrder) {
  std::vector<size_t> order(200);
  for (size_t i = 0; i < order.size(); ++i) Send(Op::kPull, i);
  for (size_t i = 0; i < order.size(); ++i) order.at(i) = i;
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order.at(i), order.at(clock_.Uniform(0, i)));
  }
  for (const size_t i : order) {
    worker_->OnMessage(AnswerTo(sent_.at(i), Op::kPull, std::to_string(i)));
    if (clock_.Chance(0.3)) worker_->OnMessage(AnswerTo(sent_.at(i), Op::kPull, "again"));
    Run(milliseconds(1));
  }
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(outcomes_.at(i).value().payload, std::to_string(i));
  }
}

}  // namespace
}  // namespace ps
