// The table of codecs.
#include "codec/codec.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "codec/bf16.h"

namespace bs::codec {
namespace {

bool IsComplete(const Codec& codec) {
  return codec.id != 0 && !codec.name.empty() && codec.unit_elements > 0 &&
         codec.parse != nullptr && codec.check != nullptr && codec.describe != nullptr &&
         codec.encoded_bytes != nullptr && codec.encode != nullptr && codec.add != nullptr &&
         codec.decode != nullptr;
}

// The rows' names, each between `before` and `after`: "'2bit' or 'steps'".
std::string Names(const std::vector<Codec>& rows, const std::string& before,
                  const std::string& after) {
  std::string names;
  for (const Codec& codec : rows) {
    if (!names.empty()) names += " or ";
    names.append(before).append(codec.name).append(after);
  }
  return names;
}

constexpr std::string_view kSumsTravel[] = {"plain", "same", "bf16"};             // by SumsTravel
constexpr std::string_view kFeedback[] = {"", "vanilla", "corrected", "sparse"};  // by Feedback
constexpr uint64_t kMostCodedShare = 8;  // of a gradient's bytes, for each that counts

// The enumerator whose name is `name`.
template <typename Enum>
std::optional<Enum> NamedIn(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

// The refusal of a name that stands for no way to travel.
Status UnknownSums(std::string_view name) {
  return Status::InvalidArgument("pull '" + std::string(name) +
                                 "' of gradient compression: want 'same', 'plain' or 'bf16'");
}

Status UnknownFeedback(const Codec& codec, std::string_view name) {
  return Status::InvalidArgument(
      "ef '" + std::string(name) + "' of gradient compression: want 'vanilla'" +
      (codec.is_linear ? ", 'corrected' or 'sparse'" : " or 'corrected'"));
}

}  // namespace

Table::Table(std::vector<Codec> rows) : rows_(std::move(rows)) {
  for (const Codec& codec : rows_) {
    BS_CHECK(IsComplete(codec));
    BS_CHECK(Find(codec.id) == &codec);
    BS_CHECK(FindName(codec.name) == &codec);
  }
}

const Codec* Table::Find(uint32_t id) const {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [id](const Codec& codec) { return codec.id == id; });
  return found == rows_.end() ? nullptr : &*found;
}

const Codec* Table::FindName(std::string_view name) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(),
                                  [name](const Codec& codec) { return codec.name == name; });
  return found == rows_.end() ? nullptr : &*found;
}

Result<Coding> Table::Parse(const std::string_view* type, std::span<const Option> options) const {
  if (type == nullptr) {
    return Status::InvalidArgument("gradient compression needs a type: " +
                                   Names(rows_, "{'type': '", "'}"));
  }
  const Codec* const codec = FindName(*type);
  if (codec == nullptr) {
    return Status::InvalidArgument("Unknown type for gradient compression '" + std::string(*type) +
                                   "': want " + Names(rows_, "'", "'"));
  }
  Coding coding{.codec = codec->id, .sums = codec->sums};
  std::vector<Option> own;  // the codec's
  for (const Option& option : options) {
    if (option.name == "pull") {
      const std::optional<SumsTravel> named = NamedIn<SumsTravel>(kSumsTravel, option.value);
      if (!named) return UnknownSums(option.value);
      coding.sums = *named;
    } else if (option.name == "ef" && codec->keeps == Keeps::kResidualIfAsked) {
      const std::optional<Feedback> named = NamedIn<Feedback>(kFeedback, option.value);
      if (!named || *named == Feedback::kNone) return UnknownFeedback(*codec, option.value);
      coding.feedback = *named;
    } else {
      own.push_back(option);
    }
  }
  if (const Status wrong = CheckCommon(*codec, coding); !wrong.ok()) return wrong;
  const Result<CodecParameters> parameters = codec->parse(own);
  if (!parameters.ok()) return parameters.status();
  coding.parameters = parameters.value();
  return coding;
}

Status Table::CheckCommon(const Codec& codec, const Coding& coding) const {
  const auto feedback = static_cast<size_t>(coding.feedback);
  if (feedback >= std::size(kFeedback)) return UnknownFeedback(codec, std::to_string(feedback));
  if (feedback > 0 && codec.keeps != Keeps::kResidualIfAsked) {
    return Status::InvalidArgument("ef of gradient compression: '" + std::string(codec.name) +
                                   "' has none");
  }
  if (coding.feedback == Feedback::kSparse && !codec.is_linear) {
    return UnknownFeedback(codec, kFeedback[feedback]);
  }
  return CheckSums(codec, coding.sums);
}

Status Table::CheckSums(const Codec& codec, SumsTravel sums) const {
  switch (sums) {
    case SumsTravel::kPlain:
      return Status::Ok();
    case SumsTravel::kSame:
      if (codec.codes_sums) return Status::Ok();
      return Status::InvalidArgument("pull 'same' of gradient compression: sums cannot be '" +
                                     std::string(codec.name) + "', only 'plain' or 'bf16'");
    case SumsTravel::kBf16:
      if (Find(Bf16Coding().codec) != nullptr) return Status::Ok();
      return Status::InvalidArgument("pull 'bf16' of gradient compression: it is not known here");
  }
  return UnknownSums(std::to_string(static_cast<int>(sums)));
}

const Codec& Table::Get(const Coding& coding) const {
  const Codec* const codec = Find(coding.codec);
  BS_CHECK(codec != nullptr);
  return *codec;
}

Status Table::Check(const Coding& coding) const {
  const Codec* const codec = Find(coding.codec);
  if (codec != nullptr) {
    const Status common = CheckCommon(*codec, coding);
    return common.ok() ? codec->check(coding.parameters) : common;
  }
  if (coding.codec == 0) return Status::Ok();
  return Status::InvalidArgument("codec=" + std::to_string(coding.codec) +
                                 " is none that is known here");
}

std::string Table::Describe(const Coding& coding) const {
  if (coding.codec == 0) return "not compressed";
  const Codec* const codec = Find(coding.codec);
  if (codec == nullptr) return "compressed by codec " + std::to_string(coding.codec);
  std::string text = "compressed to " + codec->describe(coding.parameters);
  const auto feedback = static_cast<size_t>(coding.feedback);
  if (feedback > 0 && feedback < std::size(kFeedback)) {
    text.append(", ef ").append(kFeedback[feedback]);
  }
  const auto sums = static_cast<size_t>(coding.sums);
  if (coding.sums != codec->sums && sums < std::size(kSumsTravel)) {
    text.append(", pull ").append(kSumsTravel[sums]);
  }
  return coding.later ? text + " from the next round on" : text;
}

uint64_t Table::SentBytes(const Coding& coding, uint64_t size_bytes) const {
  if (coding.plain()) return size_bytes;
  return Get(coding).encoded_bytes(coding.parameters, size_bytes / sizeof(float));
}

uint64_t Table::CreditBytes(const Coding& coding, uint64_t size_bytes) const {
  return std::max(SentBytes(coding, size_bytes), size_bytes / kMostCodedShare);
}

Coding Table::OfSums(const Coding& coding) const {
  if (coding.plain() || coding.sums == SumsTravel::kPlain) return {};
  if (coding.sums == SumsTravel::kBf16) return Bf16Coding();
  const Codec& codec = Get(coding);
  const bool is_exact =
      codec.is_linear && (codec.rounds == nullptr || !codec.rounds(coding.parameters));
  const Feedback feedback = is_exact ? Feedback::kNone : coding.feedback;
  return {.codec = coding.codec, .parameters = coding.parameters, .feedback = feedback};
}

bool Table::KeepsResidual(const Coding& coding) const {
  if (coding.plain()) return false;
  const Keeps keeps = Get(coding).keeps;
  return keeps == Keeps::kResidual ||
         (keeps == Keeps::kResidualIfAsked && coding.feedback != Feedback::kNone);
}

bool Table::AddsUpOnHosts(const Coding& coding) const {
  return coding.plain() || Get(coding).cuts_keys;
}

uint64_t Table::PartitionBytes(const Coding& coding, uint64_t most_bytes) const {
  const uint64_t unit_bytes = Get(coding).unit_elements * sizeof(float);
  return std::max<uint64_t>(most_bytes / unit_bytes, 1) * unit_bytes;
}

}  // namespace bs::codec
