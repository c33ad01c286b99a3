// A codec that nothing in worker, protocol, server or wire knows: two workers and two servers, over
// a network that encodes every message, use one that the test has registered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/dithering.h"
#include "codec/mirror_codec.h"
#include "codec/onebit.h"
#include "codec/randomk.h"
#include "codec/steps_codec.h"
#include "codec/topk.h"
#include "codec/two_bit.h"
#include "sim/coded/coded_hosts.h"

namespace bs::sim {
namespace {

using codec::testing::StepsCoding;

constexpr size_t kElements = 100;
constexpr uint64_t kPartitionBytes = codec::testing::kStepsUnit * sizeof(float);

const codec::Table& Registered() {
  static const codec::Table table(
      {codec::TwoBitCodec(), codec::testing::StepsCodec(), codec::testing::MirrorCodec(),
       codec::OnebitCodec(), codec::DitheringCodec(), codec::TopkCodec(), codec::RandomkCodec()});
  return table;
}

class RegisteredCodec : public ::testing::Test {
 protected:
  void Start(const codec::Table* servers_codecs = &Registered()) {
    for (int32_t rank = 0; rank < kNodes; ++rank) {
      servers_.push_back(std::make_unique<CodedServer>(&clock_, &network_, rank, servers_codecs));
      workers_.push_back(
          std::make_unique<CodedWorker>(&clock_, &network_, rank, &Registered(), kPartitionBytes));
    }
    Run(Duration(0));
    for (const auto& server : servers_) server->Connect();
    for (const auto& worker : workers_) worker->Connect();
    for (const auto& worker : workers_) {
      worker->worker()->Broadcast(7, DType::kFloat32, std::as_writable_bytes(std::span(value_)),
                                  [](const Status& status) { EXPECT_TRUE(status.ok()); });
    }
    Run(std::chrono::seconds(1));
  }
  void TearDown() override {
    for (const auto& worker : workers_) worker->worker()->Close([] {});
    Run(std::chrono::seconds(1));
    workers_.clear();
    servers_.clear();
    Run(std::chrono::seconds(1));
  }
  void Run(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }
  // A round; how it ends on each worker.
  std::vector<Status> Round(const std::vector<Coding>& codings) {
    outcomes_.assign(kNodes, Status::Internal("never called"));
    for (size_t rank = 0; rank < kNodes; ++rank) {
      workers_[rank]->worker()->PushPull(
          7, {.coding = codings[rank]}, std::as_bytes(std::span(gradients_[rank])),
          std::as_writable_bytes(std::span(sums_[rank])), [](const Status&) {},
          [this, rank](const Status& status) { outcomes_[rank] = status; });
    }
    Run(std::chrono::seconds(5));
    return outcomes_;
  }

  SimClock clock_{1};
  SimNetwork network_{&clock_, {}};
  std::vector<float> value_ = std::vector<float>(kElements);
  std::vector<std::vector<float>> gradients_ =
      std::vector<std::vector<float>>(kNodes, std::vector<float>(kElements));
  std::vector<std::vector<float>> sums_ = gradients_;
  std::vector<Status> outcomes_;
  std::vector<std::unique_ptr<CodedServer>> servers_;
  std::vector<std::unique_ptr<CodedWorker>> workers_;
};

TEST_F(RegisteredCodec, CarriesGradientsWithoutLoss) {
  constexpr double kStep = 0.5;
  constexpr int kRounds = 20;
  Start();
  std::vector<double> given(kElements);
  std::vector<double> arrived(kElements);
  for (int round = 1; round <= kRounds; ++round) {
    for (size_t rank = 0; rank < kNodes; ++rank) {
      for (size_t i = 0; i < kElements; ++i) {
        const auto n = static_cast<float>((i * 7 + rank * 3 + static_cast<size_t>(round)) % 11);
        gradients_[rank][i] = (n - 5) * 0.3F;
        given[i] += gradients_[rank][i];
      }
    }
    for (const Status& status : Round({StepsCoding(kStep), StepsCoding(kStep)})) {
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    EXPECT_EQ(sums_[0], sums_[1]);
    for (size_t i = 0; i < kElements; ++i) {
      arrived[i] += sums_[0][i];
      // What did not arrive lies in the residuals, which are half a step at most.
      ASSERT_LE(std::abs(given[i] - arrived[i]), kNodes * (kStep / 2) + 1e-3)
          << "element " << i << " round " << round;
    }
  }
  // A byte an element travelled, whatever the tensor is cut into.
  EXPECT_EQ(servers_[0]->pushed_bytes + servers_[1]->pushed_bytes, kRounds * kNodes * kElements);
  EXPECT_GT(servers_[0]->pushed_bytes, 0U);
  EXPECT_GT(servers_[1]->pushed_bytes, 0U);
}

TEST_F(RegisteredCodec, WithOtherParametersOnAWorkerFailsTheJobWithBothNames) {
  Start();
  const std::vector<Status> outcomes = Round({StepsCoding(0.5), StepsCoding(0.25)});
  const std::string texts = outcomes[0].message() + outcomes[1].message();
  EXPECT_THAT(texts, ::testing::HasSubstr("compressed to steps of 0.5"));
  EXPECT_THAT(texts, ::testing::HasSubstr("compressed to steps of 0.25"));
  EXPECT_TRUE(workers_[0]->failure || workers_[1]->failure);
}

TEST_F(RegisteredCodec, IsRefusedByAServerThatDoesNotKnowIt) {
  Start(nullptr);
  const std::vector<Status> outcomes = Round({StepsCoding(0.5), StepsCoding(0.5)});
  EXPECT_EQ(outcomes[0].code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(outcomes[0].message(), ::testing::HasSubstr("codec=77 is none"));
}

TEST_F(RegisteredCodec, WithParametersThatMakeNoSenseHarmsOnlyTheCall) {
  Start();
  for (const Status& status : Round({StepsCoding(0), StepsCoding(-1)})) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("a step that is none"));
  }
  for (const Status& status : Round({{}, {}})) EXPECT_TRUE(status.ok()) << status.ToString();
}

// Partitions would not be whole units.
TEST_F(RegisteredCodec, IsRefusedWhereATensorIsCutBetweenItsUnits) {
  Start();
  std::optional<Status> done;
  workers_[0]->worker()->Retune(64, 1000, [&](const Status& status) { done = status; });
  Run(std::chrono::seconds(1));
  ASSERT_TRUE(done && done->ok());
  for (const Status& status : Round({{}, {}})) EXPECT_TRUE(status.ok()) << status.ToString();
  for (const Status& status : Round({StepsCoding(0.5), StepsCoding(0.5)})) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("only multiples of 128 bytes"));
  }
}

// A tensor of 20 units and a piece of one.
constexpr size_t kManyElements = 20 * codec::testing::kMirrorUnit + 5;

class NoUnits final : public protocol::Rules {
 public:
  bool coded_keys_are_cut_into_units() const override { return false; }
};

// Two workers and two servers, whose gradients are coded unit by unit.
class Units {
 public:
  using Sums = std::vector<std::vector<float>>;  // by round

  Units(uint64_t partition_bytes, const protocol::Rules& rules, size_t elements = kManyElements,
        const SimNetworkOptions& network = {})
      : elements_(elements),
        patience_(std::chrono::seconds(network.loss > 0 ? 300 : 5)),
        network_(&clock_, network) {
    for (int32_t rank = 0; rank < kNodes; ++rank) {
      servers_.push_back(std::make_unique<CodedServer>(&clock_, &network_, rank, &Registered()));
      workers_.push_back(std::make_unique<CodedWorker>(&clock_, &network_, rank, &Registered(),
                                                       partition_bytes, rules));
      workers_.back()->on_send = [this](ps::Message* message) {
        last_layout_ = std::max(last_layout_, test::About(*message).layout_version);
      };
    }
    Run(Duration(0));
    for (const auto& server : servers_) server->Connect();
    for (const auto& worker : workers_) worker->Connect();
  }
  ~Units() {
    for (const auto& worker : workers_) worker->worker()->Close([] {});
    Run(std::chrono::seconds(1));
    workers_.clear();
    servers_.clear();
    Run(std::chrono::seconds(1));
  }
  Units(const Units&) = delete;
  Units& operator=(const Units&) = delete;

  void Declare(const Coding& coding) {
    for (const auto& worker : workers_) {
      worker->worker()->Broadcast(7, {.coding = coding}, std::as_writable_bytes(std::span(value_)),
                                  [](const Status& status) { EXPECT_TRUE(status.ok()); });
    }
    Run(patience_);
  }
  void Retune(uint64_t partition_bytes) {
    workers_[0]->worker()->Retune(partition_bytes, 1000,
                                  [](const Status& status) { EXPECT_TRUE(status.ok()); });
    Run(std::chrono::seconds(1));
  }
  // Returns worker 0's sum, which is worker 1's too.
  std::vector<float> Round(int number, const Coding& coding) {
    Sums gradients(kNodes, std::vector<float>(elements_));
    Sums sums = gradients;
    for (size_t rank = 0; rank < kNodes; ++rank) {
      for (size_t i = 0; i < elements_; ++i) {
        gradients[rank][i] = GradientOf(number, rank, i);
      }
      workers_[rank]->worker()->PushPull(
          7, {.coding = coding}, std::as_bytes(std::span(gradients[rank])),
          std::as_writable_bytes(std::span(sums[rank])), [](const Status&) {},
          [](const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); });
    }
    Run(patience_);
    EXPECT_EQ(sums[0], sums[1]);
    return sums[0];
  }
  static float GradientOf(int number, size_t rank, size_t i) {
    return static_cast<float>((i * 37 + rank * 11 + static_cast<size_t>(number) * 5) % 101) * 0.1F;
  }
  uint64_t pushed_bytes() const { return servers_[0]->pushed_bytes + servers_[1]->pushed_bytes; }
  uint32_t last_layout() const { return last_layout_; }

 private:
  void Run(Duration duration) { clock_.RunUntil(clock_.Now() + duration); }

  const size_t elements_;
  uint32_t last_layout_ = 0;  // that a worker has used
  const Duration patience_;
  SimClock clock_{1};
  SimNetwork network_;
  std::vector<float> value_ = std::vector<float>(elements_);
  std::vector<std::unique_ptr<CodedServer>> servers_;
  std::vector<std::unique_ptr<CodedWorker>> workers_;
};

constexpr uint64_t kCodesOfAUnit = codec::testing::kMirrorBytes;
constexpr uint64_t kBytesOfAUnit = codec::testing::kMirrorUnit * sizeof(float);

Units::Sums SumsOf(uint64_t partition_bytes, const protocol::Rules& rules = protocol::Rules()) {
  Units job(partition_bytes, rules);
  job.Declare(codec::testing::MirrorCoding());
  Units::Sums sums;
  for (int number = 1; number <= 3; ++number) {
    sums.push_back(job.Round(number, codec::testing::MirrorCoding()));
  }
  EXPECT_EQ(job.pushed_bytes(), 3 * kNodes * 21 * kCodesOfAUnit);
  return sums;
}

TEST(CodedUnits, SumsDoNotDependOnPartitions) {
  const Units::Sums expected = SumsOf(kBytesOfAUnit);
  EXPECT_EQ(SumsOf(2 * kBytesOfAUnit), expected);
  EXPECT_EQ(SumsOf(7 * kBytesOfAUnit), expected);
  EXPECT_EQ(SumsOf(100 * kBytesOfAUnit), expected) << "one partition";
}

// The mutant: partitions of half a unit.  Their codes do not lie behind one another.
TEST(CodedUnitsDeathTest, UnitsThatFollowPartitionsAreCaught) {
  EXPECT_DEATH(
      {
        Units job(kBytesOfAUnit / 2, NoUnits());
        job.Declare(codec::testing::MirrorCoding());
        job.Round(1, codec::testing::MirrorCoding());
      },
      "offset_bytes");
}

TEST(CodedUnits, AKeyThatIsThereTravelsPlainOnceMoreAndIsCutWithThatRound) {
  const Units::Sums expected = SumsOf(kBytesOfAUnit);
  Units job(kBytesOfAUnit * 3 / 2, protocol::Rules());
  job.Declare({});
  std::vector<float> plain(kManyElements);
  for (const int number : {8, 9}) {
    for (size_t i = 0; i < kManyElements; ++i) {
      plain[i] = Units::GradientOf(number, 0, i) + Units::GradientOf(number, 1, i);
    }
    EXPECT_EQ(job.Round(number, number == 8 ? Coding{} : codec::testing::MirrorCoding()), plain);
  }
  EXPECT_EQ(job.Round(1, codec::testing::MirrorCoding()), expected[0]);
  job.Retune(64);
  EXPECT_EQ(job.Round(2, codec::testing::MirrorCoding()), expected[1]);
  EXPECT_EQ(job.Round(3, codec::testing::MirrorCoding()), expected[2]) << "it keeps its layout";
}

// A codec that keeps residuals on workers and servers: three units and a piece of one.
constexpr size_t kLargeUnit = 65536;
constexpr size_t kLargeElements = 3 * kLargeUnit + 9;
constexpr uint64_t kLargeUnitBytes = kLargeUnit * sizeof(float);

struct Method {
  const char* name;
  std::vector<codec::Option> options;
  uint64_t unit_bytes;
  uint64_t last_bytes;
};
const Method kOnebit = {"onebit", {{"scaling", "True"}, {"ef", "vanilla"}}, 8196, 6};
const Method kDithering = {"dithering", {{"k", "7"}, {"ef", "vanilla"}}, 32896, 9};
const Method kTopk = {"topk", {{"k", "0.25"}, {"ef", "vanilla"}}, 16384 * 6, 2 * 6};
const Method kRandomk = {"randomk", {{"k", "0.25"}, {"ef", "vanilla"}}, 16384 * 4, 2 * 4};

// The key is declared with partitions of `partition_units`; from the first round on the job's are
// of `retuned_bytes`, unless that is 0.
struct Cut {
  uint64_t partition_units;
  uint64_t retuned_bytes = 0;
};

Units::Sums SumsBy(const Method& method, const Cut& cut, const SimNetworkOptions& network = {}) {
  const std::string_view name = method.name;
  const Coding coding = Registered().Parse(&name, method.options).value();
  Units job(cut.partition_units * kLargeUnitBytes, protocol::Rules(), kLargeElements, network);
  job.Declare(coding);
  Units::Sums sums;
  for (int number = 1; number <= 3; ++number) {
    sums.push_back(job.Round(number, coding));
    if (cut.retuned_bytes > 0) job.Retune(cut.retuned_bytes);
  }
  EXPECT_EQ(job.last_layout(), 0U) << "the key keeps its partitions";
  const uint64_t codes = 3U * kNodes * (3 * method.unit_bytes + method.last_bytes);
  if (network.loss > 0) {
    EXPECT_GT(job.pushed_bytes(), codes) << "repeats";
  } else {
    EXPECT_EQ(job.pushed_bytes(), codes);
  }
  return sums;
}

class CodedBy : public ::testing::TestWithParam<Method> {};

TEST_P(CodedBy, ResidualsDoNotDependOnPartitions) {
  const Units::Sums expected = SumsBy(GetParam(), {.partition_units = 1});
  EXPECT_EQ(SumsBy(GetParam(), {.partition_units = 2}), expected);
  EXPECT_EQ(SumsBy(GetParam(), {.partition_units = 7}), expected) << "one partition";
  EXPECT_NE(expected[0], expected[1]);
}

// Another key would be cut into 64 bytes, or into other whole units, from then on.
TEST_P(CodedBy, ResidualsDoNotDependOnRetuning) {
  const Units::Sums expected = SumsBy(GetParam(), {.partition_units = 1});
  for (const Cut& cut : {Cut{1, 64}, Cut{1, 2 * kLargeUnitBytes}, Cut{2, kLargeUnitBytes},
                         Cut{2, 64}, Cut{7, 2 * kLargeUnitBytes}}) {
    EXPECT_EQ(SumsBy(GetParam(), cut), expected)
        << cut.partition_units << " units, retuned to " << cut.retuned_bytes;
  }
}

// A push that comes twice is in the sum once, and a pull that comes twice gets the same codes.
TEST_P(CodedBy, ResidualsDoNotDependOnRepeats) {
  const Units::Sums expected = SumsBy(GetParam(), {.partition_units = 1});
  EXPECT_EQ(SumsBy(GetParam(), {.partition_units = 1}, {.loss = 0.2, .repeat = 0.3}), expected);
}

INSTANTIATE_TEST_SUITE_P(Methods, CodedBy, ::testing::Values(kOnebit, kDithering, kTopk, kRandomk),
                         [](const auto& method) { return std::string(method.param.name); });

TEST(CodedUnits, SumsThatTravelPlainAreCodedOnceOnly) {
  Units job(kCodesOfAUnit, protocol::Rules());
  const Coding plain_sums = codec::testing::MirrorCoding(SumsTravel::kPlain);
  job.Declare(plain_sums);
  const std::vector<float> sum = job.Round(1, plain_sums);
  constexpr size_t kLast = codec::testing::kMirrorUnit - 1;
  const auto mean = [](size_t rank) {
    return (Units::GradientOf(1, rank, 0) + Units::GradientOf(1, rank, kLast)) / 2;
  };
  EXPECT_EQ(sum[0], mean(0) + mean(1));
  EXPECT_EQ(sum[kLast], sum[0]);
}

}  // namespace
}  // namespace bs::sim
