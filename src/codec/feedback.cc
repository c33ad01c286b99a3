// Computes in float64, and rounds once.
#include "codec/feedback.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace bs::codec {
namespace {

double Quotient(const std::optional<double>& before, const std::optional<double>& now) {
  if (!before || !now || !std::isfinite(*before) || !std::isfinite(*now)) return 1;
  return *before == 0 || *now == 0 ? 1 : *before / *now;
}

}  // namespace

ResidualRatio RatioOf(Feedback feedback, const PushRates& before, const PushRates& now) {
  if (feedback == Feedback::kNone) return {};
  const bool is_vanilla = feedback == Feedback::kVanilla;
  const double rates = is_vanilla ? 1 : Quotient(before.learning_rate, now.learning_rate);
  const double used = std::clamp(rates, 0.0, kMostOfRates);
  const double factor = used * Quotient(before.rescale_grad, now.rescale_grad);
  const bool fits = factor >= 0 && factor <= kMostOfResidual;
  return {.factor = fits ? static_cast<float>(factor) : 1, .cut = used != rates};
}

void SkipRound(std::span<float> residual, float factor) {
  for (float& kept : residual) {
    const float product = factor * kept;
    kept = std::isfinite(product) ? product : 0;
  }
}

}  // namespace bs::codec
