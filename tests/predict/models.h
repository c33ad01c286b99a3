// Models and closed forms that the tests of predictions share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "predict/predict.h"

namespace bs::predict {

inline constexpr double kGigabit = 119e6;  // payload of a link of 1 Gbit/s
inline constexpr uint64_t kMega = 1'000'000;

inline double SecondsOf(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// VGG-like: small layers that take long in front, a large one that takes no time behind.
inline Options Fat(Policy policy) {
  Options options;
  options.policy = policy;
  options.bytes_per_second = kGigabit;
  for (int i = 0; i < 10; ++i)
    options.layers.push_back({kMega, std::chrono::milliseconds(15), std::chrono::milliseconds(30)});
  options.layers.push_back(
      {45 * kMega, std::chrono::milliseconds(1), std::chrono::milliseconds(2)});
  return options;
}

inline double StepOf(const Options& options) {
  const Result<Prediction> found = Predict(options);
  EXPECT_TRUE(found.ok()) << found.status().ToString();
  return found.ok() ? SecondsOf(found.value().step) : 0;
}

// The convolutions and the last layer of ResNet-50 (He et al. 2016, table 1), with times by their
// multiplications.
inline std::vector<Layer> ResNet50(double compute) {
  struct Weights {
    double parameters;
    double multiplications;
  };
  std::vector<Weights> weights = {{9408, 9408 * 112.0 * 112}};
  double inputs = 64;
  double size = 56;
  for (const auto& [width, blocks] : {std::pair(64, 3), {128, 4}, {256, 6}, {512, 3}}) {
    for (int block = 0; block < blocks; ++block) {
      const double own = block == 0 ? inputs * 4 * width : 0;  // the shortcut
      for (const double count : {inputs * width, 9.0 * width * width, 4.0 * width * width, own}) {
        if (count > 0) weights.push_back({count, count * size * size});
      }
      inputs = 4 * width;
    }
    size /= 2;
  }
  weights.push_back({2048 * 1000, 2048 * 1000});
  double sum = 0;
  for (const Weights& layer : weights) sum += layer.multiplications;
  std::vector<Layer> layers;
  for (const Weights& layer : weights) {
    const auto time = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(compute / sum) * layer.multiplications);
    layers.push_back({static_cast<uint64_t>(4 * layer.parameters), time / 3, time - time / 3});
  }
  return layers;
}

// The closed form of the best possible (docs/user/advise.md), where the busiest link carries `load`
// models.
inline double Ideal(const Options& options, double load = 1) {
  double best = 0;
  double crossed = 0;
  for (size_t k = 0; k < options.layers.size(); ++k) {
    crossed += static_cast<double>(options.layers[k].size_bytes);
    double rest = 0;
    double compute = 0;
    for (size_t j = 0; j < options.layers.size(); ++j) {
      const double takes = SecondsOf(options.layers[j].forward + options.layers[j].backward);
      compute += takes;
      if (j >= k) rest += takes;
    }
    best = std::max({best, compute, load * crossed / options.bytes_per_second + rest});
  }
  return best;
}

}  // namespace bs::predict
