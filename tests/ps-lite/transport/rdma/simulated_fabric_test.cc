// The simulated cards: each check of theirs can fail, and does what a real card would do.
#include "ps-lite/transport/rdma/simulated_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <functional>
#include <thread>
#include <utility>

#include "ps-lite/transport/rdma/take.h"

namespace ps::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Access = VerbsDevice::Access;
using Result = Completion::Result;

constexpr QueuePairLimits kLimits{.sends = 8, .receives = 4, .inline_bytes = 64};
constexpr QueuePairTerms kTerms{.mtu_bytes = 4096, .reads = 2, .answered_reads = 2};

// One end: a host, its device, 64 KiB for both uses, and a queue pair.
struct End {
  End(SimulatedFabric* fabric, const std::string& name, const std::string& address)
      : nic(fabric->Add(name, {.address = address})),
        device(Take(nic->Open(name, 1024))),
        memory(64U << 10U, std::byte{1}),
        region(Take(device->Register(memory, Access::kBoth))),
        pair(Take(device->Create({.gid_index = 1}, kLimits))) {}

  RdmaPiece At(size_t offset, uint32_t size_bytes) {
    return {memory.data() + offset, size_bytes, region->local_key()};
  }
  bs::Status Receive(uint64_t id, size_t offset, uint32_t size_bytes) const {
    return pair->PostReceive(id, {const_cast<End*>(this)->At(offset, size_bytes)});
  }
  bs::Status Send(uint64_t id, RdmaPiece piece, bool in_line = false, bool signalled = true) const {
    return pair->PostSend(
        {.id = id, .pieces = std::span(&piece, 1), .in_line = in_line, .signalled = signalled});
  }
  bs::Status Read(uint64_t id, RdmaPiece piece, const End& other, size_t offset) const {
    return pair->PostRead(id, piece, reinterpret_cast<uintptr_t>(other.memory.data()) + offset,
                          other.region->remote_key());
  }
  std::vector<Completion> Poll() const {
    std::vector<Completion> all(64);
    all.resize(device->Poll(all).value());
    return all;
  }

  std::shared_ptr<SimulatedNic> nic;
  std::unique_ptr<VerbsDevice> device;
  std::vector<std::byte> memory;
  std::unique_ptr<RdmaRegion> region;
  std::unique_ptr<QueuePair> pair;
};

std::vector<Result> ResultsOf(const std::vector<Completion>& completions) {
  std::vector<Result> results;
  for (const Completion& completion : completions) results.push_back(completion.result);
  return results;
}

std::vector<uint64_t> IdsOf(const std::vector<Completion>& completions) {
  std::vector<uint64_t> ids;
  for (const Completion& completion : completions) ids.push_back(completion.id);
  return ids;
}

class SimulatedFabricTest : public ::testing::Test {
 protected:
  SimulatedFabricTest() { Join(&a_, &b_); }
  static void Join(End* a, End* b) {
    for (const auto& [end, other] : {std::pair(a, b), std::pair(b, a)}) {
      EXPECT_TRUE(end->pair->Receive(other->pair->address(), kTerms).ok());
      EXPECT_TRUE(end->pair->Activate().ok());
    }
  }
  void Settle() {
    for (int step = 0; fabric_.Step(); ++step) ASSERT_LT(step, 10000);
  }
  std::byte* Fill(End* end, size_t offset, int value) {
    std::fill_n(end->memory.data() + offset, 64, std::byte(value));
    return end->memory.data() + offset;
  }

  SimulatedFabric fabric_{{.threaded = false}};
  End a_{&fabric_, "sim0", "10.0.0.1"};
  End b_{&fabric_, "sim1", "10.0.0.2"};
};

TEST_F(SimulatedFabricTest, AHostShowsItsDeviceAndRefusesUnknownDevices) {
  const std::vector<RdmaDevice> devices = a_.nic->Devices().value();
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].name, "sim0");
  EXPECT_EQ(devices[0].ports[0].gids[1].bytes[12], std::byte{10});
  EXPECT_THAT(a_.nic->Open("sim9", 8).status().message(), HasSubstr("sim9"));
  EXPECT_EQ(a_.nic->Open("sim0", 0).status().code(), bs::StatusCode::kInvalidArgument);
}

TEST_F(SimulatedFabricTest, MessagesArriveInOrderWithTheirSizes) {
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(b_.Receive(id, id * 256, 256).ok());
  Fill(&a_, 0, 7);
  ASSERT_TRUE(a_.Send(10, a_.At(0, 64)).ok());
  ASSERT_TRUE(a_.Send(11, a_.At(0, 32), true).ok());
  ASSERT_TRUE(a_.Send(12, a_.At(0, 0)).ok());
  Settle();
  EXPECT_THAT(IdsOf(a_.Poll()), ElementsAre(10, 11, 12));
  const std::vector<Completion> got = b_.Poll();
  EXPECT_THAT(IdsOf(got), ElementsAre(0, 1, 2));
  EXPECT_EQ(got[0].kind, Completion::Kind::kReceive);
  EXPECT_EQ(got[0].size_bytes, 64U);
  EXPECT_EQ(got[1].size_bytes, 32U);
  EXPECT_EQ(got[0].queue_pair, b_.pair->address().number);
  EXPECT_EQ(b_.memory[63], std::byte{7});
  EXPECT_EQ(b_.memory[64], std::byte{0xb7});  // the rest of a receive is poisoned
  EXPECT_THAT(fabric_.Violations(), IsEmpty());
}

TEST_F(SimulatedFabricTest, AReadFetchesAndItsTargetIsPoisonedUntilThen) {
  Fill(&b_, 512, 9);
  ASSERT_TRUE(a_.Read(1, a_.At(0, 64), b_, 512).ok());
  EXPECT_EQ(a_.memory[0], std::byte{0xb8});
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kOk));
  EXPECT_EQ(a_.memory[63], std::byte{9});
  EXPECT_EQ(fabric_.Counts().reads, 1U);
}

TEST_F(SimulatedFabricTest, AReadTakesTheBytesAtItsAnswerAndSendsOvertakeIt) {
  // Some seed lets the SEND arrive while the READ waits; none completes them out of order.
  bool overtook = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SimulatedFabric fabric({.seed = seed, .threaded = false});
    End a(&fabric, "sim0", "10.0.0.1");
    End b(&fabric, "sim1", "10.0.0.2");
    Join(&a, &b);
    ASSERT_TRUE(b.Receive(0, 1024, 64).ok());
    ASSERT_TRUE(a.Read(1, a.At(0, 64), b, 512).ok());
    ASSERT_TRUE(a.Send(2, a.At(128, 8)).ok());
    while (fabric.Step()) {
      if (!b.Poll().empty() && fabric.Counts().reads == 0) overtook = true;
    }
    EXPECT_THAT(IdsOf(a.Poll()), ElementsAre(1, 2));
  }
  EXPECT_TRUE(overtook);
}

TEST_F(SimulatedFabricTest, QueuePairsCompleteInAnyOrderAndEqualSeedsInTheSame) {
  const auto order = [](uint64_t seed) {
    SimulatedFabric fabric({.seed = seed, .threaded = false});
    End a(&fabric, "sim0", "10.0.0.1");
    End b(&fabric, "sim1", "10.0.0.2");
    End c(&fabric, "sim2", "10.0.0.3");
    Join(&a, &b);
    auto second = Take(a.device->Create({.gid_index = 1}, kLimits));
    EXPECT_TRUE(second->Receive(c.pair->address(), kTerms).ok());
    EXPECT_TRUE(c.pair->Receive(second->address(), kTerms).ok());
    EXPECT_TRUE(second->Activate().ok());
    EXPECT_TRUE(a.Read(1, a.At(0, 64), b, 0).ok());
    EXPECT_TRUE(second
                    ->PostRead(2, a.At(64, 64), reinterpret_cast<uintptr_t>(c.memory.data()),
                               c.region->remote_key())
                    .ok());
    while (fabric.Step()) {
    }
    return IdsOf(a.Poll());
  };
  int first = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(order(seed), order(seed));
    if (order(seed).front() == 1) ++first;
  }
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 20);
}

TEST_F(SimulatedFabricTest, AnUnsignalledSendKeepsItsEntryUntilALaterOneIsPolled) {
  for (uint64_t id = 0; id < 4; ++id) ASSERT_TRUE(b_.Receive(id, id * 64, 64).ok());
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(a_.Send(id, a_.At(0, 8), false, false).ok());
  Settle();
  EXPECT_THAT(a_.Poll(), IsEmpty());
  ASSERT_TRUE(a_.Send(3, a_.At(0, 8)).ok());
  Settle();
  for (uint64_t id = 4; id < 8; ++id) ASSERT_TRUE(a_.Send(id, a_.At(0, 8)).ok());
  EXPECT_EQ(a_.Send(8, a_.At(0, 8)).code(), bs::StatusCode::kResourceExhausted);
  EXPECT_THAT(IdsOf(a_.Poll()), ElementsAre(3));
  EXPECT_TRUE(a_.Send(8, a_.At(0, 8)).ok());
}

TEST_F(SimulatedFabricTest, AQueueOfReceivesIsBounded) {
  for (uint64_t id = 0; id < 4; ++id) ASSERT_TRUE(b_.Receive(id, 0, 64).ok());
  EXPECT_EQ(b_.Receive(4, 0, 64).code(), bs::StatusCode::kResourceExhausted);
}

TEST_F(SimulatedFabricTest, AMissingReceiveIsWaitedForAndThenAnError) {
  ASSERT_TRUE(a_.Send(1, a_.At(0, 8)).ok());
  ASSERT_TRUE(fabric_.Step());
  ASSERT_TRUE(b_.Receive(0, 0, 64).ok());
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kOk));
  EXPECT_GT(fabric_.Counts().receiver_not_ready, 0U);
  ASSERT_TRUE(a_.Send(2, a_.At(0, 8)).ok());
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kReceiverNotReady));
}

TEST_F(SimulatedFabricTest, ATooLongMessageBreaksBothEnds) {
  ASSERT_TRUE(b_.Receive(0, 0, 16).ok());
  ASSERT_TRUE(b_.Receive(1, 0, 16).ok());
  ASSERT_TRUE(a_.Send(1, a_.At(0, 17)).ok());
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kRemoteInvalid));
  EXPECT_THAT(ResultsOf(b_.Poll()), ElementsAre(Result::kLocalLength, Result::kFlushed));
}

TEST_F(SimulatedFabricTest, LocalMemoryWithoutItsKeyIsRefused) {
  ASSERT_TRUE(b_.Receive(0, 0, 64).ok());
  ASSERT_TRUE(a_.Send(1, {a_.memory.data(), 8, b_.region->local_key()}).ok());
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kLocalProtection));
}

TEST_F(SimulatedFabricTest, ALentRegionCannotBeFilled) {
  std::vector<std::byte> lent(64);
  const auto region = Take(a_.device->Register(lent, Access::kLend));
  ASSERT_TRUE(a_.Read(1, {lent.data(), 64, region->local_key()}, b_, 0).ok());
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kLocalProtection));
  EXPECT_EQ(lent[0], std::byte{0});
}

TEST_F(SimulatedFabricTest, MemoryThatTheOtherEndDoesNotLendCannotBeRead) {
  std::vector<std::byte> other(64);
  const auto filled = Take(b_.device->Register(other, Access::kFill));
  const auto address = reinterpret_cast<uintptr_t>(b_.memory.data());
  const std::vector<std::pair<uint64_t, uint32_t>> wrong = {
      {address - 1, b_.region->remote_key()},
      {address + b_.memory.size() - 63, b_.region->remote_key()},
      {~uint64_t{0} - 8, b_.region->remote_key()},
      {address, b_.region->local_key()},
      {address, a_.region->remote_key()},
      {reinterpret_cast<uintptr_t>(other.data()), filled->remote_key()},
  };
  for (const auto& [at, key] : wrong) {
    ASSERT_TRUE(a_.pair->PostRead(1, a_.At(0, 64), at, key).ok());
    Settle();
    EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kRemoteAccess));
    EXPECT_EQ(a_.memory[0], std::byte{0xb8});
    EXPECT_EQ(b_.device->TakeEvent()->kind, RdmaEvent::Kind::kQueuePairLost);
    a_.pair = Take(a_.device->Create({.gid_index = 1}, kLimits));
    b_.pair = Take(b_.device->Create({.gid_index = 1}, kLimits));
    Join(&a_, &b_);
  }
}

TEST_F(SimulatedFabricTest, MemoryThatIsNoLongerLentCannotBeRead) {
  ASSERT_TRUE(a_.Read(1, a_.At(0, 64), b_, 0).ok());
  b_.region.reset();
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kRemoteAccess));
}

TEST_F(SimulatedFabricTest, AnUnreachableEndEndsTheRetries) {
  const std::vector<std::function<void()>> breaks = {
      [&] { b_.nic->SetSilent(true); },
      [&] { b_.nic->SetSilent(false), b_.pair->Abandon(); },
      [&] { b_.pair.reset(); },
  };
  for (const auto& does : breaks) {
    ASSERT_TRUE(a_.Send(1, a_.At(0, 8), true).ok());
    ASSERT_TRUE(a_.Read(2, a_.At(0, 64), b_, 0).ok());
    does();
    Settle();
    EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kRetriesExceeded, Result::kFlushed));
    EXPECT_EQ(a_.memory[0], std::byte{0xb9});  // the target of a READ that failed
    if (!b_.pair) break;
    a_.pair = Take(a_.device->Create({.gid_index = 1}, kLimits));
    b_.pair = Take(b_.device->Create({.gid_index = 1}, kLimits));
    Join(&a_, &b_);
  }
}

TEST_F(SimulatedFabricTest, AWrongPacketNumberOrPeerReachesNothing) {
  auto pair = Take(a_.device->Create({.gid_index = 1}, kLimits));
  ASSERT_TRUE(pair->Receive(b_.pair->address(), kTerms).ok());  // b's peer is another one
  ASSERT_TRUE(pair->Activate().ok());
  ASSERT_TRUE(b_.Receive(0, 0, 64).ok());
  const RdmaPiece piece = a_.At(0, 8);
  ASSERT_TRUE(pair->PostSend({.id = 1, .pieces = std::span(&piece, 1)}).ok());
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kRetriesExceeded));
  EXPECT_THAT(b_.Poll(), IsEmpty());
}

TEST_F(SimulatedFabricTest, APortThatComesBackInTimeLosesNothing) {
  ASSERT_TRUE(b_.Receive(0, 0, 64).ok());
  ASSERT_TRUE(a_.Send(1, a_.At(0, 8)).ok());
  b_.nic->SetPort(false);
  EXPECT_FALSE(b_.nic->Devices().value()[0].ports[0].active);
  ASSERT_TRUE(fabric_.Step());
  ASSERT_TRUE(fabric_.Step());
  EXPECT_THAT(a_.Poll(), IsEmpty());
  b_.nic->SetPort(true);
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kOk));
  EXPECT_EQ(b_.device->TakeEvent()->kind, RdmaEvent::Kind::kPortDown);
  EXPECT_EQ(b_.device->TakeEvent()->kind, RdmaEvent::Kind::kPortUp);
  EXPECT_FALSE(b_.device->TakeEvent());
}

TEST_F(SimulatedFabricTest, ALostDeviceFlushesAndDoesNotOpen) {
  ASSERT_TRUE(a_.Receive(1, 0, 64).ok());
  a_.nic->LoseDevice();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kFlushed));
  EXPECT_EQ(a_.device->TakeEvent()->kind, RdmaEvent::Kind::kDeviceLost);
  EXPECT_EQ(a_.nic->Open("sim0", 8).status().code(), bs::StatusCode::kUnavailable);
  EXPECT_EQ(a_.nic->Devices().status().code(), bs::StatusCode::kUnavailable);
}

TEST_F(SimulatedFabricTest, ErrorsComeOnDemandAndLaterWorkIsFlushed) {
  a_.nic->FailNext(Result::kRemoteOperation);
  ASSERT_TRUE(a_.Send(1, a_.At(0, 8)).ok());
  ASSERT_TRUE(a_.Send(2, a_.At(0, 8), false, false).ok());
  Settle();
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kRemoteOperation, Result::kFlushed));
  ASSERT_TRUE(a_.Send(3, a_.At(0, 8)).ok());
  EXPECT_THAT(ResultsOf(a_.Poll()), ElementsAre(Result::kFlushed));
}

TEST_F(SimulatedFabricTest, RegistrationIsRefusedBeyondTheLimitAndOfUnmappedMemory) {
  a_.nic->LimitPinned(fabric_.Counts().pinned_bytes / 2 + 4096);
  std::vector<std::byte> small(64);
  {
    const auto kept = a_.device->Register(std::span(small).first(1), Access::kFill);
    ASSERT_TRUE(kept.ok());
    const bs::Status full = a_.device->Register(small, Access::kFill).status();
    EXPECT_EQ(full.code(), bs::StatusCode::kResourceExhausted);
    EXPECT_EQ(full.message(), "sim0: ibv_reg_mr: Cannot allocate memory");
  }
  void* mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(mapped, 4096);
  EXPECT_THAT(a_.device->Register({static_cast<std::byte*>(mapped), 4096}, Access::kLend)
                  .status()
                  .message(),
              HasSubstr("Bad address"));
  EXPECT_FALSE(a_.device->Register({}, Access::kLend).ok());
}

TEST_F(SimulatedFabricTest, QueuePairsAreRefused) {
  a_.nic->RefuseQueuePairs(true);
  EXPECT_EQ(a_.device->Create({.gid_index = 1}, kLimits).status().code(),
            bs::StatusCode::kResourceExhausted);
  a_.nic->RefuseQueuePairs(false);
  for (const RdmaPath& path : {RdmaPath{.port = 2}, RdmaPath{.gid_index = 7},
                               RdmaPath{.gid_index = 1, .service_level = 8}}) {
    EXPECT_FALSE(a_.device->Create(path, kLimits).ok());
  }
  EXPECT_FALSE(a_.device->Create({.gid_index = 1}, {.sends = 1U << 20U}).ok());
}

TEST_F(SimulatedFabricTest, StatesFollowEachOther) {
  auto pair = Take(a_.device->Create({.gid_index = 1}, kLimits));
  const RdmaPiece piece = a_.At(0, 8);
  EXPECT_FALSE(pair->Activate().ok());
  EXPECT_FALSE(pair->PostSend({.id = 1, .pieces = std::span(&piece, 1)}).ok());
  EXPECT_TRUE(pair->PostReceive(1, piece).ok());
  for (const QueuePairTerms& terms :
       {QueuePairTerms{.mtu_bytes = 5000, .reads = 1, .answered_reads = 1},
        QueuePairTerms{.mtu_bytes = 8192, .reads = 1, .answered_reads = 1},
        QueuePairTerms{.mtu_bytes = 4096, .reads = 17, .answered_reads = 1},
        QueuePairTerms{.mtu_bytes = 4096, .reads = 1, .answered_reads = 17}}) {
    EXPECT_FALSE(pair->Receive(b_.pair->address(), terms).ok());
  }
  EXPECT_TRUE(pair->Receive(b_.pair->address(), kTerms).ok());
  EXPECT_FALSE(pair->Receive(b_.pair->address(), kTerms).ok());
}

TEST_F(SimulatedFabricTest, AMessageOfTooManyBytesIsNotInline) {
  EXPECT_EQ(a_.pair->inline_bytes(), 64U);
  EXPECT_EQ(a_.Send(1, a_.At(0, 65), true).code(), bs::StatusCode::kInvalidArgument);
}

TEST_F(SimulatedFabricTest, TheDescriptorTellsOfOneCompletionAfterEachRearm) {
  const auto readable = [&] {
    pollfd fd{b_.device->completion_fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  ASSERT_TRUE(b_.Receive(0, 0, 64).ok());
  ASSERT_TRUE(b_.Receive(1, 0, 64).ok());
  ASSERT_TRUE(a_.Send(1, a_.At(0, 8)).ok());
  Settle();
  EXPECT_FALSE(readable());  // it was not armed
  ASSERT_TRUE(b_.device->Rearm().ok());
  EXPECT_FALSE(readable());  // the completion came before
  ASSERT_TRUE(a_.Send(2, a_.At(0, 8)).ok());
  Settle();
  EXPECT_TRUE(readable());
  ASSERT_TRUE(b_.device->Rearm().ok());
  EXPECT_FALSE(readable());
}

// What a real card would punish by wrong data.
TEST_F(SimulatedFabricTest, ViolationsAreRecorded) {
  ASSERT_TRUE(b_.Receive(0, 0, 64).ok());
  ASSERT_TRUE(a_.Send(1, a_.At(0, 64)).ok());
  Fill(&a_, 0, 2);
  Settle();
  EXPECT_THAT(fabric_.Violations(),
              ElementsAre("sim0: memory of a SEND changed before it was complete"));
}

TEST_F(SimulatedFabricTest, AnUnsignalledSendNeedsItsMemoryUntilALaterCompletion) {
  ASSERT_TRUE(b_.Receive(0, 0, 64).ok());
  ASSERT_TRUE(b_.Receive(1, 0, 64).ok());
  ASSERT_TRUE(a_.Send(1, a_.At(0, 64), false, false).ok());
  Settle();
  Fill(&a_, 0, 2);
  ASSERT_TRUE(a_.Send(2, a_.At(64, 64)).ok());
  Settle();
  EXPECT_THAT(fabric_.Violations(), ElementsAre(HasSubstr("memory of a SEND changed")));
}

TEST_F(SimulatedFabricTest, TooManyReadsAreAViolation) {
  for (uint64_t id = 0; id < 3; ++id) ASSERT_TRUE(a_.Read(id, a_.At(0, 64), b_, 0).ok());
  EXPECT_THAT(fabric_.Violations(), ElementsAre("sim0: more READs than agreed"));
  EXPECT_EQ(fabric_.Counts().most_reads_under_way, 3U);
}

TEST_F(SimulatedFabricTest, ARegionThatEndsWhileItIsPostedIsAViolation) {
  ASSERT_TRUE(a_.Receive(0, 0, 64).ok());
  a_.region.reset();
  EXPECT_THAT(fabric_.Violations(), ElementsAre(HasSubstr("a region ended that posted work")));
}

TEST_F(SimulatedFabricTest, AFullCompletionQueueIsAViolation) {
  auto device = Take(a_.nic->Open("sim0", 1));
  auto region = Take(device->Register(a_.memory, Access::kFill));
  auto pair = Take(device->Create({.gid_index = 1}, kLimits));
  const RdmaPiece piece{a_.memory.data(), 64, region->local_key()};
  ASSERT_TRUE(pair->PostReceive(0, piece).ok());
  ASSERT_TRUE(pair->PostReceive(1, piece).ok());
  pair->Abandon();
  EXPECT_THAT(fabric_.Violations(), ElementsAre(HasSubstr("more completions wait")));
}

TEST_F(SimulatedFabricTest, ASecondThreadIsAViolation) {
  ASSERT_TRUE(a_.device->Rearm().ok());
  std::thread([&] { a_.Poll(); }).join();
  EXPECT_THAT(fabric_.Violations(), ElementsAre("sim0: two threads use the device"));
}

TEST(SimulatedFabricLeakTest, OpenObjectsAreCountedUntilTheyEnd) {
  SimulatedFabric fabric({.threaded = false});
  {
    const End end(&fabric, "sim0", "10.0.0.1");
    const FabricCounts counts = fabric.Counts();
    EXPECT_EQ(counts.devices, 1U);
    EXPECT_EQ(counts.queue_pairs, 1U);
    EXPECT_EQ(counts.regions, 1U);
    EXPECT_GE(counts.pinned_bytes, 64U << 10U);
  }
  const FabricCounts counts = fabric.Counts();
  EXPECT_EQ(counts.devices + counts.queue_pairs + counts.regions + counts.pinned_bytes, 0U);
}

TEST(SimulatedFabricThreadTest, AThreadMovesMessagesByTheClock) {
  SimulatedFabric fabric;
  End a(&fabric, "sim0", "10.0.0.1");
  End b(&fabric, "sim1", "10.0.0.2");
  ASSERT_TRUE(a.pair->Receive(b.pair->address(), kTerms).ok() && a.pair->Activate().ok());
  ASSERT_TRUE(b.pair->Receive(a.pair->address(), kTerms).ok() && b.pair->Activate().ok());
  ASSERT_TRUE(b.device->Rearm().ok());
  ASSERT_TRUE(b.Receive(0, 0, 64).ok());
  ASSERT_TRUE(a.Send(1, a.At(0, 8)).ok());
  pollfd fd{b.device->completion_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&fd, 1, 60000), 1);
  EXPECT_EQ(b.Poll().size(), 1U);
}

}  // namespace
}  // namespace ps::test
