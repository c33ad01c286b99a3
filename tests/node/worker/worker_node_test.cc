// WorkerNode over a back end that needs no server: the workers are threads of one process, which
// sum in memory that they share.  Such a back end brings its own membership, as MPI would.
#include "node/worker/worker_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/loop_thread.h"
#include "base/run_on.h"
#include "node/network.h"
#include "reduce/reduce.h"

namespace bs::node {
namespace {

using backend::Backend;
using backend::Exchange;
using protocol::Tensor;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr uint64_t kPartitionBytes = 64;

class ThreadMembership;

// What the threads of one job share.
class ThreadJob {
 public:
  explicit ThreadJob(int32_t num_workers) : num_workers_(num_workers) {}

  int32_t num_workers() const { return num_workers_; }
  // All below: any thread.

  void Join(ThreadMembership* member);
  void Arrive();  // at a barrier
  void Fail(const ThreadMembership* source, const Status& why);
  void Remove(const ThreadMembership* member);

  // Runs `found` with the layout of the key, perhaps inside this call.
  using Found = UniqueFunction<void(const Tensor&)>;
  bool Declare(const Tensor& tensor);
  void WhenDeclared(Key key, Found found);

  // A partition of a tensor in a round.
  using Place = std::tuple<Key, Round, uint32_t>;
  using Summed = UniqueFunction<void(std::vector<std::byte> sum)>;
  void Contribute(Place place, DType dtype, std::span<const std::byte> bytes);
  // Runs `summed` when every contribution is there, perhaps inside this call.
  void WhenSummed(Place place, Summed summed);

 private:
  struct Sum {
    int32_t contributions = 0;
    std::vector<std::byte> bytes{};
    std::vector<Summed> waiting{};
  };

  bool Complete(const Place& place, const Sum& sum) const {
    return sum.contributions == (std::get<1>(place) == 0 ? 1 : num_workers_);
  }

  const int32_t num_workers_;
  std::mutex mutex_;
  std::vector<ThreadMembership*> members_;
  int32_t joined_ = 0;
  int32_t arrived_ = 0;
  std::map<Key, Tensor> tensors_;
  std::map<Key, std::vector<Found>> lookups_;
  std::map<Place, Sum> sums_;
};

class ThreadMembership final : public job::Membership {
 public:
  ThreadMembership(ThreadJob* job, int32_t rank)
      : job_(job),
        given_(job::ShareView({.rank = rank}, job->num_workers(), 0)),
        thread_("worker-" + std::to_string(rank)) {}
  ~ThreadMembership() override { job_->Remove(this); }

  Executor* executor() override { return &thread_; }
  void Join(Handler handler) override {
    handler_ = std::move(handler);
    job_->Join(this);
  }
  job::SharedView view() const override { return view_; }
  void Barrier(Done done) override {
    barriers_.push_back(std::move(done));
    job_->Arrive();
  }
  void Fail(const Status& why) override {
    job_->Fail(this, why);
    EndBarriers(why);
  }
  void Leave(const Goodbye& goodbye, Done done) override {
    *left_drained = goodbye.drained;
    *left_reason = goodbye.reason;
    thread_.Post([done = std::move(done)] { done(Status::Ok()); });
  }
  Status Close() override {
    job_->Remove(this);
    RunOn(&thread_, [this] { EndBarriers(Status::Cancelled("the worker was closed")); });
    return closes_as;
  }

  // The rest is the job's.
  void OnAllThere() {
    thread_.Post([this] {
      view_ = given_;
      handler_.on_view(view_);
    });
  }
  void OnAllArrived() {
    thread_.Post([this] {
      if (barriers_.empty()) return;
      const Done done = std::move(barriers_.front());
      barriers_.pop_front();
      done(Status::Ok());
    });
  }
  void OnFailed(const Status& why) {
    thread_.Post([this, why] {
      handler_.on_failure(why);
      EndBarriers(why);
    });
  }

  // The argument of Leave; lives longer than this.
  const std::shared_ptr<std::optional<bool>> left_drained = std::make_shared<std::optional<bool>>();
  const std::shared_ptr<std::string> left_reason = std::make_shared<std::string>();
  Status closes_as;

 private:
  void EndBarriers(const Status& why) {
    for (const Done& done : std::exchange(barriers_, {})) done(why);
  }

  ThreadJob* const job_;
  const job::SharedView given_;
  // On the thread.
  Handler handler_;
  job::SharedView view_;
  std::deque<Done> barriers_;
  LoopThread thread_;  // ends first
};

void ThreadJob::Join(ThreadMembership* member) {
  const std::lock_guard lock(mutex_);
  members_.push_back(member);
  if (++joined_ < num_workers_) return;
  for (ThreadMembership* const each : members_) each->OnAllThere();
}

void ThreadJob::Arrive() {
  const std::lock_guard lock(mutex_);
  if (++arrived_ % num_workers_ > 0) return;
  for (ThreadMembership* const each : members_) each->OnAllArrived();
}

void ThreadJob::Fail(const ThreadMembership* source, const Status& why) {
  const std::lock_guard lock(mutex_);
  for (ThreadMembership* const each : members_) {
    if (each != source) each->OnFailed(why);
  }
}

void ThreadJob::Remove(const ThreadMembership* member) {
  const std::lock_guard lock(mutex_);
  std::erase(members_, member);
}

bool ThreadJob::Declare(const Tensor& tensor) {
  std::vector<Found> lookups;
  {
    const std::lock_guard lock(mutex_);
    if (!tensors_.try_emplace(tensor.key, tensor).second) return false;
    lookups = std::exchange(lookups_[tensor.key], {});
  }
  for (const Found& found : lookups) found(tensor);
  return true;
}

void ThreadJob::WhenDeclared(Key key, Found found) {
  std::optional<Tensor> tensor;
  {
    const std::lock_guard lock(mutex_);
    const auto known = tensors_.find(key);
    if (known == tensors_.end()) return lookups_[key].push_back(std::move(found));
    tensor = known->second;
  }
  found(*tensor);
}

void ThreadJob::Contribute(Place place, DType dtype, std::span<const std::byte> bytes) {
  std::vector<Summed> waiting;
  std::vector<std::byte> value;
  {
    const std::lock_guard lock(mutex_);
    Sum& sum = sums_[place];
    if (sum.contributions++ == 0) {
      sum.bytes.assign(bytes.begin(), bytes.end());
    } else {
      reduce::Sum(reduce::ScalarKernels(), dtype, sum.bytes.data(), bytes.data(),
                  bytes.size() / SizeOf(dtype));
    }
    if (!Complete(place, sum)) return;
    waiting = std::exchange(sum.waiting, {});
    value = sum.bytes;
  }
  for (const Summed& summed : waiting) summed(value);
}

void ThreadJob::WhenSummed(Place place, Summed summed) {
  std::vector<std::byte> value;
  {
    const std::lock_guard lock(mutex_);
    Sum& sum = sums_[place];
    if (!Complete(place, sum)) return sum.waiting.push_back(std::move(summed));
    value = sum.bytes;
  }
  summed(std::move(value));
}

// Sums in the memory of a ThreadJob.
class ThreadBackend final : public Backend {
 public:
  ThreadBackend(ThreadJob* job, Executor* executor) : job_(job), executor_(executor) {}
  ~ThreadBackend() override { *alive_ = false; }

  void Prepare(Done done) override { done(prepares_as); }
  Status CheckExtra(const std::string& what) const override {
    return Status::FailedPrecondition(what + ": threads have no servers");
  }
  uint32_t num_destinations() const override { return 1; }
  void Place(std::span<Partition> partitions, std::span<const Partition> /*replaced*/) override {
    for (Partition& partition : partitions) partition.server = 0;
  }
  uint32_t DestinationOf(Key /*key*/) const override { return 0; }
  void Declare(const Tensor& tensor, Done done) override {
    const bool first = job_->Declare(tensor);
    Later([done = std::move(done), first] {
      done(first ? Status::Ok() : Status::AlreadyExists("it is declared"));
    });
  }
  void Lookup(const Tensor& asked, UniqueFunction<void(Result<Tensor>)> done) override {
    const auto waiting = Open<Result<Tensor>>(
        [done = std::move(done)](Result<Tensor> tensor) { done(std::move(tensor)); });
    job_->WhenDeclared(asked.key, [waiting, dtype = asked.dtype,
                                   size = asked.size_bytes](const Tensor& found) {
      const bool same = found.dtype == dtype && found.size_bytes == size;
      waiting(same ? Result<Tensor>(found) : Status::InvalidArgument("rank 0 has another tensor"));
    });
  }
  void Start(const Tensor& tensor, Exchange exchange) override {
    const ThreadJob::Place place = {tensor.key, exchange.round, exchange.partition.index};
    if (exchange.sent) {
      if (failure_.ok()) job_->Contribute(place, tensor.dtype, exchange.in);
      Later([status = failure_, released = std::move(exchange.released),
             sent = std::move(exchange.sent)] {
        released(status);
        sent(status);
      });
    }
    if (!exchange.summed) return;
    using Sum = Result<std::vector<std::byte>>;
    const auto waiting =
        Open<Sum>([out = exchange.out, summed = std::move(exchange.summed)](const Sum& sum) {
          if (sum.ok()) std::memcpy(out.data(), sum.value().data(), out.size());
          summed(sum.status(), "");
        });
    if (failure_.ok()) job_->WhenSummed(place, [waiting](Sum sum) { waiting(std::move(sum)); });
  }
  void Release(const Tensor& /*retired*/, bool /*given_back*/, Done done) override {
    Later([done = std::move(done)] { done(Status::Ok()); });
  }
  void SetOptimizer(backend::OptimizerText /*optimizer*/, uint64_t /*number*/, Done done) override {
    Later([done = std::move(done)] { done(Status::InvalidArgument("threads have no servers")); });
  }
  std::optional<backend::PartitionAndCredit> TakeFitting() override { return std::nullopt; }
  void Fail(const Status& status) override {
    failure_ = status;
    for (const auto& open : open_) {
      Later([this, number = open.first, status] { End(number, status); });
    }
  }
  void Measure(Metrics* metrics) const override {
    metrics->Add("pending_requests", static_cast<double>(open_.size()));
  }

  Status prepares_as;

 private:
  using EndFn = UniqueFunction<void(const Status&)>;

  void Later(Task task) { executor_->Post(std::move(task)); }
  void End(uint64_t number, const Status& status) {
    const auto call = open_.extract(number);
    if (call) call.mapped()(status);
  }
  // A function for any thread that calls `done` on the executor, unless Fail came first.
  template <typename T>
  std::function<void(T)> Open(UniqueFunction<void(T)> done) {
    const auto shared = std::make_shared<UniqueFunction<void(T)>>(std::move(done));
    const uint64_t number = next_++;
    open_.emplace(number, [shared](const Status& status) { (*shared)(status); });
    if (!failure_.ok()) Later([this, number, status = failure_] { End(number, status); });
    return [this, alive = alive_, executor = executor_, number, shared](T value) {
      executor->Post([this, alive, number, shared, value = std::move(value)]() mutable {
        if (*alive && open_.erase(number) > 0) (*shared)(std::move(value));
      });
    };
  }

  ThreadJob* const job_;
  Executor* const executor_;
  Status failure_;
  uint64_t next_ = 1;
  std::map<uint64_t, EndFn> open_;
  // Read on the executor alone.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class WorkerNodeTest : public testing::Test {
 protected:
  static Config MakeConfig() {
    Config config;
    config.role = "worker";
    config.log_level = "off";
    return config;
  }
  // Adds the node of the next rank.  `prepared`: the outcome of its back end's Prepare.
  WorkerNode& Add(const Status& prepared = Status::Ok()) {
    return AddOver([this, prepared](Executor* executor) {
      auto backend = std::make_unique<ThreadBackend>(&job_, executor);
      backend->prepares_as = prepared;
      return backend;
    });
  }
  // Adds the node of the next rank over the back end that `make` returns.
  WorkerNode& AddOver(std::function<std::unique_ptr<Backend>(Executor*)> make) {
    auto membership = std::make_unique<ThreadMembership>(&job_, static_cast<int32_t>(size()));
    members_.push_back(membership.get());
    WorkerNode::Parts parts{
        .membership = nullptr,
        .make_backend = [make = std::move(make), executor = membership->executor()](
                            const job::SharedView&, const WorkerNode::ResizeFn&, const Logger&) {
          return make(executor);
        }};
    parts.worker.partition_bytes = kPartitionBytes;
    parts.membership = std::move(membership);
    nodes_.push_back(
        std::make_unique<WorkerNode>(MakeConfig(), std::move(parts), MakeLogger(MakeConfig())));
    nodes_.back()->Join();
    return *nodes_.back();
  }
  void AddAll() {
    while (static_cast<int32_t>(size()) < job_.num_workers()) Add();
    for (const auto& node : nodes_) {
      ASSERT_TRUE(node->joined().WaitFor(kPatience));
      ASSERT_TRUE(node->joined().Get()->ok()) << node->joined().Get()->ToString();
    }
  }
  size_t size() const { return nodes_.size(); }
  WorkerNode& node(size_t rank) { return *nodes_.at(rank); }
  ThreadMembership& member(size_t rank) { return *members_.at(rank); }

  // A callback of an operation of that worker, which its Close waits for.
  Worker::Done Into(size_t rank, Outcome* outcome) {
    node(rank).ExpectCallback();
    return [this, rank, outcome](Status status) {
      outcome->Set(std::move(status));
      node(rank).EndCallback();
    };
  }
  static WorkerNode::Done Into(Outcome* outcome) {
    return [outcome](Status status) { outcome->Set(std::move(status)); };
  }
  Worker& worker(size_t rank) { return *node(rank).worker(); }
  static std::string Await(const Outcome& outcome) {
    return outcome.WaitFor(kPatience) ? outcome.Get()->ToString() : "no callback";
  }
  static std::string Ok() { return Status::Ok().ToString(); }
  using Floats = std::vector<float>;
  static std::span<std::byte> Bytes(Floats* values) {
    return std::as_writable_bytes(std::span(*values));
  }
  // Broadcasts `values` by rank.
  void Broadcast(Key key, std::vector<Floats>* values) {
    std::vector<Outcome> done(size());
    for (size_t rank = 0; rank < size(); ++rank) {
      worker(rank).Broadcast(key, DType::kFloat32, Bytes(&values->at(rank)),
                             Into(rank, &done[rank]));
    }
    for (const Outcome& outcome : done) ASSERT_EQ(Await(outcome), Ok());
  }
  // Adds the nodes, and broadcasts 100 zeros under key 1.
  void AddAllAndBroadcast() {
    AddAll();
    std::vector<Floats> values(size(), Floats(100, 0));
    Broadcast(1, &values);
  }
  // A push-pull of key 1, with the memory that it uses.
  struct Sum {
    Floats in = Floats(100, 2);
    Floats out = Floats(100);
    Outcome pushed;
    Outcome pulled;
  };
  void Start(size_t rank, Sum* sum) {
    worker(rank).PushPull(1, {}, Bytes(&sum->in), Bytes(&sum->out), Into(rank, &sum->pushed),
                          Into(rank, &sum->pulled));
  }

  ThreadJob job_{3};
  std::vector<ThreadMembership*> members_;
  std::vector<std::unique_ptr<WorkerNode>> nodes_;
};

TEST_F(WorkerNodeTest, JobWithoutServersSumsExactly) {
  AddAll();
  EXPECT_EQ(node(2).view()->num_workers(), 3);
  EXPECT_EQ(node(2).view()->num_servers(), 0);
  EXPECT_EQ(node(2).rank(), 2);
  std::vector<Floats> values(3, Floats(100, 0));
  values[0] = Floats(100, 7);
  Broadcast(1, &values);
  EXPECT_EQ(values, std::vector(3, Floats(100, 7)));
  for (int round = 1; round <= 20; ++round) {
    std::vector<Sum> sums(3);
    for (size_t rank = 0; rank < 3; ++rank) {
      sums[rank].in.assign(100, static_cast<float>(round) * static_cast<float>(rank + 1));
      sums[rank].in.back() = static_cast<float>(rank);
      Start(rank, &sums[rank]);
    }
    Floats expected(100, static_cast<float>(round * 6));
    expected.back() = 3;
    for (size_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(Await(sums[rank].pushed), Ok());
      ASSERT_EQ(Await(sums[rank].pulled), Ok());
      ASSERT_EQ(sums[rank].out, expected) << "round " << round << ", worker " << rank;
    }
  }
}

TEST_F(WorkerNodeTest, AnyWorkerMayBeTheRootOfABroadcast) {
  AddAll();
  for (int call = 0; call < 3; ++call) {
    std::array<std::array<std::byte, 200>, 3> values{};
    values[2].fill(static_cast<std::byte>(call + 1));
    std::vector<Outcome> done(3);
    for (size_t rank = 0; rank < 3; ++rank) {
      worker(rank).BroadcastFrom(5, 2, values[rank], Into(rank, &done[rank]));
    }
    for (size_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(Await(done[rank]), Ok());
      ASSERT_EQ(values[rank], values[2]) << "worker " << rank;
    }
  }
}

TEST_F(WorkerNodeTest, JoinsWhenEveryWorkerIsThere) {
  Add();
  Add();
  EXPECT_FALSE(node(0).joined().WaitFor(std::chrono::milliseconds(50)));
  AddAll();
}

TEST_F(WorkerNodeTest, BarrierEndsWhenEveryWorkerHasCome) {
  AddAll();
  std::vector<Outcome> met(3);
  node(0).Barrier(Into(&met[0]));
  node(1).Barrier(Into(&met[1]));
  EXPECT_FALSE(met[0].WaitFor(std::chrono::milliseconds(50)));
  node(2).Barrier(Into(&met[2]));
  for (const Outcome& outcome : met) EXPECT_EQ(Await(outcome), Ok());
}

TEST_F(WorkerNodeTest, FailureEndsTheOperationsOfEveryWorker) {
  AddAllAndBroadcast();
  Sum sum;
  Outcome met;
  Start(1, &sum);
  node(2).Barrier(Into(&met));
  node(0).Fail("no more");
  const std::string why = Status::Unavailable("worker 0 gave up: no more").ToString();
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(Await(node(rank).failure()), why);
  EXPECT_EQ(Await(sum.pulled), why);
  EXPECT_EQ(Await(met), why);
  Outcome later;
  node(2).Barrier(Into(&later));
  EXPECT_EQ(Await(later), why);
  const std::shared_ptr<std::optional<bool>> left = member(0).left_drained;
  EXPECT_TRUE(node(0).Close(kPatience).ok());
  EXPECT_FALSE(*left) << "a failed worker says no goodbye";
}

TEST_F(WorkerNodeTest, TheGoodbyeHasTheReasonThatTheOwnerGave) {
  AddAllAndBroadcast();
  const std::shared_ptr<std::string> reason = member(0).left_reason;
  node(0).Explain("KeyError: 'x'");
  EXPECT_TRUE(node(0).Close(kPatience).ok());
  EXPECT_EQ(*reason, "KeyError: 'x'");
}

TEST_F(WorkerNodeTest, CloseWaitsForPendingOperations) {
  AddAllAndBroadcast();
  std::vector<Sum> sums(3);
  Start(0, &sums[0]);
  LoopThread others("others");
  others.PostAt(others.Now() + std::chrono::milliseconds(50), [&] {
    Start(1, &sums[1]);
    Start(2, &sums[2]);
  });
  EXPECT_TRUE(node(0).Close(kPatience).ok());
  ASSERT_TRUE(sums[0].pulled.Get());
  EXPECT_TRUE(sums[0].pulled.Get()->ok());
  EXPECT_EQ(sums[0].out, Floats(100, 6));
  for (const Sum& sum : sums) EXPECT_EQ(Await(sum.pulled), Ok());
}

TEST_F(WorkerNodeTest, CloseEndsOperationsThatTakeTooLong) {
  AddAllAndBroadcast();
  Sum sum;
  Outcome met;
  Start(0, &sum);
  node(0).Barrier(Into(&met));
  EXPECT_TRUE(node(0).Close(std::chrono::milliseconds(20)).ok());
  ASSERT_TRUE(sum.pulled.Get() && met.Get()) << "callbacks run before Close returns";
  EXPECT_EQ(sum.pulled.Get()->code(), StatusCode::kCancelled);
  EXPECT_EQ(met.Get()->code(), StatusCode::kCancelled);
}

TEST_F(WorkerNodeTest, LeavesTheJobWithTheNewsWhetherItHasDrained) {
  AddAllAndBroadcast();
  Sum sum;
  Start(1, &sum);
  for (const bool drained : {true, false}) {
    const size_t rank = drained ? 0 : 1;
    const std::shared_ptr<std::optional<bool>> left = member(rank).left_drained;
    EXPECT_TRUE(node(rank).Close(std::chrono::milliseconds(20)).ok());
    EXPECT_EQ(*left, drained);
  }
}

TEST_F(WorkerNodeTest, IsLeftBehindByAMembershipThatStillUsesMemory) {
  AddAll();
  member(0).closes_as = Status::Unavailable("an operation has not ended");
  EXPECT_EQ(node(0).Close(kPatience).message(), "an operation has not ended");
  // It may not be destroyed, which is no leak.
  static auto* const left_behind = new std::vector<std::unique_ptr<WorkerNode>>;
  left_behind->push_back(std::move(nodes_[0]));
}

TEST_F(WorkerNodeTest, MayCloseBeforeItHasJoined) {
  Add();
  EXPECT_TRUE(node(0).Close(kPatience).ok());
  EXPECT_FALSE(node(0).joined().Get());
}

TEST_F(WorkerNodeTest, BackEndThatCannotPrepareIsAnErrorOfTheJoin) {
  const Status why = Status::DeadlineExceeded("not prepared");
  Add(why);
  Add();
  Add();
  EXPECT_EQ(Await(node(0).joined()), why.ToString());
  EXPECT_EQ(Await(node(1).joined()), Ok());
}

TEST_F(WorkerNodeTest, BackEndThatCannotBeMadeFailsTheJob) {
  AddOver([](Executor*) -> std::unique_ptr<Backend> { throw std::bad_alloc(); });
  Add();
  Add();
  ASSERT_TRUE(node(0).joined().WaitFor(kPatience));
  EXPECT_EQ(node(0).joined().Get()->code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(node(1).failure().WaitFor(kPatience));
  EXPECT_EQ(node(1).failure().Get()->code(), StatusCode::kResourceExhausted);
}

TEST_F(WorkerNodeTest, HasTheExtrasOfItsBackEnd) {
  AddAll();
  EXPECT_EQ(node(0).CheckExtra("asynchronous keys").message(),
            "asynchronous keys: threads have no servers");
  EXPECT_EQ(node(0).place(), "");
  EXPECT_EQ(node(0).LeastKeptBytes(), UINT64_MAX);
  std::vector<float> memory(1000);
  EXPECT_EQ(node(0).UseMemory({.key = 1, .bytes = Bytes(&memory)}, {}), nullptr);
}

TEST_F(WorkerNodeTest, HasMetrics) {
  AddAll();
  const Result<Metrics> metrics = node(0).Measure(kPatience);
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(metrics.value().numbers().at({"failed", Metrics::kWhole}), 0);
  EXPECT_EQ(metrics.value().numbers().at({"pending_requests", Metrics::kWhole}), 0);
  EXPECT_EQ(metrics.value().numbers().at({"partition_bytes", Metrics::kWhole}), kPartitionBytes);
}

}  // namespace
}  // namespace bs::node
