// S: with topk and randomk and error feedback all that goes in comes out, in the end, exactly:
// whole numbers over a network that loses, repeats and delays, while the job is tuned.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "codec/randomk.h"
#include "codec/topk.h"
#include "sim/coded/coded_hosts.h"

namespace bs::sim {
namespace {

constexpr size_t kConserved = 2 * 65536 + 300;  // three units
constexpr int kGivenRounds = 4;
constexpr SimNetworkOptions kGoodNetwork;
constexpr SimNetworkOptions kBadNetwork = {.loss = 0.1, .repeat = 0.2};

using Numbers = std::vector<float>;

Coding HalfOf(std::string_view name, std::string_view feedback = "vanilla") {
  const codec::Option options[] = {{"k", "0.5"}, {"ef", feedback}};
  return codec::Builtin().Parse(&name, options).value();
}

class Conservation {
 public:
  Conservation(const codec::Table& codecs, const SimNetworkOptions& network, uint64_t seed = 1)
      : clock_(seed), network_(&clock_, network) {
    for (int32_t rank = 0; rank < kNodes; ++rank) {
      servers_.push_back(std::make_unique<CodedServer>(&clock_, &network_, rank, &codecs));
      workers_.push_back(std::make_unique<CodedWorker>(&clock_, &network_, rank, &codecs,
                                                       /*partition_bytes=*/600000));
    }
    clock_.RunUntil(clock_.Now());
    for (const auto& server : servers_) server->Connect();
    for (const auto& worker : workers_) worker->Connect();
    Numbers values(kConserved);
    for (const auto& worker : workers_) {
      worker->worker()->Broadcast(7, DType::kFloat32, std::as_writable_bytes(std::span(values)),
                                  [this](const Status& status) { End(status); });
    }
    RunUntilEnded(kNodes);
  }
  ~Conservation() {
    for (const auto& worker : workers_) worker->worker()->Close([] {});
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
    workers_.clear();
    servers_.clear();
    clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
  }
  Conservation(const Conservation&) = delete;
  Conservation& operator=(const Conservation&) = delete;

  // Lets `on_send` see each message that leaves a worker.
  void OnSend(const std::function<void(uint32_t rank, ps::Message*)>& on_send) {
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      workers_[rank]->on_send = [rank, on_send](ps::Message* message) { on_send(rank, message); };
    }
  }

  // The gradients' sum, and what of it has come, after rounds of gradients and `empty_rounds` of
  // zeros, which residuals drain in.
  struct Totals {
    Numbers given = Numbers(kConserved);
    Numbers come = Numbers(kConserved);
  };
  Totals Run(const Coding& coding, int empty_rounds) {
    Totals totals;
    // The key is there: it travels plain once more, and is cut with that round, into partitions of
    // two units.  It keeps them: partitions of one unit and of three would lose the residuals that
    // servers keep.
    Round({}, GradientsOf(0), &totals);
    for (int number = 1; number < kGivenRounds; ++number) {
      Round(coding, GradientsOf(number), &totals);
      workers_[0]->worker()->Retune(300000 * static_cast<uint64_t>(number), 1000,
                                    [](const Status& status) { EXPECT_TRUE(status.ok()); });
    }
    const std::vector<Numbers> zeros(kNodes, Numbers(kConserved));
    for (int number = 0; number < empty_rounds; ++number) Round(coding, zeros, &totals);
    return totals;
  }

 private:
  static std::vector<Numbers> GradientsOf(int number) {
    std::vector<Numbers> gradients(kNodes, Numbers(kConserved));
    for (size_t rank = 0; rank < gradients.size(); ++rank) {
      for (size_t i = 0; i < kConserved; ++i) {
        const size_t mixed = (i * 37 + rank * 11 + static_cast<size_t>(number) * 5) % 101;
        gradients[rank][i] = static_cast<float>(mixed) - 50;
      }
    }
    return gradients;
  }
  void Round(const Coding& coding, const std::vector<Numbers>& gradients, Totals* totals) {
    std::vector<Numbers> sums(kNodes, Numbers(kConserved));
    for (size_t rank = 0; rank < sums.size(); ++rank) {
      workers_[rank]->worker()->PushPull(
          7, {.coding = coding}, std::as_bytes(std::span(gradients[rank])),
          std::as_writable_bytes(std::span(sums[rank])),
          [this](const Status& status) { End(status); },  // no copy of the gradient is under way
          [this](const Status& status) { End(status); });
    }
    RunUntilEnded(2 * kNodes);
    EXPECT_EQ(std::memcmp(sums[0].data(), sums[1].data(), kConserved * sizeof(float)), 0);
    for (size_t i = 0; i < kConserved; ++i) {
      for (const Numbers& gradient : gradients) totals->given[i] += gradient[i];
      totals->come[i] += sums[0][i];
    }
  }
  void End(const Status& status) {
    EXPECT_TRUE(status.ok()) << status.ToString();
    ++ended_;
  }
  void RunUntilEnded(int count) {
    for (int second = 0; second < 600 && ended_ < count; ++second) {
      clock_.RunUntil(clock_.Now() + std::chrono::seconds(1));
    }
    ASSERT_EQ(ended_, count);
    ended_ = 0;
  }

  SimClock clock_;
  SimNetwork network_;
  int ended_ = 0;
  std::vector<std::unique_ptr<CodedServer>> servers_;
  std::vector<std::unique_ptr<CodedWorker>> workers_;
};

// The share of elements whose numbers are not all there.
double Lost(const Conservation::Totals& totals) {
  size_t lost = 0;
  for (size_t i = 0; i < kConserved; ++i) lost += totals.given[i] != totals.come[i] ? 1 : 0;
  return static_cast<double>(lost) / kConserved;
}

// Two rounds send what a worker holds, and two what a server holds.
constexpr int kRoundsOfTopk = 6;
// Each round leaves half of the elements.
constexpr int kRoundsOfRandomk = 40;

TEST(Conservation, TopkLosesNothing) {
  for (const SimNetworkOptions& network : {kGoodNetwork, kBadNetwork}) {
    Conservation job(codec::Builtin(), network);
    EXPECT_EQ(Lost(job.Run(HalfOf("topk"), kRoundsOfTopk)), 0);
  }
}

TEST(Conservation, RandomkLosesNothing) {
  for (const SimNetworkOptions& network : {kGoodNetwork, kBadNetwork}) {
    Conservation job(codec::Builtin(), network);
    EXPECT_EQ(Lost(job.Run(HalfOf("randomk", "sparse"), kRoundsOfRandomk)), 0);
  }
}

TEST(Conservation, BitsDoNotDependOnTheNetwork) {
  for (const char* const name : {"topk", "randomk"}) {
    Conservation good(codec::Builtin(), kGoodNetwork);
    const Numbers come = good.Run(HalfOf(name), 0).come;
    for (uint64_t seed = 2; seed < 5; ++seed) {
      Conservation bad(codec::Builtin(), kBadNetwork, seed);
      const Numbers bad_come = bad.Run(HalfOf(name), 0).come;
      EXPECT_EQ(std::memcmp(bad_come.data(), come.data(), kConserved * sizeof(float)), 0) << name;
    }
  }
}

TEST(Conservation, MeansTheResidualsNotOneRound) {
  Conservation job(codec::Builtin(), kGoodNetwork);
  EXPECT_GT(Lost(job.Run(HalfOf("topk"), 0)), 0.3) << "residuals hold the rest";
}

// What is lost with another row in place of the codec's.
double LostWith(const codec::Codec& row, std::string_view name, int empty_rounds) {
  const codec::Table codecs({row});
  Conservation job(codecs, kGoodNetwork);
  return Lost(job.Run(HalfOf(name), empty_rounds));
}

// The codings of workers, so that a repeat can be coded again.
class Recoder {
 public:
  static Recoder& Only() {
    static Recoder recoder;
    return recoder;
  }
  // A row whose workers' codings are kept here.
  static codec::Codec Row() {
    Only() = Recoder();
    codec::Codec row = codec::TopkCodec();
    row.encode = [](const CodecParameters& parameters, const codec::Place& place, const void* in,
                    float* residual, void* codes, size_t count) {
      codec::TopkCodec().encode(parameters, place, in, residual, codes, count);
      if (place.rank == codec::kServerRank) return;
      const auto* const first = static_cast<const float*>(in);
      Only().coded_[{place.rank, place.round, place.first_element}] = {
          .parameters = parameters,
          .place = place,
          .in = Numbers(first, first + count),
          .residual = residual};
    };
    return row;
  }
  // Codes a push of worker `rank` again if it has left before.
  void OnSend(uint32_t rank, ps::Message* message) {
    const test::Asked about = test::About(*message);
    if (about.op != ps::Op::kPush || message->data.empty()) return;
    const auto found = coded_.find({rank, about.round, about.offset_bytes / sizeof(float)});
    if (found == coded_.end()) return;
    Coded& coded = found->second;
    if (!std::exchange(coded.has_left, true)) return;
    ++repeats;
    std::vector<std::byte> codes(message->data[0].size());
    codec::TopkCodec().encode(coded.parameters, coded.place, coded.in.data(), coded.residual,
                              codes.data(), coded.in.size());
    message->data[0] = ps::Frame::Copy(codes);
  }
  int repeats = 0;

 private:
  struct Coded {
    CodecParameters parameters{};
    codec::Place place{};
    Numbers in{};
    float* residual = nullptr;
    bool has_left = false;
  };
  std::map<std::tuple<uint32_t, uint64_t, uint64_t>, Coded> coded_;
};

TEST(ConservationMutants, ARepeatThatIsCodedAnewIsCaught) {
  const codec::Table codecs({Recoder::Row()});
  {
    Conservation job(codecs, kBadNetwork);
    EXPECT_EQ(Lost(job.Run(HalfOf("topk"), kRoundsOfTopk)), 0) << "the row alone changes nothing";
  }
  for (const uint64_t seed : {5U, 6U, 7U}) {
    Recoder::Only() = Recoder();
    Conservation job(codecs, kBadNetwork, seed);
    job.OnSend([](uint32_t rank, ps::Message* message) { Recoder::Only().OnSend(rank, message); });
    EXPECT_GT(Lost(job.Run(HalfOf("topk"), kRoundsOfTopk)), 0) << seed;
    EXPECT_GT(Recoder::Only().repeats, 0) << seed;
  }
}

TEST(ConservationMutants, AResidualThatIsTakenTwiceIsCaught) {
  codec::Codec row = codec::TopkCodec();
  row.encode = [](const CodecParameters& parameters, const codec::Place& place, const void* in,
                  float* residual, void* codes, size_t count) {
    codec::Place twice = place;
    twice.ratio *= 2;
    codec::TopkCodec().encode(parameters, twice, in, residual, codes, count);
  };
  EXPECT_GT(LostWith(row, "topk", kRoundsOfTopk), 0.3);
}

TEST(ConservationMutants, AServerWithoutAResidualIsCaught) {
  codec::Codec row = codec::TopkCodec();
  row.is_linear = true;
  EXPECT_GT(LostWith(row, "topk", kRoundsOfTopk), 0.1);
}

TEST(ConservationMutants, RandomkThatIsScaledWithAResidualIsCaught) {
  codec::Codec row = codec::RandomkCodec();
  row.encode = [](const CodecParameters& parameters, const codec::Place& place, const void* in,
                  float* residual, void* codes, size_t count) {
    codec::RandomkCodec().encode(parameters, place, in, residual, codes, count);
    if (residual == nullptr) return;  // a server's
    const size_t values = codec::RandomkCodec().encoded_bytes(parameters, count) / sizeof(float);
    for (float& value : std::span(static_cast<float*>(codes), values)) value *= 2;
  };
  EXPECT_GT(LostWith(row, "randomk", kRoundsOfRandomk), 0.3);
}

}  // namespace
}  // namespace bs::sim
