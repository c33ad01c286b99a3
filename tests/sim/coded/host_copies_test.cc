// Workers of a host add up coded gradients.  Their sums are those of a job with one worker a host,
// of the lowest rank there, that contributes the sum of the host: bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "sim/coded/coded_hosts.h"

namespace bs::sim {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr size_t kAdded = 2 * 65536 + 300;  // three units
constexpr size_t kAddedRounds = 4;
constexpr Key kAddedKey = 7;
// Hosts of three, two and one workers, whose lowest ranks are 0, 1 and 2.
const HostsOfWorkers kThreeHosts = {0, 1, 2, 0, 0, 1};

using Array = std::vector<float>;

struct AddedMethod {
  std::string_view name;
  std::vector<codec::Option> options;
  // Gradients are multiples of it, if it is not 0.  Where numbers are divided before they are
  // coded, no code is subnormal then, so that the divisor changes no bit.
  float step = 0;
};

Coding CodingBy(const AddedMethod& method) {
  return codec::Builtin().Parse(&method.name, method.options).value();
}

// Numbers between -3 and 3.
Array GradientAt(size_t rank, size_t round, float step) {
  Array gradient(kAdded);
  auto mixed = static_cast<uint32_t>(977 * rank + 31 * round + 1);
  for (float& value : gradient) {
    mixed = mixed * 1664525 + 1013904223;
    value = 3 * (static_cast<float>(mixed >> 8U) * 0x1p-23F - 1);
    if (step > 0) value = step * static_cast<float>(static_cast<int>(value / step));
  }
  return gradient;
}

// By rank.
using Gradients = std::vector<Array>;

// Those of all workers, or of hosts that contribute the sum of theirs in the order of ranks.
Gradients GradientsOfWorkers(size_t round, float step) {
  Gradients gradients;
  for (size_t rank = 0; rank < kThreeHosts.size(); ++rank) {
    gradients.push_back(GradientAt(rank, round, step));
  }
  return gradients;
}
Gradients SumsOfHosts(const Gradients& gradients) {
  Gradients sums(3);
  for (size_t rank = 0; rank < gradients.size(); ++rank) {
    Array& sum = sums[static_cast<size_t>(kThreeHosts[rank])];
    if (sum.empty()) {
      sum = gradients[rank];
      continue;
    }
    for (size_t i = 0; i < kAdded; ++i) sum[i] += gradients[rank][i];
  }
  return sums;
}

// Rates that change in each round, alike on all workers.
PushRates RatesIn(size_t round) {
  return {.learning_rate = 1.0 / static_cast<double>(round + 1),
          .weight_decay = 0,
          .rescale_grad = round % 2 == 0 ? 0.25 : 0.5};
}

// A job that goes from round to round.
class HostsJob {
 public:
  explicit HostsJob(const HostsOfWorkers& hosts, const Coding& declared,
                    const SimNetworkOptions& network = {}, uint64_t seed = 1)
      : clock_(seed), network_(&clock_, network) {
    const codec::Table* const codecs = &codec::Builtin();
    for (int32_t rank = 0; rank < kNodes; ++rank) {
      servers_.push_back(std::make_unique<CodedServer>(&clock_, &network_, rank, codecs, hosts));
    }
    for (int32_t rank = 0; rank < static_cast<int32_t>(hosts.size()); ++rank) {
      workers_.push_back(std::make_unique<CodedWorker>(
          &clock_, &network_, ViewWith({.rank = rank}, hosts), codecs, kPartition));
    }
    Run(Duration(0));
    for (const auto& server : servers_) server->Connect();
    for (const auto& worker : workers_) worker->Connect();
    Array value(kAdded);
    outcomes_.resize(workers_.size());
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      workers_[rank]->worker()->Broadcast(
          kAddedKey, {.coding = declared}, std::as_writable_bytes(std::span(value)),
          [this, rank](const Status& status) { outcomes_[rank] = status; });
    }
    RunUntilEnded();
    EXPECT_TRUE(AllOk());
  }
  ~HostsJob() {
    for (const auto& worker : workers_) worker->worker()->Close([] {});
    Run(std::chrono::seconds(1));
    workers_.clear();
    servers_.clear();
    Run(std::chrono::seconds(1));
  }
  HostsJob(const HostsJob&) = delete;
  HostsJob& operator=(const HostsJob&) = delete;

  // Lets `on_send` see each message that leaves a worker.
  void OnSend(const std::function<void(size_t rank, ps::Message*)>& on_send) {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      workers_[rank]->on_send = [rank, on_send](ps::Message* message) { on_send(rank, message); };
    }
  }
  // The sum, which is the same on all workers.
  Array Round(const Coding& coding, const Gradients& gradients, const PushRates& rates = {}) {
    Start(std::vector<Coding>(workers_.size(), coding), gradients, rates);
    RunUntilEnded();
    EXPECT_TRUE(AllOk());
    for (const Array& sum : sums_) {
      EXPECT_EQ(std::memcmp(sum.data(), sums_[0].data(), kAdded * sizeof(float)), 0);
    }
    return sums_[0];
  }
  // The outcomes of a round whose workers have these codings; nothing: it has none yet.
  std::vector<std::optional<Status>> Outcomes(const std::vector<Coding>& codings,
                                              const Gradients& gradients) {
    Start(codings, gradients, {});
    Run(std::chrono::seconds(20));
    return outcomes_;
  }
  uint64_t pushed_bytes() const { return servers_[0]->pushed_bytes + servers_[1]->pushed_bytes; }
  const std::vector<std::string>& lines(size_t rank) const { return workers_[rank]->lines; }

 private:
  static constexpr uint64_t kPartition = 8000;  // of codes, so that each is a unit

  void Start(const std::vector<Coding>& codings, const Gradients& gradients,
             const PushRates& rates) {
    outcomes_.assign(workers_.size(), std::nullopt);
    gradients_ = gradients;
    sums_.assign(workers_.size(), Array(kAdded));
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      workers_[rank]->worker()->PushPull(
          kAddedKey, {.coding = codings[rank], .rates = rates},
          std::as_bytes(std::span(gradients_[rank])),
          std::as_writable_bytes(std::span(sums_[rank])), [](const Status&) {},
          [this, rank](const Status& status) { outcomes_[rank] = status; });
    }
  }
  void Run(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  void RunUntilEnded() {
    const auto waits = [this] {
      return std::count(outcomes_.begin(), outcomes_.end(), std::nullopt) > 0;
    };
    for (int second = 0; second < 600 && waits(); ++second) Run(std::chrono::seconds(1));
    Run(std::chrono::seconds(1));  // `pushed` too
  }
  bool AllOk() const {
    return std::all_of(outcomes_.begin(), outcomes_.end(), [](const auto& outcome) {
      EXPECT_TRUE(outcome) << "never called";
      EXPECT_TRUE(outcome && outcome->ok()) << (outcome ? outcome->ToString() : "");
      return outcome && outcome->ok();
    });
  }

  SimClock clock_;
  SimNetwork network_;
  std::vector<std::unique_ptr<CodedServer>> servers_;
  std::vector<std::unique_ptr<CodedWorker>> workers_;
  std::vector<std::optional<Status>> outcomes_;  // by rank, as are the next
  Gradients gradients_;
  Gradients sums_;
};

// The sums of all rounds.
std::vector<Array> SumsOfWorkers(const AddedMethod& method, HostsJob* job) {
  std::vector<Array> sums;
  for (size_t round = 0; round < kAddedRounds; ++round) {
    const Gradients gradients = GradientsOfWorkers(round, method.step);
    sums.push_back(job->Round(CodingBy(method), gradients, RatesIn(round)));
  }
  return sums;
}

std::vector<Array> SumsOfOneWorkerAHost(const AddedMethod& method, uint64_t* pushed_bytes) {
  HostsJob job({0, 1, 2}, CodingBy(method));
  std::vector<Array> sums;
  for (size_t round = 0; round < kAddedRounds; ++round) {
    const Gradients gradients = SumsOfHosts(GradientsOfWorkers(round, method.step));
    sums.push_back(job.Round(CodingBy(method), gradients, RatesIn(round)));
  }
  *pushed_bytes = job.pushed_bytes();
  return sums;
}

bool AreSame(const std::vector<Array>& sums, const std::vector<Array>& others) {
  for (size_t round = 0; round < kAddedRounds; ++round) {
    if (std::memcmp(sums[round].data(), others[round].data(), kAdded * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

const AddedMethod kAddedTopk{"topk", {{"k", "0.1"}, {"ef", "vanilla"}}};
const AddedMethod kAddedOnebit{"onebit", {{"scaling", "True"}, {"ef", "corrected"}}};

class HostCopiesBy : public ::testing::TestWithParam<AddedMethod> {};

TEST_P(HostCopiesBy, SumsEqualAJobOfOneWorkerAHostThatContributesTheSum) {
  const AddedMethod& method = GetParam();
  uint64_t pushed_bytes = 0;
  const std::vector<Array> expected = SumsOfOneWorkerAHost(method, &pushed_bytes);
  HostsJob job(kThreeHosts, CodingBy(method));
  EXPECT_TRUE(AreSame(SumsOfWorkers(method, &job), expected));
  EXPECT_EQ(job.pushed_bytes(), pushed_bytes) << "a copy a host";
  const uint64_t codes = codec::Builtin().SentBytes(CodingBy(method), kAdded * sizeof(float));
  EXPECT_EQ(pushed_bytes, kAddedRounds * 3 * codes);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, HostCopiesBy,
    ::testing::Values(AddedMethod{"bf16", {}}, AddedMethod{"fp16", {}, 0x1p-6F}, kAddedOnebit,
                      kAddedTopk, AddedMethod{"onebit", {{"pull", "plain"}, {"ef", "vanilla"}}},
                      AddedMethod{"topk", {{"k", "0.1"}, {"fp16", "True"}, {"ef", "vanilla"}}},
                      AddedMethod{"randomk", {{"k", "0.2"}, {"seed", "3"}}},
                      AddedMethod{"randomk", {{"k", "0.2"}, {"seed", "3"}, {"ef", "sparse"}}},
                      AddedMethod{"dithering", {{"k", "7"}, {"seed", "5"}}},
                      AddedMethod{"int8", {{"seed", "5"}, {"ef", "vanilla"}}}),
    [](const auto& param) { return std::string(param.param.name) + std::to_string(param.index); });

TEST(HostCopies, BitsDoNotDependOnTheNetwork) {
  uint64_t pushed_bytes = 0;
  const std::vector<Array> expected = SumsOfOneWorkerAHost(kAddedTopk, &pushed_bytes);
  for (const uint64_t seed : {2U, 3U}) {
    HostsJob job(kThreeHosts, CodingBy(kAddedTopk), {.loss = 0.1, .repeat = 0.2}, seed);
    EXPECT_TRUE(AreSame(SumsOfWorkers(kAddedTopk, &job), expected)) << seed;
  }
}

// A key that was declared without the coding is cut with its next round.
TEST(HostCopies, CodesOfAnEarlierKeyFollowAPlainRound) {
  HostsJob job(kThreeHosts, {});
  HostsJob alone({0, 1, 2}, {});
  const Gradients gradients = GradientsOfWorkers(9, 0);
  job.Round(CodingBy(kAddedTopk), gradients);
  alone.Round(CodingBy(kAddedTopk), SumsOfHosts(gradients));
  for (size_t round = 0; round < 2; ++round) {
    const Gradients next = GradientsOfWorkers(round, 0);
    EXPECT_EQ(job.Round(CodingBy(kAddedTopk), next),
              alone.Round(CodingBy(kAddedTopk), SumsOfHosts(next)));
  }
}

// One residual a host: what goes in comes out, exactly.
TEST(HostCopies, ResidualsOfHostsLoseNothing) {
  const AddedMethod half{"topk", {{"k", "0.5"}, {"ef", "vanilla"}}};
  HostsJob job(kThreeHosts, CodingBy(half));
  Array given(kAdded);
  Array come(kAdded);
  constexpr size_t kGiving = 3;
  // Hosts and servers need two rounds each to send what they hold.
  for (size_t round = 0; round < kGiving + 5; ++round) {
    Gradients gradients(kThreeHosts.size(), Array(kAdded));
    if (round < kGiving) gradients = GradientsOfWorkers(round, 1);
    const Array sum = job.Round(CodingBy(half), gradients);
    for (size_t i = 0; i < kAdded; ++i) {
      for (const Array& gradient : gradients) given[i] += gradient[i];
      come[i] += sum[i];
    }
  }
  EXPECT_EQ(given, come);
}

TEST(HostCopies, InTwoBitsEachWorkerSendsItsOwn) {
  const AddedMethod two_bits{"2bit", {{"threshold", "0.5"}}};
  HostsJob apart({0, 1, 2, 3, 4, 5}, {});
  HostsJob job(kThreeHosts, {});
  EXPECT_TRUE(AreSame(SumsOfWorkers(two_bits, &job), SumsOfWorkers(two_bits, &apart)));
  EXPECT_EQ(job.pushed_bytes(), apart.pushed_bytes());
}

TEST(HostCopies, AnUnlikeCodingFailsTheRoundOnItsHost) {
  HostsJob job({0, 0, 1}, CodingBy(kAddedOnebit));
  std::vector<Coding> codings(3, CodingBy(kAddedOnebit));
  codings[1] = CodingBy({"onebit", {{"scaling", "True"}, {"ef", "vanilla"}}});
  Gradients gradients = GradientsOfWorkers(0, 0);
  gradients.resize(3);
  const std::vector<std::optional<Status>> outcomes = job.Outcomes(codings, gradients);
  for (const size_t rank : {0U, 1U}) {
    ASSERT_TRUE(outcomes[rank]) << "worker " << rank << " waits";
    EXPECT_THAT(outcomes[rank]->message(),
                AllOf(HasSubstr("worker 0"), HasSubstr("compressed to onebit scaled, ef corrected"),
                      HasSubstr("worker 1"), HasSubstr("compressed to onebit scaled, ef vanilla"),
                      HasSubstr("set gradient compression alike on all workers")));
  }
}

TEST(HostCopies, AResidualThatTheHostHasNoUseForGoesWithALine) {
  HostsJob job(kThreeHosts, {});
  job.Round(CodingBy({"2bit", {{"threshold", "0.5"}}}), GradientsOfWorkers(0, 0));
  for (size_t round = 1; round < 3; ++round) {
    job.Round(CodingBy(kAddedTopk), GradientsOfWorkers(round, 0));
  }
  for (const size_t rank : {0U, 1U, 3U, 4U, 5U}) {
    EXPECT_THAT(job.lines(rank),
                Contains(HasSubstr("key=7: it is coded by another codec, and with that goes this "
                                   "worker's residual of its gradients")));
  }
}

// Contributions of workers to their host.
bool IsContribution(const ps::Message& message) {
  return message.meta.request && message.peer == ps::WorkerId(ps::RankOf(message.peer)) &&
         test::About(message).op == ps::Op::kPushPull && !message.data.empty();
}

bool IsCaught(const std::function<void(size_t rank, ps::Message*)>& mutant) {
  uint64_t pushed_bytes = 0;
  const std::vector<Array> expected = SumsOfOneWorkerAHost(kAddedTopk, &pushed_bytes);
  HostsJob job(kThreeHosts, CodingBy(kAddedTopk));
  job.OnSend(mutant);
  return !AreSame(SumsOfWorkers(kAddedTopk, &job), expected);
}

TEST(HostCopiesMutants, ACodeOfOneWorkersGradientIsCaught) {
  EXPECT_TRUE(IsCaught([](size_t /*rank*/, ps::Message* message) {
    if (!IsContribution(*message)) return;
    message->data[0] = ps::Frame::Copy(std::vector<std::byte>(message->data[0].size()));
  }));
  EXPECT_FALSE(IsCaught([](size_t /*rank*/, ps::Message* /*message*/) {}));
}

TEST(HostCopiesMutants, AResidualOfEachWorkerBesideThatOfTheHostIsCaught) {
  const Coding coding = CodingBy(kAddedTopk);
  const codec::Codec& topk = codec::Builtin().Get(coding);
  std::map<std::pair<size_t, uint64_t>, Array> residuals;
  EXPECT_TRUE(IsCaught([&](size_t rank, ps::Message* message) {
    if (!IsContribution(*message)) return;
    const size_t count = message->data[0].size() / sizeof(float);
    Array& residual = residuals[{rank, test::About(*message).offset_bytes}];
    residual.resize(count);
    std::vector<std::byte> codes(topk.encoded_bytes(coding.parameters, count));
    topk.encode(coding.parameters, {}, message->data[0].bytes().data(), residual.data(),
                codes.data(), count);
    Array values(count);
    topk.decode(coding.parameters, {}, codes.data(), values.data(), count);
    message->data[0] = ps::Frame::Copy(std::as_bytes(std::span(values)));
  }));
}

}  // namespace
}  // namespace bs::sim
