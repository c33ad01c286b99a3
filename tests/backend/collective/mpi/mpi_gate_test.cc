// MpiGate: a thread that closes it, and a thread inside.
#include "backend/collective/mpi/mpi_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/notification.h"

namespace bs::backend::collective {
namespace {

TEST(MpiGateTest, NothingComesInOnceItIsClosed) {
  MpiGate gate;
  EXPECT_TRUE(MpiGate::Visit(&gate).is_inside());
  EXPECT_TRUE(MpiGate::Visit(&gate).is_inside());
  gate.Close();
  EXPECT_FALSE(MpiGate::Visit(&gate).is_inside());
  gate.Close();
}

// However long a copy takes, no array of a caller is in use once it is closed.
TEST(MpiGateTest, ClosingWaitsForALongVisit) {
  MpiGate gate;
  Notification entered;
  Notification goes_on;
  std::atomic<bool> left = false;
  std::thread visitor([&] {
    const MpiGate::Visit visit(&gate);
    entered.Notify();
    goes_on.Wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    left = true;
  });
  entered.Wait();
  EXPECT_FALSE(gate.CloseWithin(std::chrono::milliseconds(1)));
  goes_on.Notify();
  gate.Close();
  EXPECT_TRUE(left);
  visitor.join();
}

}  // namespace
}  // namespace bs::backend::collective
