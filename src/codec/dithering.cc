// Units, their buckets and codes; the loops are in dithering_kernels.h.
#include "codec/dithering.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "codec/dithering_options.h"
#include "codec/feedback.h"
#include "codec/kernels/dithering_kernels.h"
#include "codec/kernels/splitmix.h"
#include "codec/units.h"
#include "reduce/float_environment.h"

namespace bs::codec {
namespace {

constexpr uint32_t kDitheringId = 6;  // on the wire

constexpr size_t kNormBytes = sizeof(float);
constexpr float kNoNorm = std::numeric_limits<float>::quiet_NaN();

const DitherKernels& LoopsOfDithering() { return *AvailableDithering().back(); }

// A unit, or the shorter last one, and where its codes are.
class DitherUnit {
 public:
  // `Byte` of codes may be const.
  template <typename Byte>
  struct Bucket {
    Byte* norm;
    Byte* codes;
    size_t first;  // element of the unit
    size_t count;
  };

  DitherUnit(const DitherOptions& options, size_t count)
      : options_(options), width_(options.width()), count_(count) {}
  size_t count() const { return count_; }
  size_t num_buckets() const { return (count_ + options_.bucket - 1) / options_.bucket; }
  size_t bytes_of_norms() const { return num_buckets() * kNormBytes; }
  size_t bytes() const { return bytes_of_norms() + (count_ * width_ + 7) / 8; }
  template <typename Byte>
  Bucket<Byte> bucket(size_t index, Byte* codes) const {
    const size_t first = index * options_.bucket;
    return {.norm = codes + index * kNormBytes,
            .codes = codes + bytes_of_norms() + first * width_ / 8,
            .first = first,
            .count = std::min<size_t>(options_.bucket, count_ - first)};
  }
  DitherLevels levels(float norm) const {
    return {
        .norm = norm, .count = options_.levels, .width = width_, .is_natural = options_.is_natural};
  }
  const DitherOptions& options() const { return options_; }

 private:
  const DitherOptions& options_;
  const uint32_t width_;
  const size_t count_;
};

// Calls `use` with the first element and the number of elements of each unit.
template <typename Use>
void ForEachUnit(size_t count, Use use) {
  for (size_t first = 0; first < count; first += kUnitElements) {
    use(first, std::min<size_t>(count - first, kUnitElements));
  }
}

float NormAt(const unsigned char* from) {
  float norm = 0;
  std::memcpy(&norm, from, kNormBytes);
  return norm;
}

// The last elements of a bucket, fewer than a block, filled up with 0.
class LastBlock {
 public:
  LastBlock(const DitherInput& input, size_t at, size_t count)
      : input_(input), at_(at), bytes_(count * sizeof(float)) {
    std::memcpy(in_.data(), input.in + at * sizeof(float), bytes_);
    if (keeps()) std::memcpy(residual_.data(), input.residual + at, bytes_);
  }
  DitherInput input() {
    return {.in = reinterpret_cast<const unsigned char*>(in_.data()),
            .residual = keeps() ? residual_.data() : nullptr,
            .ratio = input_.ratio};
  }
  void PutResidual() const {
    if (keeps()) std::memcpy(input_.residual + at_, residual_.data(), bytes_);
  }

 private:
  bool keeps() const { return input_.residual != nullptr; }

  const DitherInput& input_;
  const size_t at_;
  const size_t bytes_;
  std::array<float, kDitherBlock> in_{};
  std::array<float, kDitherBlock> residual_{};
};

DitherInput Behind(const DitherInput& input, size_t elements) {
  return {.in = input.in + elements * sizeof(float),
          .residual = input.residual == nullptr ? nullptr : input.residual + elements,
          .ratio = input.ratio};
}

float LargestOf(const DitherInput& input, size_t count) {
  uint32_t bits = LoopsOfDithering().largest(input, count / kDitherBlock);
  if (const size_t rest = count % kDitherBlock; rest > 0) {
    LastBlock last(input, count - rest, rest);
    bits = std::max(bits, LoopsOfDithering().largest(last.input(), 1));
  }
  return std::bit_cast<float>(bits);
}

// No smaller than the largest magnitude, as roots and roundings keep the order.
float RootOfSquares(const DitherInput& input, size_t count) {
  std::array<double, 8> lanes{};
  LoopsOfDithering().add_squares(input, count / kDitherBlock, lanes.data());
  if (const size_t rest = count % kDitherBlock; rest > 0) {
    LastBlock last(input, count - rest, rest);
    LoopsOfDithering().add_squares(last.input(), 1, lanes.data());
  }
  const double sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                     ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  if (!std::isfinite(sum)) return kNoNorm;
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::min(std::sqrt(sum), kMost));
}

void PutNoNorms(const DitherUnit& unit, unsigned char* codes) {
  for (size_t i = 0; i < unit.num_buckets(); ++i) {
    std::memcpy(unit.bucket(i, codes).norm, &kNoNorm, kNormBytes);
  }
}

// False, and all norms NaN, if an element is not finite.
bool PutNorms(const DitherUnit& unit, const DitherInput& input, unsigned char* codes) {
  for (size_t i = 0; i < unit.num_buckets(); ++i) {
    const auto bucket = unit.bucket(i, codes);
    const DitherInput elements = Behind(input, bucket.first);
    const float norm = unit.options().is_l2 ? RootOfSquares(elements, bucket.count)
                                            : LargestOf(elements, bucket.count);
    if (!std::isfinite(norm)) {
      PutNoNorms(unit, codes);
      return false;
    }
    std::memcpy(bucket.norm, &norm, kNormBytes);
  }
  return true;
}

void EncodeBuckets(const DitherUnit& unit, const DitherInput& input, DitherRandom* random,
                   unsigned char* codes) {
  for (size_t i = 0; i < unit.num_buckets(); ++i) {
    const auto bucket = unit.bucket(i, codes);
    const DitherLevels levels = unit.levels(NormAt(bucket.norm));
    const DitherInput elements = Behind(input, bucket.first);
    const size_t rest = bucket.count % kDitherBlock;
    const size_t whole = bucket.count - rest;
    LoopsOfDithering().code(elements, levels, whole / kDitherBlock, random, bucket.codes);
    if (rest == 0) continue;
    LastBlock last(elements, whole, rest);
    std::array<unsigned char, kDitherBlock * sizeof(uint16_t)> block;
    LoopsOfDithering().code(last.input(), levels, 1, random, block.data());
    std::memcpy(bucket.codes + whole * levels.width / 8, block.data(),
                (rest * levels.width + 7) / 8);
    last.PutResidual();
  }
}

// The random numbers of a unit, which is counted from the beginning of the tensor.
DitherRandom RandomAt(uint64_t seed, const Place& place, uint64_t unit) {
  Splitmix words(std::array<uint64_t, 5>{seed, place.key, unit, place.round, place.rank});
  DitherRandom random;
  for (size_t lane = 0; lane < std::size(random.first); ++lane) {
    random.first[lane] = words.Next();
    random.second[lane] = words.Next();
  }
  return random;
}

void EncodeDithering(const CodecParameters& parameters, const Place& place, const void* in,
                     float* residual, void* codes, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  const DitherOptions options = ReadDitherOptions(parameters).value_or(DitherOptions());
  const DitherInput input = {
      .in = static_cast<const unsigned char*>(in), .residual = residual, .ratio = place.ratio};
  const uint64_t seed = options.seed != 0 ? options.seed : place.job;
  auto* to = static_cast<unsigned char*>(codes);
  ForEachUnit(count, [&](size_t first, size_t in_unit) {
    const DitherUnit unit(options, in_unit);
    const DitherInput elements = Behind(input, first);
    if (PutNorms(unit, elements, to)) {
      DitherRandom random = RandomAt(seed, place, (place.first_element + first) / kUnitElements);
      EncodeBuckets(unit, elements, &random, to);
    } else {
      std::memset(to + unit.bytes_of_norms(), 0, unit.bytes() - unit.bytes_of_norms());
      if (residual != nullptr) SkipRound({elements.residual, in_unit}, place.ratio);
    }
    to += unit.bytes();
  });
}

template <bool kAdd>
void PutBucket(const DitherLevels& levels, const unsigned char* codes, size_t count,
               unsigned char* target) {
  const auto put = kAdd ? LoopsOfDithering().add : LoopsOfDithering().put;
  const size_t rest = count % kDitherBlock;
  const size_t whole = count - rest;
  put(codes, levels, whole / kDitherBlock, target);
  if (rest == 0) return;
  std::array<unsigned char, kDitherBlock * sizeof(uint16_t)> last{};
  std::memcpy(last.data(), codes + whole * levels.width / 8, (rest * levels.width + 7) / 8);
  std::array<unsigned char, kDitherBlock * sizeof(float)> block{};
  unsigned char* const at = target + whole * sizeof(float);
  std::memcpy(block.data(), at, rest * sizeof(float));
  put(last.data(), levels, 1, block.data());
  std::memcpy(at, block.data(), rest * sizeof(float));
}

template <bool kAdd>
void PutDithering(const CodecParameters& parameters, const Place& /*place*/, const void* codes,
                  void* target, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  const DitherOptions options = ReadDitherOptions(parameters).value_or(DitherOptions());
  const auto* from = static_cast<const unsigned char*>(codes);
  auto* to = static_cast<unsigned char*>(target);
  ForEachUnit(count, [&](size_t first, size_t in_unit) {
    const DitherUnit unit(options, in_unit);
    for (size_t i = 0; i < unit.num_buckets(); ++i) {
      const auto bucket = unit.bucket(i, from);
      PutBucket<kAdd>(unit.levels(NormAt(bucket.norm)), bucket.codes, bucket.count,
                      to + (first + bucket.first) * sizeof(float));
    }
    from += unit.bytes();
  });
}

// Those of any parameters have a size too.
uint64_t DitheringBytes(const CodecParameters& parameters, uint64_t count) {
  const DitherOptions options = ReadDitherOptions(parameters).value_or(DitherOptions());
  const uint64_t rest = count % kUnitElements;
  return count / kUnitElements * DitherUnit(options, kUnitElements).bytes() +
         DitherUnit(options, rest).bytes();
}

// -- codes from the wire ---------------------------------------------------------------------

Status CheckNorms(const DitherUnit& unit, const unsigned char* codes) {
  const bool is_lost = std::isnan(NormAt(codes));
  for (size_t i = 0; i < unit.num_buckets(); ++i) {
    const float norm = NormAt(unit.bucket(i, codes).norm);
    if (std::isnan(norm) && is_lost) continue;
    if (is_lost || !std::isfinite(norm) || std::signbit(norm)) {
      return Status::InvalidArgument("the norm of a bucket is " + std::to_string(norm) +
                                     (is_lost ? " in a unit that is not finite" : ""));
    }
  }
  return Status::Ok();
}

// For codes of 4, 8 or 16 bits.
uint32_t HighestLevel(std::span<const unsigned char> codes, uint32_t width) {
  uint32_t highest = 0;
  if (width == 16) {
    for (size_t i = 1; i < codes.size(); i += 2) {
      highest = std::max(highest, (codes[i] & 0x7fU) << 8U | codes[i - 1]);
    }
  } else if (width == 8) {
    for (const unsigned char code : codes) highest = std::max(highest, code & 0x7fU);
  } else {
    for (const unsigned char two : codes) {
      highest = std::max({highest, two & 7U, two >> 4U & 7U});
    }
  }
  return highest;
}

Status CheckLevels(const DitherUnit& unit, const unsigned char* codes) {
  const uint32_t width = unit.levels(0).width;
  const std::span levels(codes + unit.bytes_of_norms(), unit.bytes() - unit.bytes_of_norms());
  const size_t used = unit.count() * width % 8;
  if (used > 0 && levels.back() >> used != 0) {
    return Status::InvalidArgument("codes behind the last element");
  }
  const uint32_t most = unit.options().levels;
  if (most == (1U << (width - 1)) - 1) return Status::Ok();  // all that fit
  const uint32_t highest = HighestLevel(levels, width);
  if (highest <= most) return Status::Ok();
  return Status::InvalidArgument("the level of an element is " + std::to_string(highest) +
                                 ", more than " + std::to_string(most));
}

Status CheckDitheringCodes(const CodecParameters& parameters, std::span<const std::byte> codes,
                           uint64_t count) {
  const DitherOptions options = ReadDitherOptions(parameters).value_or(DitherOptions());
  const auto* from = reinterpret_cast<const unsigned char*>(codes.data());
  Status checked = Status::Ok();
  ForEachUnit(count, [&](size_t /*first*/, size_t in_unit) {
    const DitherUnit unit(options, in_unit);
    if (checked.ok()) checked = CheckNorms(unit, from);
    if (checked.ok()) checked = CheckLevels(unit, from);
    from += unit.bytes();
  });
  return checked;
}

}  // namespace

Codec DitheringCodec() {
  return {.id = kDitheringId,
          .name = "dithering",
          .unit_elements = kUnitElements,
          .cuts_keys = true,
          .keeps = Keeps::kResidualIfAsked,
          .codes_sums = true,
          .sums = SumsTravel::kSame,
          .parse = ParseDithering,
          .check = CheckDithering,
          .describe = DescribeDithering,
          .encoded_bytes = DitheringBytes,
          .check_codes = CheckDitheringCodes,
          .encode = EncodeDithering,
          .add = PutDithering<true>,
          .decode = PutDithering<false>};
}

}  // namespace bs::codec
