// Whole jobs in one process through the C API, over real sockets on loopback.
#include "bytescheduler/c_api.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <thread>

#include "base/snapshot.h"
#include "base/status.h"
#include "capi/job.h"

namespace bs::test {
namespace {

using ::testing::Test;

bool Contains(const char* text, const char* part) { return std::strstr(text, part) != nullptr; }

// Every round of sums in a job of two workers that has started.
void BroadcastAndAddUp(Job* job) {
  constexpr size_t kSize = 300'000;  // several partitions
  std::vector<Floats> values(2, Floats(kSize, -1));
  std::iota(values[0].begin(), values[0].end(), 0.0F);
  const Floats want = values[0];
  BroadcastAll(job, 7, &values);
  EXPECT_EQ(values[0], want);
  EXPECT_EQ(values[1], want);
  for (int round = 1; round <= 3; ++round) {
    const std::vector<Floats> in = {Floats(kSize, 1.0F * static_cast<float>(round)),
                                    Floats(kSize, 10.0F)};
    std::vector<Floats> out(2, Floats(kSize));
    const WaiterPtr waiter(bs_waiter_new(4));
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(PushPull(job->workers[i].get(), 7, in[i], &out[i], waiter.get()), 0);
    }
    const bs_error error = Await(waiter.get());
    ASSERT_EQ(error.code, 0) << error.message;
    EXPECT_EQ(out[0], Floats(kSize, static_cast<float>(round) + 10.0F));
    EXPECT_EQ(out[1], out[0]);
  }
}

// That, then an end in good order.
void RunAWholeJob(Job* job) {
  job->StartAll();
  ASSERT_FALSE(Test::HasFatalFailure());
  BroadcastAndAddUp(job);
  CloseWorkers(job);
  ExpectAllEndedWell(job);
}

TEST(CApi, TwoWorkersInOneProcessGetTheSameSums) {
  Job job(2, 2);
  RunAWholeJob(&job);
}

TEST(CApi, ANameWorksAsRootAddress) {
  Job job(2, 1);
  job.root_uri = "localhost";
  RunAWholeJob(&job);
}

TEST(CApi, AJobOnOneHostTalksThroughIpc) {
  Job job(2, 2, {{"DMLC_LOCAL", "1"}});
  RunAWholeJob(&job);
}

size_t ThreadsOfLibzmq() {
  size_t threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name.starts_with("ZMQbg")) ++threads;
  }
  return threads;
}

TEST(CApi, EitherTransportCarriesAJobAndTheyMeetInOne) {
  const auto transport = [](const char* name) -> Settings {
    return {{"BYTESCHEDULER_TRANSPORT", name}};
  };
  Job ours(2, 2, transport("tcp"));
  RunAWholeJob(&ours);
  EXPECT_EQ(ThreadsOfLibzmq(), 0U);
  Job libzmq(2, 2, transport("zmq"));
  RunAWholeJob(&libzmq);
  Job mixed(2, 2, {}, {{"server", transport("zmq")}});
  RunAWholeJob(&mixed);
  Job running(1, 1, {}, {{"worker", transport("zmq")}});
  running.StartAll();
  EXPECT_GT(ThreadsOfLibzmq(), 0U);
  CloseWorkers(&running);
  ExpectAllEndedWell(&running);
}

// Connections of this process of which the kernel holds at most so many bytes unsent.
size_t ConnectionsWithUnsent(int unsent_bytes) {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int value = 0;
    socklen_t size = sizeof(value);
    const int fd = std::stoi(entry.path().filename());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &value, &size) != 0) continue;
    if (value == unsent_bytes) ++found;
  }
  return found;
}

TEST(CApi, ConnectionsHoldAsLittleUnsentAsTheSettingSays) {
  for (const char* transport : {"tcp", "zmq"}) {
    Job job(1, 1, {{"BYTESCHEDULER_UNSENT", "5000"}, {"BYTESCHEDULER_TRANSPORT", transport}});
    job.StartAll();
    // Each way between worker, server and scheduler node.
    EXPECT_GE(ConnectionsWithUnsent(5000), 4U) << transport;
    CloseWorkers(&job);
    ExpectAllEndedWell(&job);
  }
  EXPECT_EQ(ConnectionsWithUnsent(5000), 0U);
}

// How many times this process has mapped memory that nodes share.
size_t SharedMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:bytescheduler") != std::string::npos) ++found;
  }
  return found;
}

TEST(CApi, NodesOfOneHostShareMemoryUnlessToldNotTo) {
  for (const auto& [setting, mappings] :
       std::vector<std::pair<std::string, size_t>>{{"", 16}, {"32KiB", 16}, {"0", 0}}) {
    Job job(2, 2, {{"BYTESCHEDULER_SHARED_MEMORY", setting}});
    job.StartAll();
    ASSERT_FALSE(HasFatalFailure());
    BroadcastAndAddUp(&job);
    // Two workers and two servers, each way, both ends; none with the scheduler node.
    EXPECT_EQ(SharedMappings(), mappings) << setting;
    CloseWorkers(&job);
    ExpectAllEndedWell(&job);
    job.scheduler.reset();
    EXPECT_EQ(SharedMappings(), 0U) << setting;
  }
}

TEST(CApi, WithoutANetworkDeviceNoMemoryIsKept) {
  Job job(1, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(bs_worker_least_kept_bytes(job.workers[0].get()), UINT64_MAX);
  std::vector<char> memory(1U << 20U);
  const bs_kept_memory kept{.key = 1,
                            .filled = 0,
                            .memory = memory.data(),
                            .size_bytes = memory.size(),
                            .storage = nullptr,
                            .storage_bytes = 0,
                            .own = [](void*) -> void* {
                              ADD_FAILURE() << "it needs no owner";
                              return nullptr;
                            },
                            .disown = [](void*) {},
                            .context = nullptr};
  bs_memory_use* use = nullptr;
  bs_error error{};
  EXPECT_EQ(bs_worker_use_memory(job.workers[0].get(), &kept, &use, &error), 0) << error.message;
  EXPECT_EQ(use, nullptr);
  bs_memory_use_end(use);
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, ASchedulerBehindAServiceListensEverywhere) {
  Job job(2, 1, {{"DMLC_USE_KUBERNETES", "1"}});
  RunAWholeJob(&job);
}

TEST(CApi, SixtyFourNodesOfOneHostStartAndAddUp) {
  constexpr int kWorkers = 47;
  Job job(kWorkers, 16, {{"BYTESCHEDULER_SERVER_THREADS", "1"}});
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  std::vector<Floats> values(kWorkers, Floats(100, 1));
  BroadcastAll(&job, 7, &values);
  std::vector<Floats> out(kWorkers, Floats(100));
  const WaiterPtr waiter(bs_waiter_new(2 * kWorkers));
  for (size_t i = 0; i < kWorkers; ++i) {
    ASSERT_EQ(PushPull(job.workers[i].get(), 7, values[i], &out[i], waiter.get()), 0);
  }
  const bs_error error = Await(waiter.get());
  ASSERT_EQ(error.code, 0) << error.message;
  for (const Floats& sum : out) EXPECT_EQ(sum, Floats(100, kWorkers));
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, TwoJobsInOneProcessDoNotMeet) {
  Job first(2, 1);
  Job second(2, 1);
  first.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  RunAWholeJob(&second);
  CloseWorkers(&first);
  ExpectAllEndedWell(&first);
}

TEST(CApi, ABarrierEndsOnlyWhenAllHaveCome) {
  Job job(2, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  const WaiterPtr first(bs_waiter_new(1));
  ASSERT_EQ(bs_worker_barrier_start(job.workers[0].get(), bs_waiter_done, first.get(), nullptr), 0);
  EXPECT_EQ(bs_waiter_wait(first.get(), 50, nullptr), 0);
  bs_error error{};
  EXPECT_EQ(bs_worker_barrier(job.workers[1].get(), &error), 0) << error.message;
  EXPECT_EQ(Await(first.get()).code, 0);
  CloseWorkers(&job);
}

TEST(CApi, CloseWaitsForPendingSums) {
  Job job(2, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  std::vector<Floats> values(2, Floats(8));
  BroadcastAll(&job, 1, &values);
  const Floats in(8, 2.0F);
  std::vector<Floats> out(2, Floats(8));
  const WaiterPtr waiter(bs_waiter_new(4));
  ASSERT_EQ(PushPull(job.workers[0].get(), 1, in, &out[0], waiter.get()), 0);
  std::thread closer([w = job.workers[0].release()] { bs_worker_close(w, kPatienceMs, nullptr); });
  ASSERT_EQ(PushPull(job.workers[1].get(), 1, in, &out[1], waiter.get()), 0);
  const bs_error error = Await(waiter.get());
  closer.join();
  EXPECT_EQ(error.code, 0) << error.message;
  EXPECT_EQ(out[0], Floats(8, 4.0F));
  EXPECT_EQ(out[1], Floats(8, 4.0F));
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

// Everyone's `in` summed with everyone's threshold; the first error.
bs_error SumTwoBit(Job* job, const Floats& in, const std::vector<float>& thresholds,
                   std::vector<Floats>* out) {
  const WaiterPtr waiter(bs_waiter_new(2 * thresholds.size()));
  for (size_t i = 0; i < thresholds.size(); ++i) {
    const bs_coding coding = CodingOf("2bit", "threshold", std::to_string(thresholds[i]));
    EXPECT_EQ(PushPull(job->workers[i].get(), 1, in, &out->at(i), waiter.get(), coding), 0);
  }
  return Await(waiter.get());
}

TEST(CApi, RoundsOfTwoBitsAnElementKeepTheResidual) {
  Job job(2, 2);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  constexpr size_t kSize = 300'001;  // several partitions, and a word that is not full
  std::vector<Floats> values(2, Floats(kSize));
  BroadcastAll(&job, 1, &values);
  const Floats in(kSize, 0.75F);
  // The residual of each is 0, 0.25, 0.5, 0.75, ...: twice as much as comes in is never sent.
  for (const float each : {0.5F, 0.5F, 0.5F}) {
    std::vector<Floats> out(2, Floats(kSize));
    const bs_error error = SumTwoBit(&job, in, {0.5F, 0.5F}, &out);
    ASSERT_EQ(error.code, 0) << error.message;
    EXPECT_EQ(out, std::vector<Floats>(2, Floats(kSize, 2 * each)));
  }
  std::vector<Floats> out(2, Floats(kSize));
  const bs_error error = SumTwoBit(&job, in, {1.5F, 1.5F}, &out);
  ASSERT_EQ(error.code, 0) << error.message;
  EXPECT_EQ(out, std::vector<Floats>(2, Floats(kSize, 3)));
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, ThresholdsThatDifferFailTheJobWithBoth) {
  Job job(2, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  std::vector<Floats> values(2, Floats(8));
  BroadcastAll(&job, 1, &values);
  std::vector<Floats> out(2, Floats(8));
  const bs_error error = SumTwoBit(&job, Floats(8), {0.5F, 0.25F}, &out);
  EXPECT_EQ(error.code, static_cast<int>(bs::StatusCode::kInvalidArgument)) << error.message;
  EXPECT_TRUE(Contains(error.message, "threshold 0.5")) << error.message;
  EXPECT_TRUE(Contains(error.message, "threshold 0.25")) << error.message;
  for (const WorkerPtr& worker : job.workers) {
    bs_error failure{};
    EXPECT_NE(bs_worker_status(worker.get(), &failure), 0);
    EXPECT_TRUE(Contains(failure.message, "gradient compression alike")) << failure.message;
  }
  CloseWorkers(&job);
}

TEST(CApi, CloseWithoutTimeCancelsPendingOperations) {
  Job job(2, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  std::vector<Floats> values(2, Floats(8));
  BroadcastAll(&job, 1, &values);
  const Floats in(8);
  Floats out(8);
  const WaiterPtr waiter(bs_waiter_new(2));
  ASSERT_EQ(PushPull(job.workers[0].get(), 1, in, &out, waiter.get()), 0);
  EXPECT_EQ(bs_worker_close(job.workers[0].release(), 0, nullptr), 0);
  bs_error error{};
  ASSERT_EQ(bs_waiter_wait(waiter.get(), 0, &error), 1) << "close returned before the callbacks";
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kCancelled)) << error.message;
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, AMissingWorkerIsNamedWhenTheTimeIsOver) {
  Job job(2, 1, {{"BYTESCHEDULER_TIMEOUT", "3s"}});
  job.StartScheduler();
  const NodePtr server = job.StartNode("server");
  const WorkerPtr worker = job.StartWorker();
  bs_error error{};
  ASSERT_EQ(bs_worker_ready(worker.get(), kPatienceMs, &error), 1);
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kDeadlineExceeded)) << error.message;
  EXPECT_TRUE(Contains(error.message, "1 of 2 workers")) << error.message;
  ASSERT_EQ(bs_node_wait(job.scheduler.get(), kPatienceMs, &error), 1);
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kDeadlineExceeded)) << error.message;
  EXPECT_TRUE(Contains(error.message, "1 of 2 workers")) << error.message;
}

TEST(CApi, ASchedulerThatIsNotThereIsNamed) {
  Job job(1, 1, {{"BYTESCHEDULER_TIMEOUT", "500ms"}});
  job.StartScheduler();
  job.scheduler.reset();  // its port is free again
  std::vector<bs_setting> rows = job.Rows("worker");
  bs_worker* worker = nullptr;
  bs_error error{};
  EXPECT_EQ(bs_worker_open(rows.data(), rows.size(), -1, &worker, &error),
            static_cast<int>(StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(Contains(error.message, "scheduler")) << error.message;
  EXPECT_TRUE(Contains(error.message, std::to_string(job.port()).c_str())) << error.message;
}

TEST(CApi, AServerThatIsClosedInTheMiddleIsNamedToTheWorkers) {
  Job job(2, 2);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  std::vector<Floats> values(2, Floats(8));
  BroadcastAll(&job, 1, &values);
  Floats out(8);
  const Floats in(8);
  const WaiterPtr waiter(bs_waiter_new(2));
  ASSERT_EQ(PushPull(job.workers[0].get(), 1, in, &out, waiter.get()), 0);
  job.servers[0].reset();
  const bs_error error = Await(waiter.get());
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kUnavailable)) << error.message;
  EXPECT_TRUE(Contains(error.message, "server ")) << error.message;
  // The other one, that waits for nothing, learns it too: here at its next use.
  const WaiterPtr barrier(bs_waiter_new(1));
  ASSERT_EQ(bs_worker_barrier_start(job.workers[1].get(), bs_waiter_done, barrier.get(), nullptr),
            0);
  const bs_error other = Await(barrier.get());
  EXPECT_EQ(other.code, static_cast<int>(StatusCode::kUnavailable)) << other.message;
  EXPECT_TRUE(Contains(other.message, "server ")) << other.message;
}

TEST(CApi, AWorkerThatGivesUpFailsTheJobForAll) {
  Job job(2, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(bs_worker_status(job.workers[0].get(), nullptr), 0);
  EXPECT_EQ(bs_worker_fail(job.workers[0].get(), "the gradient of key 7 will never come"), 0);
  for (bs_node* const node : {job.scheduler.get(), job.servers[0].get()}) {
    bs_error error{};
    ASSERT_EQ(bs_node_wait(node, kPatienceMs, &error), 1);
    EXPECT_EQ(error.code, static_cast<int>(StatusCode::kUnavailable));
    EXPECT_TRUE(Contains(error.message, "worker 0 gave up: the gradient of key 7 will never come"))
        << error.message;
  }
  bs_error error{};
  EXPECT_NE(bs_worker_status(job.workers[0].get(), &error), 0);
  EXPECT_TRUE(Contains(error.message, "worker 0 gave up")) << error.message;
}

TEST(CApi, APortInUseIsRefusedAtTheStart) {
  Job job(1, 1);
  job.StartScheduler();
  std::vector<bs_setting> rows = job.Rows("scheduler");  // now with the port that was taken
  bs_node* node = nullptr;
  bs_error error{};
  EXPECT_EQ(bs_node_start(rows.data(), rows.size(), &node, &error),
            static_cast<int>(StatusCode::kAlreadyExists));
  EXPECT_TRUE(Contains(error.message, std::to_string(job.port()).c_str())) << error.message;
}

TEST(CApi, AForkedChildIsRefusedAndClosesNothing) {
  Job job(1, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  bs_worker* const worker = job.workers[0].get();
  bs_node* const scheduler = job.scheduler.get();
  const pid_t child = fork();
  if (child == 0) {
    bs_error error{};
    const bool refused =
        bs_worker_barrier(worker, &error) == static_cast<int>(StatusCode::kFailedPrecondition) &&
        Contains(error.message, "the store was created before fork") &&
        bs_worker_status(worker, nullptr) != 0 && bs_worker_close(worker, 0, &error) == 0 &&
        bs_node_close(scheduler, "the child ended") == 0;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  bs_error error{};
  EXPECT_EQ(bs_worker_barrier(worker, &error), 0) << error.message;
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, AWorkerMayGoWhileItStillJoins) {
  Job job(2, 1);
  job.StartScheduler();
  WorkerPtr worker = job.StartWorker();
  EXPECT_EQ(bs_worker_ready(worker.get(), 0, nullptr), 0);
  bs_error error{};
  EXPECT_EQ(bs_worker_barrier(worker.get(), &error),
            static_cast<int>(StatusCode::kFailedPrecondition));
  EXPECT_EQ(bs_worker_close(worker.release(), 0, nullptr), 0);
}

TEST(CApi, WrongArgumentsAreRefusedBeforeAnythingStarts) {
  Job job(1, 1);
  bs_error error{};
  bs_node* node = nullptr;
  bs_worker* worker = nullptr;
  std::vector<bs_setting> rows = job.Rows("server");
  EXPECT_EQ(bs_worker_start(rows.data(), rows.size(), -1, &worker, &error), 1);
  EXPECT_TRUE(Contains(error.message, "DMLC_PS_ROOT_PORT=0")) << error.message;
  job.StartScheduler();
  rows = job.Rows("worker");
  EXPECT_EQ(bs_node_start(rows.data(), rows.size(), &node, &error), 1);
  EXPECT_SNAPSHOT(error.message,
                  "DMLC_ROLE=worker: want scheduler or server; a worker runs the training script");
  EXPECT_EQ(bs_worker_start(rows.data(), rows.size(), 1, &worker, &error), 1);
  EXPECT_STREQ(error.message, "rank 1 of only 1 worker");
  rows = job.Rows("scheduler");
  EXPECT_EQ(bs_worker_start(rows.data(), rows.size(), -1, &worker, &error), 1);
  EXPECT_STREQ(error.message, "DMLC_ROLE=scheduler: want worker here");
  rows.push_back({"BYTESCHEDULER_CREDIT", "8Q"});
  EXPECT_EQ(bs_settings_check(rows.data(), rows.size(), &error), 1);
  EXPECT_SNAPSHOT(error.message, "BYTESCHEDULER_CREDIT=8Q: want bytes, such as 8388608 or 8MiB");
}

TEST(CApi, AnUnknownElementTypeIsRefused) {
  Job job(1, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  bs_error error{};
  Floats value(4);
  bs_operation operation = MakeBroadcast(BS_BROADCAST, 3, &value, nullptr);
  operation.dtype = 99;
  EXPECT_EQ(bs_worker_start_operation(job.workers[0].get(), &operation, &error), 1);
  EXPECT_STREQ(error.message, "key 3: dtype code 99 cannot be summed");
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, AMessageThatIsTooLongIsCutOff) {
  const std::string name(2000, 'x');
  const bs_setting setting{name.c_str(), "1"};
  bs_error error{};
  EXPECT_EQ(bs_settings_check(&setting, 1, &error), 1);
  EXPECT_EQ(std::strlen(error.message), sizeof(error.message) - 1);
}

TEST(CApi, SettingsAreListedInTheOrderOfTheTable) {
  std::vector<std::string> names;
  bs_settings_all(
      [](void* context, const char* name, const char*, const char*, const char*, const char*,
         const char*, int) { static_cast<std::vector<std::string>*>(context)->emplace_back(name); },
      &names);
  ASSERT_GT(names.size(), 20U);
  EXPECT_EQ(names.front(), "DMLC_ROLE");
  size_t described = 0;
  bs_settings_values(
      nullptr, 0,
      [](void* context, const char*, const char*, const char*) {
        ++*static_cast<size_t*>(context);
      },
      &described);
  EXPECT_EQ(described, names.size());
}

TEST(CApi, SettingsForExpertsAreMarked) {
  std::map<std::string, int> for_experts;
  bs_settings_all(
      [](void* context, const char* name, const char*, const char*, const char*, const char*,
         const char*,
         int marked) { (*static_cast<std::map<std::string, int>*>(context))[name] = marked; },
      &for_experts);
  EXPECT_EQ(for_experts.at("DMLC_ROLE"), 0);
  EXPECT_EQ(for_experts.at("BYTESCHEDULER_RDMA_SLOTS"), 1);
}

TEST(CApi, TheHostIsDescribedUnlessASettingIsWrong) {
  std::vector<bs_setting> settings = {{"DMLC_ROLE", "scheduler"},
                                      {"DMLC_NUM_WORKER", "1"},
                                      {"DMLC_NUM_SERVER", "1"},
                                      {"DMLC_PS_ROOT_URI", "127.0.0.1"},
                                      {"DMLC_PS_ROOT_PORT", "0"}};
  std::map<std::string, std::string> names;
  const bs_host_row row = [](void* context, const char* what, const char* name, const char*) {
    (*static_cast<std::map<std::string, std::string>*>(context))[what] = name;
  };
  ASSERT_EQ(bs_host_about(settings.data(), settings.size(), row, &names, nullptr), 0);
  EXPECT_EQ(names["address"], "127.0.0.1");
  EXPECT_TRUE(names.contains("kernels") && names.contains("numa") && names.contains("interface"));
  names.clear();
  settings.push_back({"BYTESCHEDULER_CREDIT", "8Q"});
  bs_error error{};
  EXPECT_EQ(bs_host_about(settings.data(), settings.size(), row, &names, &error), 1);
  EXPECT_TRUE(Contains(error.message, "BYTESCHEDULER_CREDIT=8Q: want bytes")) << error.message;
  EXPECT_TRUE(names.empty());
}

TEST(CApi, AverageOfThreeHasTheBitsOfSumTimesAThird) {
  Job job(3, 2, {{"BYTESCHEDULER_DETERMINISTIC", "1"}});
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  constexpr size_t kSize = 200'001;  // several partitions, and a rest
  std::vector<Floats> values(3, Floats(kSize, 0));
  BroadcastAll(&job, 7, &values);
  std::vector<Floats> in(3, Floats(kSize));
  for (size_t i = 0; i < 3; ++i) {
    for (size_t at = 0; at < kSize; ++at) {
      in[i][at] = static_cast<float>(at * (i + 1)) * 0.37F - 1000.0F;
    }
  }
  std::vector<Floats> out(3, Floats(kSize));
  const WaiterPtr waiter(bs_waiter_new(6));
  for (size_t i = 0; i < 3; ++i) {
    bs_operation operation = MakePushPull(7, in[i], &out[i], waiter.get());
    operation.factor = 1.0 / 3;
    ASSERT_EQ(bs_worker_start_operation(job.workers[i].get(), &operation, nullptr), 0);
  }
  const bs_error error = Await(waiter.get());
  ASSERT_EQ(error.code, 0) << error.message;
  Floats want(kSize);
  for (size_t at = 0; at < kSize; ++at) {
    want[at] = (in[0][at] + in[1][at] + in[2][at]) * (1.0F / 3);
  }
  EXPECT_EQ(out, std::vector<Floats>(3, want));
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, WorkersOfAHostHaveItsNumber) {
  Job job(2, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  int hosts[2] = {-1, -1};
  bs_view view{};
  view.size = sizeof(view);
  ASSERT_EQ(bs_worker_view(job.workers[1].get(), &view, hosts, 2, nullptr), 0);
  EXPECT_GE(hosts[0], 0);
  EXPECT_EQ(hosts[0], hosts[1]) << "all loopback addresses are one host";
  EXPECT_EQ(view.rank, 1);
  EXPECT_EQ(view.num_workers, 2);
  EXPECT_EQ(view.num_servers, 1);
  EXPECT_EQ(view.epoch, 0U);
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, ViewMayBeSmallerOrLargerThanTheLibrarys) {
  Job job(2, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  struct {
    bs_view view;
    int more;
  } larger{};
  larger.view.size = sizeof(larger);
  larger.more = 7;
  bs_error error{};
  EXPECT_EQ(bs_worker_view(job.workers[1].get(), &larger.view, nullptr, 0, &error), 0);
  EXPECT_EQ(larger.view.num_servers, 1);
  EXPECT_EQ(larger.more, 7);
  bs_view smaller{};
  smaller.size = offsetof(bs_view, num_workers);
  EXPECT_EQ(bs_worker_view(job.workers[1].get(), &smaller, nullptr, 0, &error), 0);
  EXPECT_EQ(smaller.rank, 1);
  EXPECT_EQ(smaller.num_workers, 0) << "the caller has no room for it";
  bs_view none{};
  EXPECT_EQ(bs_worker_view(job.workers[1].get(), &none, nullptr, 0, &error), 1);
  EXPECT_STREQ(error.message, "bs_view: the field size is not set; want sizeof(bs_view)");
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(CApi, AnyRootBroadcastsAgainBitForBit) {
  Job job(2, 2);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  constexpr size_t kSize = 100'003;
  for (const int root : {1, 0, 1}) {
    std::vector<std::vector<uint32_t>> values(2);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      // -0.0, NaNs with payloads, and whatever else there is.
      values[rank] = {0x80000000U, 0x7f800001U, 0xffc12345U, 0x00000001U};
      values[rank].resize(kSize, 0xdeadbeefU + rank + 2U * static_cast<uint32_t>(root));
      values[rank][0] ^= rank;
    }
    const std::vector<uint32_t> want = values[static_cast<size_t>(root)];
    const WaiterPtr waiter(bs_waiter_new(2));
    for (size_t rank = 0; rank < 2; ++rank) {
      bs_operation operation = bs_operation_init(BS_BROADCAST_FROM);
      operation.key = 7;
      operation.root = root;
      operation.out = values[rank].data();
      operation.size_bytes = kSize * sizeof(uint32_t);
      operation.done = bs_waiter_done;
      operation.context = waiter.get();
      ASSERT_EQ(bs_worker_start_operation(job.workers[rank].get(), &operation, nullptr), 0);
    }
    const bs_error error = Await(waiter.get());
    ASSERT_EQ(error.code, 0) << error.message;
    EXPECT_EQ(values[0], want);
    EXPECT_EQ(values[1], want);
  }
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(Waiter, TellsThePushFromTheEnd) {
  const WaiterPtr waiter(bs_waiter_new(2));
  EXPECT_EQ(bs_waiter_is_pushed(waiter.get(), nullptr), 0);
  bs_waiter_pushed(waiter.get(), 0, "");
  bs_error error{};
  EXPECT_EQ(bs_waiter_is_pushed(waiter.get(), &error), 1);
  EXPECT_EQ(error.code, 0);
  EXPECT_EQ(bs_waiter_wait(waiter.get(), 0, nullptr), 0);
  bs_waiter_done(waiter.get(), 4, "lost server 0");
  EXPECT_EQ(bs_waiter_is_pushed(waiter.get(), &error), 1);
  EXPECT_STREQ(error.message, "lost server 0");
  EXPECT_EQ(Await(waiter.get()).code, 4);
}

TEST(Waiter, CountsAndKeepsTheFirstError) {
  const WaiterPtr waiter(bs_waiter_new(3));
  bs_waiter_done(waiter.get(), 0, "");
  bs_waiter_done(waiter.get(), 4, "lost server 0");
  EXPECT_EQ(bs_waiter_wait(waiter.get(), 0, nullptr), 0);
  bs_waiter_done(waiter.get(), 3, "closed");
  const bs_error error = Await(waiter.get());
  EXPECT_EQ(error.code, 4);
  EXPECT_STREQ(error.message, "lost server 0");
  const WaiterPtr nothing(bs_waiter_new(0));
  EXPECT_EQ(Await(nothing.get()).code, 0);
}

}  // namespace
}  // namespace bs::test
