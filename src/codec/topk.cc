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

// Picks out of all elements of a unit.  False if an element is not finite.
bool PickAmongAll(const PickUnit& unit, unsigned char* indices) {
  PickCut cut{};
  if (!FindCut(unit, &cut)) return false;
  BestPicks().pick(unit.input, unit.count, cut, indices);
  return true;
}

// The elements of a unit that may still be among its largest: all that are not finite, too.
class Candidates {
 public:
  // The most picks that it serves.
  static constexpr size_t kMostPicks = 4096;

  explicit Candidates(size_t picks) : picks_(picks) {}
  bool has_room() const { return count_ + kSearched <= kRoom; }
  // Searches the unit from `at` on; returns where it ends.
  size_t Search(const PickUnit& unit, size_t at) {
    const PickRange range = {.first = at, .count = std::min(kSearched, unit.count - at)};
    const PickLists found = {.indices = indices_.data() + count_,
                             .values = values_.data() + count_};
    count_ += BestPicks().find(unit.input, range, least_, found);
    return at + range.count;
  }
  // Keeps the picks alone.  An element behind them counts only if it is larger than the least.
  // False if an element is not finite.  `scratch` has room for an index of each pick.
  bool KeepPicks(unsigned char* scratch) {
    const PickUnit found = {.input = {.in = reinterpret_cast<const unsigned char*>(values_.data()),
                                      .residual = nullptr,
                                      .ratio = 1},
                            .count = count_,
                            .picks = picks_};
    PickCut cut{};
    if (!FindCut(found, &cut)) return false;
    BestPicks().pick(found.input, count_, cut, scratch);
    IndexCursor cursor(scratch);
    for (count_ = 0; count_ < picks_; ++count_) {
      const size_t from = cursor.Next();
      indices_[count_] = indices_[from];
      values_[count_] = values_[from];
    }
    least_ = cut.least + 1;
    return true;
  }
  void PutIndices(unsigned char* to) const {
    for (size_t i = 0; i < count_; ++i) {
      const auto index = static_cast<uint16_t>(indices_[i]);
      std::memcpy(to + i * kIndexBytes, &index, sizeof(index));
    }
  }

 private:
  static constexpr size_t kSearched = 1024;  // elements at a time
  static constexpr size_t kRoom = 2 * kMostPicks;

  const size_t picks_;
  uint32_t least_ = 0;
  size_t count_ = 0;
  std::array<uint32_t, kRoom + kPickSlack> indices_;
  std::array<float, kRoom + kPickSlack> values_;
};

// Picks as PickAmongAll does, and reads each element once.  REQUIRES: at most kMostPicks.
bool PickFew(const PickUnit& unit, unsigned char* indices) {
  Candidates candidates(unit.picks);
  for (size_t at = 0; at < unit.count;) {
    if (!candidates.has_room() && !candidates.KeepPicks(indices)) return false;
    at = candidates.Search(unit, at);
  }
  if (!candidates.KeepPicks(indices)) return false;
  candidates.PutIndices(indices);
  return true;
}

void EncodeUnitOfTopk(const PickUnit& unit, const PickForm& form, unsigned char* codes) {
  unsigned char* const values = codes + unit.picks * kIndexBytes;
  const auto pick = unit.picks <= Candidates::kMostPicks ? PickFew : PickAmongAll;
  if (pick(unit, codes)) return EncodePicks(unit, IndexCursor(codes), form, values);
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
