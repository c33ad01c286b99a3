// The table of codecs.
#include "codec/codec.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

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
  const Result<CodecParameters> parameters = codec->parse(options);
  if (!parameters.ok()) return parameters.status();
  return Coding{.codec = codec->id, .parameters = parameters.value()};
}

const Codec& Table::Get(const Coding& coding) const {
  const Codec* const codec = Find(coding.codec);
  BS_CHECK(codec != nullptr);
  return *codec;
}

Status Table::Check(const Coding& coding) const {
  if (coding.plain()) return Status::Ok();
  const Codec* const codec = Find(coding.codec);
  if (codec != nullptr) return codec->check(coding.parameters);
  return Status::InvalidArgument("codec=" + std::to_string(coding.codec) +
                                 " is none that is known here");
}

std::string Table::Describe(const Coding& coding) const {
  if (coding.plain()) return "not compressed";
  const Codec* const codec = Find(coding.codec);
  if (codec == nullptr) return "compressed by codec " + std::to_string(coding.codec);
  return "compressed to " + codec->describe(coding.parameters);
}

uint64_t Table::SentBytes(const Coding& coding, uint64_t size_bytes) const {
  if (coding.plain()) return size_bytes;
  return Get(coding).encoded_bytes(coding.parameters, size_bytes / sizeof(float));
}

}  // namespace bs::codec
