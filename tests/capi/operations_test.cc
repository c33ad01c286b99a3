// One call starts every operation: the fields of each kind, and the words for misuse.
#include "capi/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "capi/job.h"

namespace bs::test {
namespace {

using ::testing::HasSubstr;

struct Setter {
  const char* name;
  void (*set)(bs_operation* operation);
};

void Ignore(void* /*context*/, int /*code*/, const char* /*message*/) {}
std::array<char, 8> memory{};
bs_deferred* deferred = nullptr;
constexpr bs_rates kRates{1, 0, 1};
constexpr bs_exchange kExchange = [] {
  bs_exchange exchange{};
  exchange.struct_bytes = sizeof exchange;
  return exchange;
}();

// Every field that only some kinds take, in the order of the struct's table.
const std::vector<Setter> kSetters = {
    {"key", [](bs_operation* o) { o->key = 7; }},
    {"in", [](bs_operation* o) { o->in = memory.data(); }},
    {"out", [](bs_operation* o) { o->out = memory.data(); }},
    {"size_bytes", [](bs_operation* o) { o->size_bytes = memory.size(); }},
    {"pushed", [](bs_operation* o) { o->pushed = Ignore; }},
    {"done", [](bs_operation* o) { o->done = Ignore; }},
    {"priority", [](bs_operation* o) { o->priority = -1; }},
    {"deferred", [](bs_operation* o) { o->deferred = &deferred; }},
    {"coding", [](bs_operation* o) { o->coding.codec = 1; }},
    {"factor", [](bs_operation* o) { o->factor = 0.5; }},
    {"called", [](bs_operation* o) { o->called = 1; }},
    {"waited_ns", [](bs_operation* o) { o->waited_ns = 1; }},
    {"at_once", [](bs_operation* o) { o->at_once = 1; }},
    {"dtype", [](bs_operation* o) { o->dtype = 1; }},
    {"root", [](bs_operation* o) { o->root = 1; }},
    {"hosted", [](bs_operation* o) { o->hosted = 1; }},
    {"about", [](bs_operation* o) { o->about = "a weight"; }},
    {"rates", [](bs_operation* o) { o->rates = &kRates; }},
    {"optimizer", [](bs_operation* o) { o->optimizer = "sgd"; }},
    {"pickle", [](bs_operation* o) { o->pickle = memory.data(); }},
    {"pickle_bytes", [](bs_operation* o) { o->pickle_bytes = memory.size(); }},
    {"partition_bytes", [](bs_operation* o) { o->partition_bytes = 4096; }},
    {"credit_bytes", [](bs_operation* o) { o->credit_bytes = 4096; }},
    {"exchange", [](bs_operation* o) { o->exchange = &kExchange; }},
};

bs_operation WithAllBut(int kind, const std::set<std::string>& omitted) {
  bs_operation operation = bs_operation_init(kind);
  for (const Setter& setter : kSetters) {
    if (!omitted.contains(setter.name)) setter.set(&operation);
  }
  return operation;
}

// The fields that a kind takes; "!" marks those that it needs.
std::string FieldsOf(int kind) {
  std::set<std::string> refused;
  for (const Setter& setter : kSetters) {
    const std::string wrong = capi::CheckOperation(WithAllBut(kind, refused)).message();
    const std::string part = std::string("the field ") + setter.name + " is set, and no ";
    if (wrong.find(part) != std::string::npos) refused.insert(setter.name);
  }
  EXPECT_TRUE(capi::CheckOperation(WithAllBut(kind, refused)).ok()) << kind;
  std::string fields;
  for (const Setter& setter : kSetters) {
    if (refused.contains(setter.name)) continue;
    std::set<std::string> omitted = refused;
    omitted.insert(setter.name);
    const Status status = capi::CheckOperation(WithAllBut(kind, omitted));
    if (!fields.empty()) fields += ' ';
    fields += setter.name;
    if (status.ok()) continue;
    fields += '!';
    EXPECT_THAT(status.message(),
                HasSubstr(std::string("the field ") + setter.name + " is not set, and every "));
  }
  return fields;
}

TEST(Operations, EachKindTakesTheFieldsOfItsComment) {
  const std::string first_value = "key out! size_bytes done! dtype";
  const std::string coded_value = "key out! size_bytes done! coding dtype";
  EXPECT_EQ(FieldsOf(BS_BROADCAST), coded_value);
  EXPECT_EQ(FieldsOf(BS_BROADCAST_ASYNCHRONOUS), coded_value);
  EXPECT_EQ(FieldsOf(BS_BROADCAST_WHOLE), first_value + " hosted about!");
  EXPECT_EQ(FieldsOf(BS_BROADCAST_FROM), "key out! size_bytes done! root");
  EXPECT_EQ(FieldsOf(BS_PUSH_PULL),
            "key in! out! size_bytes pushed! done! priority deferred coding factor called "
            "waited_ns at_once rates");
  EXPECT_EQ(FieldsOf(BS_PUSH), "key in! size_bytes done! priority coding waited_ns rates");
  EXPECT_EQ(FieldsOf(BS_PULL), "key out! size_bytes done! priority waited_ns");
  EXPECT_EQ(FieldsOf(BS_UPDATE),
            "key in! out! size_bytes pushed! done! priority coding waited_ns rates");
  EXPECT_EQ(FieldsOf(BS_SET_OPTIMIZER), "done! optimizer! pickle pickle_bytes");
  EXPECT_EQ(FieldsOf(BS_RETUNE), "done! partition_bytes credit_bytes");
  EXPECT_EQ(FieldsOf(BS_REST), "key done");
  EXPECT_EQ(FieldsOf(BS_GIVE_BACK), "key done");
  EXPECT_EQ(FieldsOf(BS_EXCHANGE), "key in out size_bytes pushed! done! priority dtype exchange!");
  EXPECT_EQ(FieldsOf(BS_QUIT_EXCHANGE), "key about!");
  EXPECT_EQ(FieldsOf(BS_REPRIORITISE_EXCHANGE), "key priority");
}

TEST(Operations, AnEmptyTensorNeedsNoMemory) {
  bs_operation operation = bs_operation_init(BS_PULL);
  operation.done = Ignore;
  EXPECT_TRUE(capi::CheckOperation(operation).ok());
}

class StockHost final : public node::OperationHost {
 public:
  Worker* worker() override {
    ADD_FAILURE() << "stock servers cannot do it";
    return nullptr;
  }
  Status CheckExtra(const std::string& what) const override {
    return Status::FailedPrecondition(what +
                                      ": stock servers know nothing of it; start the job "
                                      "with bslaunch");
  }
  void ExpectCallback() override { ADD_FAILURE() << "no callback comes"; }
  void EndCallback() override {}
};

TEST(Operations, StockServersBroadcastFromRank0AndSumOnly) {
  StockHost host;
  for (const auto& [kind, asked] : std::vector<std::pair<int, std::string>>{
           {BS_BROADCAST_ASYNCHRONOUS, "asynchronous keys"},
           {BS_BROADCAST_WHOLE, "asynchronous keys"},
           {BS_BROADCAST_FROM, "a broadcast of any root"},
           {BS_PUSH, "asynchronous keys"},
           {BS_PULL, "asynchronous keys"},
           {BS_UPDATE, "asynchronous keys"},
           {BS_SET_OPTIMIZER, "optimizers on servers"},
           {BS_RETUNE, "another partition size"},
           {BS_EXCHANGE, "exchanges between some workers"},
           {BS_QUIT_EXCHANGE, "exchanges between some workers"},
           {BS_REPRIORITISE_EXCHANGE, "exchanges between some workers"}}) {
    const Status status = capi::StartOperation(bs_operation_init(kind), &host);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << kind;
    EXPECT_EQ(status.message(),
              asked + ": stock servers know nothing of it; start the job with bslaunch");
  }
}

// A job of one worker and one server, with a key that is declared.
class OperationsTest : public ::testing::Test {
 protected:
  OperationsTest() {
    job_.StartAll();
    std::vector<Floats> values(1, Floats(4, 0.0F));
    BroadcastAll(&job_, 7, &values);
  }
  ~OperationsTest() override {
    CloseWorkers(&job_);
    ExpectAllEndedWell(&job_);
  }
  // Returns the message of a refusal.
  std::string Refused(const bs_operation* operation) {
    bs_error error{};
    EXPECT_EQ(bs_worker_start_operation(worker(), operation, &error), BS_INVALID_ARGUMENT);
    return error.message;
  }
  bs_error Run(bs_operation operation, size_t callbacks = 1) {
    const WaiterPtr waiter(bs_waiter_new(callbacks));
    operation.context = waiter.get();
    bs_error error{};
    if (bs_worker_start_operation(worker(), &operation, &error) != 0) return error;
    return Await(waiter.get());
  }
  bs_worker* worker() { return job_.workers[0].get(); }

  Job job_{1, 1};
  Floats in_ = Floats(4, 3.0F);
  Floats out_ = Floats(4, 0.0F);
};

TEST_F(OperationsTest, MisuseIsToldWithTheFieldAndTheCure) {
  bs_operation operation = bs_operation_init(99);
  EXPECT_EQ(Refused(&operation),
            "kind 99 is no operation of this library: want one of bs_operation_kind, such as "
            "BS_PUSH_PULL");
  operation = MakePushPull(7, in_, &out_, nullptr);
  operation.done = nullptr;
  EXPECT_EQ(Refused(&operation),
            "push-pull of key 7: the field done is not set, and every push-pull needs it");
  operation.done = bs_waiter_done;
  operation.root = 1;
  EXPECT_EQ(Refused(&operation),
            "push-pull of key 7: the field root is set, and no push-pull takes it; leave it 0");
  operation = bs_operation_init(BS_SET_OPTIMIZER);
  operation.done = bs_waiter_done;
  EXPECT_EQ(Refused(&operation),
            "set-optimizer: the field optimizer is not set, and every set-optimizer needs it");
  operation.optimizer = "sgd";
  operation.pickle_bytes = 1;
  EXPECT_EQ(Refused(&operation), "set-optimizer: the field pickle_bytes is set without pickle");
}

TEST_F(OperationsTest, MisuseOfADeferredOneIsToldAtOnce) {
  bs_deferred* handle = nullptr;
  bs_operation operation = MakePushPull(7, in_, &out_, nullptr);
  operation.deferred = &handle;
  operation.pushed = nullptr;
  EXPECT_THAT(Refused(&operation), HasSubstr("the field pushed is not set"));
  EXPECT_EQ(handle, nullptr);
}

// A caller that was compiled when the struct ended with `context`.  No byte behind it is its own.
TEST_F(OperationsTest, ASmallerStructOfAnOlderCallerWorks) {
  constexpr size_t kOldBytes = offsetof(bs_operation, deferred);
  const WaiterPtr waiter(bs_waiter_new(2));
  bs_operation operation = MakePushPull(7, in_, &out_, waiter.get());
  operation.struct_bytes = kOldBytes;
  std::vector<uint64_t> old(kOldBytes / sizeof(uint64_t));
  std::memcpy(old.data(), &operation, kOldBytes);
  bs_error error{};
  ASSERT_EQ(bs_worker_start_operation(worker(), reinterpret_cast<const bs_operation*>(old.data()),
                                      &error),
            0)
      << error.message;
  EXPECT_EQ(Await(waiter.get()).code, 0);
  EXPECT_EQ(out_, in_);
}

struct LargerOperation {
  bs_operation known;
  uint64_t unknown;
};

TEST_F(OperationsTest, ALargerStructOfANewerCallerWorksIfItsNewFieldsAre0) {
  const WaiterPtr waiter(bs_waiter_new(2));
  LargerOperation larger{MakePushPull(7, in_, &out_, waiter.get()), 0};
  larger.known.struct_bytes = sizeof(larger);
  bs_error error{};
  ASSERT_EQ(bs_worker_start_operation(worker(), &larger.known, &error), 0) << error.message;
  EXPECT_EQ(Await(waiter.get()).code, 0);
  EXPECT_EQ(out_, in_);
  larger.unknown = 1;
  EXPECT_EQ(Refused(&larger.known),
            "a field behind the first " + std::to_string(sizeof(bs_operation)) +
                " bytes of bs_operation is set, and this library knows no more: leave it 0, or "
                "take the library that the program was built for");
}

TEST_F(OperationsTest, ANumberThatIsNoSizeIsRefused) {
  bs_operation operation = MakePushPull(7, in_, &out_, nullptr);
  for (const size_t size : {size_t{0}, size_t{8}, sizeof(operation) - 1, size_t{8192}}) {
    operation.struct_bytes = size;
    EXPECT_EQ(Refused(&operation), "struct_bytes is " + std::to_string(size) +
                                       ", which is no size of bs_operation: begin with "
                                       "bs_operation_init");
  }
}

TEST_F(OperationsTest, AnExchangeNeedsItsSizeAndATime) {
  constexpr int kRank = 0;
  bs_exchange exchange = kExchange;
  exchange.givers = &kRank;
  exchange.num_givers = 1;
  exchange.takers = &kRank;
  exchange.num_takers = 1;
  exchange.timeout_ms = std::numeric_limits<int64_t>::max();
  bs_operation operation = bs_operation_init(BS_EXCHANGE);
  operation.key = 9;
  operation.in = in_.data();
  operation.out = out_.data();
  operation.size_bytes = in_.size() * sizeof(float);
  operation.pushed = bs_waiter_pushed;
  operation.done = bs_waiter_done;
  operation.exchange = &exchange;
  EXPECT_EQ(Run(operation, 2).code, 0);
  EXPECT_EQ(out_, in_);
  exchange.timeout_ms = -1;
  EXPECT_EQ(Refused(&operation), "exchange of key 9: timeout_ms is -1, which is no time");
  exchange.struct_bytes = 8;
  EXPECT_EQ(Refused(&operation), "exchange of key 9: struct_bytes is 8, less than the " +
                                     std::to_string(sizeof(bs_exchange)) + " of bs_exchange");
}

TEST_F(OperationsTest, AnAsynchronousKeyIsPushedPulledAndUpdated) {
  Floats weights(4, 1.0F);
  EXPECT_EQ(Run(MakeBroadcast(BS_BROADCAST_ASYNCHRONOUS, 8, &weights, nullptr)).code, 0);
  bs_operation optimizer = bs_operation_init(BS_SET_OPTIMIZER);
  optimizer.optimizer = "sgd learning_rate=1";
  optimizer.done = bs_waiter_done;
  EXPECT_EQ(Run(optimizer).code, 0);
  bs_operation push = bs_operation_init(BS_PUSH);
  push.key = 8;
  push.in = in_.data();
  push.size_bytes = in_.size() * sizeof(float);
  push.done = bs_waiter_done;
  EXPECT_EQ(Run(push).code, 0);
  EXPECT_EQ(Run(MakeBroadcast(BS_PULL, 8, &out_, nullptr)).code, 0);
  EXPECT_EQ(out_, Floats(4, 1.0F - 3.0F));
  bs_operation update = MakePushPull(8, in_, &out_, nullptr);
  update.kind = BS_UPDATE;
  EXPECT_EQ(Run(update, 2).code, 0);
  EXPECT_EQ(out_, Floats(4, 1.0F - 6.0F));
}

}  // namespace
}  // namespace bs::test
