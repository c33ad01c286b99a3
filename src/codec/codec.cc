// The table of codecs.
#include "codec/codec.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "codec/two_bit.h"

namespace bs::codec {
namespace {

bool IsComplete(const Codec& codec) {
  return codec.id != 0 && !codec.name.empty() && codec.unit_elements > 0 &&
         codec.check != nullptr && codec.describe != nullptr && codec.encoded_bytes != nullptr &&
         codec.encode != nullptr && codec.add != nullptr && codec.decode != nullptr;
}

}  // namespace

Table::Table(std::vector<Codec> rows) : rows_(std::move(rows)) {
  for (const Codec& codec : rows_) {
    BS_CHECK(IsComplete(codec));
    BS_CHECK(Find(codec.id) == &codec);
  }
}

const Codec* Table::Find(uint32_t id) const {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [id](const Codec& codec) { return codec.id == id; });
  return found == rows_.end() ? nullptr : &*found;
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

const Table& Builtin() {
  static const Table table({TwoBitCodec()});
  return table;
}

}  // namespace bs::codec
