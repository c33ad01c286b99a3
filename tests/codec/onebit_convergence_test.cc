// Small trainings with onebit: where signs alone fail, and where learning rates change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "codec/codec.h"
#include "codec/feedback.h"

namespace bs::codec {
namespace {

// A worker's coder of scaled signs; without `feedback` it keeps no residual.
class SignCoder {
 public:
  SignCoder(size_t count, bool feedback) : codes_(count), residual_(feedback ? count : 0) {}
  // Replaces `values` by those of their codes.
  void Code(std::vector<float>* values, float ratio = 1) {
    const Codec* const codec = Builtin().Find(4);
    const std::byte scaled{1};
    const CodecParameters parameters{std::span(&scaled, 1)};
    codes_.resize(codec->encoded_bytes(parameters, values->size()));
    codec->encode(parameters, {.ratio = ratio}, values->data(),
                  residual_.empty() ? nullptr : residual_.data(), codes_.data(), values->size());
    codec->decode(parameters, {}, codes_.data(), values->data(), values->size());
  }

 private:
  std::vector<std::byte> codes_;
  std::vector<float> residual_;
};

// C1: the sum of x / 4 over a box, where each gradient is 4 once in four times, else -1.  Signs
// say "up" most of the time (Karimireddy et al. 2019, counterexample 1).  Returns the mean of x.
double EndOfCounterexample(uint32_t seed, bool feedback) {
  constexpr size_t kCount = 64;
  std::mt19937 random(seed);
  std::vector<float> x(kCount);
  std::vector<float> gradient(kCount);
  SignCoder coder(kCount, feedback);
  for (int step = 0; step < 8000; ++step) {
    for (float& each : gradient) each = random() % 4 == 0 ? 4.0F : -1.0F;
    coder.Code(&gradient);
    for (size_t i = 0; i < kCount; ++i) x[i] = std::clamp(x[i] - 0.002F * gradient[i], -1.0F, 1.0F);
  }
  return std::accumulate(x.begin(), x.end(), 0.0) / kCount;
}

TEST(OnebitConvergence, SignsAloneClimbAndErrorFeedbackDescends) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    EXPECT_GT(EndOfCounterexample(seed, false), 0.5) << seed;
    EXPECT_LT(EndOfCounterexample(seed, true), -0.9) << seed;
  }
}

// C4: noisy least squares whose learning rate falls to a tenth in the middle.
std::vector<double> LossesThroughADrop(Feedback feedback) {
  constexpr size_t kCount = 200;
  constexpr int kSteps = 600;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(kCount, 3);
  SignCoder coder(kCount, true);
  PushRates before;
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    double loss = 0;
    for (const float each : x) loss += 0.5 * static_cast<double>(each) * each;
    losses.push_back(loss);
    const float eta = step < kSteps / 2 ? 0.05F : 0.005F;
    std::vector<float> gradient(kCount);
    for (size_t i = 0; i < kCount; ++i) gradient[i] = x[i] + normal(random);
    const PushRates now{.learning_rate = eta, .weight_decay = {}, .rescale_grad = 1};
    coder.Code(&gradient, RatioOf(feedback, before, now).factor);
    before = now;
    for (size_t i = 0; i < kCount; ++i) x[i] -= eta * gradient[i];
  }
  return losses;
}

TEST(OnebitConvergence, NoSpikeFollowsADropOfTheLearningRate) {
  for (const Feedback feedback : {Feedback::kVanilla, Feedback::kCorrected}) {
    const std::vector<double> losses = LossesThroughADrop(feedback);
    const auto middle = losses.begin() + 300;
    const double mean = std::accumulate(middle - 20, middle, 0.0) / 20;
    EXPECT_LT(mean, losses[0] / 5) << "it learns";
    EXPECT_LT(*std::max_element(middle, losses.end()), 1.5 * mean);
  }
}

}  // namespace
}  // namespace bs::codec
