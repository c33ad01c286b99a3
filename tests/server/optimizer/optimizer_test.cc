#include "server/optimizer/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "server/support.h"

namespace bs::server {
namespace {

using testing::HasSubstr;

std::shared_ptr<const OptimizerSpec> Spec(const std::string& text) {
  Result<OptimizerSpec> spec = ParseOptimizer(text);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  return std::make_shared<const OptimizerSpec>(spec.ok() ? spec.value() : OptimizerSpec{});
}

template <typename T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span<const T>(values));
  return {bytes.begin(), bytes.end()};
}

constexpr float kLearningRates[] = {0.1F, 0.1F, 0.05F, 0.2F};
const std::vector<float> kFirst = {1, -0.5F, 0.25F};
const std::vector<float> kGradients[] = {
    {0.5F, -2, 0.125F}, {-0.25F, 1, 0.75F}, {1.5F, 0.5F, -0.0625F}, {0, -1, 0.25F}};

struct Golden {
  std::string text;
  std::vector<float> weights;
};

// What mx.optimizer of MXNet 1.9.1 makes of the gradients above with rescale_grad=0.5,
// clip_gradient=0.4, wd=0.03 and the learning rates above.
const Golden kGolden[] = {
    {"sgd", {0.954350948F, -0.425825536F, 0.179790184F}},
    {"sgd momentum=0.9", {0.883429587F, -0.401557148F, 0.0987715498F}},
    {"nag", {0.954350889F, -0.425825566F, 0.179790169F}},
    {"nag momentum=0.9", {0.850819349F, -0.338044584F, 0.0450825989F}},
    {"adam beta1=0.8 beta2=0.99 epsilon=1e-6", {0.715191543F, -0.399220645F, -0.0948107392F}},
    {"adagrad epsilon=1e-5", {0.89126271F, -0.375986964F, -0.00828963518F}},
    {"rmsprop gamma1=0.8", {0.740337253F, -0.205748439F, -0.344539851F}},
    {"rmsprop clip_weights=0.9", {0.64094013F, -0.104377359F, -0.558600485F}},
    {"rmsprop centered=1 gamma1=0.95 gamma2=0.8", {-0.28513369F, 0.410076678F, -2.3351779F}},
    {"ftrl lamda1=0.02 beta=0.5", {0.672803402F, -0.388950676F, -0.0694893748F}},
    {"signum", {0.937160552F, -0.343279183F, -0.101863332F}},
    {"signum momentum=0.9 wd_lh=0.05", {0.531163156F, -0.338831007F, -0.202092618F}},
};

template <typename T>
std::vector<T> Trained(const std::string& text, DType dtype) {
  std::vector<T> weights(kFirst.begin(), kFirst.end());
  OptimizerState state(Spec(text + " clip_gradient=0.4"), dtype, std::as_bytes(std::span(weights)));
  for (size_t i = 0; i < std::size(kGradients); ++i) {
    // From an odd address, as it may come in a message.
    std::vector<std::byte> message(1);
    const auto gradient = BytesOf(std::vector<T>(kGradients[i].begin(), kGradients[i].end()));
    message.insert(message.end(), gradient.begin(), gradient.end());
    state.Apply({kLearningRates[i], 0.03, 0.5}, std::span(message).subspan(1),
                std::as_writable_bytes(std::span(weights)));
  }
  EXPECT_EQ(state.updates(), std::size(kGradients));
  return weights;
}

TEST(OptimizerTest, UpdatesMatchMXNet) {
  for (const Golden& golden : kGolden) {
    const std::vector<float> single = Trained<float>(golden.text, DType::kFloat32);
    const std::vector<double> twice = Trained<double>(golden.text, DType::kFloat64);
    for (size_t i = 0; i < golden.weights.size(); ++i) {
      EXPECT_NEAR(single[i], golden.weights[i], 2e-6) << golden.text << " element " << i;
      EXPECT_NEAR(twice[i], golden.weights[i], 4e-6) << golden.text << " element " << i;
    }
  }
}

TEST(OptimizerTest, HalfPrecisionKeepsTheBitsThatItCannotShow) {
  std::vector<std::byte> weights = Encode(DType::kFloat16, {1});
  OptimizerState state(Spec("sgd"), DType::kFloat16, weights);
  const std::vector<std::byte> gradient = Encode(DType::kFloat16, {1});
  // Each step is an eighth of the distance to the next half below 1: lost if it were rounded away.
  for (int i = 0; i < 8; ++i) state.Apply({std::ldexp(1, -14), 0, 1}, gradient, weights);
  EXPECT_EQ(weights, BytesOf(std::vector<uint16_t>{0x3bff}));
}

TEST(OptimizerTest, OnlyFloatsCanBeUpdated) {
  for (const DType dtype : kAllDTypes) {
    const bool is_float =
        dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16;
    EXPECT_EQ(CanUpdate(dtype), is_float) << NameOf(dtype);
  }
}

TEST(OptimizerTest, AnEmptyPartitionIsUpdatedToo) {
  OptimizerState state(Spec("adam"), DType::kFloat32, {});
  state.Apply({1, 0, 1}, {}, {});
}

TEST(ParseOptimizerTest, ReadsEveryOption) {
  const auto adam = Spec(
      "adam learning_rate=0.5 wd=0.25 rescale_grad=2 clip_gradient=3 beta1=0.1 beta2=0.2 "
      "epsilon=1e-3");
  EXPECT_EQ(adam->rule, Rule::kAdam);
  EXPECT_EQ(adam->rates.learning_rate, 0.5);
  EXPECT_EQ(adam->rates.weight_decay, 0.25);
  EXPECT_EQ(adam->rates.rescale_grad, 2);
  EXPECT_EQ(adam->clip_gradient, 3);
  EXPECT_EQ(adam->beta1, 0.1);
  EXPECT_EQ(adam->beta2, 0.2);
  EXPECT_EQ(adam->epsilon, 1e-3);
  const auto rmsprop = Spec("rmsprop gamma1=0.5 gamma2=0.25 centered=1 clip_weights=4");
  EXPECT_EQ(rmsprop->gamma1, 0.5);
  EXPECT_EQ(rmsprop->gamma2, 0.25);
  EXPECT_EQ(rmsprop->centered, 1);
  EXPECT_EQ(rmsprop->clip_weights, 4);
  EXPECT_EQ(Spec("ftrl lamda1=3 beta=4")->lamda1, 3);
  EXPECT_EQ(Spec("ftrl lamda1=3 beta=4")->beta, 4);
  EXPECT_EQ(Spec("signum momentum=0.5 wd_lh=2")->wd_lh, 2);
  EXPECT_EQ(Spec("adagrad")->epsilon, 1e-7);
  EXPECT_EQ(Spec("nag momentum=0.5")->momentum, 0.5);
}

TEST(ParseOptimizerTest, RefusesUnknownTextAndNamesTheKnownOptions) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "none called ''"},
      {"lamb", "none called 'lamb', only sgd, nag, adam, adagrad, rmsprop, ftrl, signum"},
      {"SGD", "none called 'SGD'"},
      {"sgd beta1=0.5",
       "sgd has no option beta1; it has: learning_rate, wd, rescale_grad, "
       "clip_gradient, momentum"},
      {"sgd momentum", "momentum=: want a finite number"},
      {"sgd momentum=", "want a finite number"},
      {"sgd momentum=nan", "want a finite number"},
      {"sgd learning_rate=inf", "want a finite number"},
      {"sgd learning_rate=1e999", "want a finite number"},
      {"sgd learning_rate=0.1x", "want a finite number"},
      {"sgd momentum=2", "momentum=2 is out of range"},
      {"adam beta1=1", "beta1=1 is out of range"},
      {"sgd wd=1 wd=1", "wd is given twice"},
      {"sgd  wd=1", "=: want a finite number"},
      {"sgd " + std::string(2000, 'x'), "at most 1024"},
  };
  for (const auto& [text, want] : cases) {
    const Result<OptimizerSpec> spec = ParseOptimizer(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(spec.status().message(), HasSubstr(want));
  }
}

}  // namespace
}  // namespace bs::server
