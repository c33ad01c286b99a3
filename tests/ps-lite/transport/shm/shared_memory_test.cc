// Shared memory: the frames in it, their lifetime, and hostile offers.
#include "transport/shm/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ps-lite/transport/shm/no_memory.h"

namespace ps {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSlot = SharedMapping::kSlotBytes;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::unique_ptr<SharedOutbox> NewOutbox(uint64_t size_bytes) {
  auto outbox = SharedOutbox::Create(size_bytes);
  EXPECT_TRUE(outbox.ok()) << outbox.status().ToString();
  return std::move(outbox.value());
}

std::shared_ptr<SharedInbox> InboxOf(const SharedOutbox& outbox) {
  auto inbox = SharedInbox::Open(outbox.offer());
  EXPECT_TRUE(inbox.ok()) << inbox.status().ToString();
  return std::move(inbox.value());
}

std::string WhyRefused(const std::string& offer) {
  const auto inbox = SharedInbox::Open(offer);
  return inbox.ok() ? "it was taken" : inbox.status().message();
}

TEST(SharedMemory, BytesAreThereUntilTheirFrameIsGone) {
  const auto outbox = NewOutbox(4 * kSlot);
  const auto inbox = InboxOf(*outbox);
  const std::string first(2 * kSlot - 5, 'a');
  const std::string second(kSlot, 'b');
  const auto at_first = outbox->Put(BytesOf(first));
  const auto at_second = outbox->Put(BytesOf(second));
  ASSERT_TRUE(at_first && at_second);
  Frame frame = std::move(inbox->Take(*at_first, first.size()).value());
  EXPECT_EQ(frame.text(), first);
  EXPECT_EQ(inbox->Take(*at_second, second.size()).value().text(), second);
  // The second has room again, the first not yet.
  EXPECT_FALSE(outbox->Put(BytesOf(std::string(3 * kSlot, 'c'))));
  EXPECT_EQ(outbox->Put(BytesOf(std::string(2 * kSlot, 'c'))), 2 * kSlot);
  EXPECT_EQ(frame.text(), first);
  frame = {};
  EXPECT_EQ(outbox->Put(BytesOf(second)), 0U);
}

TEST(SharedMemory, IsFullWhereNoReaderTakesAnything) {
  const auto outbox = NewOutbox(10 * kSlot);
  for (uint64_t slot = 0; slot < 10; ++slot) EXPECT_EQ(outbox->Put(BytesOf("x")), slot * kSlot);
  EXPECT_FALSE(outbox->Put(BytesOf("x")));
  EXPECT_FALSE(NewOutbox(kSlot)->Put(BytesOf(std::string(kSlot + 1, 'x'))));
}

TEST(SharedMemory, HoldsLittleThatTheReaderHasNotBegunToRead) {
  constexpr uint64_t kHalf = SharedOutbox::kMostUnreadBytes / 2;
  const auto outbox = NewOutbox(8 * kHalf);
  const auto inbox = InboxOf(*outbox);
  const std::string half(kHalf, 'x');
  EXPECT_TRUE(outbox->Put(BytesOf(half)));
  const auto second = outbox->Put(BytesOf(half));
  ASSERT_TRUE(second);
  EXPECT_FALSE(outbox->Put(BytesOf("x")));
  const Frame read = std::move(inbox->Take(0, half.size()).value());
  EXPECT_EQ(outbox->Put(BytesOf(half)), 2 * kHalf) << "the first is still needed";
  EXPECT_FALSE(outbox->Put(BytesOf("x")));
  for (const uint64_t at : {*second, 2 * kHalf}) EXPECT_TRUE(inbox->Take(at, half.size()).ok());
  EXPECT_TRUE(outbox->Put(BytesOf(std::string(3 * kHalf, 'x')))) << "one may be longer";
}

// `does` on a thread for which there is no memory to map, which ends with `error`.
template <typename F>
void WithoutMemory(int error, F does) {
  bool refuses = false;
  std::thread thread([&] { does([&] { refuses = test::RefusePopulating(error); }); });
  thread.join();
  if (!refuses) GTEST_SKIP() << "the kernel filters no calls of a thread";
}

TEST(SharedMemory, GivesUpSlotsThatTheSystemHasNoMemoryFor) {
  WithoutMemory(EFAULT, [](const auto& refuse) {
    const auto outbox = NewOutbox(4 * kSlot);
    const auto inbox = InboxOf(*outbox);
    EXPECT_EQ(outbox->Put(BytesOf("x")), 0U);
    refuse();
    EXPECT_TRUE(outbox->memory().ok());
    EXPECT_FALSE(outbox->Put(BytesOf("x")));
    EXPECT_THAT(outbox->memory().message(), HasSubstr("32768 bytes: Bad address"));
    EXPECT_TRUE(inbox->Take(0, 1).ok());
    EXPECT_EQ(outbox->Put(BytesOf("x")), 0U) << "what has memory is used on";
    EXPECT_FALSE(outbox->Put(BytesOf("x")));
    EXPECT_THAT(SharedOutbox::Create(kSlot).status().message(), HasSubstr("65536 bytes: "));
  });
}

// In a process whose files lie in a memory of 128 KiB.
TEST(SharedMemory, IsNotPopulatedBeyondALimit) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/tmp", "tmpfs", 0, "size=128k") != 0) {
      ::_exit(77);
    }
    const int fd = ::open("/tmp/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const auto size = static_cast<off_t>(SharedMapping::FileBytes(3 * kSlot));
    const SharedMapping mapping(::ftruncate(fd, size) == 0 ? fd : -1, 3 * kSlot);
    const bool populated = mapping && mapping.PopulateHead(fd).ok() &&
                           mapping.PopulateSlot(fd, 0).ok() && mapping.PopulateSlot(fd, 1).ok();
    ::_exit(populated && !mapping.PopulateSlot(fd, 2).ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs root";
  EXPECT_EQ(status, 0);
}

// Descriptors of shared memory that this process has.
size_t Descriptors() {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string where = std::filesystem::read_symlink(entry.path(), gone).string();
    if (where.starts_with("/memfd:bytescheduler")) ++found;
  }
  return found;
}

TEST(SharedMemory, TakesItFromTheFileOnKernelsThatCannotPopulateAMapping) {
  WithoutMemory(EINVAL, [](const auto& refuse) {
    refuse();
    const auto outbox = NewOutbox(4 * kSlot);
    const auto inbox = InboxOf(*outbox);
    outbox->Taken();
    EXPECT_EQ(Descriptors(), 1U);
    EXPECT_EQ(outbox->Put(BytesOf("what it said")), 0U);
    EXPECT_EQ(inbox->Take(0, 12).value().text(), "what it said");
  });
}

TEST(SharedMemory, TakenItHasNoDescriptorAnyMore) {
  const auto outbox = NewOutbox(kSlot);
  const auto inbox = InboxOf(*outbox);
  EXPECT_EQ(Descriptors(), 1U);
  outbox->Taken();
  EXPECT_EQ(Descriptors(), 0U);
  EXPECT_TRUE(outbox->Put(BytesOf("x")));
}

TEST(SharedMemory, IsNotInChildren) {
  const auto outbox = NewOutbox(kSlot);
  const auto inbox = InboxOf(*outbox);
  const pid_t child = ::fork();
  if (child == 0) {
    std::ifstream maps("/proc/self/maps");
    int found = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/memfd:bytescheduler") != std::string::npos) ++found;
    }
    ::_exit(found);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SharedMemory, OutlivesItsSender) {
  auto outbox = NewOutbox(kSlot);
  auto inbox = InboxOf(*outbox);
  const std::string text(kSlot, 'x');
  const auto at = outbox->Put(BytesOf(text));
  const Frame frame = std::move(inbox->Take(*at, text.size()).value());
  inbox.reset();
  outbox.reset();
  EXPECT_EQ(frame.text(), text);
}

TEST(SharedMemory, CanBeReadWhenItsSenderWasKilled) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto outbox = std::move(SharedOutbox::Create(kSlot).value());
    static_cast<void>(outbox->Put(BytesOf("what it said")));
    const std::string& offer = outbox->offer();
    static_cast<void>(::write(ends[1], offer.data(), offer.size()) + ::pause());
    ::_exit(0);
  }
  std::string offer(200, ' ');
  const ssize_t got = ::read(ends[0], offer.data(), offer.size());
  ASSERT_GT(got, 0);
  offer.resize(static_cast<size_t>(got));
  const auto inbox = SharedInbox::Open(offer);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(inbox.ok()) << inbox.status().ToString();
  EXPECT_EQ(inbox.value()->Take(0, 12).value().text(), "what it said");
  EXPECT_THAT(WhyRefused(offer), HasSubstr("is none, or another user's")) << "it is gone";
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SharedMemory, HasNoMoreThanTheMost) {
  const auto outbox = NewOutbox(uint64_t{1} << 40U);
  EXPECT_TRUE(outbox->Put(BytesOf("x")));
  EXPECT_THAT(outbox->offer(), HasSubstr(" " + std::to_string(SharedMapping::kMostBytes) + " "));
  InboxOf(*outbox);
}

TEST(SharedMemory, NothingOutsideIsTaken) {
  const auto outbox = NewOutbox(2 * kSlot);
  const auto inbox = InboxOf(*outbox);
  constexpr uint64_t kHuge = ~uint64_t{0};
  for (const auto& [offset, size] :
       std::vector<std::pair<uint64_t, uint64_t>>{{0, 0},
                                                  {0, 2 * kSlot + 1},
                                                  {kSlot, kSlot + 1},
                                                  {2 * kSlot, 1},
                                                  {1, 1},
                                                  {kHuge, 1},
                                                  {0, kHuge},
                                                  {kHuge - kSlot + 1, kHuge}}) {
    const auto frame = inbox->Take(offset, size);
    ASSERT_FALSE(frame.ok()) << offset << " " << size;
    EXPECT_EQ(frame.status().code(), bs::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(inbox->Take(0, 2 * kSlot).ok());
}

TEST(SharedMemory, OffersThatAreNoneAreRefused) {
  const auto outbox = NewOutbox(2 * kSlot);
  const std::string good = outbox->offer();
  const std::string pid = std::to_string(::getpid());
  for (const std::string& bad :
       {std::string(), std::string(" "), std::string("1 2 3 4"), "2" + good.substr(1), good + " x",
        std::string("1 x 3 65536 aa"), std::string("1 -1 3 65536 aa"),
        std::string("1 ../../etc 3 65536 aa"), "1 " + pid + " 0 65537 aa",
        "1 " + pid + " 0 99999999999999999999 aa", "1 " + pid + " 0 0 aa"}) {
    EXPECT_THAT(WhyRefused(bad), HasSubstr("shared memory: ")) << bad;
  }
  EXPECT_THAT(WhyRefused(good.substr(0, good.size() - 1) + "x"), HasSubstr("not what was offered"));
  EXPECT_EQ(WhyRefused(good), "it was taken");
}

TEST(SharedMemory, OnlyMemoryThatASenderHasMadeIsOpened) {
  const std::string pid = std::to_string(::getpid());
  const auto refused = [&](int fd) {
    const std::string why = WhyRefused("1 " + pid + " " + std::to_string(fd) + " 65536 aa");
    if (fd >= 0) ::close(fd);
    return why;
  };
  EXPECT_THAT(refused(::open("/dev/null", O_RDWR)), HasSubstr("is none, or another user's"));
  EXPECT_THAT(refused(-1), HasSubstr("shared memory: "));
  EXPECT_THAT(refused(::memfd_create("another", 0)), HasSubstr("is none, or another user's"));
  // Its pages could be taken away while they are read.
  EXPECT_THAT(refused(::memfd_create("bytescheduler", 0)), HasSubstr("is not sealed"));
  const int small = ::memfd_create("bytescheduler", MFD_ALLOW_SEALING);
  ASSERT_EQ(::fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(refused(small), HasSubstr("or of another size"));
}

}  // namespace
}  // namespace ps
