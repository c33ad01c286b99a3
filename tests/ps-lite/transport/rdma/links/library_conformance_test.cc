// The TCP transport with RDMA over libibverbs: the conformance suites, on the devices of this host.
// Soft-RoCE is enough.  Without a device one test says why the others are not there.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ps-lite/transport/socket_conformance.h"
#include "transport/rdma/ibverbs.h"
#include "transport/rdma/rdma_choice.h"
#include "transport/tcp/tcp_transport.h"

namespace ps::test {
namespace {

struct Cards {
  std::shared_ptr<Verbs> verbs;
  std::vector<RdmaChoice> choices;  // one a device
  bs::Status status;
};

Cards FindCards() {
  Cards cards;
  const auto verbs = LoadVerbsLibrary({});
  cards.status = verbs.status();
  if (!verbs.ok()) return cards;
  cards.verbs = verbs.value();
  const auto devices = cards.verbs->Devices();
  cards.status = devices.status();
  if (!devices.ok()) return cards;
  for (const RdmaDevice& device : devices.value()) {
    const auto choice =
        ChooseRdmaPort(devices.value(), SocketAddress(), "", {.device = device.name});
    if (choice.ok()) cards.choices.push_back(choice.value());
    if (!choice.ok()) cards.status = choice.status();
  }
  return cards;
}

// They stay the same while this runs, and to look takes a second in an emulated guest.
const Cards& CardsOfHost() {
  static const Cards cards = FindCards();
  return cards;
}

// Nodes take the devices in turns.  That data goes by RDMA is seen by the counts.
class LibraryWorld final : public TransportWorld {
 public:
  LibraryWorld()
      : loops_(std::make_unique<LoopWorld>(
            [this](bs::LoopThread* loop, size_t number) { return Make(loop, number); })) {}
  LibraryWorld(const LibraryWorld&) = delete;
  LibraryWorld& operator=(const LibraryWorld&) = delete;
  ~LibraryWorld() override {
    loops_.reset();  // tasks on them still hold transports
    EXPECT_EQ(counts_->pinned_bytes, 0U);
  }

  bs::Executor* NewExecutor() override { return loops_->NewExecutor(); }
  std::unique_ptr<Transport> NewTransport(bs::Executor* executor) override {
    return loops_->NewTransport(executor);
  }
  bool WaitFor(const bs::Notification& notification) override {
    return loops_->WaitFor(notification);
  }
  Address AnyAddress() override { return loops_->AnyAddress(); }
  Address FreeAddress() override { return loops_->FreeAddress(); }

  const RdmaCounts& counts() const { return *counts_; }

 private:
  std::unique_ptr<Transport> Make(bs::LoopThread* loop, size_t number) {
    const Cards& cards = CardsOfHost();
    const RdmaChoice& choice = cards.choices.at(number % cards.choices.size());
    TcpOptions options;
    options.rdma.verbs = cards.verbs;
    options.rdma.device = choice.device;
    options.rdma.path = choice.path;
    options.rdma.counts = counts_;
    return MakeTcpTransport(loop, options, bs::Logger());
  }

  const std::shared_ptr<RdmaCounts> counts_ = std::make_shared<RdmaCounts>();
  std::unique_ptr<LoopWorld> loops_;
};

std::unique_ptr<TransportWorld> MakeLibraryWorld() { return std::make_unique<LibraryWorld>(); }

// A world for each suite, or none without a device.
std::vector<std::unique_ptr<TransportWorld> (*)()> Worlds() {
  if (CardsOfHost().choices.empty()) return {};
  return {&MakeLibraryWorld};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SocketConformance);
INSTANTIATE_TEST_SUITE_P(Library, TransportConformance, ::testing::ValuesIn(Worlds()));
INSTANTIATE_TEST_SUITE_P(Library, SocketConformance, ::testing::ValuesIn(Worlds()));

TEST(LibraryConformanceTest, DataGoesByRdma) {
  const Cards& cards = CardsOfHost();
  if (cards.choices.empty()) GTEST_SKIP() << cards.status.message();
  LibraryWorld world;
  TransportNode a(&world);
  TransportNode b(&world);
  const bs::Result<int32_t> port = b.Bind(world.AnyAddress());
  ASSERT_TRUE(port.ok()) << port.status().message();
  a.Connect(8, {"127.0.0.1", port.value()}, 9);
  constexpr size_t kBytes = size_t{1} << 20U;
  Message message = Native(8, 1);
  message.data.push_back(Frame::Copy(std::vector<std::byte>(kBytes, std::byte{3})));
  a.Send(std::move(message));
  ASSERT_TRUE(b.AwaitMessages(1));
  const std::vector<Message> messages = b.TakeMessages();
  EXPECT_EQ(messages[0].data.at(0).bytes()[kBytes - 1], std::byte{3});
  EXPECT_GE(world.counts().received_bytes, kBytes);
}

}  // namespace
}  // namespace ps::test
