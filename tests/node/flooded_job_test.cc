// A job that trains while strangers flood the ports of its nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "capi/job.h"
#include "config/temporary_folder.h"
#include "ps-lite/transport/raw_peer.h"
#include "transport/tcp_socket.h"
#include "wire/wire.h"

namespace bs::test {
namespace {

using ps::test::Attack;
using ps::test::Flood;
using ps::test::FrameOf;

// For all rounds under an attack, on any machine.
constexpr std::chrono::seconds kLongForAllRounds(100);

// Another address of this host, so that no port is taken there.
constexpr const char* kServerHost = "127.8.0.1";

int FreePortOfServer() {
  const auto listening = ps::ListenTcp({kServerHost, 0});
  EXPECT_TRUE(listening.ok());
  return ps::LocalAddress(listening.value()).port();
}

std::string Hello(const std::string& identity) {
  return ps::ZmtpGreeting() + ps::ZmtpReady("DEALER", identity);
}

std::string ManyTimes(const std::string& bytes) {
  std::string many;
  for (int i = 0; i < 1000; ++i) many += bytes;
  return many;
}

// Connections that stay as they are behind each of `words`, half of them half closed.
void StallOrClose(const ps::Address& address, const std::vector<std::string>& words,
                  const std::atomic<bool>& over) {
  std::deque<ps::test::RawPeer> peers;
  for (const bool half : {false, true}) {
    for (const std::string& bytes : words) {
      peers.emplace_back(address).TrySend(bytes);
      if (half) peers.back().TryCloseSending();
    }
  }
  for (int i = 0; i < 20 && !over; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// A job, of which one setting is given, and what it says.
class Flooded {
 protected:
  Flooded(const std::string& name, const std::string& value)
      : server_{kServerHost, FreePortOfServer()},
        job_(2, 1,
             {{name, value},
              {"BYTESCHEDULER_SERVER_THREADS", "1"},
              {"BYTESCHEDULER_LOG_LEVEL", "warning"}},
             {{"server",
               {{"DMLC_NODE_HOST", kServerHost}, {"DMLC_PORT", std::to_string(server_.port)}}}}) {}

  // Returns the log of a job's nodes; its sums are right though both ports are flooded.
  std::string SaidUnder(
      const std::function<void(const ps::Address&, const std::atomic<bool>& over)>& attack) {
    ::testing::internal::CaptureStderr();
    job_.StartAll();
    if (!::testing::Test::HasFatalFailure()) {
      const ps::Address scheduler{"127.0.0.1", job_.port()};
      const Attack on_scheduler(1, [&](const auto& over) { attack(scheduler, over); });
      const Attack on_server(1, [&](const auto& over) { attack(server_, over); });
      SumUntil(on_scheduler, on_server);
    }
    CloseWorkers(&job_);
    ExpectAllEndedWell(&job_);
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  // Until each has been made at least once.
  void SumUntil(const Attack& on_scheduler, const Attack& on_server) {
    const auto deadline = std::chrono::steady_clock::now() + kLongForAllRounds;
    std::vector<Floats> out(2, Floats(1000));
    BroadcastAll(&job_, 7, &out);
    const auto enough = [&] { return on_scheduler.times() > 0 && on_server.times() > 0; };
    for (int round = 1; round <= 50 || !enough(); ++round) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline)
          << "the sum of round " << round
          << " is still to come; attacks made: " << on_scheduler.times()
          << " on the scheduler node, " << on_server.times() << " on the server";
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

class FloodedJob : public Flooded, public ::testing::TestWithParam<const char*> {
 protected:
  FloodedJob() : Flooded("BYTESCHEDULER_TRANSPORT", GetParam()) {}
};

TEST_P(FloodedJob, NoForeignMessagesDisturbIt) {
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

TEST_P(FloodedJob, GoesOnBesideStalledAndHalfClosedConnections) {
  const bool tcp = GetParam() == std::string("tcp");
  const auto endless = [](uint64_t mebibytes) {
    std::string bytes = Hello("");
    ps::AppendFrameHeader(mebibytes << 20U, false, &bytes);
    return bytes;
  };
  const std::string frame = Hello("") + FrameOf(std::string(100, 'x'), false);
  const std::string begun = frame.substr(0, frame.size() - 50);
  const std::string greeting = ps::ZmtpGreeting();
  std::array<std::atomic<int>, 2> times{};  // the attacks on the scheduler node, on the server
  const std::string said =
      SaidUnder([&](const ps::Address& address, const std::atomic<bool>& over) {
        // libzmq takes all the memory at once, which under a sanitizer takes a second for each GiB.
        const bool is_long = times.at(address.host == kServerHost ? 1 : 0)++ == 0 || tcp;
        StallOrClose(
            address,
            {"", greeting.substr(0, 20), greeting, Hello(""), begun, endless(is_long ? 4096 : 64)},
            over);
      });
  if (!tcp) return;
  EXPECT_THAT(said, ::testing::ContainsRegex("scheduler: hung up on 127.0.0.1:[0-9]+: "));
  EXPECT_THAT(said, ::testing::ContainsRegex("server: hung up on 127.0.0.1:[0-9]+: "));
}

TEST_P(FloodedJob, NoConnectionsDisturbIt) {
  SaidUnder([](const ps::Address& address, const auto&) { ps::test::ComeAndGo(address); });
}

INSTANTIATE_TEST_SUITE_P(Transports, FloodedJob, ::testing::Values("tcp", "zmq"));

// -- with a secret, which strangers do not know --------------------------------------------------

class SecretFile {
 public:
  SecretFile() {
    std::ofstream(path()) << "a secret of this test";
    std::filesystem::permissions(path(), std::filesystem::perms::owner_read);
  }
  std::string path() const { return folder_.path() + "/secret"; }

 private:
  const TemporaryFolder folder_;
};

// The greeting of a peer that has keys.
std::string CurveGreeting() {
  constexpr size_t kMechanismAt = 12;
  return ps::ZmtpGreeting().replace(kMechanismAt, 5, "CURVE");
}

// The command after it (rfc.zeromq.org/spec/26), of the right length, from a peer without keys.
std::string CurveHello() {
  const std::string name = "HELLO";
  const std::string body = char(name.size()) + name + std::string("\1\0", 2) +
                           std::string(72, '\0') + std::string(32 + 8 + 80, 'x');
  constexpr char kCommand = 4;
  return kCommand + (char(body.size()) + body);
}

// Does not wait for the other end's greeting.
void FloodAtOnce(const ps::Address& address, const std::string& bytes,
                 const std::atomic<bool>& over) {
  const ps::test::RawPeer peer(address);
  for (int i = 0; i < 200 && !over && peer.TrySend(bytes); ++i) continue;
}

class FloodedJobWithSecret : private SecretFile, public Flooded, public ::testing::Test {
 protected:
  FloodedJobWithSecret() : Flooded("BYTESCHEDULER_SECRET_FILE", path()) {}

  static void ExpectRefused(const std::string& said) {
    const std::string why =
        ": refused a connection whose handshake failed \\(the latest caller was ";
    EXPECT_THAT(said, ::testing::ContainsRegex("scheduler" + why));
    EXPECT_THAT(said, ::testing::ContainsRegex("server" + why));
  }
};

TEST_F(FloodedJobWithSecret, NoMessagesInTheClearDisturbIt) {
  const std::string data = ManyTimes(FrameOf(ps::EncodeMeta(ps::Meta()), false));
  ExpectRefused(SaidUnder([&](const ps::Address& address, const std::atomic<bool>& over) {
    FloodAtOnce(address, Hello(ps::IdentityOf(ps::WorkerId(0))) + data, over);
  }));
}

TEST_F(FloodedJobWithSecret, NoGarbageOrWrongKeysDisturbIt) {
  const std::string garbage = ManyTimes("GET / HTTP/1.1\r\n\r\n");
  const std::string frames = ManyTimes(FrameOf("no command", false));
  ExpectRefused(SaidUnder([&](const ps::Address& address, const std::atomic<bool>& over) {
    FloodAtOnce(address, garbage, over);
    FloodAtOnce(address, CurveGreeting() + frames, over);
    FloodAtOnce(address, CurveGreeting() + CurveHello() + frames, over);
  }));
}

TEST_F(FloodedJobWithSecret, GoesOnBesideConnectionsThatStallInTheHandshake) {
  const std::string greeting = CurveGreeting();
  const std::string hello = greeting + CurveHello();
  const std::string half = hello.substr(0, hello.size() - 50);
  ExpectRefused(SaidUnder([&](const ps::Address& address, const std::atomic<bool>& over) {
    StallOrClose(address, {"", greeting.substr(0, 20), greeting, half, hello, Hello("")}, over);
  }));
}

// Such a caller may only look which node it is, so it is no node with another secret.
TEST_F(FloodedJobWithSecret, GoesOnBesideConnectionsThatComeAndGo) {
  const std::string said =
      SaidUnder([](const ps::Address& address, const auto&) { ps::test::ComeAndGo(address); });
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("handshake failed")));
}

}  // namespace
}  // namespace bs::test
