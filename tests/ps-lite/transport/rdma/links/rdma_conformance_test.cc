// The TCP transport with RDMA over simulated NICs: the conformance suites.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "ps-lite/transport/socket_conformance.h"
#include "transport/tcp/tcp_transport.h"

namespace ps::test {
namespace {

// Every node has a NIC of its own.
class RdmaWorld final : public TransportWorld {
 public:
  RdmaWorld()
      : loops_([this](bs::LoopThread* loop, size_t number) { return Make(loop, number); }) {}
  RdmaWorld(const RdmaWorld&) = delete;
  RdmaWorld& operator=(const RdmaWorld&) = delete;
  ~RdmaWorld() override { EXPECT_THAT(fabric_.Violations(), ::testing::IsEmpty()); }

  bs::Executor* NewExecutor() override { return loops_.NewExecutor(); }
  std::unique_ptr<Transport> NewTransport(bs::Executor* executor) override {
    return loops_.NewTransport(executor);
  }
  bool WaitFor(const bs::Notification& notification) override {
    return loops_.WaitFor(notification);
  }
  Address AnyAddress() override { return loops_.AnyAddress(); }
  Address FreeAddress() override { return loops_.FreeAddress(); }

 private:
  std::unique_ptr<Transport> Make(bs::LoopThread* loop, size_t number) {
    TcpOptions options;
    options.rdma.device = "sim" + std::to_string(number);
    options.rdma.verbs = fabric_.Add(options.rdma.device);
    options.rdma.path.gid_index = 1;
    return MakeTcpTransport(loop, options, bs::Logger());
  }

  SimulatedFabric fabric_;
  LoopWorld loops_;
};

std::unique_ptr<TransportWorld> MakeRdmaWorld() { return std::make_unique<RdmaWorld>(); }

INSTANTIATE_TEST_SUITE_P(Rdma, TransportConformance, ::testing::Values(&MakeRdmaWorld));
INSTANTIATE_TEST_SUITE_P(Rdma, SocketConformance, ::testing::Values(&MakeRdmaWorld));

}  // namespace
}  // namespace ps::test
