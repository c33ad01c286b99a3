// Reads optimizers from text, strictly: an unknown word is refused with the known words.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/count_of.h"
#include "server/optimizer/optimizer.h"

namespace bs::server {
namespace {

constexpr double kMost = std::numeric_limits<double>::max();
// The largest number below 1: a decay of 1 would never forget, and Adam would divide by zero.
constexpr double kBelowOne = 1 - 1e-15;

struct Option {
  std::string_view name;
  double OptimizerSpec::* field;
  double smallest = -kMost;
  double largest = kMost;
};

constexpr Option kMomentum{"momentum", &OptimizerSpec::momentum, 0, 1};
constexpr Option kEpsilon{"epsilon", &OptimizerSpec::epsilon, 0, kMost};

constexpr auto kAdamOptions = std::to_array<Option>({{"beta1", &OptimizerSpec::beta1, 0, kBelowOne},
                                                     {"beta2", &OptimizerSpec::beta2, 0, kBelowOne},
                                                     kEpsilon});
constexpr auto kRmsPropOptions = std::to_array<Option>({
    {"gamma1", &OptimizerSpec::gamma1, 0, 1},
    {"gamma2", &OptimizerSpec::gamma2, 0, 1},
    kEpsilon,
    {"centered", &OptimizerSpec::centered, 0, 1},
    {"clip_weights", &OptimizerSpec::clip_weights},
});
constexpr auto kFtrlOptions = std::to_array<Option>(
    {{"lamda1", &OptimizerSpec::lamda1}, {"beta", &OptimizerSpec::beta, 0, kMost}});
constexpr auto kSignumOptions =
    std::to_array<Option>({kMomentum, {"wd_lh", &OptimizerSpec::wd_lh}});

struct Known {
  std::string_view name;
  Rule rule;
  std::span<const Option> options;  // besides the options of every optimizer
};

constexpr auto kKnown = std::to_array<Known>({
    {"sgd", Rule::kSgd, {&kMomentum, 1}},
    {"nag", Rule::kNag, {&kMomentum, 1}},
    {"adam", Rule::kAdam, kAdamOptions},
    {"adagrad", Rule::kAdaGrad, {&kEpsilon, 1}},
    {"rmsprop", Rule::kRmsProp, kRmsPropOptions},
    {"ftrl", Rule::kFtrl, kFtrlOptions},
    {"signum", Rule::kSignum, kSignumOptions},
});

constexpr std::string_view kCommon = "learning_rate, wd, rescale_grad, clip_gradient";

Status Refused(const std::string& what) { return Status::InvalidArgument("optimizer: " + what); }

Result<double> ParseNumber(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return Refused(std::string(option) + "=" + std::string(text) + ": want a finite number");
  }
  return value;
}

// Where the value of `name` goes; null if this optimizer has no such option.
double* FieldOf(const Known& known, std::string_view name, double value, OptimizerSpec* spec,
                bool* in_range) {
  *in_range = true;
  if (name == "learning_rate") return &spec->rates.learning_rate;
  if (name == "wd") return &spec->rates.weight_decay;
  if (name == "rescale_grad") return &spec->rates.rescale_grad;
  if (name == "clip_gradient") return &spec->clip_gradient;
  for (const Option& option : known.options) {
    if (option.name != name) continue;
    *in_range = option.smallest <= value && value <= option.largest;
    return &(spec->*option.field);
  }
  return nullptr;
}

Status ReadOption(const Known& known, std::string_view word, std::vector<std::string_view>* seen,
                  OptimizerSpec* spec) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view text =
      equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  const Result<double> value = ParseNumber(name, text);
  if (!value.ok()) return value.status();
  bool in_range = false;
  double* const field = FieldOf(known, name, value.value(), spec, &in_range);
  if (field == nullptr) {
    std::string accepted(kCommon);
    for (const Option& option : known.options) accepted.append(", ").append(option.name);
    return Refused(std::string(known.name) + " has no option " + std::string(name) +
                   "; it has: " + accepted);
  }
  if (!in_range) return Refused(std::string(word) + " is out of range");
  if (std::find(seen->begin(), seen->end(), name) != seen->end()) {
    return Refused(std::string(name) + " is given twice");
  }
  seen->push_back(name);
  *field = value.value();
  return Status::Ok();
}

std::string_view NextWord(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

}  // namespace

Result<OptimizerSpec> ParseOptimizer(std::string_view text) {
  if (text.size() > kMaxOptimizerBytes) {
    return Refused(CountOf(text.size(), "byte") + " of text, at most " +
                   std::to_string(kMaxOptimizerBytes) + " are accepted");
  }
  OptimizerSpec spec;
  spec.text = text;
  const std::string_view name = NextWord(&text);
  const auto* const known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.name == name; });
  if (known == kKnown.end()) {
    std::string names;
    for (const Known& k : kKnown) names.append(names.empty() ? "" : ", ").append(k.name);
    return Refused("servers have none called '" + std::string(name) + "', only " + names);
  }
  spec.rule = known->rule;
  // The default of mx.optimizer.AdaGrad.
  if (spec.rule == Rule::kAdaGrad) spec.epsilon = 1e-7;
  std::vector<std::string_view> seen;
  while (!text.empty()) {
    const Status wrong = ReadOption(*known, NextWord(&text), &seen, &spec);
    if (!wrong.ok()) return wrong;
  }
  return spec;
}

bool SameRule(const OptimizerSpec& a, const OptimizerSpec& b) {
  OptimizerSpec like_a = b;
  like_a.text = a.text;
  like_a.rates = a.rates;
  return a == like_a;
}

}  // namespace bs::server
