// Error feedback: how much of a residual the next round adds to its gradients.
#pragma once

#include <span>

#include "base/types.h"
#include "codec/coding.h"

namespace bs::codec {

// The ratio of learning rates is cut to this.
inline constexpr double kMostOfRates = 16;
// No factor of a residual is larger.
inline constexpr float kMostOfResidual = 0x1p40F;

struct ResidualRatio {
  float factor = 1;  // of the residual
  bool cut = false;  // the learning rates ask for more than kMostOfRates, or for less than nothing
};

// The factor between a round with the rates `before` and the next.  Gradients reach a store without
// `rescale_grad`, so its ratio is in the factor; that of the learning rates is in it with
// Feedback::kCorrected and kSparse.  A rate that is absent, 0 or not finite has the ratio 1.  1
// without feedback, or if the factor were larger than kMostOfResidual.
ResidualRatio RatioOf(Feedback feedback, const PushRates& before, const PushRates& now);

// The residual of a unit whose gradient is not finite and is lost: times `factor`.  A product that
// is not finite becomes 0, else all rounds to come would be lost too.
void SkipRound(std::span<float> residual, float factor);

}  // namespace bs::codec
