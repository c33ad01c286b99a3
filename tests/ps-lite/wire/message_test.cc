// Frames give their memory back exactly once; ids and roles have names.
#include "ps/message.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "base/snapshot.h"

namespace ps {
namespace {

constexpr std::array<std::byte, 3> kBytes{std::byte{1}, std::byte{2}, std::byte{3}};

Frame Counted(int* released) {
  return Frame::Borrow(kBytes, [released] { ++*released; });
}

TEST(Frame, BorrowedBytesAreNotCopied) {
  const Frame frame = Frame::Borrow(kBytes, {});
  EXPECT_EQ(frame.bytes().data(), kBytes.data());
  EXPECT_EQ(frame.size(), 3u);
}

TEST(Frame, CopyOutlivesItsSource) {
  std::optional<std::string> source = "a text that is longer than any small-string buffer";
  const Frame frame = Frame::Copy(*source);
  EXPECT_NE(static_cast<const void*>(frame.bytes().data()), source->data());
  source.reset();
  EXPECT_SNAPSHOT(frame.text(), "a text that is longer than any small-string buffer");
}

TEST(Frame, OnlyItsOwnBytesAreWritable) {
  std::byte bytes[3] = {};
  Frame own = Frame::Own(bytes, {});
  EXPECT_EQ(own.writable().data(), own.bytes().data());
  EXPECT_EQ(own.writable().size(), 3u);
  const Frame moved = std::move(own);
  EXPECT_TRUE(own.writable().empty());  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(moved.writable().data(), bytes);
  const Frame copy = Frame::Copy(moved.bytes());
  EXPECT_EQ(copy.writable().data(), copy.bytes().data());
  EXPECT_TRUE(Frame::Borrow(kBytes, {}).writable().empty());
  const auto whole = std::make_shared<const Frame>(Frame::Copy("whole"));
  EXPECT_TRUE(Frame::PartOf(whole, whole->bytes()).writable().empty());
}

TEST(Frame, ALaterFrameTakesWritabilityAlong) {
  std::byte bytes[3] = {};
  Frame frame = Frame::Own(bytes, {});
  frame = Frame::Borrow(kBytes, {});
  EXPECT_TRUE(frame.writable().empty());
  frame = Frame::Own(bytes, {});
  EXPECT_EQ(frame.writable().size(), 3u);
}

TEST(Frame, EmptyCopyIsEmpty) {
  EXPECT_EQ(Frame::Copy("").size(), 0u);
  EXPECT_EQ(Frame().text(), "");
}

TEST(Frame, IsReleasedOnceWhenItDies) {
  int released = 0;
  {
    const Frame frame = Counted(&released);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Frame, MovesItsReleaseAlong) {
  int released = 0;
  std::optional<Frame> first = Counted(&released);
  {
    const Frame second = std::move(*first);
    first.reset();
    EXPECT_EQ(released, 0);
    EXPECT_EQ(second.bytes().data(), kBytes.data());
  }
  EXPECT_EQ(released, 1);
}

TEST(Frame, IsEmptyAfterBeingMovedFrom) {
  int released = 0;
  Frame first = Counted(&released);
  const Frame second = std::move(first);
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): that is what is tested
  EXPECT_EQ(first.size(), 0u);
}

TEST(Frame, IsReleasedWhenAssignedOver) {
  int first_released = 0;
  int second_released = 0;
  Frame frame = Counted(&first_released);
  frame = Counted(&second_released);
  EXPECT_EQ(first_released, 1);
  EXPECT_EQ(second_released, 0);
  frame = Frame();
  EXPECT_EQ(second_released, 1);
}

TEST(Frame, ReleaseSeesTheFrameThatReplacedIt) {
  Frame frame;
  size_t seen = 0;
  frame = Frame::Borrow({}, [&] { seen = frame.size(); });
  frame = Frame::Borrow(kBytes, {});
  EXPECT_EQ(seen, 3u);
}

TEST(Ids, FollowTheProtocolsFormulas) {
  EXPECT_EQ(ServerId(0), 8);
  EXPECT_EQ(WorkerId(0), 9);
  EXPECT_EQ(ServerId(3), 14);
  EXPECT_EQ(WorkerId(3), 15);
  for (const int32_t rank : {0, 1, 255, 100000}) {
    EXPECT_EQ(RankOf(ServerId(rank)), rank);
    EXPECT_EQ(RankOf(WorkerId(rank)), rank);
    EXPECT_EQ(RankOf(AttachedId(rank)), rank);
    EXPECT_TRUE(IsAttachedId(AttachedId(rank)));
    EXPECT_FALSE(IsAttachedId(WorkerId(rank)));
  }
  EXPECT_EQ(RankOf(kSchedulerId), 0);
  EXPECT_FALSE(IsAttachedId(kEmpty));
}

TEST(Ids, AreDescribedForPeople) {
  EXPECT_EQ(DescribeId(kSchedulerId), "the scheduler");
  EXPECT_EQ(DescribeId(8), "server 0");
  EXPECT_EQ(DescribeId(11), "worker 1");
  EXPECT_EQ(DescribeId(AttachedId(1)), "worker 1");
  EXPECT_EQ(DescribeId(kEmpty), "an anonymous node");
  EXPECT_EQ(DescribeId(5), "node 5");
  EXPECT_EQ(DescribeId(-3), "node -3");
}

TEST(Roles, HaveNames) {
  EXPECT_EQ(NameOf(Role::kServer), "server");
  EXPECT_EQ(NameOf(Role::kWorker), "worker");
  EXPECT_EQ(NameOf(Role::kScheduler), "scheduler");
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): that is what is tested
  EXPECT_EQ(NameOf(static_cast<Role>(77)), "unknown role");
}

}  // namespace
}  // namespace ps
