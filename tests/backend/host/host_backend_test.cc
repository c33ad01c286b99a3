// Two workers of a host, whose back ends share sums; the test plays the server on another host.
#include "backend/host/host_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/snapshot.h"
#include "protocol/bodies.h"
#include "protocol/call.h"
#include "ps/text.h"
#include "sim/sim_executor.h"

namespace bs::backend {
namespace {

using std::chrono::seconds;

// An exchange of two floats, and how it ends.
struct Part {
  std::array<float, 2> in{};
  std::array<float, 2> out{};
  int released = 0;
  int sent = 0;
  std::optional<Status> summed{};
  std::string next{};
};

// Memory of larger exchanges, and how the latest of them ends.
struct Large {
  explicit Large(uint64_t size_bytes) : in(size_bytes), out(size_bytes) {}

  const std::vector<std::byte> in;
  std::vector<std::byte> out;
  std::optional<Status> summed{};
};

class HostBackendTest : public testing::Test {
 protected:
  static constexpr uint32_t kPartition = 0;
  static constexpr Duration kPatience = std::chrono::seconds(40);

  HostBackendTest() : executor_(&clock_) {
    for (int32_t rank = 0; rank < 2; ++rank) workers_.push_back(MakeWorker(rank));
    // A key whose first partition is worker 0's.
    const HostPlan plan(ViewOf(0));
    while (plan.OwnerOf(tensor_.key, kPartition) != 0) ++tensor_.key;
  }
  ~HostBackendTest() override {
    for (const auto& worker : workers_) worker->Fail(Status::Cancelled("end"));
    to_server_.clear();
    Run();
    workers_.clear();
    Run();
  }

  static protocol::Tensor Eight() {
    protocol::Tensor tensor;
    tensor.key = 7;
    tensor.size_bytes = 8;
    tensor.partition_bytes = 64;
    return tensor;
  }
  static job::View ViewOf(int32_t rank) {
    job::View view = job::MakeView({.rank = rank}, 3, 1);
    view.workers[0].host = view.workers[1].host = 0;
    view.workers[2].host = view.servers[0].host = 1;
    view.hosts.resize(2);
    return view;
  }
  // Anew.
  void MakeWorkers(Duration reason_patience) {
    for (const auto& worker : workers_) worker->Fail(Status::Cancelled("made again"));
    Run();
    workers_.clear();
    for (int32_t rank = 0; rank < 2; ++rank) workers_.push_back(MakeWorker(rank, reason_patience));
  }
  std::unique_ptr<HostBackend> MakeWorker(int32_t rank, Duration reason_patience = {}) {
    const auto send = [this, rank](ps::Message message) { Carry(rank, std::move(message)); };
    const Logger log("", LogLevel::kOff);
    PsBackendOptions options;
    options.view = std::make_shared<const job::View>(ViewOf(rank));
    HostBackendOptions host;
    host.view = options.view;
    host.reason_patience = reason_patience;
    host.available_bytes = [this] { return available_bytes_; };
    host.credit_bytes = credit_bytes_;
    host.carriers = [](int32_t peer) {
      EXPECT_EQ(peer, ps::WorkerId(0));
      return Carriers{.to = Carrier::kSharedMemory, .from = Carrier::kTcp};
    };
    options.carriers = [](int32_t peer) {
      EXPECT_EQ(peer, ps::ServerId(0));
      return Carriers{.to = Carrier::kRdma, .from = Carrier::kRdma};
    };
    host.requests.straggler_timeout = kPatience;
    return std::make_unique<HostBackend>(
        host, std::make_unique<PsBackend>(options, &executor_, send, log), &executor_, send, log);
  }
  void Carry(int32_t rank, ps::Message message) {
    if (message.peer == ps::ServerId(0)) {
      message.peer = ps::WorkerId(rank);
      const test::Asked about = test::About(message);
      if (about.op == ps::Op::kPush) pushed_.emplace_back(about.key, message.meta.priority);
      to_server_.push_back(std::move(message));
      return;
    }
    if (rank == silent_worker_ || ps::RankOf(message.peer) == silent_worker_) return;
    const auto to = static_cast<size_t>(ps::RankOf(message.peer));
    message.peer = ps::WorkerId(rank);
    ++beside_;
    if (message.meta.request) last_request_ = message.meta;
    workers_[to]->OnMessage(std::move(message));
  }
  // Outlives the workers.
  Part& Make(const std::array<float, 2>& in) {
    parts_.push_back({.in = in});
    return parts_.back();
  }
  void Run(Duration duration = {}) { clock_.RunUntil(clock_.Now() + duration); }
  // Worker 1 leaves, and its goodbye must not wait.
  void Leave(const std::string& reason) {
    bool left = false;
    workers_[1]->Fail(Status::Cancelled("closed"));
    workers_[1]->Leave(reason, [&](const Status&) { left = true; });
    Run();
    EXPECT_TRUE(left);
  }
  // The key's first partition becomes that of the other worker.
  void SwapOwner() {
    const HostPlan plan(ViewOf(0));
    const int32_t owner = plan.OwnerOf(tensor_.key, kPartition);
    while (plan.OwnerOf(tensor_.key, kPartition) == owner) ++tensor_.key;
  }

  void Start(int32_t rank, Part* part, Round round = 1, const std::string& next = {},
             Priority priority = 0) {
    Exchange exchange;
    exchange.round = round;
    exchange.coder.coding = coding_;
    if (!coding_.plain()) exchange.coder.codec = &codec::Builtin().Get(coding_);
    exchange.coder.ratio = ratio_;
    exchange.partition = {.index = kPartition, .server = 0, .offset_bytes = 0, .size_bytes = 8};
    exchange.next_layout = next;
    exchange.priority = priority;
    exchange.in = std::as_bytes(std::span(part->in));
    exchange.out = std::as_writable_bytes(std::span(part->out));
    exchange.released = [part](const Status&) { ++part->released; };
    exchange.sent = [part](const Status&) { ++part->sent; };
    exchange.summed = [part](const Status& status, const std::string& said) {
      part->summed = status;
      part->next = said;
    };
    workers_[static_cast<size_t>(rank)]->Start(tensor_, std::move(exchange));
    Run();
  }
  // The same with the first `size_bytes` of other memory, which callbacks hold too.
  void Start(int32_t rank, const std::shared_ptr<Large>& large, Round round, uint64_t size_bytes) {
    protocol::Tensor tensor = tensor_;
    tensor.size_bytes = tensor.partition_bytes = size_bytes;
    Exchange exchange;
    exchange.round = round;
    exchange.coder.coding = coding_;
    if (!coding_.plain()) exchange.coder.codec = &codec::Builtin().Get(coding_);
    exchange.partition = {.index = kPartition, .server = 0, .size_bytes = size_bytes};
    exchange.in = std::span(large->in).first(size_bytes);
    exchange.out = std::span(large->out).first(size_bytes);
    exchange.released = [](const Status&) {};
    exchange.sent = [](const Status&) {};
    exchange.summed = [large](const Status& status, const std::string&) { large->summed = status; };
    large->summed.reset();
    workers_[static_cast<size_t>(rank)]->Start(tensor, std::move(exchange));
    Run();
  }
  // Answers what the server was asked.
  void AnswerAll(const std::array<float, 2>& sum, const Status& why = Status::Ok(),
                 const std::string& next = {}) {
    while (!to_server_.empty()) {
      const bool push = test::About(to_server_.front()).op == ps::Op::kPush;
      const int32_t rank = ps::RankOf(to_server_.front().peer);
      Result<protocol::Call> call =
          protocol::ParseCall(std::move(to_server_.front()), codec::Builtin());
      to_server_.pop_front();
      ps::Message answer = protocol::MakeErrorResponse(call.value(), why);
      if (push) {
        answer = protocol::MakeResponse(call.value(), {});
      } else if (why.ok()) {
        answer = protocol::MakeResponse(call.value(), protocol::DataResponse{.next_layout = next},
                                        ps::Frame::Copy(std::as_bytes(std::span(sum))));
      }
      answer.peer = ps::ServerId(0);
      workers_[static_cast<size_t>(rank)]->OnMessage(std::move(answer));
      Run();
    }
  }

  uint64_t available_bytes_ = uint64_t{1} << 30U;
  uint64_t credit_bytes_ = 8;  // of copies, when workers are made: a single copy of a Part
  std::deque<Part> parts_;
  sim::SimClock clock_{1};
  sim::SimExecutor executor_;
  protocol::Tensor tensor_ = Eight();
  Coding coding_{};  // of what starts
  float ratio_ = 1;  // the same
  std::vector<std::unique_ptr<HostBackend>> workers_;
  std::deque<ps::Message> to_server_;
  std::vector<std::pair<Key, Priority>> pushed_;  // to the server
  int beside_ = 0;                                // messages between the two
  int silent_worker_ = -1;                        // sends and receives nothing
  ps::Meta last_request_{};
};

TEST_F(HostBackendTest, OneCopyCrossesTheLinkAndBothGetTheSum) {
  Part& own = Make({1, 2});
  Part& other = Make({10, 20});
  Start(1, &other);
  EXPECT_EQ(other.released, 1) << "its credit waits for no other worker";
  EXPECT_TRUE(to_server_.empty()) << "worker 0 is missing";
  Start(0, &own);
  EXPECT_EQ(own.released, 1);
  EXPECT_EQ(own.sent, 1);
  ASSERT_EQ(to_server_.size(), 2U) << "a push and a pull";
  const test::Asked push = test::About(to_server_.front());
  EXPECT_EQ(push.op, ps::Op::kPush);
  EXPECT_EQ(push.stands_for, 2U);
  std::array<float, 2> pushed{};
  std::memcpy(pushed.data(), to_server_.front().data.at(0).bytes().data(), sizeof(pushed));
  EXPECT_EQ(pushed, (std::array<float, 2>{11, 22}));
  AnswerAll({111, 222});
  for (const Part* const part : {&own, &other}) {
    ASSERT_TRUE(part->summed && part->summed->ok());
    EXPECT_EQ(part->out, (std::array<float, 2>{111, 222}));
    EXPECT_EQ(part->sent, 1);
  }
  EXPECT_EQ(beside_, 2) << "a request and its answer";
}

TEST_F(HostBackendTest, FirstValuesAndAsynchronousKeysGoAsBefore) {
  Part& first = Make({});
  Start(1, &first, 0);
  tensor_.mode = Mode::kAsynchronous;
  Part& update = Make({});
  Start(1, &update, 1);
  EXPECT_EQ(to_server_.size(), 4U);
  EXPECT_EQ(test::About(to_server_.front()).stands_for, 0U);
  EXPECT_EQ(beside_, 0);
}

TEST_F(HostBackendTest, TheCarrierOfAContributionIsThatOfItsWayToTheOwner) {
  constexpr Carriers kToServer{.to = Carrier::kRdma, .from = Carrier::kRdma};
  const auto carriers_of = [&](size_t rank, const Coding& coding) {
    return workers_[rank]->CarriersOf(tensor_, coding, {.index = kPartition});
  };
  EXPECT_EQ(carriers_of(0, {}), kToServer) << "it is the owner";
  EXPECT_EQ(carriers_of(1, {}), (Carriers{.to = Carrier::kSharedMemory, .from = Carrier::kTcp}));
  EXPECT_EQ(carriers_of(1, {.codec = 1}), kToServer) << "in two bits";
  EXPECT_EQ(carriers_of(1, {.codec = 3}).to, Carrier::kSharedMemory);
}

TEST_F(HostBackendTest, NextLayoutOfRankZeroComesToAll) {
  Part& own = Make({});
  Part& other = Make({});
  Start(1, &other);
  Start(0, &own, 1, "next");
  EXPECT_EQ(test::About(to_server_.front()).next_layout, "next");
  AnswerAll({}, Status::Ok(), "next");
  EXPECT_EQ(own.next, "next");
  EXPECT_EQ(other.next, "next");
}

TEST_F(HostBackendTest, RefusalOfTheServerComesToAllInItsWords) {
  Part& own = Make({});
  Part& other = Make({});
  Start(0, &own);
  Start(1, &other);
  AnswerAll({}, Status::Unavailable("worker 2 gave up: out of luck"));
  for (const Part* const part : {&own, &other}) {
    ASSERT_TRUE(part->summed);
    EXPECT_EQ(part->summed->ToString(),
              Status::Unavailable("worker 2 gave up: out of luck").ToString());
  }
}

TEST_F(HostBackendTest, LateCopyOfAnAnsweredRequestIsDropped) {
  for (const Round round : {1U, 2U}) {
    Part& own = Make({1, 1});
    Part& other = Make({2, 2});
    Start(1, &other, round);
    const ps::Meta request = last_request_;
    Start(0, &own, round);
    AnswerAll({3, 3});
    if (round == 1) continue;
    // That of round 1 is known to be answered; that of round 2 may not have been heard.
    beside_ = 0;
    ps::Message again;
    again.peer = ps::WorkerId(1);
    again.meta = request;
    again.data.push_back(ps::Frame::Copy(std::as_bytes(std::span(other.in))));
    workers_[0]->OnMessage(std::move(again));
    Run();
    EXPECT_EQ(beside_, 1) << "the same answer once more";
    ps::Message early;
    early.peer = ps::WorkerId(1);
    early.meta = request;
    early.meta.extension.sequence = 1;
    early.data.push_back(ps::Frame::Copy(std::as_bytes(std::span(other.in))));
    workers_[0]->OnMessage(std::move(early));
    Run();
    EXPECT_EQ(beside_, 1);
    EXPECT_TRUE(to_server_.empty());
  }
}

TEST_F(HostBackendTest, AnotherSizeOnAnotherWorkerIsAnError) {
  Part& own = Make({});
  Part& other = Make({});
  Start(0, &own);
  tensor_.dtype = DType::kFloat64;
  Start(1, &other);
  ASSERT_TRUE(other.summed);
  EXPECT_SNAPSHOT(
      other.summed->message(),
      R"(key=8 round=1 partition=0: worker 1 has float64 of 8 bytes at byte 0, another worker of this host float32 of 8 bytes at byte 0)");
}

// A key that is coded from the next round on is added up once more.
TEST_F(HostBackendTest, CodingOfLaterRoundsGoesWithTheCopy) {
  coding_ = {.codec = 3, .sums = SumsTravel::kSame, .later = true};
  Part& own = Make({1, 2});
  Part& other = Make({10, 20});
  Start(1, &other);
  Start(0, &own);
  ASSERT_EQ(to_server_.size(), 2U);
  const test::Asked push = test::About(to_server_.front());
  EXPECT_EQ(push.stands_for, 2U);
  EXPECT_EQ(push.coding, coding_);
  AnswerAll({11, 22});
  EXPECT_TRUE(own.summed->ok() && other.summed->ok());
}

TEST_F(HostBackendTest, AnotherCodingOnAnotherWorkerIsAnErrorOnBoth) {
  for (const bool owner_first : {true, false}) {
    Part& own = Make({1, 2});
    Part& other = Make({1, 2});
    const Round round = owner_first ? 1 : 2;
    coding_ = {};
    owner_first ? Start(0, &own, round) : Start(1, &other, round);
    coding_ = {.codec = 3, .sums = SumsTravel::kSame};
    owner_first ? Start(1, &other, round) : Start(0, &own, round);
    ASSERT_TRUE(own.summed && other.summed);
    EXPECT_EQ(own.summed->message(), other.summed->message());
    if (!owner_first) continue;
    EXPECT_SNAPSHOT(
        other.summed->message(),
        R"(key=8 round=1: worker 1 is compressed to bf16, worker 0 of the same host is not compressed; set gradient compression alike on all workers)");
  }
  EXPECT_TRUE(to_server_.empty());
}

TEST_F(HostBackendTest, CodesOfTheSumOfTheHostCrossTheLink) {
  coding_ = {.codec = 3, .sums = SumsTravel::kPlain};
  Part& own = Make({1, 2});
  Part& other = Make({10, 20});
  Start(1, &other);
  Start(0, &own);
  ASSERT_EQ(to_server_.size(), 2U);
  const test::Asked push = test::About(to_server_.front());
  EXPECT_EQ(push.stands_for, 2U);
  EXPECT_EQ(push.coding, coding_);
  constexpr std::array<uint16_t, 2> kElevenAndTwentyTwo = {0x4130, 0x41b0};
  EXPECT_TRUE(std::ranges::equal(to_server_.front().data.at(0).bytes(),
                                 std::as_bytes(std::span(kElevenAndTwentyTwo))));
  AnswerAll({111, 222});
  for (const Part* const part : {&own, &other}) {
    ASSERT_TRUE(part->summed && part->summed->ok());
    EXPECT_EQ(part->out, (std::array<float, 2>{111, 222}));
  }
}

// Whichever worker adds up: else the numbers of a job would depend on its partitions.
TEST_F(HostBackendTest, ACodeIsMadeAtThePlaceAndWithTheRatioOfTheLowestRank) {
  const std::string_view name = "dithering";
  const codec::Option options[] = {
      {"k", "1000"}, {"seed", "3"}, {"pull", "plain"}, {"ef", "vanilla"}};
  coding_ = codec::Builtin().Parse(&name, options).value();
  SwapOwner();  // it is worker 1's
  for (const float ratio : {0.5F, 2.0F}) {
    Part& own = Make({0.3F, 2});
    Part& other = Make({0.4F, 20});
    const Round round = ratio > 1 ? 2 : 1;
    ratio_ = ratio;
    Start(0, &own, round);
    ratio_ = 0.25F;
    Start(1, &other, round);
    ASSERT_EQ(to_server_.size(), 2U);
    EXPECT_EQ(test::About(to_server_.front()).ratio, ratio);
    const std::array<float, 2> sum = {0.3F + 0.4F, 22};
    const codec::Codec& codec = codec::Builtin().Get(coding_);
    std::vector<std::byte> codes(codec.encoded_bytes(coding_.parameters, 2));
    const codec::Place place{.key = tensor_.key, .round = round, .rank = 0, .num_workers = 2};
    codec.encode(coding_.parameters, place, sum.data(), nullptr, codes.data(), 2);
    EXPECT_TRUE(std::ranges::equal(to_server_.front().data.at(0).bytes(), codes));
    AnswerAll({});
  }
}

// Faults of a neighbour.
TEST_F(HostBackendTest, ACodingThatMakesNoSenseIsRefused) {
  coding_ = {.codec = 3, .sums = SumsTravel::kPlain};
  ratio_ = -1;
  Part& other = Make({1, 2});
  Start(1, &other);
  ASSERT_TRUE(other.summed);
  EXPECT_SNAPSHOT(
      other.summed->message(),
      R"(push-pull key=8 round=1 partition=0 from worker 1: it is compressed to bf16, pull plain, and its factor of the residual is -1.000000: want a number from 0 to 2^40)");
}

// A faulty or hostile neighbour pushes rounds that this worker has not come to.
TEST_F(HostBackendTest, RoundsAheadOfThisWorkerAreRefusedWhereMemoryEnds) {
  available_bytes_ = 100;  // while the kernel counts what rounds take
  const size_t first = parts_.size();
  Round round = 0;
  while (round < 3000 && (round == 0 || !parts_.back().summed)) Start(1, &Make({1, 1}), ++round);
  EXPECT_LT(round, 1100U) << "a round takes a KiB, and the system is asked for each MiB";
  ASSERT_TRUE(parts_.back().summed);
  EXPECT_EQ(parts_.back().summed->code(), StatusCode::kResourceExhausted);
  EXPECT_SNAPSHOT(
      parts_.back().summed->message(),
      R"(push-pull key=8 round=1017 partition=0 from worker 1: its 1032 bytes do not fit into memory, of which 100 are left here: use fewer workers on this host, or a larger one)");
  const Round most = round - 1;
  for (Round next = 1; next <= most; ++next) Start(0, &Make({1, 1}), next);
  AnswerAll({3, 3});
  while (!to_server_.empty()) AnswerAll({3, 3});
  for (Round done = 0; done < most; ++done) {
    ASSERT_TRUE(parts_[first + done].summed && parts_[first + done].summed->ok()) << done;
  }
  for (Round next = 0; next < most - 1; ++next) Start(1, &Make({1, 1}), round + next);
  EXPECT_FALSE(parts_.back().summed) << "memory of rounds that are over serves again";
}

// What no spare serves has gone back to the system, which other programs may have filled.
TEST_F(HostBackendTest, MemoryOfRoundsThatAreOverIsAskedForAgainUnlessASpareServes) {
  constexpr uint64_t kBytes = uint64_t{4} << 20U;
  const auto large = std::make_shared<Large>(kBytes);
  Start(1, large, 1, kBytes);
  Start(0, large, 1, kBytes);
  AnswerAll({}, Status::Internal("the server refuses"));
  ASSERT_TRUE(large->summed);
  available_bytes_ = 100;
  Start(1, large, 2, kBytes);
  EXPECT_FALSE(large->summed) << large->summed->message();
  Start(1, large, 3, kBytes / 2);
  ASSERT_TRUE(large->summed);
  EXPECT_EQ(large->summed->code(), StatusCode::kResourceExhausted);
}

TEST_F(HostBackendTest, MostUrgentCopyCrossesTheLinkFirst) {
  const HostPlan plan(ViewOf(0));
  std::vector<Key> keys;
  for (Key key = 7; keys.size() < 3; ++key) {
    if (plan.OwnerOf(key, kPartition) == 0) keys.push_back(key);
  }
  const std::array<Priority, 3> priorities = {-9, -5, -1};
  for (size_t i = 0; i < keys.size(); ++i) {
    tensor_.key = keys[i];
    Start(1, &Make({}), 1, {}, priorities[i]);
    Start(0, &Make({}), 1, {}, priorities[i] - 1);
  }
  ASSERT_EQ(pushed_.size(), 1U) << "the credit is that of one copy";
  AnswerAll({});
  const std::vector<std::pair<Key, Priority>> in_order = {
      {keys[0], -9}, {keys[2], -1}, {keys[1], -5}};
  EXPECT_EQ(pushed_, in_order) << "a copy is as urgent as its most urgent contribution";
}

TEST_F(HostBackendTest, CodedCopiesCountAnEighthOfTheirGradientsAgainstTheCredit) {
  constexpr uint64_t kBytes = 4096;  // of which codes have 132
  credit_bytes_ = 2 * kBytes / 8;
  MakeWorkers(Duration(0));
  const std::string_view name = "onebit";
  coding_ = codec::Builtin().Parse(&name, {}).value();
  const HostPlan plan(ViewOf(0));
  const auto large = std::make_shared<Large>(kBytes);
  size_t copies = 0;
  for (tensor_.key = 7; copies < 4; ++tensor_.key) {
    if (plan.OwnerOf(tensor_.key, kPartition) != 0) continue;
    Start(1, large, 1, kBytes);
    Start(0, large, 1, kBytes);
    ++copies;
  }
  EXPECT_EQ(pushed_.size(), 2U) << "more codes are not made before an urgent tensor";
  AnswerAll({}, Status::Internal("no sums here"));
  EXPECT_EQ(pushed_.size(), 4U) << "the credit comes back";
}

TEST_F(HostBackendTest, StragglerOfTheHostIsNamed) {
  Part& own = Make({});
  Start(0, &own);
  clock_.RunUntil(clock_.Now() + kPatience / 2);
  EXPECT_FALSE(own.summed);
  clock_.RunUntil(clock_.Now() + kPatience);
  ASSERT_TRUE(own.summed);
  EXPECT_SNAPSHOT(
      own.summed->message(),
      R"(push-pull key=8 round=1: after 40 s still waiting for worker 1 to push key 8 (round 1))");
}

TEST_F(HostBackendTest, RoundThatMissesAWorkerThatLeftFailsWithItsReason) {
  Part& own = Make({});
  Start(0, &own);
  bool left = false;
  workers_[1]->Fail(Status::Cancelled("closed"));
  workers_[1]->Leave("out of luck", [&](const Status&) { left = true; });
  Run();
  EXPECT_TRUE(left);
  ASSERT_TRUE(own.summed);
  EXPECT_SNAPSHOT(own.summed->message(), R"(worker 1 gave up: out of luck)");
  Part& later = Make({});
  Start(0, &later, 2);
  ASSERT_TRUE(later.summed);
  EXPECT_SNAPSHOT(later.summed->message(), R"(worker 1 gave up: out of luck)");
}

TEST_F(HostBackendTest, RoundsThatMissAWorkerWaitForItsReason) {
  MakeWorkers(seconds(5));
  Part& before = Make({});
  Start(0, &before);
  SwapOwner();
  Part& sent = Make({});
  Start(0, &sent);
  Leave("");
  Part& later = Make({});
  Start(0, &later, 2);
  SwapOwner();
  Part& own = Make({});
  Start(0, &own, 2);
  const std::array parts{&before, &sent, &later, &own};
  Run(seconds(4));
  for (const Part* const part : parts) {
    EXPECT_FALSE(part->summed);
    EXPECT_EQ(part->released, 1) << "its credit waits for no other worker";
  }
  Run(seconds(2));
  for (const Part* const part : parts) {
    ASSERT_TRUE(part->summed);
    EXPECT_SNAPSHOT(part->summed->message(), R"(worker 1 left the job)");
    EXPECT_EQ(part->sent, 1);
    EXPECT_EQ(part->released, 1);
  }
}

TEST_F(HostBackendTest, TheLaunchersWordOnAWorkerThatLeftEndsTheRoundsThatMissIt) {
  MakeWorkers(seconds(5));
  Part& own = Make({});
  Start(0, &own);
  SwapOwner();
  Part& sent = Make({});
  Start(0, &sent);
  Leave("");
  Part& later = Make({});
  Start(0, &later, 2);
  Run(seconds(1));
  workers_[0]->Fail(Status::Unavailable("worker 1 gave up: exit code 7"));
  Run();
  Part& last = Make({});
  Start(0, &last, 3);
  for (const Part* const part : {&own, &sent, &later, &last}) {
    ASSERT_TRUE(part->summed);
    EXPECT_SNAPSHOT(part->summed->message(), R"(worker 1 gave up: exit code 7)");
  }
  Run(seconds(10));
  for (const Part* const part : {&own, &sent, &later, &last}) EXPECT_EQ(part->sent, 1);
}

TEST_F(HostBackendTest, ReasonThatComesWithTheGoodbyeIsNotWaitedFor) {
  MakeWorkers(seconds(5));
  Part& own = Make({});
  Start(0, &own);
  Leave("out of luck");
  ASSERT_TRUE(own.summed);
  EXPECT_SNAPSHOT(own.summed->message(), R"(worker 1 gave up: out of luck)");
}

// Its process ended without a goodbye to this worker; the membership says that it left.
TEST_F(HostBackendTest, RoundsThatMissAWorkerThatVanishedFail) {
  MakeWorkers(seconds(5));
  silent_worker_ = 1;
  Part& own = Make({});
  Start(0, &own);
  SwapOwner();
  Part& sent = Make({});
  Start(0, &sent);
  Run(seconds(6));
  EXPECT_FALSE(own.summed || sent.summed);
  workers_[0]->OnWorkerLeft(2, Status::Unavailable("a worker of another host"));
  workers_[0]->OnWorkerLeft(0, Status::Unavailable("this worker"));
  Run();
  EXPECT_FALSE(own.summed || sent.summed);
  workers_[0]->OnWorkerLeft(1, ps::LeftStatus(ps::WorkerId(1), ""));
  Run();
  Part& later = Make({});
  Start(0, &later, 2);
  for (const Part* const part : {&own, &sent, &later}) {
    ASSERT_TRUE(part->summed);
    EXPECT_SNAPSHOT(part->summed->message(), R"(worker 1 left the job)");
    EXPECT_EQ(part->sent, 1);
    EXPECT_EQ(part->released, 1);
  }
  bool left = false;
  workers_[0]->Leave("", [&](const Status&) { left = true; });
  Run();
  EXPECT_TRUE(left) << "a worker that vanished need not hear of it";
}

TEST_F(HostBackendTest, GoodbyeToAWorkerThatVanishedEnds) {
  silent_worker_ = 1;
  bool left = false;
  workers_[0]->Leave("", [&](const Status&) { left = true; });
  Run();
  EXPECT_FALSE(left);
  workers_[0]->OnWorkerLeft(1, ps::LeftStatus(ps::WorkerId(1), ""));
  Run();
  EXPECT_TRUE(left);
}

TEST_F(HostBackendTest, WorkerThatLeavesServesItsHostFirst) {
  Part& own = Make({});
  Part& other = Make({});
  Start(1, &other);
  Start(0, &own);
  bool left = false;
  workers_[0]->Leave("", [&](const Status&) { left = true; });
  Run();
  EXPECT_FALSE(left) << "worker 1 waits for its sum";
  AnswerAll({5, 6});
  EXPECT_TRUE(left);
  for (const Part* const part : {&own, &other}) {
    ASSERT_TRUE(part->summed && part->summed->ok());
    EXPECT_EQ(part->out, (std::array<float, 2>{5, 6}));
  }
}

TEST_F(HostBackendTest, WorkerThatWaitsForNothingLeavesAtOnce) {
  Part& own = Make({});
  Part& other = Make({});
  Start(1, &other);
  Start(0, &own);
  bool left = false;
  workers_[1]->Leave("", [&](const Status&) { left = true; });
  Run();
  EXPECT_TRUE(left) << "worker 0 waits for nothing of it";
  left = false;
  workers_[0]->Leave("", [&](const Status&) { left = true; });
  Run();
  EXPECT_TRUE(left) << "worker 1 has left";
  AnswerAll({5, 6});
  EXPECT_EQ(own.out, (std::array<float, 2>{5, 6}));
}

}  // namespace
}  // namespace bs::backend
