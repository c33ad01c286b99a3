// Copies of gradients, sums and weights between a worker and a server that RDMA connects: counted.
//
// The nodes are whole ones over simulated NICs.  The metrics count copies beside READs.  They would
// miss a copy by the worker or the server itself, so the NICs tell where READs begin and end too:
// in the caller's gradient and in the caller's sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "node/network.h"
#include "node/node.h"
#include "node/patience.h"
#include "node/worker/ps_worker.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "transport/rdma/rdma_options.h"

namespace bs::node {
namespace {

constexpr Key kKey = 1;
constexpr size_t kElements = size_t{1} << 18U;
constexpr double kTensorBytes = kElements * sizeof(float);

// Bytes copied in a round, in multiples of the tensor.
struct Copies {
  double gradient = 0;  // before the server's NIC reads it, and behind that
  double sum = 0;       // before the worker's NIC reads it, and behind that
  // Read out of the caller's gradient, and into the caller's sum.
  double from_gradient = 0;
  double into_sum = 0;
};

class RdmaCopiesTest : public ::testing::Test {
 protected:
  ~RdmaCopiesTest() override {
    EXPECT_TRUE(worker_->Close(kPatience).ok());
    EXPECT_TRUE(server_->outcome().WaitFor(kPatience));
    server_->Close("the job is over");
    EXPECT_TRUE(scheduler_->outcome().WaitFor(kPatience));
    worker_.reset();
    server_.reset();
    for (int i = 0; i < 5000 && fabric_.Counts().regions > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(fabric_.Counts().regions, 0U) << "memory that is still registered";
    EXPECT_THAT(fabric_.Violations(), ::testing::IsEmpty());
  }

  void Start() {
    scheduler_ = std::move(SchedulerNode::Start(ConfigOf("scheduler", 0)).value());
    const Config server = ConfigOf("server", scheduler_->port());
    const Config worker = ConfigOf("worker", scheduler_->port());
    server_ = std::make_unique<ServerNode>(server,
                                           MakeMembershipOptions(server, ps::Role::kServer).value(),
                                           RdmaOf("of-server"), ServerUpdater());
    worker_ = StartPsWorker(worker, MakeMembershipOptions(worker, ps::Role::kWorker).value(),
                            RdmaOf("of-worker"));
    ASSERT_TRUE(worker_->joined().WaitFor(kPatience));
    ASSERT_TRUE(worker_->joined().Get()->ok()) << worker_->joined().Get()->ToString();
  }
  // Declares the key; then both NICs know each other.
  void Declare(Mode mode = Mode::kSynchronous) {
    Outcome declared;
    worker_->worker()->Broadcast(kKey, DType::kFloat32, mode, Bytes(&out_), Into(&declared));
    Await(declared);
  }
  // Counts the copies of the second of two rounds, whose sum is right.
  Copies CountARound() {
    fabric_.WatchReads(Bytes(&in_), Bytes(&out_));
    Exchange();
    const Copies before = Count();
    Exchange();
    EXPECT_EQ(out_, in_);
    const Copies after = Count();
    return {after.gradient - before.gradient, after.sum - before.sum,
            after.from_gradient - before.from_gradient, after.into_sum - before.into_sum};
  }
  void Exchange() {
    std::iota(in_.begin(), in_.end(), static_cast<float>(++rounds_));
    Outcome pushed;
    Outcome pulled;
    worker_->worker()->PushPull(kKey, {}, Bytes(&in_), Bytes(&out_), Into(&pushed), Into(&pulled));
    Await(pushed);
    Await(pulled);
  }
  Copies Count() const {
    const Metrics worker = worker_->Measure(kPatience).value();
    const Metrics server = server_->Measure(kPatience).value();
    return {(Read(worker, "rdma_bounced_bytes_total") + Read(server, "rdma_moved_bytes_total")) /
                kTensorBytes,
            (Read(server, "rdma_bounced_bytes_total") + Read(worker, "rdma_moved_bytes_total")) /
                kTensorBytes,
            static_cast<double>(fabric_.Counts().read_from_bytes) / kTensorBytes,
            static_cast<double>(fabric_.Counts().read_into_bytes) / kTensorBytes};
  }
  static double Read(const Metrics& metrics, const std::string& name) {
    return metrics.numbers().at({name, Metrics::kWhole});
  }
  static std::span<std::byte> Bytes(std::vector<float>* values) {
    return std::as_writable_bytes(std::span(*values));
  }
  static WorkerNode::Done Into(Outcome* outcome) {
    return [outcome](Status status) { outcome->Set(std::move(status)); };
  }
  static void Await(const Outcome& outcome) {
    ASSERT_TRUE(outcome.WaitFor(kPatience));
    ASSERT_TRUE(outcome.Get()->ok()) << outcome.Get()->ToString();
  }

  ps::RdmaFork fork_ = ps::RdmaFork::kHarmless;
  uint64_t most_lent_bytes_ = UINT64_MAX;
  ps::test::SimulatedFabric fabric_;
  std::vector<float> in_ = std::vector<float>(kElements);
  std::vector<float> out_ = std::vector<float>(kElements);
  std::unique_ptr<SchedulerNode> scheduler_;
  std::unique_ptr<ServerNode> server_;
  std::unique_ptr<WorkerNode> worker_;

 private:
  static Config ConfigOf(const std::string& role, int32_t root_port) {
    return ConfigFromProcess({{"DMLC_ROLE", role},
                              {"DMLC_NUM_WORKER", "1"},
                              {"DMLC_NUM_SERVER", "1"},
                              {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                              {"DMLC_PS_ROOT_PORT", std::to_string(root_port)},
                              {"BYTESCHEDULER_SHARED_MEMORY", "0"},
                              {"BYTESCHEDULER_SERVER_THREADS", "2"},
                              {"BYTESCHEDULER_LOG_LEVEL", "off"}})
        .value();
  }
  ps::RdmaOptions RdmaOf(const std::string& name) {
    ps::RdmaOptions options;
    options.verbs = fabric_.Add(name, {.fork = fork_});
    options.device = name;
    options.path.gid_index = 1;
    options.most_lent_bytes = most_lent_bytes_;
    return options;
  }

  int rounds_ = 0;
};

TEST_F(RdmaCopiesTest, GradientsAndSumsAreReadAndWrittenWhereTheyLie) {
  Start();
  Declare();
  const Copies copies = CountARound();
  EXPECT_EQ(copies.gradient, 0);
  EXPECT_EQ(copies.sum, 0);
  EXPECT_EQ(copies.from_gradient, 1);
  EXPECT_EQ(copies.into_sum, 1) << "the worker copies it from elsewhere";
}

// This shows that the counts would tell.
TEST_F(RdmaCopiesTest, WithoutALoanEachIsCopiedOnce) {
  most_lent_bytes_ = 0;
  Start();
  Declare();
  const Copies copies = CountARound();
  EXPECT_EQ(copies.gradient, 1);
  EXPECT_EQ(copies.sum, 1);
  EXPECT_EQ(copies.from_gradient, 0);
}

TEST_F(RdmaCopiesTest, WhereAChildWouldLoseTheMemoryEachIsCopiedOnce) {
  fork_ = ps::RdmaFork::kProtected;
  Start();
  Declare();
  const Copies copies = CountARound();
  EXPECT_EQ(copies.gradient, 1);
  EXPECT_EQ(copies.sum, 1);
}

TEST_F(RdmaCopiesTest, WeightsAreReadWhereTheServerKeepsThem) {
  Start();
  Declare(Mode::kAsynchronous);
  Outcome set;
  worker_->worker()->SetOptimizer("sgd learning_rate=1", "", Into(&set));
  Await(set);
  Copies before;
  for (int i = 0; i < 3; ++i) {
    before = Count();
    Outcome pushed;
    Outcome pulled;
    worker_->worker()->Update(kKey,
                              {.rates = {.learning_rate = 1, .weight_decay = 0, .rescale_grad = 1},
                               .in = Bytes(&in_),
                               .out = Bytes(&out_),
                               .pushed = Into(&pushed),
                               .pulled = Into(&pulled)});
    Await(pushed);
    Await(pulled);
  }
  const Copies after = Count();
  EXPECT_EQ(after.gradient - before.gradient, 0);
  EXPECT_EQ(after.sum - before.sum, 0);
}

// A registration that outlived its operation would let a NIC use the old pages for what comes to
// lie at the same address.
TEST_F(RdmaCopiesTest, NothingIsRegisteredBehindAnOperation) {
  Start();
  Declare();
  Exchange();
  const double before = Read(worker_->Measure(kPatience).value(), "rdma_pinned_bytes");
  // The next round is of other memory, while this lives on.
  const std::vector<float> sent = std::exchange(in_, std::vector<float>(kElements));
  const std::vector<float> received = std::exchange(out_, std::vector<float>(kElements));
  Exchange();
  EXPECT_EQ(Read(worker_->Measure(kPatience).value(), "rdma_pinned_bytes"), before);
}

// It is registered at the first use, and the owner stays until Close.
TEST_F(RdmaCopiesTest, KeptMemoryIsRegisteredOnceForManyRounds) {
  Start();
  Declare();
  Exchange();
  const auto owner = std::make_shared<int>();
  uint64_t registrations = 0;
  Copies before;
  for (int i = 0; i < 5; ++i) {
    const std::shared_ptr<void> sent = worker_->UseMemory(
        {.key = kKey, .use = ps::Lending::kSent, .bytes = Bytes(&in_)}, [&] { return owner; });
    const std::shared_ptr<void> filled = worker_->UseMemory(
        {.key = kKey, .use = ps::Lending::kFilled, .bytes = Bytes(&out_)}, [&] { return owner; });
    EXPECT_TRUE(sent && filled);
    if (i == 0) registrations = fabric_.Counts().registrations;
    if (i == 0) before = Count();
    Exchange();
    EXPECT_EQ(out_, in_);
  }
  EXPECT_EQ(fabric_.Counts().registrations, registrations);
  EXPECT_EQ(Count().gradient - before.gradient, 0);
  EXPECT_EQ(Count().sum - before.sum, 0);
  EXPECT_EQ(owner.use_count(), 3) << "they stay registered";
  EXPECT_TRUE(worker_->Close(kPatience).ok());
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(RdmaCopiesTest, AnArrayThatTwoKeysSendIsNotCopied) {
  Start();
  Declare();
  std::vector<float> other_out(kElements);
  Outcome declared;
  worker_->worker()->Broadcast(kKey + 1, DType::kFloat32, Mode::kSynchronous, Bytes(&other_out),
                               Into(&declared));
  Await(declared);
  Exchange();
  const auto owner = std::make_shared<int>();
  std::vector<std::shared_ptr<void>> uses;
  for (const Key key : {kKey, kKey + 1}) {
    uses.push_back(worker_->UseMemory({.key = key, .use = ps::Lending::kSent, .bytes = Bytes(&in_)},
                                      [&] { return owner; }));
    EXPECT_TRUE(uses.back());
  }
  const auto exchange = [&] {
    Outcome pushed;
    Outcome pulled;
    worker_->worker()->PushPull(kKey + 1, {}, Bytes(&in_), Bytes(&other_out), Into(&pushed),
                                Into(&pulled));
    Await(pushed);
    Await(pulled);
  };
  exchange();  // the server registers its sum
  const Copies before = Count();
  uses.front().reset();  // the array of the other key stays
  const uint64_t registrations = fabric_.Counts().registrations;
  exchange();
  EXPECT_EQ(other_out, in_);
  EXPECT_EQ(Count().gradient - before.gradient, 0);
  EXPECT_EQ(fabric_.Counts().registrations, registrations + 1) << "of `other_out`";
}

// Without UseMemory each operation registers its own memory.
TEST_F(RdmaCopiesTest, MemoryThatIsNotKeptIsRegisteredForEachRound) {
  Start();
  Declare();
  Exchange();
  const uint64_t registrations = fabric_.Counts().registrations;
  for (int i = 0; i < 5; ++i) Exchange();
  EXPECT_GE(fabric_.Counts().registrations, registrations + 10);
}

TEST_F(RdmaCopiesTest, WhereAChildWouldLoseTheMemoryNoneIsKept) {
  fork_ = ps::RdmaFork::kProtected;
  Start();
  Declare();
  EXPECT_EQ(worker_->LeastKeptBytes(), UINT64_MAX);
  EXPECT_FALSE(worker_->UseMemory({.key = kKey, .use = ps::Lending::kSent, .bytes = Bytes(&in_)},
                                  [&]() -> std::shared_ptr<void> {
                                    ADD_FAILURE()
                                        << "nothing is registered that an owner could keep";
                                    return nullptr;
                                  }));
}

}  // namespace
}  // namespace bs::node
