// A job that trains while strangers flood the ports of its nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "api/job.h"
#include "ps-lite/raw_peer.h"
#include "tcp_socket.h"
#include "wire.h"

namespace bs::test {
namespace {

using ps::testing::Attack;
using ps::testing::Flood;
using ps::testing::FrameOf;

// Another address of this host, so that no port is taken there.
constexpr const char* kServerHost = "127.8.0.1";

int FreePortOfServer() {
  const auto listening = ps::ListenTcp({kServerHost, 0});
  EXPECT_TRUE(listening.ok());
  return ntohs(ps::LocalAddress(listening.value()).sin_port);
}

std::string Hello(const std::string& identity) {
  return ps::ZmtpGreeting() + ps::ZmtpReady("DEALER", identity);
}

std::string ManyTimes(const std::string& bytes) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += bytes;
  return many;
}

class FloodedJob : public ::testing::TestWithParam<const char*> {
 protected:
  FloodedJob()
      : server_{kServerHost, FreePortOfServer()},
        job_(2, 1,
             {{"BYTESCHEDULER_TRANSPORT", GetParam()},
              {"BYTESCHEDULER_SERVER_THREADS", "1"},
              {"BYTESCHEDULER_LOG_LEVEL", "warning"}},
             {{"server",
               {{"DMLC_NODE_HOST", kServerHost}, {"DMLC_PORT", std::to_string(server_.port)}}}}) {}

  // What the nodes of a job say whose sums are right though both ports are flooded.
  std::string SaidUnder(
      const std::function<void(const ps::Address&, const std::atomic<bool>& over)>& attack) {
    ::testing::internal::CaptureStderr();
    job_.StartAll();
    if (!HasFatalFailure()) {
      const ps::Address scheduler{"127.0.0.1", job_.port()};
      const Attack on_scheduler(1, [&](const auto& over) { attack(scheduler, over); });
      const Attack on_server(1, [&](const auto& over) { attack(server_, over); });
      SumUntil([&] { return on_scheduler.times() > 0 && on_server.times() > 0; });
    }
    CloseWorkers(&job_);
    ExpectAllEndedWell(&job_);
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  void SumUntil(const std::function<bool()>& enough) {
    std::vector<Floats> out(2, Floats(1000));
    BroadcastAll(&job_, 7, &out);
    for (int round = 1; round <= 50 || !enough(); ++round) {
      const std::vector<Floats> in = {Floats(1000, static_cast<float>(round)), Floats(1000, 0.5F)};
      const WaiterPtr waiter(bs_waiter_new(4));
      for (size_t i = 0; i < 2; ++i) {
        ASSERT_EQ(PushPull(job_.workers[i].get(), 7, in[i], &out[i], waiter.get()), 0);
      }
      const bs_error error = Await(waiter.get());
      ASSERT_EQ(error.code, 0) << error.message;
      for (const Floats& sum : out) ASSERT_EQ(sum, Floats(1000, static_cast<float>(round) + 0.5F));
    }
  }

  const ps::Address server_;
  Job job_;
};

TEST_P(FloodedJob, NoMessagesOfAnybodyDisturbIt) {
  const std::string data = ManyTimes(FrameOf(ps::EncodeMeta(ps::Meta()), false));
  const std::string said =
      SaidUnder([&](const ps::Address& address, const std::atomic<bool>& over) {
        Flood(address, Hello("ps555"), data, over);
      });
  EXPECT_THAT(said, ::testing::ContainsRegex("dropped a message from worker 273: "));
  if (GetParam() != std::string("tcp")) return;
  EXPECT_THAT(said, ::testing::ContainsRegex("scheduler: hung up on 127.0.0.1:[0-9]+: it is not in "
                                             "the job, and has sent more than 4096 messages"));
}

TEST_P(FloodedJob, NoGarbageDisturbsIt) {
  const std::string garbage = ManyTimes(FrameOf("no meta", false));
  const std::string said =
      SaidUnder([&](const ps::Address& address, const std::atomic<bool>& over) {
        Flood(address, Hello(""), garbage, over);
      });
  EXPECT_THAT(said,
              ::testing::ContainsRegex("scheduler: dropped bytes from 127.0.0.1(:[0-9]+)?: "));
  EXPECT_THAT(said, ::testing::ContainsRegex("server: dropped bytes from 127.0.0.1(:[0-9]+)?: "));
}

TEST_P(FloodedJob, NobodyWhoStallsOrClosesHisHalfDisturbsIt) {
  std::string endless = Hello("");
  ps::AppendFrameHeader(uint64_t{4} << 30U, false, &endless);
  const std::string frame = Hello("") + FrameOf(std::string(100, 'x'), false);
  const std::string begun = frame.substr(0, frame.size() - 50);
  const std::string greeting = ps::ZmtpGreeting();
  const std::string said =
      SaidUnder([&](const ps::Address& address, const std::atomic<bool>& over) {
        std::deque<ps::testing::RawPeer> peers;
        for (const bool half : {false, true}) {
          for (const std::string& words :
               {std::string(), greeting.substr(0, 20), greeting, Hello(""), begun, endless}) {
            peers.emplace_back(address).TrySend(words);
            if (half) peers.back().TryCloseSending();
          }
        }
        for (int i = 0; i < 20 && !over; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(10));  // they stay as they are
        }
      });
  if (GetParam() != std::string("tcp")) return;
  EXPECT_THAT(said, ::testing::ContainsRegex("scheduler: hung up on 127.0.0.1:[0-9]+: "));
  EXPECT_THAT(said, ::testing::ContainsRegex("server: hung up on 127.0.0.1:[0-9]+: "));
}

TEST_P(FloodedJob, NoConnectionsDisturbIt) {
  SaidUnder([](const ps::Address& address, const auto&) { ps::testing::ComeAndGo(address); });
}

INSTANTIATE_TEST_SUITE_P(Transports, FloodedJob, ::testing::Values("tcp", "zmq"));

}  // namespace
}  // namespace bs::test
