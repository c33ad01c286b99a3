// Verbs over libibverbs, side by side with simulated cards: one suite runs over both.  The library
// needs a device, of soft-RoCE at least; without one its half is skipped.
#include "transport/rdma/ibverbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "base/snapshot.h"
#include "ps-lite/transport/rdma/device_folder.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "ps-lite/transport/rdma/take.h"
#include "transport/rdma/ibverbs_symbols.h"
#include "transport/rdma/rdma_choice.h"

namespace ps::test {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Access = VerbsDevice::Access;
using Result = Completion::Result;

TEST(VerbsLibraryTest, AMissingLibraryNamesThePackageToInstall) {
  EXPECT_SNAPSHOT(LoadVerbsLibrary({.library = "libibverbs-none.so.1"}).status().message(),
                  "libibverbs-none.so.1 is not there: install ibverbs-providers");
}

TEST(VerbsLibraryTest, ALibraryWithoutTheFunctionsIsTooOld) {
  EXPECT_SNAPSHOT(
      LoadVerbsLibrary({.library = "libm.so.6"}).status().message(),
      "libm.so.6 lacks ibv_get_device_list: install libibverbs1 of rdma-core 28 or newer");
}

TEST(VerbsLibraryTest, ItDecidesAboutForkOrSaysWhyNot) {
  const auto decide = [](int (*init)(), int (*initialized)()) {
    IbverbsSymbols symbols{};
    symbols.fork_init = init;
    symbols.is_fork_initialized = initialized;
    return DecideFork(symbols);
  };
  const auto done = [] { return 0; };
  const auto refused = [] { return EINVAL; };
  const auto unneeded = [] { return 2; };
  EXPECT_EQ(decide(done, nullptr).value(), RdmaFork::kProtected) << "an old library";
  EXPECT_EQ(decide(done, done).value(), RdmaFork::kProtected);
  EXPECT_EQ(decide(refused, unneeded).value(), RdmaFork::kHarmless) << "it is not asked";
  const bs::Status no = decide(refused, done).status();
  EXPECT_EQ(no.code(), bs::StatusCode::kUnavailable);
  EXPECT_SNAPSHOT(
      no.message(),
      "ibv_fork_init: Invalid argument: another library of this process uses RDMA already: "
      "set RDMAV_FORK_SAFE=1");
}

TEST(VerbsLibraryTest, DevicesThatCannotBeOpenedNameTheRemedy) {
  const DeviceFolder files;
  const auto verbs = LoadVerbsLibrary({.root = files.root()});
  if (!verbs.ok()) GTEST_SKIP() << verbs.status().message();
  EXPECT_THAT(verbs.value()->Devices().status().message(), HasSubstr("shows no RDMA device"));
  EXPECT_THAT(verbs.value()->Open("none0", 8).status().message(),
              HasSubstr("shows no RDMA device"));
  files.PutRoce("none0", 1, "0000:0000:0000:0000:0000:ffff:c0a8:0105");
  EXPECT_THAT(verbs.value()->Devices().status().message(),
              HasSubstr("none0 cannot be opened: /dev/infiniband is not there"));
  std::filesystem::create_directories(files.root() + "/dev/infiniband");
  EXPECT_THAT(verbs.value()->Open("none0", 8).status().message(),
              HasSubstr("libibverbs has no driver for it: install ibverbs-providers"));
  EXPECT_EQ(verbs.value()->Open("none1", 8).status().message(), "there is no RDMA device none1");
}

// Two devices that reach each other; they may be one.
struct VerbsWorld {
  std::shared_ptr<SimulatedFabric> fabric;  // null: real
  std::shared_ptr<Verbs> verbs[2];
  std::string devices[2];
  RdmaPath paths[2];
  std::string why_not;
};

VerbsWorld SimulatedWorld() {
  VerbsWorld world;
  world.fabric = std::make_shared<SimulatedFabric>();
  for (int end = 0; end < 2; ++end) {
    world.devices[end] = "sim" + std::to_string(end);
    world.verbs[end] = world.fabric->Add(world.devices[end]);
    world.paths[end] = {.port = 1, .gid_index = 1};
  }
  return world;
}

VerbsWorld LibraryWorld() {
  VerbsWorld world;
  const auto fail = [&](const bs::Status& status) {
    world.why_not = status.message();
    return world;
  };
  const auto verbs = LoadVerbsLibrary({});
  if (!verbs.ok()) return fail(verbs.status());
  const auto devices = verbs.value()->Devices();
  if (!devices.ok()) return fail(devices.status());
  for (int end = 0; end < 2; ++end) {
    // The second device if there are two; each by its own name, whatever its address.
    const RdmaDevice& device = devices.value()[end == 0 ? 0 : devices.value().size() - 1];
    const auto choice =
        ChooseRdmaPort(devices.value(), SocketAddress(), "", {.device = device.name});
    if (!choice.ok()) return fail(choice.status());
    world.verbs[end] = verbs.value();
    world.devices[end] = device.name;
    world.paths[end] = choice.value().path;
  }
  return world;
}

struct VerbsEnd {
  VerbsEnd(const VerbsWorld& world, int number)
      : device(Take(world.verbs[number]->Open(world.devices[number], 1U << 20U))),
        path(world.paths[number]),
        memory(64U << 10U),
        region(Take(device->Register(memory, Access::kBoth))),
        pair(Take(device->Create(path, {.sends = 16, .receives = 8, .inline_bytes = 64}))) {}

  RdmaPiece At(size_t offset, uint32_t size_bytes) {
    return {memory.data() + offset, size_bytes, region->local_key()};
  }
  void Send(uint64_t id, const RdmaPiece& piece, bool in_line = false,
            bool signalled = true) const {
    const bs::Status posted = pair->PostSend(
        {.id = id, .pieces = std::span(&piece, 1), .in_line = in_line, .signalled = signalled});
    EXPECT_TRUE(posted.ok()) << posted.message();
  }
  void Read(uint64_t id, const RdmaPiece& piece, const VerbsEnd& other, size_t offset) const {
    const auto address = reinterpret_cast<uintptr_t>(other.memory.data()) + offset;
    const bs::Status posted = pair->PostRead(id, piece, address, other.region->remote_key());
    EXPECT_TRUE(posted.ok()) << posted.message();
  }
  // Waits for `count` completions by the descriptor, as a node does.
  std::vector<Completion> Await(size_t count) const {
    std::vector<Completion> all;
    while (all.size() < count) {
      EXPECT_TRUE(device->Rearm().ok());
      std::vector<Completion> some(8);
      const size_t got = device->Poll(some).value();
      all.insert(all.end(), some.begin(), some.begin() + static_cast<ptrdiff_t>(got));
      pollfd fd{device->completion_fd(), POLLIN, 0};
      if (got == 0 && ::poll(&fd, 1, 30000) != 1) break;
    }
    return all;
  }

  std::unique_ptr<VerbsDevice> device;
  RdmaPath path;
  std::vector<std::byte> memory;
  std::unique_ptr<RdmaRegion> region;
  std::unique_ptr<QueuePair> pair;
};

// Takes CAP_IPC_LOCK from this thread, which the kernel would not limit otherwise.
class WithoutLockingAll {
 public:
  WithoutLockingAll() {
    ::syscall(SYS_capget, &header_, before_.data());
    auto without = before_;
    without[0].effective &= ~(1U << CAP_IPC_LOCK);
    ::syscall(SYS_capset, &header_, without.data());
  }
  WithoutLockingAll(const WithoutLockingAll&) = delete;
  WithoutLockingAll& operator=(const WithoutLockingAll&) = delete;
  ~WithoutLockingAll() { ::syscall(SYS_capset, &header_, before_.data()); }

 private:
  __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> before_{};
};

class VerbsConformance : public ::testing::TestWithParam<VerbsWorld (*)()> {
 protected:
  void SetUp() override {
    world_ = GetParam()();
    if (!world_.why_not.empty()) GTEST_SKIP() << world_.why_not;
    for (int end = 0; end < 2; ++end) ends_[end] = std::make_unique<VerbsEnd>(world_, end);
    for (int end = 0; end < 2; ++end) {
      const bs::Status joined = Join(end);
      ASSERT_TRUE(joined.ok()) << joined.message();
    }
  }
  bs::Status Join(int end) {
    const QueuePairTerms terms{.mtu_bytes = 1024, .reads = 2, .answered_reads = 2};
    const bs::Status receives = ends_[end]->pair->Receive(ends_[1 - end]->pair->address(), terms);
    return receives.ok() ? ends_[end]->pair->Activate() : receives;
  }
  static std::vector<Result> ResultsOf(const std::vector<Completion>& completions) {
    std::vector<Result> results;
    for (const Completion& completion : completions) results.push_back(completion.result);
    return results;
  }
  VerbsEnd& a() { return *ends_[0]; }
  VerbsEnd& b() { return *ends_[1]; }

  VerbsWorld world_;
  std::unique_ptr<VerbsEnd> ends_[2];
};

TEST_P(VerbsConformance, AddressesSayWhereQueuePairsAre) {
  const QueuePairAddress& address = a().pair->address();
  EXPECT_EQ(address.layer, a().device->facts().ports[0].layer);
  EXPECT_NE(address, b().pair->address());  // each device counts for itself
  EXPECT_LT(address.first_packet, 1U << 24U);
  EXPECT_NE(address.gid, GidBytes{});
  EXPECT_GE(a().device->facts().most_reads, 2U);
  EXPECT_GE(a().device->facts().ports[0].mtu_bytes, 1024U);
}

TEST_P(VerbsConformance, AMessageArrivesWithItsSize) {
  ASSERT_TRUE(b().pair->PostReceive(7, b().At(0, 4096)).ok());
  std::fill_n(a().memory.data(), 3000, std::byte{5});
  a().Send(3, a().At(0, 3000));
  const std::vector<Completion> sent = a().Await(1);
  ASSERT_THAT(ResultsOf(sent), ElementsAre(Result::kOk));
  EXPECT_EQ(sent[0].id, 3U);
  EXPECT_EQ(sent[0].kind, Completion::Kind::kSend);
  const std::vector<Completion> got = b().Await(1);
  ASSERT_THAT(ResultsOf(got), ElementsAre(Result::kOk));
  EXPECT_EQ(got[0].id, 7U);
  EXPECT_EQ(got[0].kind, Completion::Kind::kReceive);
  EXPECT_EQ(got[0].size_bytes, 3000U);
  EXPECT_EQ(got[0].queue_pair, b().pair->address().number);
  EXPECT_EQ(b().memory[2999], std::byte{5});
}

TEST_P(VerbsConformance, InlineBytesAreCopiedAndUnsignalledSendsCompleteWithALaterOne) {
  ASSERT_GE(a().pair->inline_bytes(), 8U);
  for (uint64_t id = 0; id < 3; ++id) {
    ASSERT_TRUE(b().pair->PostReceive(id, b().At(id * 64, 64)).ok());
  }
  for (uint64_t id = 0; id < 3; ++id) {
    a().memory[0] = std::byte(id + 1);
    a().Send(id, {a().memory.data(), 8, 0}, true, id == 2);
  }
  EXPECT_EQ(a().Await(1)[0].id, 2U);
  EXPECT_THAT(ResultsOf(b().Await(3)), ElementsAre(Result::kOk, Result::kOk, Result::kOk));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(b().memory[i * 64], std::byte(i + 1));
}

TEST_P(VerbsConformance, AReadFetches) {
  std::fill_n(b().memory.data() + 4096, 20000, std::byte{6});
  a().Read(1, a().At(0, 20000), b(), 4096);
  const std::vector<Completion> read = a().Await(1);
  ASSERT_THAT(ResultsOf(read), ElementsAre(Result::kOk));
  EXPECT_EQ(read[0].kind, Completion::Kind::kRead);
  EXPECT_EQ(a().memory[19999], std::byte{6});
}

TEST_P(VerbsConformance, MemoryThatIsNotLentCannotBeReadAndTheReaderIsTold) {
  a().Read(1, a().At(0, 64), b(), b().memory.size() - 63);
  EXPECT_THAT(ResultsOf(a().Await(1)), ElementsAre(Result::kRemoteAccess));
}

TEST_P(VerbsConformance, MemoryThatIsNoLongerLentCannotBeRead) {
  std::vector<std::byte> lent(8192);
  auto region = Take(b().device->Register(lent, Access::kLend));
  const uint32_t key = region->remote_key();
  region.reset();
  ASSERT_TRUE(
      a().pair->PostRead(1, a().At(0, 64), reinterpret_cast<uintptr_t>(lent.data()), key).ok());
  EXPECT_THAT(ResultsOf(a().Await(1)), ElementsAre(Result::kRemoteAccess));
}

TEST_P(VerbsConformance, FilledMemoryIsNotLent) {
  std::vector<std::byte> filled(8192);
  const auto region = Take(b().device->Register(filled, Access::kFill));
  ASSERT_TRUE(a().pair
                  ->PostRead(1, a().At(0, 64), reinterpret_cast<uintptr_t>(filled.data()),
                             region->remote_key())
                  .ok());
  EXPECT_THAT(ResultsOf(a().Await(1)), ElementsAre(Result::kRemoteAccess));
}

TEST_P(VerbsConformance, ATooLongMessageBreaksTheConnection) {
  ASSERT_TRUE(b().pair->PostReceive(1, b().At(0, 16)).ok());
  a().Send(1, a().At(0, 64));
  // Soft-RoCE has other names for it than cards have.
  EXPECT_THAT(ResultsOf(a().Await(1)),
              ElementsAre(AnyOf(Result::kRemoteInvalid, Result::kRemoteOperation)));
  EXPECT_THAT(ResultsOf(b().Await(1)), ElementsAre(AnyOf(Result::kLocalLength, Result(2))));
}

TEST_P(VerbsConformance, AMissingReceiveIsAnErrorInTheEnd) {
  a().Send(1, a().At(0, 64));
  EXPECT_THAT(ResultsOf(a().Await(1)), ElementsAre(Result::kReceiverNotReady));
}

TEST_P(VerbsConformance, AbandonFlushesPostedReceives) {
  ASSERT_TRUE(a().pair->PostReceive(1, a().At(0, 64)).ok());
  ASSERT_TRUE(a().pair->PostReceive(2, a().At(64, 64)).ok());
  a().pair->Abandon();
  EXPECT_THAT(ResultsOf(a().Await(2)), ElementsAre(Result::kFlushed, Result::kFlushed));
}

TEST_P(VerbsConformance, AVanishedPeerEndsTheRetries) {
  b().pair.reset();
  a().Send(1, a().At(0, 64));
  EXPECT_THAT(ResultsOf(a().Await(1)), ElementsAre(Result::kRetriesExceeded));
}

TEST_P(VerbsConformance, LockedMemoryIsBoundedAndTheMessageSaysBy) {
  if (world_.fabric) GTEST_SKIP() << "a simulated card does not ask the kernel";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit little{64U << 10U, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &little), 0);
  std::vector<std::byte> much(uint64_t{1} << 20U);
  bs::Status refused;
  {
    const WithoutLockingAll process;
    refused = a().device->Register(much, Access::kFill).status();
  }
  ::setrlimit(RLIMIT_MEMLOCK, &before);
  EXPECT_EQ(refused.code(), bs::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("the limit of locked memory is 64 KiB: ulimit -l"));
}

INSTANTIATE_TEST_SUITE_P(Simulated, VerbsConformance, ::testing::Values(&SimulatedWorld));
INSTANTIATE_TEST_SUITE_P(Library, VerbsConformance, ::testing::Values(&LibraryWorld));

}  // namespace
}  // namespace ps::test
