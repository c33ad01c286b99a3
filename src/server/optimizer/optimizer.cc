// The rules of mx.optimizer, one element at a time.
#include "server/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "reduce/reduce.h"

namespace bs::server {
namespace {

// The numbers of one update in the type that it is computed in.
template <typename T>
struct Numbers {
  Numbers(const OptimizerSpec& spec, const Rates& rates, double rate)
      : lr(static_cast<T>(rate)),
        wd(static_cast<T>(rates.weight_decay)),
        rescale(static_cast<T>(rates.rescale_grad)),
        clip(static_cast<T>(spec.clip_gradient)) {}

  const T lr, wd, rescale, clip;

  T Clip(T value) const { return clip < 0 ? value : std::clamp(value, -clip, clip); }
  T Scaled(T gradient) const { return Clip(rescale * gradient); }
  // Adam and RMSProp clip the gradient after they add the weight decay.
  T Decayed(T gradient, T weight) const { return Clip(rescale * gradient + wd * weight); }
};

// One update's arrays.
template <typename T>
struct Arrays {
  const size_t count;
  const T* const g;
  T* const w;
  T* const a;  // moments; null where the rule has fewer
  T* const b;
  T* const c;
};

template <typename T>
T Constant(double value) {
  return static_cast<T>(value);
}

template <typename T>
T SignOf(T value) {
  return static_cast<T>((value > 0) - (value < 0));
}

// NOLINTBEGIN(clang-analyzer-core.NullDereference): NumMoments gives each rule its moments.
template <typename T>
void Sgd(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  const T momentum = Constant<T>(spec.momentum);
  for (size_t i = 0; i < x.count; ++i) {
    const T step = -n.lr * (n.Scaled(x.g[i]) + n.wd * x.w[i]);
    if (x.a == nullptr) {
      x.w[i] += step;
    } else {
      x.a[i] = momentum * x.a[i] + step;
      x.w[i] += x.a[i];
    }
  }
}

template <typename T>
void Nag(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  const T momentum = Constant<T>(spec.momentum);
  for (size_t i = 0; i < x.count; ++i) {
    const T gradient = n.lr * n.Scaled(x.g[i]);
    const T step = gradient + n.lr * n.wd * x.w[i];
    x.w[i] += momentum * (momentum * x.a[i] - step) - step;
    // MXNet 1.9.1 computes the momentum that it keeps after the weight was written (measured).
    x.a[i] = momentum * x.a[i] - gradient - n.lr * n.wd * x.w[i];
  }
}

template <typename T>
void Adam(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  const T beta1 = Constant<T>(spec.beta1);
  const T beta2 = Constant<T>(spec.beta2);
  const T epsilon = Constant<T>(spec.epsilon);
  for (size_t i = 0; i < x.count; ++i) {
    const T g = n.Decayed(x.g[i], x.w[i]);
    x.a[i] = beta1 * x.a[i] + (1 - beta1) * g;
    x.b[i] = beta2 * x.b[i] + (1 - beta2) * g * g;
    x.w[i] -= n.lr * x.a[i] / (std::sqrt(x.b[i]) + epsilon);
  }
}

template <typename T>
void AdaGrad(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  const T epsilon = Constant<T>(spec.epsilon);
  for (size_t i = 0; i < x.count; ++i) {
    const T g = n.Scaled(x.g[i]);
    x.a[i] += g * g;
    x.w[i] -= n.lr * (g / std::sqrt(x.a[i] + epsilon) + n.wd * x.w[i]);
  }
}

template <typename T>
void RmsProp(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  const T gamma1 = Constant<T>(spec.gamma1);
  const T gamma2 = Constant<T>(spec.gamma2);
  const T epsilon = Constant<T>(spec.epsilon);
  const T most = Constant<T>(spec.clip_weights);
  for (size_t i = 0; i < x.count; ++i) {
    const T g = n.Decayed(x.g[i], x.w[i]);
    x.a[i] = gamma1 * x.a[i] + (1 - gamma1) * g * g;
    if (x.b == nullptr) {
      x.w[i] -= n.lr * g / std::sqrt(x.a[i] + epsilon);
    } else {
      x.b[i] = gamma1 * x.b[i] + (1 - gamma1) * g;
      x.c[i] = gamma2 * x.c[i] - n.lr * g / std::sqrt(x.a[i] - x.b[i] * x.b[i] + epsilon);
      x.w[i] += x.c[i];
    }
    if (most > 0) x.w[i] = std::clamp(x.w[i], -most, most);
  }
}

template <typename T>
void Ftrl(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  const T lamda1 = Constant<T>(spec.lamda1);
  const T beta = Constant<T>(spec.beta);
  for (size_t i = 0; i < x.count; ++i) {
    const T g = n.Scaled(x.g[i]);
    const T before = std::sqrt(x.b[i]);
    x.b[i] += g * g;
    const T after = std::sqrt(x.b[i]);
    x.a[i] += g - (after - before) * x.w[i] / n.lr;
    const T pulled = SignOf(x.a[i]) * lamda1 - x.a[i];
    x.w[i] = std::abs(x.a[i]) > lamda1 ? pulled / ((beta + after) / n.lr + n.wd) : T{0};
  }
}

template <typename T>
void Signum(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  const T momentum = Constant<T>(spec.momentum);
  const T decay = x.a == nullptr ? n.wd : Constant<T>(spec.wd_lh);
  for (size_t i = 0; i < x.count; ++i) {
    // Without momentum only the sign of the gradient counts, whatever clips it.
    T direction = -SignOf(n.rescale * x.g[i]);
    if (x.a != nullptr) {
      x.a[i] = momentum * x.a[i] - (1 - momentum) * (n.wd * x.w[i] + n.Scaled(x.g[i]));
      direction = SignOf(x.a[i]);
    }
    x.w[i] = (1 - n.lr * decay) * x.w[i] + n.lr * direction;
  }
}

// NOLINTEND(clang-analyzer-core.NullDereference)

// The array in `bytes`, which may start at any byte of a message; if so, a copy of it.
template <typename T>
const T* Aligned(std::span<const std::byte> bytes, std::vector<T>* copy) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T) == 0) {
    return reinterpret_cast<const T*>(bytes.data());
  }
  copy->resize(bytes.size() / sizeof(T));
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  return copy->data();
}

size_t NumMoments(const OptimizerSpec& spec) {
  switch (spec.rule) {
    case Rule::kSgd:
    case Rule::kNag:
    case Rule::kSignum:
      return spec.momentum != 0 ? 1 : 0;
    case Rule::kAdam:
    case Rule::kFtrl:
      return 2;
    case Rule::kAdaGrad:
      return 1;
    case Rule::kRmsProp:
      return spec.centered != 0 ? 3 : 1;
  }
  return 0;
}

template <typename T>
void Update(const OptimizerSpec& spec, const Numbers<T>& n, const Arrays<T>& x) {
  switch (spec.rule) {
    case Rule::kNag:
      if (x.a != nullptr) return Nag(spec, n, x);
      [[fallthrough]];
    case Rule::kSgd:
      return Sgd(spec, n, x);
    case Rule::kAdam:
      return Adam(spec, n, x);
    case Rule::kAdaGrad:
      return AdaGrad(spec, n, x);
    case Rule::kRmsProp:
      return RmsProp(spec, n, x);
    case Rule::kFtrl:
      return Ftrl(spec, n, x);
    case Rule::kSignum:
      return Signum(spec, n, x);
  }
}

}  // namespace

bool CanUpdate(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16;
}

uint64_t StateBytes(const OptimizerSpec& spec, DType dtype, uint64_t count) {
  // Float16 is updated in float32, with weights and a gradient of their own.
  const uint64_t element_bytes = dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  return (NumMoments(spec) + (dtype == DType::kFloat16 ? 2 : 0)) * element_bytes * count;
}

OptimizerState::OptimizerState(std::shared_ptr<const OptimizerSpec> spec, DType dtype,
                               std::span<const std::byte> weights)
    : spec_(std::move(spec)), dtype_(dtype), count_(weights.size() / SizeOf(dtype)) {
  BS_CHECK(CanUpdate(dtype));
  const size_t moments = NumMoments(*spec_);
  if (dtype == DType::kFloat64) {
    moments64_.assign(moments, std::vector<double>(count_));
  } else {
    moments32_.assign(moments, std::vector<float>(count_));
  }
  if (dtype != DType::kFloat16) return;
  master_.resize(count_);
  wide_.resize(count_);
  reduce::Widen(master_, weights);
}

void OptimizerState::Apply(const Rates& rates, std::span<const std::byte> gradient,
                           std::span<std::byte> weights) {
  if (count_ == 0) return;
  BS_CHECK(gradient.size() == weights.size() && weights.size() == count_ * SizeOf(dtype_));
  if (dtype_ == DType::kFloat16) {
    reduce::Widen(wide_, gradient);
    ApplyAs(rates, wide_.data(), master_.data(), &moments32_);
    reduce::Narrow(weights, master_);
  } else if (dtype_ == DType::kFloat64) {
    std::vector<double> copy;
    ApplyAs(rates, Aligned(gradient, &copy), reinterpret_cast<double*>(weights.data()),
            &moments64_);
  } else {
    std::vector<float> copy;
    ApplyAs(rates, Aligned(gradient, &copy), reinterpret_cast<float*>(weights.data()), &moments32_);
  }
}

template <typename T>
void OptimizerState::ApplyAs(const Rates& rates, const T* gradient, T* weights,
                             std::vector<std::vector<T>>* moments) {
  ++updates_;
  double rate = rates.learning_rate;
  if (spec_->rule == Rule::kAdam) {
    const auto t = static_cast<double>(updates_);
    rate *= std::sqrt(1 - std::pow(spec_->beta2, t)) / (1 - std::pow(spec_->beta1, t));
  }
  const auto moment = [&](size_t i) {
    return i < moments->size() ? (*moments)[i].data() : nullptr;
  };
  Update(*spec_, Numbers<T>(*spec_, rates, rate),
         Arrays<T>{count_, gradient, weights, moment(0), moment(1), moment(2)});
}

}  // namespace bs::server
