// A whole job of real nodes in this process, whose dense sums a library makes.
#include "node/worker/collective_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/fake_collective.h"
#include "backend/collective/introduction.h"
#include "node/network.h"
#include "node/node.h"
#include "node/patience.h"
#include "node/worker/ps_worker.h"
#include "transport/rdma/rdma_options.h"

namespace bs::node {
namespace {

using backend::collective::FakeWorld;

// A library whose ranks introduce themselves before they sum.
class Introducing final : public backend::collective::Collective {
 public:
  Introducing(LibraryPlace place, std::unique_ptr<Collective> library,
              backend::collective::Cards* cards)
      : place_(std::move(place)), library_(std::move(library)), cards_(cards) {}

  void Prepare(Done done) override {
    const int32_t rank = place_.view->own.rank;
    backend::collective::Introduce(
        place_.servers, rank, place_.view->num_workers(), "rank " + std::to_string(rank),
        [this, done = std::move(done)](const Result<backend::collective::Cards>& cards) {
          if (cards.ok()) *cards_ = cards.value();
          done(cards.status());
        });
  }
  void Begin(std::vector<backend::collective::Piece> pieces, DType dtype, uint64_t sequence,
             Done done) override {
    library_->Begin(std::move(pieces), dtype, sequence, std::move(done));
  }
  void TellBegun(UniqueFunction<void(uint64_t num_begun)> told) override {
    library_->TellBegun(std::move(told));
  }
  void Abort(const Status& status) override { library_->Abort(status); }

 private:
  const LibraryPlace place_;
  const std::unique_ptr<Collective> library_;
  backend::collective::Cards* const cards_;
};

class CollectiveJob {
 public:
  using Settings = std::map<std::string, std::string>;

  // `no_library`: why rank 1 has none.  `settings`: those of a role.
  explicit CollectiveJob(int32_t num_workers, Status no_library = {},
                         std::map<std::string, Settings> settings = {})
      : num_workers_(num_workers),
        settings_(std::move(settings)),
        library_({.num_ranks = num_workers}),
        cards_(static_cast<size_t>(num_workers)) {
    scheduler_ = std::move(SchedulerNode::Start(Configure("scheduler", 0)).value());
    const int32_t port = scheduler_->port();
    for (int32_t i = 0; i < num_workers; ++i) {
      servers_.push_back(std::move(ServerNode::Start(Configure("server", port)).value()));
    }
    for (int32_t i = 0; i < num_workers; ++i) {
      const Config config = Configure("worker", port);
      workers_.push_back(StartPsWorker(
          config, MakeMembershipOptions(config, ps::Role::kWorker).value(), {},
          [this, no_library](const LibraryPlace& place)
              -> Result<std::unique_ptr<backend::collective::Collective>> {
            if (!no_library.ok() && place.view->own.rank == 1) return no_library;
            const int32_t rank = place.view->own.rank;
            std::unique_ptr<backend::collective::Collective> made = std::make_unique<Introducing>(
                place, library_.Join(rank, place.executor), &cards_[static_cast<size_t>(rank)]);
            return made;
          }));
    }
    for (const auto& worker : workers_) EXPECT_TRUE(worker->joined().WaitFor(kPatience));
  }
  CollectiveJob(const CollectiveJob&) = delete;
  CollectiveJob& operator=(const CollectiveJob&) = delete;
  ~CollectiveJob() {
    for (const auto& worker : workers_) EXPECT_TRUE(worker->Close({}).ok());
    for (const auto& server : servers_) server->Close("the test ended");
  }

  FakeWorld* library() { return &library_; }
  const backend::collective::Cards& cards(size_t rank) const { return cards_[rank]; }
  WorkerNode* worker(size_t index) { return workers_[index].get(); }
  size_t size() const { return workers_.size(); }
  size_t IndexOf(int32_t rank) const {
    size_t index = 0;
    while (workers_[index]->rank() != rank) ++index;
    return index;
  }

 private:
  Config Configure(const std::string& role, int32_t port) const {
    const std::string count = std::to_string(num_workers_);
    Settings settings{{"DMLC_ROLE", role},
                      {"DMLC_NUM_WORKER", count},
                      {"DMLC_NUM_SERVER", count},
                      {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                      {"DMLC_PS_ROOT_PORT", std::to_string(port)},
                      {"BYTESCHEDULER_SERVER_THREADS", "1"},
                      {"BYTESCHEDULER_LOG_LEVEL", "off"}};
    if (const auto own = settings_.find(role); own != settings_.end()) {
      settings.insert(own->second.begin(), own->second.end());
    }
    return ConfigFromProcess(settings).value();
  }

  const int32_t num_workers_;
  const std::map<std::string, Settings> settings_;
  FakeWorld library_;
  std::vector<backend::collective::Cards> cards_;  // that each rank got
  std::unique_ptr<SchedulerNode> scheduler_;
  std::vector<std::unique_ptr<ServerNode>> servers_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
};

// One worker's array of a key.
template <typename T>
struct Array {
  explicit Array(size_t count) : in(count), out(count) {}

  void Declare(WorkerNode* node, Key key, DType dtype) {
    node->worker()->Broadcast(key, dtype, std::as_writable_bytes(std::span(out)),
                              [this](Status status) { declared.Set(std::move(status)); });
  }
  void Sum(WorkerNode* node, Key key) {
    node->worker()->PushPull(
        key, {.priority = -static_cast<Priority>(key)}, std::as_bytes(std::span(in)),
        std::as_writable_bytes(std::span(out)), [this](const Status&) { pushed.Set({}); },
        [this](Status status) { summed.Set(std::move(status)); });
  }

  std::vector<T> in;
  std::vector<T> out;
  Outcome declared, pushed, summed;
};

// Declares keys on all workers and sums them; `in` is the rank + 1.
template <typename T>
std::vector<std::unique_ptr<Array<T>>> SumAll(CollectiveJob* job, DType dtype, Key first,
                                              size_t num_keys, size_t count) {
  std::vector<std::unique_ptr<Array<T>>> tensors;
  const auto each = [&](const auto& act) {
    size_t index = 0;
    for (size_t worker = 0; worker < job->size(); ++worker) {
      for (Key key = first; key < first + num_keys; ++key) {
        act(tensors[index++].get(), job->worker(worker), key);
      }
    }
  };
  for (size_t i = 0; i < job->size() * num_keys; ++i) {
    tensors.push_back(std::make_unique<Array<T>>(count));
  }
  each([&](auto* tensor, WorkerNode* node, Key key) { tensor->Declare(node, key, dtype); });
  for (const auto& tensor : tensors) {
    EXPECT_TRUE(tensor->declared.WaitFor(kPatience));
    EXPECT_TRUE(tensor->declared.Get()->ok()) << tensor->declared.Get()->ToString();
  }
  each([&](auto* tensor, WorkerNode* node, Key key) {
    tensor->in.assign(count, static_cast<T>(node->rank() + 1));
    tensor->Sum(node, key);
  });
  for (const auto& tensor : tensors) {
    EXPECT_TRUE(tensor->summed.WaitFor(kPatience));
    EXPECT_TRUE(tensor->pushed.WaitFor(kPatience));
  }
  return tensors;
}

TEST(CollectiveWorker, TheLibrarySumsFloatsAndServersSumIntegers) {
  CollectiveJob job(3);
  const auto floats = SumAll<float>(&job, DType::kFloat32, 0, 20, 100'000);
  for (const auto& tensor : floats) EXPECT_EQ(tensor->out, std::vector<float>(100'000, 6));
  EXPECT_GE(job.library()->counts().pieces, 20U);
  const FakeWorld::Counts before = job.library()->counts();
  const auto integers = SumAll<int32_t>(&job, DType::kInt32, 100, 3, 1000);
  for (const auto& tensor : integers) EXPECT_EQ(tensor->out, std::vector<int32_t>(1000, 6));
  EXPECT_EQ(job.library()->counts().operations, before.operations);
  const Metrics metrics = job.worker(0)->Measure(kPatience).value();
  EXPECT_EQ(metrics.numbers().at({"library_operations_total", Metrics::kWhole}), before.operations);
  EXPECT_EQ(metrics.numbers().at({"library_bytes_total", Metrics::kWhole}), 20 * 400'000);
  const auto doubles = SumAll<double>(&job, DType::kFloat64, 200, 3, 1000);
  for (const auto& tensor : doubles) EXPECT_EQ(tensor->out, std::vector<double>(1000, 6));
  EXPECT_GT(job.library()->counts().operations, before.operations);
}

TEST(CollectiveWorker, SumsAreDividedByTheSettingsOfWorkers) {
  CollectiveJob job(2, {},
                    {{"worker", {{"BYTESCHEDULER_PARTITION", "64KiB"}}},
                     {"server", {{"BYTESCHEDULER_PARTITION", "32KiB"}}}});
  for (const auto& tensor : SumAll<float>(&job, DType::kFloat32, 0, 1, 100'000)) {
    EXPECT_EQ(tensor->out, std::vector<float>(100'000, 3));
  }
  EXPECT_EQ(job.library()->counts().operations, 7U);
}

TEST(CollectiveWorker, RanksIntroduceThemselvesToAll) {
  const CollectiveJob job(3);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(job.cards(rank), (backend::collective::Cards{"rank 0", "rank 1", "rank 2"}));
  }
}

TEST(CollectiveWorker, AnErrorOfTheLibraryOnOneRankIsNamedByAll) {
  CollectiveJob job(3);
  job.library()->FailNext(1, Status::Unavailable("no route to host"));
  for (const auto& tensor : SumAll<float>(&job, DType::kFloat32, 0, 2, 1000)) {
    const Status status = *tensor->summed.Get();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("worker 1: sum 0 ("), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find("no route to host"), std::string::npos) << status.ToString();
  }
}

TEST(CollectiveWorker, ARankThatIsLostInsideAnOperationIsNamedByAll) {
  CollectiveJob job(3);
  job.library()->Kill(2);  // its call never reaches the others
  std::vector<std::unique_ptr<Array<float>>> tensors;
  for (size_t i = 0; i < 3; ++i) {
    tensors.push_back(std::make_unique<Array<float>>(1000));
    tensors[i]->Declare(job.worker(i), 7, DType::kFloat32);
  }
  for (const auto& tensor : tensors) ASSERT_TRUE(tensor->declared.WaitFor(kPatience));
  for (size_t i = 0; i < 3; ++i) tensors[i]->Sum(job.worker(i), 7);
  EXPECT_FALSE(tensors[0]->summed.WaitFor(std::chrono::milliseconds(200)));
  job.worker(job.IndexOf(2))->Fail("no memory");
  for (const auto& tensor : tensors) {
    ASSERT_TRUE(tensor->summed.WaitFor(kPatience));
    EXPECT_NE(tensor->summed.Get()->message().find("no memory"), std::string::npos)
        << tensor->summed.Get()->ToString();
  }
}

TEST(CollectiveWorker, ALibraryThatOneRankLacksIsNamedByAll) {
  constexpr const char* kWhy = "the library is not there";
  CollectiveJob job(2, Status::NotFound(kWhy));
  for (size_t i = 0; i < job.size(); ++i) {
    ASSERT_TRUE(job.worker(i)->failure().WaitFor(kPatience));
    EXPECT_THAT(job.worker(i)->failure().Get()->message(), testing::StartsWith(kWhy));
  }
}

}  // namespace
}  // namespace bs::node
