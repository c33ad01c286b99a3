// Two-bit codes: loops over a word at a time without branches, so that a compiler vectorises them;
// which code comes next is chance, and a branch on it would be mispredicted.
#include "codec/two_bit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "reduce/float_environment.h"

namespace bs::codec {
namespace {

constexpr size_t kPerByte = 4;
constexpr size_t kPerWord = 16;
constexpr size_t kWordBytes = kPerWord / kPerByte;
constexpr uint32_t kPlus = 3;
constexpr uint32_t kMinus = 2;

// The values of a byte's codes, for a threshold of 1.
using Values = std::array<float, kPerByte>;
constexpr std::array<Values, 256> MakeValues() {
  std::array<Values, 256> table{};
  for (size_t byte = 0; byte < table.size(); ++byte) {
    for (size_t i = 0; i < kPerByte; ++i) {
      const size_t code = byte >> (2 * (kPerByte - 1 - i)) & 3U;
      table[byte][i] = code == kPlus ? 1.0F : (code == kMinus ? -1.0F : 0.0F);
    }
  }
  return table;
}
constexpr std::array<Values, 256> kValues = MakeValues();

// All bits of it, or none.
uint32_t Mask(bool condition) { return 0U - static_cast<uint32_t>(condition); }

// Codes sixteen elements.  Where an element of `residual` reaches the threshold in size, the
// threshold with the element's sign is subtracted.
void QuantizeWord(float threshold, const float* in, float* residual, unsigned char* word) {
  const auto value = std::bit_cast<uint32_t>(threshold);
  const auto negative = std::bit_cast<uint32_t>(-threshold);
  uint32_t codes[kPerWord];
  for (size_t i = 0; i < kPerWord; ++i) {
    const float sum = residual[i] + in[i];
    const uint32_t plus = Mask(sum >= threshold);
    const uint32_t minus = Mask(sum <= -threshold);
    residual[i] = sum - std::bit_cast<float>((plus & value) | (minus & negative));
    codes[i] = (plus & kPlus) | (minus & kMinus);
  }
  for (size_t byte = 0; byte < kWordBytes; ++byte) {
    const uint32_t* const four = codes + byte * kPerByte;
    word[byte] =
        static_cast<unsigned char>(four[0] << 6U | four[1] << 4U | four[2] << 2U | four[3]);
  }
}

// The values of a byte's codes added to four floats, or put in their place.
template <bool kAdd>
void PutByte(float threshold, unsigned char byte, float* four) {
  for (size_t i = 0; i < kPerByte; ++i) {
    const float value = kValues[byte][i] * threshold;  // exact
    const float sum = kAdd ? four[i] + value : value;
    // Whatever sign or payload the hardware gives it.
    four[i] = sum == sum ? sum : std::numeric_limits<float>::quiet_NaN();
  }
}

template <bool kAdd>
void Put(float threshold, const void* words, void* target, size_t count) {
  BS_CHECK(threshold > 0 && std::isfinite(threshold));
  const reduce::DefaultFloatEnvironment environment;
  const auto* from = static_cast<const unsigned char*>(words);
  auto* to = static_cast<unsigned char*>(target);
  // Copied in and out, because an array may start at any byte of a message.
  float four[kPerByte] = {};
  for (; count >= kPerByte; count -= kPerByte, to += sizeof(four)) {
    if constexpr (kAdd) std::memcpy(four, to, sizeof(four));
    PutByte<kAdd>(threshold, *from++, four);
    std::memcpy(to, four, sizeof(four));
  }
  if (count == 0) return;
  if constexpr (kAdd) std::memcpy(four, to, count * sizeof(float));
  PutByte<kAdd>(threshold, *from, four);
  std::memcpy(to, four, count * sizeof(float));
}

}  // namespace

void QuantizeTwoBit(float threshold, const void* in, float* residual, void* words, size_t count) {
  BS_CHECK(threshold > 0 && std::isfinite(threshold));
  const reduce::DefaultFloatEnvironment environment;
  const auto* from = static_cast<const unsigned char*>(in);
  auto* to = static_cast<unsigned char*>(words);
  float block[kPerWord] = {};
  for (; count >= kPerWord; count -= kPerWord, to += kWordBytes) {
    std::memcpy(block, from, sizeof(block));
    QuantizeWord(threshold, block, residual, to);
    from += sizeof(block);
    residual += kPerWord;
  }
  if (count == 0) return;
  // The rest of the last word is 0, which has the code 0.
  float rest[kPerWord] = {};
  std::memset(block, 0, sizeof(block));
  std::memcpy(block, from, count * sizeof(float));
  std::memcpy(rest, residual, count * sizeof(float));
  QuantizeWord(threshold, block, rest, to);
  std::memcpy(residual, rest, count * sizeof(float));
}

void DequantizeTwoBit(float threshold, const void* words, void* target, size_t count) {
  Put<false>(threshold, words, target, count);
}

void AddTwoBit(float threshold, const void* words, void* sum, size_t count) {
  Put<true>(threshold, words, sum, count);
}

}  // namespace bs::codec

namespace bs::codec {
namespace {

constexpr float kDefaultThreshold = 0.5;

CodecParameters ParametersOf(float threshold) {
  return CodecParameters(std::as_bytes(std::span(&threshold, 1)));
}

// Returns 0, which is no valid threshold, if the parameters have another size.
float ThresholdOf(const CodecParameters& parameters) {
  float threshold = 0;
  if (parameters.bytes().size() == sizeof(threshold)) {
    std::memcpy(&threshold, parameters.bytes().data(), sizeof(threshold));
  }
  return threshold;
}

// Returns as many digits as tell the number from its neighbours.
std::string TextOf(float threshold) {
  char digits[32];
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), threshold);
  return {digits, error == std::errc() ? end : std::begin(digits)};
}

// Reads a number as users write it, blanks and a plus sign in front included; false if it is none.
bool ReadNumber(std::string_view text, double* number) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  text = text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, *number);
  return error == std::errc() && rest == end;
}

Result<float> ThresholdFrom(std::string_view text) {
  double number = 0;
  const bool is_number = ReadNumber(text, &number);
  // A number that no finite float32 holds is refused.
  const bool fits = is_number && number > 0 && number <= std::numeric_limits<float>::max();
  const float threshold = fits ? static_cast<float>(number) : 0;
  if (threshold > 0) return threshold;
  const std::string quote = is_number ? "" : "'";
  return Status::InvalidArgument("threshold " + quote + std::string(text) + quote +
                                 " of gradient compression: want a finite number greater than 0");
}

Result<CodecParameters> Parse(std::span<const Option> options) {
  float threshold = kDefaultThreshold;
  for (const Option& option : options) {
    if (option.name != "threshold") {
      return Status::InvalidArgument("gradient compression has no option '" +
                                     std::string(option.name) +
                                     "', only 'type', 'threshold' and 'pull'");
    }
    const Result<float> given = ThresholdFrom(option.value);
    if (!given.ok()) return given.status();
    threshold = given.value();
  }
  return ParametersOf(threshold);
}

Status Check(const CodecParameters& parameters) {
  const float threshold = ThresholdOf(parameters);
  if (std::isfinite(threshold) && threshold > 0) return Status::Ok();
  return Status::InvalidArgument("threshold " + TextOf(threshold) +
                                 ": want a finite number greater than 0");
}

std::string Describe(const CodecParameters& parameters) {
  return "two bits with threshold " + TextOf(ThresholdOf(parameters));
}

uint64_t EncodedBytes(const CodecParameters& /*parameters*/, uint64_t count) {
  return TwoBitBytes(count);
}

void Scale(float factor, float* values, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

void Encode(const CodecParameters& parameters, const Place& place, const void* in, float* residual,
            void* codes, size_t count) {
  // A server takes the factor from a push, which may have any.
  if (place.ratio != 1) Scale(place.ratio, residual, count);
  QuantizeTwoBit(ThresholdOf(parameters), in, residual, codes, count);
}

void Add(const CodecParameters& parameters, const Place& /*place*/, const void* codes, void* sum,
         size_t count) {
  AddTwoBit(ThresholdOf(parameters), codes, sum, count);
}

void Decode(const CodecParameters& parameters, const Place& /*place*/, const void* codes,
            void* values, size_t count) {
  DequantizeTwoBit(ThresholdOf(parameters), codes, values, count);
}

constexpr uint32_t kTwoBitId = 1;  // on the wire

}  // namespace

Codec TwoBitCodec() {
  return {.id = kTwoBitId,
          .name = "2bit",
          .unit_elements = 16,  // a word
          .codes_sums = true,
          .parse = Parse,
          .check = Check,
          .describe = Describe,
          .encoded_bytes = EncodedBytes,
          .check_codes = nullptr,
          .encode = Encode,
          .add = Add,
          .decode = Decode};
}

Coding TwoBitCoding(float threshold) {
  if (threshold == 0) return {};
  return {.codec = kTwoBitId, .parameters = ParametersOf(threshold)};
}

}  // namespace bs::codec
