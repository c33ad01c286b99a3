// S, deaths: a worker dies in place of each of its messages.  Each sum that the other worker gets
// is that of a job without a death, bit for bit, or an error that names the lost worker.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "codec/topk.h"
#include "sim/coded/coded_hosts.h"

namespace bs::sim {
namespace {

constexpr size_t kLostElements = 65536 + 300;  // two units
constexpr size_t kLostRounds = 4;              // the key travels plain in the first
constexpr Key kLostKey = 7;
constexpr int32_t kVictim = 1;

using Values = std::vector<float>;

Coding CodingWithEf(std::string_view name, std::string_view feedback) {
  const codec::Option options[] = {{"k", "0.5"}, {"ef", feedback}};
  return codec::Builtin().Parse(&name, options).value();
}

// Sees each message of the victim before it leaves, and returns false to kill the victim.
using Fate = std::function<bool(int number, ps::Message* message)>;

// Two workers that go from round to round, and two servers.
class JobWithAVictim {
 public:
  JobWithAVictim(const Coding& coding, const Fate& fate) : coding_(coding) {
    for (int32_t rank = 0; rank < kNodes; ++rank) {
      servers_.push_back(
          std::make_unique<CodedServer>(&clock_, &network_, rank, &codec::Builtin()));
      workers_.push_back(std::make_unique<CodedWorker>(&clock_, &network_, rank, &codec::Builtin(),
                                                       /*partition_bytes=*/200000));
    }
    workers_[kVictim]->on_send = [this, fate](ps::Message* message) {
      if (is_dead_ || fate(num_messages++, message)) return;
      is_dead_ = true;
      workers_[kVictim]->Kill();
      for (const auto& server : servers_) {
        server->NoteLost(kVictim, Status::Unavailable("worker 1 was lost"));
      }
    };
    Run(Duration(0));
    for (const auto& server : servers_) server->Connect();
    for (const auto& worker : workers_) worker->Connect();
    for (size_t rank = 0; rank < kNodes; ++rank) {
      workers_[rank]->worker()->Broadcast(kLostKey, DType::kFloat32,
                                          std::as_writable_bytes(std::span(values_[rank])),
                                          [this, rank](const Status& status) {
                                            if (status.ok()) return Begin(rank);
                                            ended_[rank] = status;
                                          });
    }
    for (int second = 0; second < 200 && !ended_[0]; ++second) Run(std::chrono::seconds(1));
    Run(std::chrono::seconds(1));  // the victim may still read its last sum
  }
  ~JobWithAVictim() {
    for (const auto& worker : workers_) worker->worker()->Close([] {});
    Run(std::chrono::seconds(1));
    workers_.clear();
    servers_.clear();
    Run(std::chrono::seconds(1));
  }
  JobWithAVictim(const JobWithAVictim&) = delete;
  JobWithAVictim& operator=(const JobWithAVictim&) = delete;

  // How the survivor ended; empty: it still waits.
  const std::optional<Status>& end() const { return ended_[0]; }
  // Those that the survivor got.
  std::span<const Values> sums() const { return {sums_[0].data(), num_sums_[0]}; }
  int num_messages = 0;  // of the victim

 private:
  void Run(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  void Begin(size_t rank) {
    const size_t round = num_sums_[rank];
    for (size_t i = 0; i < kLostElements; ++i) {
      const size_t mixed = (i * 37 + rank * 11 + round * 5) % 101;
      gradients_[rank][round][i] = static_cast<float>(mixed) - 50;
    }
    workers_[rank]->worker()->PushPull(
        kLostKey, {.coding = round == 0 ? Coding{} : coding_},
        std::as_bytes(std::span(gradients_[rank][round])),
        std::as_writable_bytes(std::span(sums_[rank][round])), [](const Status&) {},
        [this, rank](const Status& status) {
          if (status.ok() && ++num_sums_[rank] < kLostRounds) return Begin(rank);
          ended_[rank] = status;
        });
  }

  const Coding coding_;
  SimClock clock_{1};
  SimNetwork network_{&clock_, {}};
  std::vector<std::unique_ptr<CodedServer>> servers_;
  std::vector<std::unique_ptr<CodedWorker>> workers_;
  bool is_dead_ = false;
  // By rank, and by round.
  using Rounds = std::vector<Values>;
  std::vector<Values> values_ = std::vector<Values>(kNodes, Values(kLostElements));
  std::vector<Rounds> gradients_ =
      std::vector<Rounds>(kNodes, Rounds(kLostRounds, Values(kLostElements)));
  std::vector<Rounds> sums_ = gradients_;
  std::vector<size_t> num_sums_ = std::vector<size_t>(kNodes);
  std::vector<std::optional<Status>> ended_ = std::vector<std::optional<Status>>(kNodes);
};

bool LivesOn(int /*number*/, ps::Message* /*message*/) { return true; }

// True if each sum of `job` is the same in `whole`.
bool IsExact(const JobWithAVictim& job, const JobWithAVictim& whole) {
  for (size_t round = 0; round < job.sums().size(); ++round) {
    const Values& sum = job.sums()[round];
    if (std::memcmp(sum.data(), whole.sums()[round].data(), sum.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

struct NamedCoding {
  std::string_view name;
  std::string_view feedback;
};

TEST(LostWorker, EachSumIsExactOrAnErrorNamesTheLostWorker) {
  for (const auto& [name, feedback] : {NamedCoding{"topk", "vanilla"}, {"randomk", "sparse"}}) {
    const Coding coding = CodingWithEf(name, feedback);
    const JobWithAVictim whole(coding, LivesOn);
    ASSERT_EQ(whole.sums().size(), kLostRounds);
    size_t later_sums = 0;
    for (int last = 0; last < whole.num_messages; ++last) {
      const JobWithAVictim job(coding, [last](int number, ps::Message*) { return number < last; });
      ASSERT_TRUE(job.end()) << name << ": the survivor waits for message " << last;
      EXPECT_TRUE(IsExact(job, whole)) << name << ", message " << last;
      const bool has_all = job.sums().size() == kLostRounds;
      EXPECT_EQ(job.end()->ok(), has_all) << job.end()->ToString();
      if (!has_all) {
        EXPECT_NE(job.end()->message().find("worker 1"), std::string::npos)
            << job.end()->ToString();
      }
      // The later the death, the more sums are there.
      EXPECT_GE(job.sums().size(), later_sums);
      later_sums = job.sums().size();
    }
    // What is under way goes with the worker.
    EXPECT_GE(later_sums, kLostRounds - 1);
  }
}

// Nothing stands for the gradient of a lost worker: a server that went on would lose it.
TEST(LostWorkerMutants, AServerThatGoesOnWithoutTheLostWorkerIsCaught) {
  const Coding coding = CodingWithEf("topk", "vanilla");
  const JobWithAVictim whole(coding, LivesOn);
  const JobWithAVictim job(coding, [&coding](int, ps::Message* message) {
    const test::Asked about = test::About(*message);
    if (about.op != ps::Op::kPush || about.round < 3 || message->data.empty()) return true;
    const size_t count = about.size_bytes / sizeof(float);
    std::vector<std::byte> codes(message->data[0].size());
    const Values zeros(count);
    codec::TopkCodec().encode(coding.parameters, {}, zeros.data(), nullptr, codes.data(), count);
    message->data[0] = ps::Frame::Copy(codes);
    return true;
  });
  ASSERT_EQ(job.sums().size(), kLostRounds) << "nobody notices the mutant but by its sums";
  EXPECT_FALSE(IsExact(job, whole));
}

}  // namespace
}  // namespace bs::sim
