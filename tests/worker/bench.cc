// The worker's surroundings, by hand.
#include "worker/bench.h"

#include <gtest/gtest.h>

#include <utility>

#include "codec/two_bit.h"
#include "protocol/bodies.h"

namespace bs::worker {

std::vector<std::byte> Bytes(size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

Bench::Bench(const PsWorkerOptions& options, const protocol::Rules& rules)
    : clock_(1),
      executor_(&clock_),
      backend_(
          options, &executor_, [this](ps::Message message) { sent.push_back(std::move(message)); },
          Logger("", LogLevel::kOff)) {
  worker_ = std::make_unique<Worker>(
      options, &executor_, &backend_, [this](const Status& why) { failures.push_back(why); },
      Logger("", LogLevel::kInfo,
             [this](LogLevel, std::string_view line) { lines.emplace_back(line); }),
      rules);
}

Bench::~Bench() {
  const bool* const closed = Close();
  Run();
  sent.clear();
  Run();
  EXPECT_TRUE(*closed);
  for (const Outcome& outcome : outcomes_) EXPECT_EQ(outcome.calls, 1);
}

Worker::Done Bench::Into(Outcome* outcome) {
  return [this, outcome](Status status) {
    EXPECT_FALSE(calling_);
    EXPECT_TRUE(executor_.IsCurrent());
    ++outcome->calls;
    outcome->status = std::move(status);
    outcome->worker_had_failed = !failures.empty();
  };
}

const Outcome* Bench::Broadcast(Key key, DType dtype, std::span<std::byte> value) {
  Outcome* const outcome = &outcomes_.emplace_back();
  calling_ = true;
  worker_->Broadcast(key, dtype, value, Into(outcome));
  calling_ = false;
  return outcome;
}

Bench::Sum Bench::PushPull(Key key, Priority priority, std::span<const std::byte> in,
                           std::span<std::byte> out, float threshold) {
  Outcome* const pushed = &outcomes_.emplace_back();
  Outcome* const pulled = &outcomes_.emplace_back();
  calling_ = true;
  worker_->PushPull(key, {.priority = priority, .coding = codec::TwoBitCoding(threshold)}, in, out,
                    Into(pushed), Into(pulled));
  calling_ = false;
  return {pushed, pulled};
}

const bool* Bench::Close() {
  bool* const closed = &closed_.emplace_back(false);
  worker_->Close([this, closed] {
    EXPECT_TRUE(executor_.IsCurrent());
    EXPECT_FALSE(*closed);
    *closed = true;
  });
  return closed;
}

ps::Message Bench::Next() {
  Run();
  if (sent.empty()) {
    ADD_FAILURE() << "the worker sent nothing";
    return {};
  }
  ps::Message message = std::move(sent.front());
  sent.pop_front();
  return message;
}

bool Bench::Quiet() {
  Run();
  return sent.empty();
}

ps::Message Bench::ResponseTo(const ps::Message& request) {
  ps::Message response;
  response.peer = request.peer;
  response.meta.extension.version = ps::kExtensionVersion;
  response.meta.extension.op = request.meta.extension.op;
  response.meta.extension.sequence = request.meta.extension.sequence;
  const ps::Op op = request.meta.extension.op;
  response.meta.extension.body =
      protocol::Encode(op, {.identity = protocol::IdentityOf(op, test::RequestIn(request))});
  return response;
}

void Bench::Answer(ps::Message request, std::span<const std::byte> payload) {
  ps::Message response = ResponseTo(request);
  if (!payload.empty()) response.data.push_back(ps::Frame::Copy(payload));
  request = {};
  Tell(std::move(response));
}

void Bench::Refuse(ps::Message request, const Status& why) {
  ps::Message response = ResponseTo(request);
  response.meta.extension.status = static_cast<uint32_t>(why.code());
  response.meta.extension.text = why.message();
  request = {};
  Tell(std::move(response));
}

void Bench::Tell(ps::Message answer) {
  backend_.OnMessage(std::move(answer));
  Run();
}

void Bench::AnswerLookup(ps::Message request, uint64_t partition_bytes,
                         std::span<const std::byte> servers) {
  ps::Message response = ResponseTo(request);
  test::ChangeResponse(&response, [&, asked = test::RequestIn(request)](auto* body) {
    body->tensor_bytes = asked.tensor_bytes;
    body->dtype = asked.dtype;
    body->partition_bytes = partition_bytes;
  });
  response.data.push_back(ps::Frame::Copy(servers));
  request = {};
  Tell(std::move(response));
}

void Bench::Initialise(Key key, std::span<std::byte> value, DType dtype) {
  const Outcome* const done = Broadcast(key, dtype, value);
  Run();
  while (!sent.empty()) Answer(Next());
  EXPECT_TRUE(done->ok()) << done->text();
}

}  // namespace bs::worker
