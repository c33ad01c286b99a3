// The choice of the largest elements: a digit of their bits at a time; the loops are in
// picks_kernels.h.
#include "codec/topk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "codec/picks.h"
#include "codec/units.h"
#include "reduce/float_environment.h"

namespace bs::codec {
namespace {

constexpr uint32_t kTopkId = 5;  // on the wire

constexpr size_t kIndexBytes = sizeof(uint16_t);
constexpr unsigned kFirstDigitBits = 11;
constexpr unsigned kDigitBits = 10;
// First digits from here on are those of elements that are not finite.
constexpr size_t kFirstNotFinite = 0x7f8;

using DigitBuckets = std::array<uint32_t, 1U << kFirstDigitBits>;

uint64_t BytesATopk(const Picks& picks) { return kIndexBytes + picks.value_bytes(); }

// Reads indices from codes.
class IndexCursor {
 public:
  explicit IndexCursor(const unsigned char* indices) : at_(indices) {}
  size_t Next() {
    uint16_t index = 0;
    std::memcpy(&index, at_, sizeof(index));
    at_ += sizeof(index);
    return index;
  }

 private:
  const unsigned char* at_;
};

// Returns the bucket of the `*picks`-th largest, and takes those above it from `*picks`.
uint32_t BucketOf(const DigitBuckets& buckets, unsigned bits, size_t* picks) {
  uint32_t bucket = (1U << bits) - 1;
  for (; bucket > 0 && buckets[bucket] < *picks; --bucket) *picks -= buckets[bucket];
  return bucket;
}

bool HasNotFinite(const DigitBuckets& first_digits) {
  const auto is_used = [](uint32_t count) { return count > 0; };
  return std::any_of(first_digits.begin() + kFirstNotFinite, first_digits.end(), is_used);
}

// False if an element is not finite.
bool FindCut(const PickUnit& unit, PickCut* cut) {
  cut->ties = unit.picks;
  cut->least = 0;
  unsigned shift = kFirstDigitBits + 2 * kDigitBits;
  for (const unsigned bits : {kFirstDigitBits, kDigitBits, kDigitBits}) {
    shift -= bits;
    DigitBuckets buckets{};
    const PickDigit digit{.shift = shift, .bits = bits, .prefix = cut->least};
    BestPicks().count_digits(unit.input, unit.count, digit, buckets.data());
    if (bits == kFirstDigitBits && HasNotFinite(buckets)) return false;
    cut->least = cut->least << bits | BucketOf(buckets, bits, &cut->ties);
  }
  return true;
}

void EncodeUnitOfTopk(const PickUnit& unit, const PickForm& form, unsigned char* codes) {
  unsigned char* const values = codes + unit.picks * kIndexBytes;
  PickCut cut{};
  if (FindCut(unit, &cut)) {
    BestPicks().pick(unit.input, unit.count, cut, codes);
    return EncodePicks(unit, IndexCursor(codes), form, values);
  }
  for (size_t i = 0; i < unit.picks; ++i) {
    const auto index = static_cast<uint16_t>(i);
    std::memcpy(codes + i * kIndexBytes, &index, sizeof(index));
  }
  GiveUpPicks(unit, form, values);
}

void EncodeTopk(const CodecParameters& parameters, const Place& place, const void* in,
                float* residual, void* codes, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  const Picks picks = PicksOf(parameters);
  const PickForm form = FormOf(picks, place);
  PickUnit unit{.input = {.in = static_cast<const unsigned char*>(in),
                          .residual = residual,
                          .ratio = place.ratio},
                .count = 0,
                .picks = 0};
  auto* to = static_cast<unsigned char*>(codes);
  for (; count > 0; count -= unit.count) {
    unit.count = std::min<size_t>(count, kUnitElements);
    unit.picks = picks.Of(unit.count);
    EncodeUnitOfTopk(unit, form, to);
    to += unit.picks * BytesATopk(picks);
    unit.input.in += unit.count * sizeof(float);
    if (residual != nullptr) unit.input.residual += unit.count;
  }
}

template <bool kAdd>
void PutTopk(const CodecParameters& parameters, const Place& place, const void* codes, void* target,
             size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  const Picks picks = PicksOf(parameters);
  const PickForm form = FormOf(picks, place);
  const auto* from = static_cast<const unsigned char*>(codes);
  auto* to = static_cast<unsigned char*>(target);
  while (count > 0) {
    const size_t in_unit = std::min<size_t>(count, kUnitElements);
    const size_t in_codes = picks.Of(in_unit);
    const unsigned char* const values = from + in_codes * kIndexBytes;
    PutPicks<kAdd>(IndexCursor(from), in_codes, form, values, to, in_unit);
    from += in_codes * BytesATopk(picks);
    to += in_unit * sizeof(float);
    count -= in_unit;
  }
}

Status CheckIndices(const unsigned char* indices, size_t picks, size_t count) {
  IndexCursor cursor(indices);
  size_t least = 0;
  for (size_t i = 0; i < picks; ++i) {
    const size_t index = cursor.Next();
    if (index >= count) {
      return Status::InvalidArgument("index " + std::to_string(index) + " of a unit of " +
                                     std::to_string(count) + " elements");
    }
    if (index < least) {
      return Status::InvalidArgument("index " + std::to_string(index) +
                                     " of a unit is not above the index before it");
    }
    least = index + 1;
  }
  return Status::Ok();
}

Status CheckTopkCodes(const CodecParameters& parameters, std::span<const std::byte> codes,
                      uint64_t count) {
  const Picks picks = PicksOf(parameters);
  const PickForm form{.halves = picks.halves};
  const auto* unit = reinterpret_cast<const unsigned char*>(codes.data());
  while (count > 0) {
    const size_t in_unit = std::min<uint64_t>(count, kUnitElements);
    const size_t in_codes = picks.Of(in_unit);
    if (Status wrong = CheckIndices(unit, in_codes, in_unit); !wrong.ok()) return wrong;
    Status wrong = CheckPickValues(form, unit + in_codes * kIndexBytes, in_codes);
    if (!wrong.ok()) return wrong;
    unit += in_codes * BytesATopk(picks);
    count -= in_unit;
  }
  return Status::Ok();
}

Result<CodecParameters> ParseTopk(std::span<const Option> options) {
  const Result<Picks> picks = ParsePicks("topk", options, /*has_seed=*/false);
  if (!picks.ok()) return picks.status();
  const Status wrong = CheckShare(picks.value(), BytesATopk(picks.value()));
  if (!wrong.ok()) return wrong;
  return ParametersOf(picks.value());
}

Status CheckTopk(const CodecParameters& parameters) {
  if (Status wrong = CheckPicks(parameters); !wrong.ok()) return wrong;
  if (PicksOf(parameters).seed == 0) return Status::Ok();
  return Status::InvalidArgument("a seed, which topk does not have");
}

}  // namespace

Codec TopkCodec() {
  return {.id = kTopkId,
          .name = "topk",
          .unit_elements = kUnitElements,
          .cuts_keys = true,
          .keeps = Keeps::kResidualIfAsked,
          .codes_sums = true,
          .sums = SumsTravel::kSame,
          .parse = ParseTopk,
          .check = CheckTopk,
          .describe =
              [](const CodecParameters& parameters) {
                return DescribePicks("topk", PicksOf(parameters));
              },
          .encoded_bytes =
              [](const CodecParameters& parameters, uint64_t count) {
                const Picks picks = PicksOf(parameters);
                return PicksBytes(picks, BytesATopk(picks), count);
              },
          .check_codes = CheckTopkCodes,
          .encode = EncodeTopk,
          .add = PutTopk<true>,
          .decode = PutTopk<false>};
}

}  // namespace bs::codec
