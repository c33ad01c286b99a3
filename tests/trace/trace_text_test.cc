// Lines of Chrome's trace format; what a viewer needs of them.
#include "trace/trace_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace bs::trace {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = TraceEvent::Kind;

TraceEvent Span(Kind kind, int64_t begin_us, int64_t end_us, uint32_t server = 0) {
  return {.kind = kind,
          .partition = 3,
          .server = server,
          .priority = -7,
          .queued = 4,
          .key = 7,
          .round = 2,
          .bytes = 4096,
          .partition_bytes = 128,
          .begin = TimePoint(microseconds(begin_us)),
          .end = TimePoint(microseconds(end_us))};
}

std::string Written(TraceText* writer, const TraceEvent& event) {
  std::string text;
  writer->Event(event, &text);
  return text;
}

TEST(TraceText, AWholeTextMatchesTheFormat) {
  job::View view = job::MakeView({.rank = 1}, 2, 1);
  view.job = ~uint64_t{0};
  TraceText writer({.view = std::make_shared<const job::View>(view),
                    .host = "node1",
                    .start = TimePoint(microseconds(10)),
                    .wall_time = std::chrono::seconds(1700000000)});
  std::string text;
  writer.Head(&text);
  TraceEvent push = Span(Kind::kPush, 11, 14);
  push.end += Duration(5);
  writer.Event(push, &text);
  writer.Event(Span(Kind::kTensor, 11, 15), &text);
  writer.Event(Span(Kind::kCredit, 0, 16), &text);
  writer.Tail(5, &text);
  EXPECT_EQ(text,
            R"([
{"name":"bytescheduler","ph":"M","pid":2,"tid":0,"args":{"version":1,"role":"worker","rank":1,"num_workers":2,"num_servers":1,"host":"node1","start_ns":1700000000000000000,"job":"18446744073709551615"}},
{"name":"process_name","ph":"M","pid":2,"tid":0,"args":{"name":"worker 1 on node1"}},
{"name":"thread_name","ph":"M","pid":2,"tid":5001,"args":{"name":"server 0 push 1"}},
{"name":"key 7 part 3","cat":"push","ph":"X","pid":2,"tid":5001,"ts":1.000,"dur":3.005,"args":{"key":7,"part":3,"round":2,"bytes":4096,"priority":-7,"server":0}},
{"name":"thread_name","ph":"M","pid":2,"tid":1001,"args":{"name":"tensor 1"}},
{"name":"key 7","cat":"tensor","ph":"X","pid":2,"tid":1001,"ts":1.000,"dur":4.000,"args":{"key":7,"round":2,"bytes":4096,"priority":-7}},
{"name":"server 0","ph":"C","pid":2,"ts":6.000,"args":{"bytes in flight":4096,"partitions queued":4}},
{"name":"bytescheduler_end","ph":"M","pid":2,"tid":0,"args":{"lost":5}}
]
)");
}

TEST(TraceText, SpansHaveTheNamesOfTheirKeys) {
  TraceText writer({});
  std::string text;
  writer.Name(7, "conv0\"_w\xc3", &text);
  EXPECT_EQ(text, R"({"name":"bytescheduler_key","ph":"M","pid":1,"tid":0,"args":{"key":7,)"
                  R"("name":"conv0\u0022_w\u00c3"}},)"
                  "\n");
  const std::string push = Written(&writer, Span(Kind::kPush, 0, 9));
  EXPECT_THAT(push, HasSubstr(R"("name":"conv0\u0022_w\u00c3 part 3")"));
  EXPECT_THAT(push, HasSubstr(R"("key":7,)"));
  TraceEvent other = Span(Kind::kPush, 10, 11);
  other.key = 8;
  EXPECT_THAT(Written(&writer, other), HasSubstr(R"("name":"key 8 part 3")"));
}

TEST(TraceText, TheFrameworkIsTold) {
  const TraceText writer({.view = job::ShareView({.role = job::Role::kWorker, .rank = 2}, 3, 1)});
  std::string text;
  writer.Framework("torch", &text);
  EXPECT_EQ(text, R"({"name":"bytescheduler_framework","ph":"M","pid":3,"tid":0,"args":{)"
                  R"("framework":"torch"}},)"
                  "\n");
}

TEST(TraceText, ASpanNamesItsCarrierWhereItIsKnown) {
  TraceText writer({});
  TraceEvent push = Span(Kind::kPush, 0, 9);
  EXPECT_THAT(Written(&writer, push), Not(HasSubstr("carrier")));
  push.carrier = Carrier::kRdma;
  EXPECT_THAT(Written(&writer, push), HasSubstr(R"("server":0,"carrier":"rdma"}})"));
  push.carrier = Carrier::kSharedMemory;
  EXPECT_THAT(Written(&writer, push), HasSubstr(R"("carrier":"shm"}})"));
}

TEST(TraceText, ASpanOfCodesNamesTheirCodec) {
  TraceText writer({});
  TraceEvent push = Span(Kind::kPush, 0, 9);
  EXPECT_THAT(Written(&writer, push), Not(HasSubstr("coding")));
  push.coding = "one\"bit";
  EXPECT_THAT(Written(&writer, push), HasSubstr(R"("server":0,"coding":"one\u0022bit"}})"));
  push.carrier = Carrier::kTcp;
  EXPECT_THAT(Written(&writer, push),
              HasSubstr(R"("server":0,"carrier":"tcp","coding":"one\u0022bit"}})"));
  TraceText server({.view = job::ShareView({.role = job::Role::kServer}, 1, 1)});
  TraceEvent sum = Span(Kind::kSum, 0, 9);
  sum.coding = "topk";
  EXPECT_THAT(Written(&server, sum), HasSubstr(R"("bytes":4096,"coding":"topk"}})"));
}

TEST(TraceText, ADecisionIsAMoment) {
  TraceText writer({});
  EXPECT_EQ(
      Written(&writer, Span(Kind::kDecision, 0, 9)),
      R"({"name":"partitions of 128, credit of 4096","cat":"decision","ph":"i","s":"p","pid":1,)"
      R"("ts":9.000,"args":{"decision":2,"partition":128,"credit":4096}},)"
      "\n");
}

TEST(TraceText, SpansThatOverlapGetRowsOfTheirOwn) {
  TraceText writer({});
  EXPECT_THAT(Written(&writer, Span(Kind::kPull, 0, 10)), HasSubstr("server 0 pull 1"));
  EXPECT_THAT(Written(&writer, Span(Kind::kPull, 5, 20)), HasSubstr("server 0 pull 2"));
  const std::string third = Written(&writer, Span(Kind::kPull, 10, 30));
  EXPECT_THAT(third, HasSubstr("\"tid\":6001,"));  // where the first has ended just then
  EXPECT_THAT(third, Not(HasSubstr("thread_name")));
}

TEST(TraceText, ALongSpanFindsTheRowThatAShortOneLeftFree) {
  TraceText writer({});
  Written(&writer, Span(Kind::kPull, 0, 10));
  Written(&writer, Span(Kind::kPull, 5, 20));
  // Both rows are free; the one that has been so for longer can take the next.
  EXPECT_THAT(Written(&writer, Span(Kind::kPull, 25, 30)), HasSubstr("\"tid\":6002,"));
  EXPECT_THAT(Written(&writer, Span(Kind::kPull, 12, 40)), HasSubstr("\"tid\":6001,"));
}

TEST(TraceText, KindsAndServersDoNotShareRows) {
  TraceText writer({});
  EXPECT_THAT(Written(&writer, Span(Kind::kQueued, 0, 1, 0)), HasSubstr("\"server 0 queue 1\""));
  EXPECT_THAT(Written(&writer, Span(Kind::kPush, 2, 3, 0)), HasSubstr("\"server 0 push 1\""));
  EXPECT_THAT(Written(&writer, Span(Kind::kPush, 4, 5, 12)), HasSubstr("\"server 12 push 1\""));
  EXPECT_THAT(Written(&writer, Span(Kind::kTensor, 6, 7, 12)), HasSubstr("\"tensor 1\""));
  EXPECT_THAT(Written(&writer, Span(Kind::kProxy, 6, 7, 12)), HasSubstr("\"proxy 1\""));
  EXPECT_THAT(Written(&writer, Span(Kind::kCritical, 6, 7, 12)), HasSubstr("\"front 1\""));
}

TEST(TraceText, ProxiesAndLostTimeAreOfWholeTensors) {
  TraceText writer({});
  Written(&writer, Span(Kind::kProxy, 0, 1));  // the row
  EXPECT_EQ(Written(&writer, Span(Kind::kProxy, 2, 5)),
            R"({"name":"key 7","cat":"proxy","ph":"X","pid":1,"tid":2001,"ts":2.000,"dur":3.000,)"
            R"("args":{"key":7,"round":2,"bytes":4096,"priority":-7}},)"
            "\n");
  EXPECT_THAT(Written(&writer, Span(Kind::kCritical, 2, 5)),
              HasSubstr(R"({"name":"key 7","cat":"front","ph":"X","pid":1,"tid":3001,)"));
}

TEST(TraceText, AServersRowsAreNamedByItsShards) {
  TraceText writer(
      {.view = job::ShareView({.role = job::Role::kServer, .rank = 1}, 1, 1), .num_shards = 2});
  std::string head;
  writer.Head(&head);
  EXPECT_THAT(head, HasSubstr("\"pid\":20002,"));
  EXPECT_THAT(head, HasSubstr("\"name\":\"server 1\""));
  TraceEvent event = Span(Kind::kPeers, 0, 10, 1);
  event.last_rank = 4;
  const std::string peers = Written(&writer, event);
  EXPECT_THAT(peers, HasSubstr("\"shard 1 peers 1\""));
  EXPECT_THAT(peers, HasSubstr("\"cat\":\"peers\",\"ph\":\"X\",\"pid\":20002,"));
  EXPECT_THAT(peers, HasSubstr("{\"key\":7,\"part\":3,\"round\":2,\"bytes\":4096,\"last\":4}"));
  EXPECT_THAT(Written(&writer, Span(Kind::kSum, 0, 10, 1)), HasSubstr("\"shard 1 sum 1\""));
  EXPECT_THAT(Written(&writer, Span(Kind::kSum, 0, 10, 2)), HasSubstr("\"dispatcher sum 1\""));
}

TEST(TraceText, RowsAreBounded) {
  TraceText writer({});
  for (size_t i = 0; i < TraceText::kMostRows; ++i) Written(&writer, Span(Kind::kQueued, 0, 10));
  const std::string more = Written(&writer, Span(Kind::kQueued, 0, 10));
  EXPECT_THAT(more, Not(HasSubstr("thread_name")));
  EXPECT_THAT(more, HasSubstr("\"tid\":4256,"));
}

TEST(TraceText, AnyHostNameIsJson) {
  TraceText writer({.host = "a\"b\\c\n\xff"});
  std::string text;
  writer.Head(&text);
  EXPECT_THAT(text, HasSubstr(R"("host":"a\u0022b\u005cc\u000a\u00ff")"));
}

TEST(TraceText, AnEventBeforeTheStartHasATimeBelowZero) {
  TraceText writer({.start = TimePoint(microseconds(10))});
  EXPECT_THAT(Written(&writer, Span(Kind::kPush, 8, 12)), HasSubstr("\"ts\":-2.000,\"dur\":4.000"));
}

}  // namespace
}  // namespace bs::trace
