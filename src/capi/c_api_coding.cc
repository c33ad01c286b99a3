// The C API's codings: names and options go to the table of codecs, parameters pass through.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bytescheduler/c_api.h"
#include "capi/c_api_guard.h"
#include "capi/coding.h"
#include "codec/codec.h"

using bs::CodecParameters;
using bs::Coding;
using bs::Feedback;
using bs::Guarded;
using bs::Result;
using bs::Status;
using bs::SumsTravel;
using bs::capi::Return;

static_assert(BS_CODING_BYTES == CodecParameters::kMostBytes);

namespace {

bs_coding ToC(const Coding& coding) {
  bs_coding given{};
  const std::span<const std::byte> bytes = coding.parameters.bytes();
  given.codec = coding.codec;
  given.parameter_bytes = static_cast<uint16_t>(bytes.size());
  given.pull = static_cast<unsigned char>(coding.sums);
  given.feedback = static_cast<unsigned char>(coding.feedback);
  std::copy(bytes.begin(), bytes.end(),
            std::as_writable_bytes(std::span(given.parameters)).begin());
  return given;
}

Status Parse(const char* type, std::span<const bs_setting> options, bs_coding* coding) {
  std::vector<bs::codec::Option> named;
  named.reserve(options.size());
  for (const bs_setting& option : options) named.push_back({option.name, option.value});
  const std::string_view name = type == nullptr ? "" : type;
  const Result<Coding> parsed =
      bs::codec::Builtin().Parse(type == nullptr ? nullptr : &name, named);
  if (parsed.ok()) *coding = ToC(parsed.value());
  return parsed.status();
}

}  // namespace

Result<Coding> bs::capi::CodingOf(const bs_coding& coding) {
  const auto bytes = std::as_bytes(std::span(coding.parameters));
  if (coding.parameter_bytes > bytes.size()) {
    return Status::InvalidArgument("a coding with " + std::to_string(coding.parameter_bytes) +
                                   " bytes of parameters: want at most " +
                                   std::to_string(bytes.size()));
  }
  return Coding{.codec = coding.codec,
                .parameters = CodecParameters(bytes.first(coding.parameter_bytes)),
                .sums = static_cast<SumsTravel>(coding.pull),
                .feedback = static_cast<Feedback>(coding.feedback)};
}

int bs_coding_parse(const char* type, const bs_setting* options, size_t num_options,
                    bs_coding* coding, bs_error* error) {
  return Return(Guarded([&] { return Parse(type, {options, num_options}, coding); }), error);
}

int bs_coding_describe(const bs_coding* coding, bs_coding_text text, void* context,
                       bs_error* error) {
  return Return(Guarded([&] {
                  const Result<Coding> known = bs::capi::CodingOf(*coding);
                  if (!known.ok()) return known.status();
                  text(context, bs::codec::Builtin().Describe(known.value()).c_str());
                  return Status::Ok();
                }),
                error);
}

int bs_coding_sizes(const bs_coding* coding, uint64_t size_bytes, uint64_t* pushed_bytes,
                    uint64_t* pulled_bytes, bs_error* error) {
  return Return(Guarded([&] {
                  const bs::codec::Table& codecs = bs::codec::Builtin();
                  const Result<Coding> read = bs::capi::CodingOf(*coding);
                  if (!read.ok()) return read.status();
                  Status known = codecs.Check(read.value());
                  if (!known.ok()) return known;
                  *pushed_bytes = codecs.SentBytes(read.value(), size_bytes);
                  *pulled_bytes = codecs.SentBytes(codecs.OfSums(read.value()), size_bytes);
                  return Status::Ok();
                }),
                error);
}
