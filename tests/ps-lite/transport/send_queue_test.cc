#include "transport/send_queue.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace ps {
namespace {

constexpr uint64_t kOfMessage = 1024;  // that each counts at least

Message Of(int32_t priority, size_t bytes, bool native = false) {
  Message message;
  message.meta.priority = priority;
  message.meta.extension.version = native ? kExtensionVersion : 0;
  message.data.push_back(Frame::Copy(std::vector<std::byte>(bytes)));
  return message;
}

TEST(SendQueue, UrgentMessagesLeaveFirstAndEqualMessagesInOrder) {
  SendQueue queue;
  for (const auto& [priority, size] :
       std::vector<std::pair<int32_t, size_t>>{{0, 1}, {5, 2}, {0, 3}, {5, 4}}) {
    queue.Add(Of(priority, size));
  }
  std::vector<size_t> sizes;
  while (!queue.empty()) sizes.push_back(queue.Take().data.front().size());
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 4, 1, 3}));
}

TEST(SendQueue, FramesOfMxnetsOwnCountUntilTheyAreTaken) {
  SendQueue queue;
  queue.Add(Of(0, 5000));
  queue.Add(Of(0, 5000, /*native=*/true));
  EXPECT_EQ(queue.waiting_bytes(), 2 * kOfMessage + 5000);
  queue.Take();
  EXPECT_EQ(queue.waiting_bytes(), kOfMessage);
  queue.Take();
  EXPECT_EQ(queue.waiting_bytes(), 0U);
}

TEST(SendQueue, NativeFramesThatKeepMemoryCountAndSoDoTextAndBody) {
  SendQueue queue;
  Message copy = Of(0, 5000, /*native=*/true);
  copy.keeps_memory = true;
  queue.Add(std::move(copy));
  EXPECT_EQ(queue.waiting_bytes(), kOfMessage + 5000);
  Message wordy = Of(0, 5000, /*native=*/true);
  wordy.meta.extension.text = std::string(300, 'x');
  wordy.meta.extension.body = Body(std::string(121, 'x'));
  queue.Add(std::move(wordy));
  EXPECT_EQ(queue.waiting_bytes(), 2 * kOfMessage + 5421);
  queue.Take();
  queue.Take();
  EXPECT_EQ(queue.waiting_bytes(), 0U);
}

// A ZmqConnection hands the frames to libzmq before the message leaves the queue.
TEST(SendQueue, AMessageThatIsEmptiedFirstCountsNoLonger) {
  SendQueue queue;
  for (int i = 0; i < 10; ++i) {
    queue.Add(Of(0, 5000));
    const Frame handed = std::move(queue.first()->data.front());
    EXPECT_EQ(handed.size(), 5000U);
    queue.Take();
  }
  EXPECT_EQ(queue.waiting_bytes(), 0U);
}

}  // namespace
}  // namespace ps
