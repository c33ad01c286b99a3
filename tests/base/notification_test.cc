// Notification: notified once, seen by every thread, all waits end.
#include "base/notification.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace bs {
namespace {

TEST(Notification, StaysNotified) {
  Notification notification;
  EXPECT_FALSE(notification.HasBeenNotified());
  EXPECT_FALSE(notification.WaitFor(std::chrono::milliseconds(1)));
  notification.Notify();
  notification.Notify();
  EXPECT_TRUE(notification.HasBeenNotified());
  EXPECT_TRUE(notification.WaitFor(Duration::zero()));
  notification.Wait();
}

TEST(Notification, WakesAllWaiters) {
  Notification notification;
  int value = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      notification.Wait();
      EXPECT_EQ(value, 5);  // what was written before Notify() is seen
    });
  }
  value = 5;
  notification.Notify();
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(Notification, WaiterMayDestroyItAtOnce) {
  for (int i = 0; i < 200; ++i) {
    auto notification = std::make_unique<Notification>();
    std::thread notifier([n = notification.get()] { n->Notify(); });
    notification->Wait();
    notification.reset();
    notifier.join();
  }
}

}  // namespace
}  // namespace bs
