// Host names that take long to look up: whose connections wait for them, and whose do not.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/notification.h"
#include "ps-lite/transport/loop_world.h"
#include "ps-lite/transport/tcp/connection_peer.h"
#include "ps-lite/transport/transport_node.h"
#include "transport/tcp/tcp_transport.h"
#include "wire/wire.h"

namespace ps::test {
namespace {

// Stands in for the system's getaddrinfo, which it asks for all names but those on ".slow".
class Names {
 public:
  void Look(const std::string& name) {
    {
      const bs::MutexLock lock(&mutex_);
      looked_up_.push_back(name);
    }
    if (!name.ends_with(".slow")) return;
    begun.Notify();
    EXPECT_TRUE(go_on.WaitFor(std::chrono::seconds(60)));
  }
  std::vector<std::string> looked_up() {
    const bs::MutexLock lock(&mutex_);
    return looked_up_;
  }
  bs::Notification begun;  // the first slow one
  bs::Notification go_on;

 private:
  bs::Mutex mutex_;
  std::vector<std::string> looked_up_ BS_GUARDED_BY(mutex_);
};

// State of the running test.
std::unique_ptr<Names> names;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

class SlowNames : public ::testing::Test {
 protected:
  SlowNames() { names = std::make_unique<Names>(); }
  static std::unique_ptr<LoopWorld> MakeWorld() {
    return std::make_unique<LoopWorld>([](bs::LoopThread* loop, size_t /*number*/) {
      return MakeTcpTransport(loop, {}, bs::Logger());
    });
  }
  const std::unique_ptr<LoopWorld> world_ = MakeWorld();
};

TEST_F(SlowNames, OfNodesThatGetNoPlaceHoldUpNoOtherNode) {
  TransportNode server(world_.get());
  const int32_t port = server.Bind({"127.0.0.1", 0}).value();
  TransportNode node(world_.get());
  for (int32_t i = 0; i < 8; ++i) node.Connect(kFirstRefusedId + i, {"a.slow", 4711}, kSchedulerId);
  EXPECT_TRUE(names->begun.WaitFor(std::chrono::seconds(60)));
  node.Connect(8, {"localhost", port}, kSchedulerId);
  EXPECT_TRUE(node.AwaitConnects(8, 1));
  names->go_on.Notify();
}

TEST_F(SlowNames, OfPeersThatAreForgottenAreNotLookedUp) {
  TransportNode server(world_.get());
  const int32_t port = server.Bind({"127.0.0.1", 0}).value();
  TransportNode node(world_.get());
  node.Connect(8, {"a.slow", 4711}, 9);
  EXPECT_TRUE(names->begun.WaitFor(std::chrono::seconds(60)));
  node.Connect(10, {"b.slow", 4711}, 9);
  node.Disconnect(8, bs::Duration(0));
  node.Disconnect(10, bs::Duration(0));
  node.Flush();
  node.Flush();  // a connection is dropped in a task of its own, which the first may come before
  names->go_on.Notify();
  node.Connect(12, {"localhost", port}, 9);
  EXPECT_TRUE(node.AwaitConnects(12, 1));
  EXPECT_EQ(names->looked_up(), (std::vector<std::string>{"a.slow", "localhost"}));
}

TEST_F(SlowNames, OfAPeerThatComesBackAreNotLookedUpAgain) {
  TransportNode node(world_.get());
  const TcpSocket listener = std::move(ListenTcp({"127.0.0.1", 0}).value());
  ASSERT_EQ(::fcntl(listener.fd(), F_SETFL, 0), 0);  // blocks, but not for ever
  ASSERT_EQ(::setsockopt(listener.fd(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience)), 0);
  node.Connect(8, {"localhost", LocalAddress(listener).port()}, 9);
  for (int i = 1; i <= 3; ++i) {
    ConnectionPeer peer(listener, Takes::kNone);
    node.Send(Native(8, i));
    peer.Await(1);
  }
  EXPECT_EQ(names->looked_up(), std::vector<std::string>{"localhost"});
}

}  // namespace
}  // namespace ps::test

// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string name = node == nullptr ? "" : node;
  ps::test::names->Look(name);
  return name.ends_with(".slow") ? EAI_NONAME : real(node, service, hints, result);
}
