// A job of so many nodes that ids need more than a byte, in one process over real sockets.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "capi/job.h"
#include "ps/message.h"

namespace bs::test {
namespace {

constexpr int kMany = 130;
static_assert(ps::ServerId(kMany - 1) > 255 && ps::WorkerId(kMany - 1) > 255);

// Two rounds of sums of one key, cut so that each server has a partition.
void SumTwice(int num_workers, int num_servers, std::map<std::string, Settings> of_role = {}) {
  constexpr size_t kFloatsPerPart = 1024;
  Job job(num_workers, num_servers,
          {{"BYTESCHEDULER_PARTITION", "4KiB"}, {"BYTESCHEDULER_SERVER_THREADS", "1"}},
          std::move(of_role));
  job.StartAll();
  ASSERT_FALSE(::testing::Test::HasFatalFailure());
  const auto size = kFloatsPerPart * static_cast<size_t>(num_servers);
  std::vector<Floats> out(job.workers.size(), Floats(size));
  BroadcastAll(&job, 7, &out);
  for (int round = 1; round <= 2; ++round) {
    const WaiterPtr waiter(bs_waiter_new(2 * job.workers.size()));
    std::vector<Floats> in;
    float want = 0;
    for (size_t i = 0; i < job.workers.size(); ++i) {
      in.emplace_back(size, static_cast<float>(round * 1000 + static_cast<int>(i)));
      want += in.back().front();
    }
    for (size_t i = 0; i < job.workers.size(); ++i) {
      ASSERT_EQ(PushPull(job.workers[i].get(), 7, in[i], &out[i], waiter.get()), 0);
    }
    const bs_error error = Await(waiter.get());
    ASSERT_EQ(error.code, 0) << error.message;
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], Floats(size, want)) << i;
  }
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

TEST(ManyNodes, WorkersOfIdsAbove255GetTheSums) { SumTwice(kMany, 1); }

TEST(ManyNodes, WorkersOfIdsAbove255GetTheSumsOverLibzmq) {
  const Settings zmq = {{"BYTESCHEDULER_TRANSPORT", "zmq"}};
  SumTwice(kMany, 1, {{"scheduler", zmq}, {"server", zmq}});
}

TEST(ManyNodes, ServersOfIdsAbove255MakeTheSums) { SumTwice(2, kMany); }

}  // namespace
}  // namespace bs::test
