// The simulator's transport passes the suite of all transports.
#include <memory>
#include <vector>

#include "ps-lite/transport/transport_conformance.h"
#include "sim/sim_executor.h"
#include "sim/sim_network.h"

namespace ps::test {
namespace {

class SimWorld final : public TransportWorld {
 public:
  bs::Executor* NewExecutor() override {
    executors_.push_back(std::make_unique<bs::sim::SimExecutor>(&clock_));
    return executors_.back().get();
  }
  std::unique_ptr<Transport> NewTransport(bs::Executor* executor) override {
    return network_.MakeTransport(executor);
  }
  bool WaitFor(const bs::Notification& notification) override {
    while (!notification.HasBeenNotified()) {
      if (!clock_.Step()) return false;
    }
    return true;
  }
  Address AnyAddress() override { return {"10.0.0.1", 0}; }
  Address FreeAddress() override { return {"10.0.0.1", 1}; }

 private:
  // Equal delays: the suite asks for the order of leaving, which random delays hide.
  static bs::sim::SimNetworkOptions Options() {
    bs::sim::SimNetworkOptions options;
    options.delay_min = options.delay_max = std::chrono::microseconds(100);
    return options;
  }
  bs::sim::SimClock clock_{1};
  bs::sim::SimNetwork network_{&clock_, Options()};
  std::vector<std::unique_ptr<bs::sim::SimExecutor>> executors_;
};

std::unique_ptr<TransportWorld> MakeSimWorld() { return std::make_unique<SimWorld>(); }

INSTANTIATE_TEST_SUITE_P(Sim, TransportConformance, ::testing::Values(&MakeSimWorld));

}  // namespace
}  // namespace ps::test
