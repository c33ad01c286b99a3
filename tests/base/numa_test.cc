// NUMA: the cores we may use, and buffers that are zeroed, aligned and moved.
#include "base/numa.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace bs {
namespace {

std::set<int> CoresOf(const std::vector<NumaNode>& nodes) {
  std::set<int> cores;
  for (const NumaNode& node : nodes) cores.insert(node.cores.begin(), node.cores.end());
  return cores;
}

std::set<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::set<int> cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<size_t>(i), &set)) cores.insert(i);
  }
  return cores;
}

TEST(DiscoverNumaNodes, GivesEachUsableCoreOnce) {
  const std::vector<NumaNode> nodes = DiscoverNumaNodes();
  ASSERT_FALSE(nodes.empty());
  size_t count = 0;
  for (const NumaNode& node : nodes) {
    EXPECT_GE(node.id, 0);
    EXPECT_FALSE(node.cores.empty());
    EXPECT_TRUE(std::is_sorted(node.cores.begin(), node.cores.end()));
    count += node.cores.size();
  }
  const std::set<int> cores = CoresOf(nodes);
  EXPECT_EQ(cores.size(), count);
  EXPECT_EQ(cores, AllowedCores());
}

TEST(DiscoverNumaNodes, RespectsTheAffinityOfTheCaller) {
  const std::set<int> allowed = AllowedCores();
  for (const int only : {*allowed.begin(), *allowed.rbegin()}) {
    std::thread([only] {  // a thread of its own: the affinity ends with it
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<size_t>(only), &set);
      ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
      const std::vector<NumaNode> nodes = DiscoverNumaNodes();
      ASSERT_EQ(nodes.size(), 1U);
      EXPECT_EQ(nodes[0].cores, std::vector<int>{only});
    })
        .join();
  }
}

TEST(FindNode, IsOneOfSeveralOrNone) {
  const std::vector<NumaNode> two = {{.id = 0, .cores = {0, 1}}, {.id = 3, .cores = {2}}};
  ASSERT_NE(FindNode(two, 3), nullptr);
  EXPECT_EQ(FindNode(two, 3)->cores, std::vector<int>{2});
  EXPECT_EQ(FindNode(two, 1), nullptr);
  EXPECT_EQ(FindNode(two, -1), nullptr);
  EXPECT_EQ(FindNode({two[1]}, 3), nullptr) << "there is no other";
  EXPECT_EQ(FindNode({}, 0), nullptr);
}

TEST(PinThisThread, BindsToSeveralCores) {
  std::thread([] {
    const std::set<int> before = AllowedCores();
    EXPECT_FALSE(PinThisThread(std::vector<int>{}));
    EXPECT_FALSE(PinThisThread(std::vector<int>{*before.begin(), -1}));
    EXPECT_EQ(AllowedCores(), before);
    EXPECT_TRUE(PinThisThread(std::vector<int>(before.begin(), before.end())));
    EXPECT_EQ(AllowedCores(), before);
    EXPECT_TRUE(PinThisThread(std::vector<int>{*before.begin()}));
    EXPECT_EQ(AllowedCores(), std::set<int>{*before.begin()});
  }).join();
}

TEST(PinThisThread, BindsToOneCoreOrChangesNothing) {
  std::thread([] {
    const std::set<int> before = AllowedCores();
    EXPECT_FALSE(PinThisThread(-1));
    EXPECT_FALSE(PinThisThread(100000));
    EXPECT_EQ(AllowedCores(), before);
    EXPECT_TRUE(PinThisThread(*before.rbegin()));
    EXPECT_EQ(AllowedCores(), std::set<int>{*before.rbegin()});
  }).join();
}

TEST(NodeBuffer, IsZeroedAndPageAligned) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const NodeBuffer buffer(4 * page_bytes + 17, DiscoverNumaNodes().front().id);
  ASSERT_NE(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size_bytes(), 4 * page_bytes + 17);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % page_bytes, 0U);
  EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size_bytes(),
                          [](std::byte b) { return b == std::byte{0}; }));
  std::fill(buffer.data(), buffer.data() + buffer.size_bytes(), std::byte{0xff});
}

TEST(NodeBuffer, SmallBuffersSharePages) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::vector<NodeBuffer> buffers;
  std::set<uintptr_t> pages;
  for (int i = 0; i < 1000; ++i) {
    buffers.emplace_back(4, 0);
    ASSERT_NE(buffers.back().data(), nullptr);
    EXPECT_EQ(*buffers.back().data(), std::byte{0});
    *buffers.back().data() = std::byte{0xff};
    pages.insert(reinterpret_cast<uintptr_t>(buffers.back().data()) / page_bytes);
  }
  EXPECT_LT(pages.size(), 100U);
}

TEST(NodeBuffer, HasAllItsBytesWhereverTheyAre) {
  for (const size_t size_bytes : {NodeBuffer::kWholePagesFrom - 1, NodeBuffer::kWholePagesFrom}) {
    const NodeBuffer buffer(size_bytes, 0);
    std::fill(buffer.data(), buffer.data() + size_bytes, std::byte{0xff});
    EXPECT_EQ(buffer.size_bytes(), size_bytes);
  }
}

// The NUMA node of the page at `address`; -1 where the system does not tell.
int NodeOfPage(const void* address) {
  constexpr unsigned long kNodeOfAddress = 1 | 2;  // MPOL_F_NODE | MPOL_F_ADDR
  int node = -1;
  return syscall(SYS_get_mempolicy, &node, nullptr, 0, address, kNodeOfAddress) == 0 ? node : -1;
}

TEST(NodeBuffer, LiesOnTheNodeThatWasAskedFor) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const NumaNode& node : DiscoverNumaNodes()) {
    const NodeBuffer buffer(4 * page_bytes, node.id);
    for (size_t page = 0; page < 4; ++page) {
      std::byte* const first = buffer.data() + page * page_bytes;
      *first = std::byte{1};
      const int where = NodeOfPage(first);
      if (where < 0) GTEST_SKIP() << "this system does not tell where memory is";
      EXPECT_EQ(where, node.id) << "page " << page;
    }
  }
}

TEST(NodeBuffer, NodeThatDoesNotExistStillGivesMemory) {
  for (const int node : {-1, 999, 1 << 20}) {
    EXPECT_FALSE(CanPlaceOn(node)) << node;
    const NodeBuffer buffer(4096, node);
    ASSERT_NE(buffer.data(), nullptr) << node;
    EXPECT_EQ(buffer.data()[4095], std::byte{0});
  }
}

TEST(NodeBuffer, EmptyOneHasNoMemory) {
  EXPECT_EQ(NodeBuffer().data(), nullptr);
  const NodeBuffer buffer(0, 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(buffer.size_bytes(), 0U);
}

TEST(NodeBuffer, ItsPagesAreAllOfItsMemoryUnlessThatIsOfTheHeap) {
  EXPECT_TRUE(NodeBuffer(NodeBuffer::kWholePagesFrom - 1, 0).pages().empty());
  const NodeBuffer buffer(NodeBuffer::kWholePagesFrom + 1, 0);
  const std::span<std::byte> pages = buffer.pages();
  EXPECT_EQ(pages.data(), buffer.data());
  EXPECT_GT(pages.size(), buffer.size_bytes());
  EXPECT_EQ(pages.size() % 4096, 0U);
  pages.back() = std::byte{1};
}

TEST(NodeBuffer, MovesItsMemory) {
  NodeBuffer first(4096, 0);
  first.data()[7] = std::byte{42};
  const std::byte* const data = first.data();
  NodeBuffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): the moved-from state
  NodeBuffer third(8192, 0);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size_bytes(), 4096U);
  EXPECT_EQ(third.data()[7], std::byte{42});
  EXPECT_EQ(second.size_bytes(), 0U);  // NOLINT(bugprone-use-after-move): the moved-from state
}

}  // namespace
}  // namespace bs
