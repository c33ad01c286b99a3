// The in-process transport: the conformance suite, and what is special about it.
#include "transport/inproc/inproc_transport.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/loop_thread.h"
#include "ps-lite/transport/transport_conformance.h"

namespace ps::testing {
namespace {

class InprocWorld final : public TransportWorld {
 public:
  bs::Executor* NewExecutor() override {
    loops_.push_back(std::make_unique<bs::LoopThread>("node"));
    return loops_.back().get();
  }
  std::unique_ptr<Transport> NewTransport(bs::Executor* executor) override {
    return MakeInprocTransport(&network_, executor);
  }
  bool WaitFor(const bs::Notification& notification) override {
    return notification.WaitFor(std::chrono::seconds(30));
  }
  Address AnyAddress() override { return {"host", 0}; }
  Address FreeAddress() override { return {"host", 1}; }
  // Waits until the network has seen everything sent so far.
  void FlushNetwork() {
    bs::Notification done;
    network_loop_.Post([&] { done.Notify(); });
    done.Wait();
  }

 private:
  bs::LoopThread network_loop_{"network"};
  InprocNetwork network_{&network_loop_};
  std::vector<std::unique_ptr<bs::LoopThread>> loops_;
};

std::unique_ptr<TransportWorld> MakeInprocWorld() { return std::make_unique<InprocWorld>(); }

INSTANTIATE_TEST_SUITE_P(Inproc, TransportConformance, ::testing::Values(&MakeInprocWorld));

TEST(InprocTransport, FramesAreHandedOverWithoutACopy) {
  InprocWorld world;
  TransportNode receiver(&world);
  TransportNode sender(&world);
  const Address address{"host", 4711};
  ASSERT_TRUE(receiver.Bind(address).ok());
  sender.Connect(8, address, 9);
  const std::vector<std::byte> bytes = Pattern(100, 1);
  Message message = Numbered(8, 1);
  message.data.push_back(Frame::Borrow(bytes, {}));
  sender.Send(std::move(message));
  ASSERT_TRUE(receiver.AwaitMessages(1));
  EXPECT_EQ(receiver.TakeMessages()[0].data[0].bytes().data(), bytes.data());
}

TEST(InprocTransport, UrgentMessageOvertakesThoseBehindABusyReceiver) {
  InprocWorld world;
  bs::LoopThread receiver_loop("receiver");
  const auto receiver = world.NewTransport(&receiver_loop);
  TransportNode sender(&world);
  bs::Notification first_came;
  bs::Notification go_on;
  bs::Notification all_came;
  std::vector<int32_t> numbers;  // on receiver_loop until all came
  receiver->Start({.on_message =
                       [&](const Message& message) {
                         numbers.push_back(message.meta.timestamp);
                         if (numbers.size() == 1) {
                           first_came.Notify();
                           go_on.Wait();
                         }
                         if (numbers.size() == 12) all_came.Notify();
                       },
                   .on_garbage = {},
                   .on_connected = {},
                   .on_disconnected = {}});
  receiver->Bind({"host", 4711}, [](const bs::Result<int32_t>& port) { EXPECT_TRUE(port.ok()); });
  sender.Connect(8, {"host", 4711}, 9);
  for (int32_t i = 0; i <= 10; ++i) sender.Send(Numbered(8, i));
  ASSERT_TRUE(world.WaitFor(first_came));
  sender.Send(Numbered(8, 100, 1));
  world.FlushNetwork();
  go_on.Notify();
  ASSERT_TRUE(world.WaitFor(all_came));
  EXPECT_EQ(numbers[1], 100);
  receiver->Close(bs::Duration::zero());
}

TEST(InprocTransport, HostlessAddressIsRefused) {
  InprocWorld world;
  TransportNode node(&world);
  const auto port = node.Bind({"", 0});
  ASSERT_FALSE(port.ok());
  EXPECT_EQ(port.status().code(), bs::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ps::testing
