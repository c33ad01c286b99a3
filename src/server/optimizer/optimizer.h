// Optimizers: how a server that updates weights itself turns a gradient into new weights.
//
// The rules are mx.optimizer's in MXNet 1.9.1, element by element, so a partition is updated as the
// whole tensor would be.  A rule arrives as a name and numbers, never as code.
//
// Not thread-safe; pure functions on memory the caller owns; never block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace bs::server {

enum class Rule : uint8_t { kSgd, kNag, kAdam, kAdaGrad, kRmsProp, kFtrl, kSignum };

// The numbers that may differ from push to push.
struct Rates {
  double learning_rate = 0;
  double weight_decay = 0;
  double rescale_grad = 1;
  bool operator==(const Rates&) const = default;
};

// An optimizer and its constants; names and defaults are mx.optimizer's.
struct OptimizerSpec {
  std::string text;  // as it came
  Rule rule = Rule::kSgd;
  Rates rates;                // for pushes that bring none
  double clip_gradient = -1;  // below 0: none
  double momentum = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double gamma1 = 0.9;
  double gamma2 = 0.9;
  double centered = 0;
  double clip_weights = -1;  // not above 0: none
  double lamda1 = 0.01;
  double beta = 1;
  double wd_lh = 0;
  bool operator==(const OptimizerSpec&) const = default;
};

// Longest text of an optimizer.
inline constexpr size_t kMaxOptimizerBytes = 1024;

// "adam learning_rate=0.001 wd=0.0001 beta1=0.9": a name, then options of that optimizer, each once
// at most, with finite values.  The message of kInvalidArgument lists the accepted words.
Result<OptimizerSpec> ParseOptimizer(std::string_view text);

// True if both update alike but for their rates.
bool SameRule(const OptimizerSpec& a, const OptimizerSpec& b);

// True if weights of this dtype can be updated: float32, float64, float16.
bool CanUpdate(DType dtype);

// Returns the bytes that the state for `count` weights takes, beside them.
// REQUIRES: CanUpdate(dtype).
uint64_t StateBytes(const OptimizerSpec& spec, DType dtype, uint64_t count);

// A partition's state: moments, how many updates there were, and for float16 a float32 copy of the
// weights, so that small updates are not lost.
class OptimizerState {
 public:
  // Starts afresh from `weights`.  May throw std::bad_alloc.  REQUIRES: CanUpdate(dtype).
  OptimizerState(std::shared_ptr<const OptimizerSpec> spec, DType dtype,
                 std::span<const std::byte> weights);

  // Makes one update of `weights`, which nothing else changes between two calls.  The gradient may
  // start at any byte.  May throw std::bad_alloc; then nothing was changed.
  // REQUIRES: both have the size of the constructor's weights, which are aligned for their type.
  void Apply(const Rates& rates, std::span<const std::byte> gradient, std::span<std::byte> weights);

  const OptimizerSpec& spec() const { return *spec_; }
  uint64_t updates() const { return updates_; }

 private:
  template <typename T>
  void ApplyAs(const Rates& rates, const T* gradient, T* weights,
               std::vector<std::vector<T>>* moments);

  const std::shared_ptr<const OptimizerSpec> spec_;  // shared by the slots of a shard
  const DType dtype_;
  const size_t count_;
  uint64_t updates_ = 0;
  std::vector<std::vector<float>> moments32_;  // float32 and float16
  std::vector<std::vector<double>> moments64_;
  std::vector<float> master_;  // float16
  std::vector<float> wide_;    // float16: the gradient, for the time of a call
};

}  // namespace bs::server
