// RdmaTraffic: drawn messages over an RdmaPair, and what must hold of them.
//
// Messages are short and long, of one frame and of several, in registered memory and elsewhere.
// Frames are spoilt when they are released, and landings when they are given back.  So a NIC that
// still needs them is seen at the receiver.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ps-lite/transport/rdma/links/rdma_pair.h"
#include "ps-lite/transport/transport_node.h"

namespace ps::test {

class RdmaTraffic {
 public:
  // Messages carry bytes out of kPatternBytes that repeat in no short distance.
  static constexpr size_t kMostBytes = 100'000;
  static constexpr size_t kMostShift = 4096;
  static constexpr size_t kPatternBytes = kMostBytes + kMostShift;
  // `pattern` outlives the traffic.
  RdmaTraffic(uint64_t seed, std::span<const std::byte> pattern)
      : random_(seed), pattern_(pattern), pair_(DrawOptions(seed)) {}
  RdmaTraffic(const RdmaTraffic&) = delete;
  RdmaTraffic& operator=(const RdmaTraffic&) = delete;
  ~RdmaTraffic() { pair_.Break(); }

  // Sends `messages` while the link breaks about `breaks` times, then lets everything arrive.
  void Run(int messages, int breaks) {
    Connect();
    while (next_ < messages && !::testing::Test::HasFailure()) {
      if (Draw(0, 3) == 0) SendOne();
      if (breaks > 0 && Draw(0, static_cast<uint64_t>(4 * messages / breaks)) == 0) Disturb();
      StepOnce();
    }
    // From here on nothing is disturbed.
    for (const size_t i : {0, 1}) pair_.verbs(i)->SetSilent(false);
    if (!pair_.broken().ok()) Reconnect();
    for (int i = 0; i < 200'000 && !Quiet(); ++i) StepOnce();
    EXPECT_TRUE(Quiet()) << "messages hang: " << pair_.queue().waiting_bytes() << " bytes wait, "
                         << "link idle " << pair_.link()->idle();
    if (breaks == 0) {
      EXPECT_FALSE(broke_) << "nothing has disturbed the link";
    }
    if (!broke_ && !revoked_) {
      EXPECT_EQ(arrived_.size(), static_cast<size_t>(next_)) << "none may be lost";
    }
    pair_.Break();
    EXPECT_EQ(released_, borrowed_) << "every frame is released";
    for (const auto& landing : landings_) ExpectUntouched(landing);
    EXPECT_THAT(pair_.fabric().Violations(), ::testing::IsEmpty());
    loans_.clear();
    EXPECT_EQ(pair_.fabric().Counts().queue_pairs, 0U);
  }
  int lost() const { return next_ - static_cast<int>(arrived_.size()); }
  const RdmaCounts& receiver_counts() { return *pair_.receiver_nic()->counts(); }

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    std::shared_ptr<Landing> landing{};
    bool given_back = false;
  };

  uint64_t Draw(uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random_);
  }
  static RdmaPair::Options DrawOptions(uint64_t seed) {
    std::mt19937_64 random(seed ^ 0x9e3779b97f4a7c15ULL);
    const auto draw = [&](uint64_t low, uint64_t high) {
      return std::uniform_int_distribution<uint64_t>(low, high)(random);
    };
    RdmaPair::Options options;
    options.seed = seed;
    options.rdma.slots = static_cast<uint32_t>(draw(4, 12));
    options.rdma.slot_bytes = static_cast<uint32_t>(draw(1, 2) << 10U);
    options.rdma.window_bytes = draw(0, 2) == 0 ? 0 : draw(4, 64) << 10U;
    options.rdma.bounce_bytes = draw(0, 3) * (32U << 10U);
    options.fusion_bytes = draw(0, 1) * (16U << 10U);
    options.nic.most_reads = static_cast<uint32_t>(draw(1, 20));
    options.nic.most_inline_bytes = static_cast<uint32_t>(draw(0, 1) * 220);
    return options;
  }
  std::span<const std::byte> BytesOf(int32_t number, size_t frame, size_t size) const {
    return pattern_.subspan((static_cast<size_t>(number) * 131 + frame * 17) % kMostShift, size);
  }

  RdmaInbound::Listener Receiver() {
    return {.on_message = [this](bs::Result<Message> message) { OnMessage(std::move(message)); },
            .place = [this](const Meta&, uint64_t size) { return Place(size); },
            .known = [] { return true; },
            .most_bytes = [](const Meta&) { return kMaxMessageBytes; },
            .on_broken = {}};
  }
  void Connect() {
    const bs::Status made = pair_.Connect(Receiver());
    ASSERT_TRUE(made.ok()) << made.ToString();
  }
  void Reconnect() {
    broke_ = true;
    pair_.Break();
    for (const size_t i : {0, 1}) pair_.verbs(i)->SetSilent(false);
    ++epoch_;
    Connect();
  }
  void StepOnce() {
    pair_.Step();
    if (!pair_.broken().ok()) Reconnect();
    if (Draw(0, 63) == 0) RevokeOne();
    if (!ends_early_.empty() && Draw(0, 15) == 0) {
      ends_early_.back()->reset();
      ends_early_.pop_back();
    }
    for (auto& memory : landings_) GiveBack(&memory);
  }
  bool Quiet() {
    return pair_.link()->proved() && pair_.queue().empty() && pair_.link()->idle() &&
           !pair_.inbound()->unfinished();
  }

  void Disturb() {
    SimulatedNic* const nic = pair_.verbs(Draw(0, 1));
    switch (Draw(0, 3)) {
      case 0:
        return nic->FailNext(Completion::Result::kRemoteAccess);
      case 1:
        return nic->FailNext(Completion::Result::kRetriesExceeded);
      case 2:
        return nic->SetSilent(true);
      default:
        return Reconnect();  // TCP has broken
    }
  }

  void SendOne() {
    const int32_t number = next_++;
    Message message = Numbered(8, number, static_cast<int32_t>(Draw(0, 2)));
    if (Draw(0, 1) == 0) message = Native(8, number, message.meta.priority);
    if (Draw(0, 15) == 0) message.meta.body.assign(Draw(0, 6000), 'x');
    const size_t frames = message.meta.native() ? Draw(0, 1) : Draw(0, 3);
    for (size_t i = 0; i < frames; ++i) message.data.push_back(DrawFrame(number, i));
    pair_.Send(std::move(message));
  }
  Frame DrawFrame(int32_t number, size_t index) {
    const std::array<uint64_t, 5> sizes = {0, 200, 1500, 20'000, kMostBytes};
    const auto bytes = BytesOf(number, index, Draw(0, sizes.at(Draw(0, sizes.size() - 1))));
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    // The owner may end the loan while the frame is out.
    const auto loan = std::make_shared<std::unique_ptr<RdmaMemory::Loan>>();
    if (Draw(0, 1) == 0 && !memory->empty()) {
      auto lent = pair_.sender_nic()->memory()->Lend(*memory, VerbsDevice::Access::kLend);
      EXPECT_TRUE(lent.ok()) << lent.status().ToString();
      *loan = std::move(lent.value());
      if (Draw(0, 1) == 0) ends_early_.push_back(loan);
    }
    ++borrowed_;
    return Frame::Borrow(*memory, [this, memory, loan] {
      ++released_;
      loan->reset();
      std::fill(memory->begin(), memory->end(), std::byte{0xdd});
    });
  }

  std::shared_ptr<Landing> Place(uint64_t size) {
    if (Draw(0, 2) == 0) return nullptr;
    Memory& memory = landings_.emplace_back();
    memory.bytes.resize(size);
    if (Draw(0, 1) == 0) {
      auto lent = pair_.receiver_nic()->memory()->Lend(memory.bytes, VerbsDevice::Access::kFill);
      EXPECT_TRUE(lent.ok());
      loans_.push_back(std::move(lent.value()));
    }
    memory.landing = std::make_shared<Landing>(Landing{.bytes = memory.bytes});
    return memory.landing;
  }
  void RevokeOne() {
    for (Memory& memory : landings_) {
      if (!memory.landing->revoked && Draw(0, 1) == 0) {
        memory.landing->revoked = true;
        revoked_ = true;
        return;
      }
    }
  }
  // Like an owner that has set `revoked`, once no write is under way.
  static void GiveBack(Memory* memory) {
    if (memory->given_back || !memory->landing->revoked || memory->landing->writes > 0) return;
    memory->given_back = true;
    std::fill(memory->bytes.begin(), memory->bytes.end(), std::byte{0xee});
  }
  static void ExpectUntouched(const Memory& memory) {
    if (!memory.given_back) return;
    const std::vector<std::byte> spoilt(memory.bytes.size(), std::byte{0xee});
    EXPECT_TRUE(std::equal(spoilt.begin(), spoilt.end(), memory.bytes.begin()))
        << "a landing is written after it was given back";
  }

  void OnMessage(bs::Result<Message> result) {
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    const Message& message = result.value();
    const int32_t number = message.meta.timestamp;
    EXPECT_TRUE(arrived_.insert(number).second) << number << " comes twice";
    auto [last, first] = last_.try_emplace({epoch_, message.meta.priority}, number);
    EXPECT_TRUE(first || last->second < number)
        << number << " comes after " << last->second << " of the same priority";
    last->second = number;
    for (size_t frame = 0; frame < message.data.size(); ++frame) {
      const auto bytes = message.data[frame].bytes();
      const auto sent = BytesOf(number, frame, bytes.size());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), sent.begin()))
          << "bytes of message " << number;
      for (Memory& memory : landings_) {
        if (memory.bytes.data() == bytes.data()) memory.landing->revoked = true;
      }
    }
  }

  std::mt19937_64 random_;
  const std::span<const std::byte> pattern_;
  std::list<Memory> landings_;
  int borrowed_ = 0;
  int released_ = 0;
  RdmaPair pair_;
  std::vector<std::unique_ptr<RdmaMemory::Loan>> loans_;  // of landings
  std::vector<std::shared_ptr<std::unique_ptr<RdmaMemory::Loan>>> ends_early_;
  int next_ = 0;
  int epoch_ = 0;
  bool broke_ = false;
  bool revoked_ = false;
  std::set<int32_t> arrived_;
  std::map<std::pair<int, int32_t>, int32_t> last_;
};

}  // namespace ps::test
