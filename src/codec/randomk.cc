// Units, and their values; the loops are in picks_kernels.h.
#include "codec/randomk.h"

#include <algorithm>
#include <span>
#include <string>

#include "codec/permutation.h"
#include "codec/picks.h"
#include "codec/units.h"
#include "reduce/float_environment.h"

namespace bs::codec {
namespace {

constexpr uint32_t kRandomkId = 7;  // on the wire

UnitSeed SeedOf(const Picks& picks, const Place& place) {
  return {.seed = picks.seed != 0 ? picks.seed : place.job,
          .key = place.key,
          .unit = place.first_element / kUnitElements,
          .round = place.round};
}

void EncodeUnitOfRandomk(const PickUnit& unit, const UnitSeed& seed, const PickForm& form,
                         unsigned char* values) {
  if (!BestPicks().are_finite(unit.input, unit.count)) return GiveUpPicks(unit, form, values);
  EncodePicks(unit, Permutation(seed, unit.count), form, values);
}

void EncodeRandomk(const CodecParameters& parameters, const Place& place, const void* in,
                   float* residual, void* codes, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  const Picks picks = PicksOf(parameters);
  const bool is_scaled = residual == nullptr && place.rank != kServerRank;
  PickForm form = FormOf(picks, place);
  UnitSeed seed = SeedOf(picks, place);
  PickUnit unit{.input = {.in = static_cast<const unsigned char*>(in),
                          .residual = residual,
                          .ratio = place.ratio},
                .count = 0,
                .picks = 0};
  auto* to = static_cast<unsigned char*>(codes);
  for (; count > 0; count -= unit.count) {
    unit.count = std::min<size_t>(count, kUnitElements);
    unit.picks = picks.Of(unit.count);
    const double scale = static_cast<double>(unit.count) / static_cast<double>(unit.picks);
    if (is_scaled) form.factor = static_cast<float>(scale);
    EncodeUnitOfRandomk(unit, seed, form, to);
    ++seed.unit;
    to += unit.picks * picks.value_bytes();
    unit.input.in += unit.count * sizeof(float);
    if (residual != nullptr) unit.input.residual += unit.count;
  }
}

template <bool kAdd>
void PutRandomk(const CodecParameters& parameters, const Place& place, const void* codes,
                void* target, size_t count) {
  const reduce::DefaultFloatEnvironment environment;
  const Picks picks = PicksOf(parameters);
  const PickForm form = FormOf(picks, place);
  UnitSeed seed = SeedOf(picks, place);
  const auto* from = static_cast<const unsigned char*>(codes);
  auto* to = static_cast<unsigned char*>(target);
  while (count > 0) {
    const size_t in_unit = std::min<size_t>(count, kUnitElements);
    const size_t in_codes = picks.Of(in_unit);
    PutPicks<kAdd>(Permutation(seed, in_unit), in_codes, form, from, to, in_unit);
    ++seed.unit;
    from += in_codes * picks.value_bytes();
    to += in_unit * sizeof(float);
    count -= in_unit;
  }
}

Status CheckRandomkCodes(const CodecParameters& parameters, std::span<const std::byte> codes,
                         uint64_t count) {
  const Picks picks = PicksOf(parameters);
  const PickForm form{.halves = picks.halves};
  const auto* unit = reinterpret_cast<const unsigned char*>(codes.data());
  while (count > 0) {
    const size_t in_unit = std::min<uint64_t>(count, kUnitElements);
    const size_t in_codes = picks.Of(in_unit);
    if (Status wrong = CheckPickValues(form, unit, in_codes); !wrong.ok()) return wrong;
    unit += in_codes * picks.value_bytes();
    count -= in_unit;
  }
  return Status::Ok();
}

Result<CodecParameters> ParseRandomk(std::span<const Option> options) {
  const Result<Picks> picks = ParsePicks("randomk", options, /*has_seed=*/true);
  if (!picks.ok()) return picks.status();
  const Status wrong = CheckShare(picks.value(), picks.value().value_bytes());
  if (!wrong.ok()) return wrong;
  return ParametersOf(picks.value());
}

}  // namespace

Codec RandomkCodec() {
  return {.id = kRandomkId,
          .name = "randomk",
          .unit_elements = kUnitElements,
          .cuts_keys = true,
          .keeps = Keeps::kResidualIfAsked,
          .is_linear = true,
          .rounds = [](const CodecParameters& parameters) { return PicksOf(parameters).halves; },
          .codes_sums = true,
          .sums = SumsTravel::kSame,
          .parse = ParseRandomk,
          .check = CheckPicks,
          .describe =
              [](const CodecParameters& parameters) {
                return DescribePicks("randomk", PicksOf(parameters));
              },
          .encoded_bytes =
              [](const CodecParameters& parameters, uint64_t count) {
                const Picks picks = PicksOf(parameters);
                return PicksBytes(picks, picks.value_bytes(), count);
              },
          .check_codes = CheckRandomkCodes,
          .encode = EncodeRandomk,
          .add = PutRandomk<true>,
          .decode = PutRandomk<false>};
}

}  // namespace bs::codec
