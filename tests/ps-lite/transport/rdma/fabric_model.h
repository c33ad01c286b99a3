// FabricModel: what happens in simulated cards and between them.  No locks, no threads, no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "ps-lite/transport/rdma/simulated_fabric.h"
#include "transport/descriptor.h"
#include "transport/rdma/verbs.h"

namespace ps::test {

// A host's card, which is open once at most per ModelDevice.
struct ModelHost {
  RdmaDevice facts;
  NicOptions options;
  bool silent = false;
  bool lost = false;
  bool refuses_queue_pairs = false;
  std::optional<Completion::Result> fail_next{};
  uint64_t pinned_bytes = 0;

  bool reachable() const { return !silent && !lost && facts.ports[0].active; }
};

struct ModelRegion {
  struct ModelDevice* device;
  std::byte* begin;
  uint64_t size_bytes;
  uint64_t pinned_bytes;
  VerbsDevice::Access access;
};

struct ModelDevice {
  struct Waiting {
    Completion completion;
    uint32_t frees_sends;  // entries of the send queue that polling it frees
  };
  std::shared_ptr<ModelHost> host;
  uint32_t most_completions = 0;
  Descriptor completion_fd{};
  Descriptor event_fd{};
  bool armed = false;
  std::deque<Waiting> completions{};
  std::deque<RdmaEvent> events{};
  std::optional<std::thread::id> user{};
};

struct ModelWork {
  uint64_t id = 0;
  Completion::Kind kind = Completion::Kind::kSend;
  std::array<RdmaPiece, 2> pieces{};
  size_t num_pieces = 0;
  bool in_line = false;
  bool signalled = true;
  bool done = false;
  Completion::Result result = Completion::Result::kOk;
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  size_t hash = 0;                   // of a SEND's bytes when it was posted
  bs::TimePoint unanswered_since{};  // of a READ; zero: it was answered or not asked
  std::array<std::byte, 256> in_line_bytes{};

  std::span<const RdmaPiece> all() const { return {pieces.data(), num_pieces}; }
};

struct ModelQueuePair {
  enum class State { kInit, kReceiving, kActive, kError };
  struct Receive {
    uint64_t id;
    RdmaPiece piece;
  };
  ModelDevice* device;
  State state = State::kInit;
  QueuePairLimits limits;
  QueuePairAddress own{};
  QueuePairAddress peer{};
  QueuePairTerms terms{};
  std::deque<ModelWork> sends{};  // not complete, in order of posting
  uint64_t first = 0;             // the number of sends.front(), counted from the first post
  size_t arrived = 0;             // sends before this index have reached the peer
  uint32_t sends_taken = 0;       // entries of the queue, until their completions are polled
  std::deque<Receive> receives{};
  uint32_t receives_taken = 0;
  uint32_t reads = 0;           // READs posted and not complete
  uint32_t reads_answered = 0;  // READs that the peer answers now
  bool moving = false;          // an event to move the next SEND or READ is due
  bs::TimePoint failing_since{};
  bs::TimePoint last_answer{};
};

class FabricModel {
 public:
  explicit FabricModel(const FabricOptions& options) : options_(options), random_(options.seed) {}

  // Does what is due by the clock.
  void RunDue();
  // Moves simulated time to what is due next and does it.  REQUIRES: NextDue has a value.
  void RunNext();
  std::optional<bs::TimePoint> NextDue() const;

  std::shared_ptr<ModelHost> AddHost(const std::string& name, const NicOptions& options);
  void SetPort(ModelHost* host, bool up);
  void LoseDevice(ModelHost* host);

  bs::Result<std::unique_ptr<ModelDevice>> Open(std::shared_ptr<ModelHost> host,
                                                uint32_t most_completions);
  void Close(ModelDevice* device);
  // Returns the local key; the remote key is another.
  bs::Result<uint32_t> Register(ModelDevice* device, std::span<std::byte> memory,
                                VerbsDevice::Access access);
  void Deregister(uint32_t local_key);
  static uint32_t RemoteKeyOf(uint32_t local_key) { return local_key ^ 0x5a5a0000U; }

  bs::Result<ModelQueuePair*> Create(ModelDevice* device, const RdmaPath& path,
                                     const QueuePairLimits& limits);
  void Destroy(ModelQueuePair* pair);
  bs::Status Receive(ModelQueuePair* pair, const QueuePairAddress& peer,
                     const QueuePairTerms& terms);
  bs::Status Activate(ModelQueuePair* pair);
  void Abandon(ModelQueuePair* pair);
  bs::Status PostReceive(ModelQueuePair* pair, uint64_t id, const RdmaPiece& memory);
  bs::Status PostSend(ModelQueuePair* pair, const QueuePair::Send& send);
  bs::Status PostRead(ModelQueuePair* pair, ModelWork read);

  void Rearm(ModelDevice* device);
  size_t Poll(ModelDevice* device, std::span<Completion> completions);
  std::optional<RdmaEvent> TakeEvent(ModelDevice* device);

  void WatchReads(std::span<const std::byte> from, std::span<const std::byte> into) {
    watched_from_ = from;
    watched_into_ = into;
  }
  const FabricCounts& counts() const { return counts_; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Due {
    bs::TimePoint at;
    uint64_t number;  // ties keep their order
    uint32_t pair;
    std::optional<uint64_t> read;  // to answer; none: the next SEND or READ moves

    bool operator>(const Due& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  using Result = Completion::Result;

  void Violate(const ModelDevice& device, const std::string& what);
  void UsedHere(ModelDevice* device);
  bs::TimePoint Now() const;
  bs::Duration Delay();
  void At(bs::TimePoint at, uint32_t pair, std::optional<uint64_t> read);
  void MoveLater(ModelQueuePair* pair, bs::Duration delay);

  // The memory of a local piece if the device may use it so.
  bool MayUse(const ModelDevice& device, const RdmaPiece& piece, bool fill) const;
  const std::byte* Lent(const ModelDevice& device, const ModelWork& read) const;
  ModelQueuePair* Reach(const ModelQueuePair& pair);
  bool MayPost(const ModelQueuePair& pair, const char* call, bs::Status* why) const;

  void Move(ModelQueuePair* pair);
  Result Deliver(ModelQueuePair* pair, ModelWork* send, ModelQueuePair* peer, bool* again);
  Result BeginRead(ModelQueuePair* pair, ModelWork* read, ModelQueuePair* peer);
  void Answer(ModelQueuePair* pair, uint64_t number);
  // True if the work waits for another try; otherwise its time is over.
  bool TryAgain(bs::TimePoint* since, bs::Duration time);
  void Finish(ModelQueuePair* pair);
  void Complete(ModelQueuePair* pair, size_t count, Result result);
  void Fail(ModelQueuePair* pair);
  void Push(ModelDevice* device, const Completion& completion, uint32_t frees_sends);
  void Tell(ModelDevice* device, const RdmaEvent& event);

  const FabricOptions options_;
  std::mt19937_64 random_;
  bs::TimePoint now_{};  // without a thread
  uint64_t num_due_ = 0;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  uint32_t next_number_ = 0x000100;
  std::map<uint32_t, std::unique_ptr<ModelQueuePair>> pairs_;
  std::unordered_map<uint32_t, ModelRegion> regions_;  // by local key
  std::vector<ModelDevice*> devices_;
  std::span<const std::byte> watched_from_;
  std::span<const std::byte> watched_into_;
  FabricCounts counts_;
  std::vector<std::string> violations_;
};

}  // namespace ps::test
