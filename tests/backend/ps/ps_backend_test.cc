// Answers of servers that do not fit what was asked.
#include "backend/ps/ps_backend.h"

#include <gtest/gtest.h>

#include "protocol/bodies.h"
#include "worker/bench.h"

namespace bs::backend {
namespace {

worker::PsWorkerOptions Second() {
  worker::PsWorkerOptions options;
  options.SetView(job::MakeView({.rank = 1}, 2, 2));
  options.partition_bytes = 64;
  return options;
}

// What a lookup of a key of 128 bytes is answered with.
struct LookupAnswer {
  uint64_t size_bytes = 128;
  uint64_t partition_bytes = 64;
  uint32_t dtype = 0;
  std::vector<std::byte> servers = worker::Bytes(4, 0);
};

Status AfterLookup(const LookupAnswer& answer) {
  std::vector<std::byte> value = worker::Bytes(128, 0);
  worker::Bench bench(Second());
  const worker::Outcome* const done = bench.Broadcast(7, DType::kFloat32, value);
  ps::Message response = worker::Bench::ResponseTo(bench.Next());
  test::ChangeResponse(&response, [&](auto* body) {
    body->tensor_bytes = answer.size_bytes;
    body->partition_bytes = answer.partition_bytes;
    body->dtype = answer.dtype;
  });
  if (!answer.servers.empty()) response.data.push_back(ps::Frame::Copy(answer.servers));
  bench.Tell(std::move(response));
  bench.sent.clear();
  return done->status.value_or(Status::Ok());
}

TEST(PsBackend, LookupThatFitsIsFollowed) { EXPECT_TRUE(AfterLookup({}).ok()); }

TEST(PsBackend, LookupThatDoesNotFitIsRefused) {
  std::vector<LookupAnswer> wrong(9);
  wrong[0].size_bytes = 64;
  wrong[1].partition_bytes = 0;
  wrong[2].partition_bytes = 63;
  wrong[3].partition_bytes = 96;
  wrong[4].dtype = 1;
  wrong[5].servers.clear();
  wrong[6].servers = worker::Bytes(6, 0);
  wrong[7].servers = worker::Bytes(4, 2);
  wrong[8].dtype = 99;
  for (const LookupAnswer& answer : wrong) {
    const Status status = AfterLookup(answer);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_EQ(status.message().rfind("lookup key=7 to server ", 0), 0U) << status.ToString();
  }
}

TEST(PsBackend, SumOfAnotherSizeIsRefusedAndWritesNothing) {
  for (const size_t size : {0U, 63U, 65U, 1000U}) {
    std::vector<std::byte> value = worker::Bytes(64, 5);
    worker::Bench bench(Second());
    const worker::Outcome* const done = bench.Broadcast(7, DType::kFloat32, value);
    bench.AnswerLookup(bench.Next(), 64, worker::Bytes(2, 0));
    bench.Answer(bench.Next(), worker::Bytes(size, 9));
    EXPECT_EQ(done->text(), "pull key=7 round=0 partition=0 to server 0: answered " +
                                std::to_string(size) + " bytes, want 64");
    EXPECT_EQ(bench.failures.size(), 1U);
    EXPECT_EQ(value, worker::Bytes(64, 5));
  }
}

TEST(PsBackend, RefusalComesWithTheServersWords) {
  std::vector<std::byte> value = worker::Bytes(64, 5);
  worker::Bench bench(Second());
  const worker::Outcome* const done = bench.Broadcast(7, DType::kFloat32, value);
  bench.Refuse(bench.Next(), Status::PermissionDenied("no"));
  EXPECT_EQ(done->code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(done->text(), "no");
}

}  // namespace
}  // namespace bs::backend
