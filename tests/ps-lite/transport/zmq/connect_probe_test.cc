// Why no connection comes up: the kernel's reason, for addresses and for files.
#include "transport/zmq/connect_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/loop_thread.h"
#include "base/notification.h"
#include "transport/tcp_socket.h"

namespace ps {
namespace {

constexpr std::chrono::seconds kPatience(30);

// A port at which no process listens.
std::string FreePort() {
  const auto listener = ListenTcp({"127.0.0.1", 0});
  return std::to_string(LocalAddress(listener.value()).port());
}

// The first words about `endpoint`; empty if there are none.  `expected`: wait for them.
std::string FirstWords(const std::string& endpoint, bool expected) {
  bs::LoopThread loop("test");
  bs::Notification told;
  std::string words;
  std::unique_ptr<ConnectProbe> probe;
  loop.Post([&] {
    probe = std::make_unique<ConnectProbe>(&loop, endpoint, [&](const std::string& what) {
      if (words.empty()) words = what;
      told.Notify();
    });
    probe->Begin();
    probe->Begin();
  });
  if (expected) {
    EXPECT_TRUE(told.WaitFor(kPatience));
  }
  bs::Notification ended;
  loop.Post([&] {
    probe.reset();
    ended.Notify();
  });
  EXPECT_TRUE(ended.WaitFor(kPatience));
  return words;
}

TEST(ConnectProbe, TellsTheReasonForAnAddress) {
  const std::string where = "127.0.0.1:" + FreePort();
  EXPECT_EQ(FirstWords("tcp://" + where, true), where + ": Connection refused");
}

TEST(ConnectProbe, TellsTheReasonForAFile) {
  const std::string path = "/tmp/" + FreePort() + ".none";
  EXPECT_EQ(FirstWords("ipc://" + path, true), path + ": No such file or directory");
}

TEST(ConnectProbe, LooksUpNoName) { EXPECT_EQ(FirstWords("tcp://nosuch.invalid:1", false), ""); }

TEST(ConnectProbe, TellsNothingOfAPortThatAnswers) {
  const auto listener = ListenTcp({"127.0.0.1", 0});
  const int port = LocalAddress(listener.value()).port();
  EXPECT_EQ(FirstWords("tcp://127.0.0.1:" + std::to_string(port), false), "");
}

}  // namespace
}  // namespace ps
