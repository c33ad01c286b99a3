// The TCP transport with RDMA over real devices, which a guest has (tests/rdma): the conformance
// suites.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ps-lite/transport/socket_conformance.h"
#include "transport/rdma/ibverbs.h"
#include "transport/rdma/rdma_choice.h"
#include "transport/socket_address.h"
#include "transport/tcp/tcp_transport.h"

namespace ps::testing {
namespace {

// The nodes have the devices in turns; their TCP connections are on the loopback interface.
class SoftRoce {
 public:
  SoftRoce() : verbs_(LoadVerbsLibrary({}).value()) {
    const std::vector<RdmaDevice> devices = verbs_->Devices().value();
    for (const char* const address : {"10.77.0.1", "10.77.0.2"}) {
      choices_.push_back(
          ChooseRdmaPort(devices, SocketAddress::Parse(address).value(), "", {}).value());
    }
  }
  RdmaOptions Of(size_t number) const {
    const RdmaChoice& choice = choices_.at(number % choices_.size());
    return {.verbs = verbs_, .device = choice.device, .path = choice.path};
  }

 private:
  const std::shared_ptr<Verbs> verbs_;
  std::vector<RdmaChoice> choices_;
};

std::unique_ptr<TransportWorld> MakeSoftRoceWorld() {
  return std::make_unique<LoopWorld>([soft = SoftRoce()](bs::LoopThread* loop, size_t number) {
    TcpOptions options;
    options.rdma = soft.Of(number);
    return MakeTcpTransport(loop, options, bs::Logger());
  });
}

INSTANTIATE_TEST_SUITE_P(SoftRoce, TransportConformance, ::testing::Values(&MakeSoftRoceWorld));
INSTANTIATE_TEST_SUITE_P(SoftRoce, SocketConformance, ::testing::Values(&MakeSoftRoceWorld));

}  // namespace
}  // namespace ps::testing
