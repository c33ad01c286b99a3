// What the order of operations costs a training step: simulated models, ranks and links.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/collective/ranks.h"

namespace bs::backend::collective {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int32_t kRanks = 8;
constexpr uint64_t kFloat = 4;

struct Model {
  std::string name;
  std::vector<uint64_t> counts{};  // elements of each parameter, in the order of forward
  Duration compute{};              // of a step; a third is forward
};

Model Vgg16() {
  Model model{.name = "VGG-16", .compute = milliseconds(165)};
  uint64_t in = 3;
  for (const uint64_t out : {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512}) {
    model.counts.insert(model.counts.end(), {9 * in * out, out});
    in = out;
  }
  model.counts.insert(model.counts.end(),
                      {25088 * 4096, 4096, 4096 * 4096, 4096, 4096 * 1000, 1000});
  return model;
}

Model ResNet50() {
  Model model{.name = "ResNet-50", .counts = {49 * 3 * 64, 64, 64}, .compute = milliseconds(91)};
  const auto add = [&](uint64_t size, uint64_t in, uint64_t out) {
    model.counts.insert(model.counts.end(), {size * in * out, out, out});
  };
  uint64_t in = 64;
  const std::vector<std::pair<uint64_t, int>> stages = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [width, blocks] : stages) {
    for (int block = 0; block < blocks; ++block) {
      add(1, in, width);
      add(9, width, width);
      add(1, width, 4 * width);
      if (block == 0) add(1, in, 4 * width);
      in = 4 * width;
    }
  }
  model.counts.insert(model.counts.end(), {2048 * 1000, 1000});
  return model;
}

Model BertBase() {
  constexpr uint64_t kWide = 768;
  Model model{.name = "BERT-base",
              .counts = {30522 * kWide, 512 * kWide, 2 * kWide, kWide, kWide},
              .compute = milliseconds(160)};
  for (int layer = 0; layer < 12; ++layer) {
    for (int square = 0; square < 4; ++square) {
      model.counts.insert(model.counts.end(), {kWide * kWide, kWide});
    }
    model.counts.insert(model.counts.end(), {kWide, kWide, 4 * kWide * kWide, 4 * kWide,
                                             4 * kWide * kWide, kWide, kWide, kWide});
  }
  model.counts.insert(model.counts.end(), {kWide * kWide, kWide});
  return model;
}

// A ring: a launch, 14 hops, and 7/4 of the bytes over each link.
FakeOptions Ring(double bits_per_second) {
  return {
      .duration =
          [=](uint64_t size_bytes) {
            const double seconds = 1.75 * 8.0 * static_cast<double>(size_bytes) / bits_per_second;
            return microseconds(20 + 14 * 20) + duration_cast<Duration>(duration<double>(seconds));
          },
      .adds = false};
}

// One rank's training: the forward pass of a layer needs the sum of its last gradient, and the
// backward pass makes gradients in the other order.
class Trainer {
 public:
  Trainer(Ranks* ranks, int32_t rank, const Model* model, std::span<std::byte> memory)
      : ranks_(ranks), rank_(rank), model_(model), memory_(memory), summed_(model->counts.size()) {}

  void Begin() {
    steps_.push_back(ranks_->clock()->Now());
    Forward(0);
  }
  const std::vector<TimePoint>& steps() const { return steps_; }

 private:
  static constexpr Round kSteps = 5;

  // Layers take equal times, within 5 %, other ones in each step and on each rank.
  Duration TimeOf(size_t layer, double share) const {
    const uint64_t mix = (layer * 31 + steps_.size()) * 31 + static_cast<uint64_t>(rank_);
    const double jitter = 0.95 + 0.1 * static_cast<double>(mix * 2654435761U % 1000) / 1000;
    return Duration(static_cast<int64_t>(static_cast<double>(model_->compute.count()) * share *
                                         jitter / static_cast<double>(model_->counts.size())));
  }
  void After(Duration time, std::function<void()> next) {
    ranks_->executor(rank_)->PostAt(ranks_->clock()->Now() + time, std::move(next));
  }
  void Forward(size_t layer) {
    if (layer == model_->counts.size()) return Backward(layer);
    waits_at_.reset();
    if (steps_.size() > 1 && summed_[layer] + 1 < steps_.size()) {
      waits_at_ = layer;
      return;
    }
    After(TimeOf(layer, 1.0 / 3), [this, layer] { Forward(layer + 1); });
  }
  void Backward(size_t layer) {
    if (layer == 0) return steps_.size() <= kSteps ? Begin() : void();
    After(TimeOf(layer - 1, 2.0 / 3), [this, layer] {
      Push(layer - 1);
      Backward(layer - 1);
    });
  }
  void Push(size_t layer) {
    const uint64_t size_bytes = model_->counts[layer] * kFloat;
    ranks_->Start(rank_,
                  {.key = layer,
                   .round = steps_.size(),
                   .priority = -static_cast<Priority>(layer),
                   .partition_bytes = uint64_t{1} << 30U,
                   .in = memory_.first(size_bytes),
                   .out = memory_.first(size_bytes)},
                  [this, layer](const Status& status) {
                    ASSERT_TRUE(status.ok()) << status.ToString();
                    ++summed_[layer];
                    if (waits_at_ == layer) Forward(layer);
                  });
  }

  Ranks* const ranks_;
  const int32_t rank_;
  const Model* const model_;
  const std::span<std::byte> memory_;
  std::vector<TimePoint> steps_;  // when each began
  std::vector<uint64_t> summed_;  // rounds of each parameter
  std::optional<size_t> waits_at_;
};

// Returns the milliseconds of a step.
double StepTime(const Model& model, double bits_per_second, Duration round_trip) {
  Ranks ranks({.num_ranks = kRanks, .one_way = round_trip / 2, .library = Ring(bits_per_second)});
  // It is never touched, so it takes address space alone.
  constexpr size_t kBytes = size_t{25088} * 4096 * kFloat;
  const std::unique_ptr<std::byte[]> memory(new std::byte[kBytes]);
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    trainers.push_back(
        std::make_unique<Trainer>(&ranks, rank, &model, std::span(memory.get(), kBytes)));
    trainers.back()->Begin();
  }
  ranks.Run(std::chrono::seconds(30));
  const std::vector<TimePoint>& steps = trainers.front()->steps();
  EXPECT_EQ(steps.size(), 6U);
  return duration<double, std::milli>(steps.back() - steps[1]).count() /
         static_cast<double>(steps.size() - 2);
}

class StepTimes : public ::testing::TestWithParam<double> {};

TEST_P(StepTimes, ARoundTripOfAMillisecondCostsAtMostTwoMillisecondsAStep) {
  for (const Model& model : {Vgg16(), ResNet50(), BertBase()}) {
    const double near = StepTime(model, GetParam(), {});
    const double far = StepTime(model, GetParam(), milliseconds(1));
    const uint64_t count = std::accumulate(model.counts.begin(), model.counts.end(), uint64_t{0});
    RecordProperty(model.name, std::to_string(near) + " " + std::to_string(far));
    EXPECT_LE(far, near + 2) << model.name << " of " << count << " elements";
    const duration<double, std::milli> compute = model.compute;
    EXPECT_GE(near, compute.count() * 0.95) << model.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Links, StepTimes, ::testing::Values(1e10, 2.5e10));

}  // namespace
}  // namespace bs::backend::collective
