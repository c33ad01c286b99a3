// A process that hosts a server, for tests: it adds gradients to weights and notes what it is
// asked.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/optimizer/hosted_updates.h"
#include "server/optimizer/server_updater.h"
#include "server/support.h"
#include "sim/sim_executor.h"

namespace bs::server {

inline HostedUpdates::Optimizer MakePickle(const std::string& pickle = "p") {
  return std::make_shared<const HostedOptimizer>(HostedOptimizer{pickle});
}

// Its calls run on an executor of its own.  Not thread-safe.
class FakeHost {
 public:
  explicit FakeHost(sim::SimClock* clock) : executor_(clock) {}

  // `this` must outlive it.  The pickle "bad" is refused: "no such class".
  ServerUpdater Updater();

  std::string fails;    // the next update, with these words
  bool throws = false;  // updates run out of memory

  std::vector<std::string> calls;  // "set PICKLE", "update KEY"
  std::vector<std::string> abouts;
  std::vector<float> gradient;  // the three below: of the latest update
  PushRates rates;
  DType dtype = DType::kFloat32;

 private:
  Status Update(const ServerUpdate& update);

  sim::SimExecutor executor_;
};

// Simulated time, one executor for what is tested, its hosting process, and what it sends.
struct HostedBench {
  // What was sent since, one second later.
  std::vector<ps::Message> Settle() { return Pass(std::chrono::seconds(1)); }
  std::vector<ps::Message> Pass(Duration duration) {
    clock.RunUntil(clock.Now() + duration);
    return outbox.All();
  }

  sim::SimClock clock{1};
  FakeHost host{&clock};
  sim::SimExecutor executor{&clock};
  Outbox outbox;
};

}  // namespace bs::server
