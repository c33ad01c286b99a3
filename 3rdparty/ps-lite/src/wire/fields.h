// How parsers of protobuf messages tell fields apart: by number and wire type.
//
// Pure functions; thread-safe.  GetBool throws protozero's exceptions; ForEachField throws nothing.
#pragma once

#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/types.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "ps/body.h"

namespace ps {

constexpr uint32_t Varint(protozero::pbf_tag_type field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::varint);
}

constexpr uint32_t Fixed32(protozero::pbf_tag_type field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::fixed32);
}

constexpr uint32_t Fixed64(protozero::pbf_tag_type field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::fixed64);
}

constexpr uint32_t Bytes(protozero::pbf_tag_type field) {
  return protozero::tag_and_type(field, protozero::pbf_wire_type::length_delimited);
}

// protozero's get_bool looks at the first byte without a check and takes 0x80 0x00 for true.
inline bool GetBool(protozero::pbf_reader* in) { return in->get_uint64() != 0; }

// Calls `take(protozero::pbf_reader*)` at each field of `bytes`.  `take` reads the field and
// returns true, or returns false to skip it.  kInvalidArgument if the bytes are no protobuf fields.
template <typename Take>
bs::Status ForEachField(std::string_view bytes, const Take& take) {
  try {
    protozero::pbf_reader in(protozero::data_view(bytes.data(), bytes.size()));
    while (in.next()) {
      if (!take(&in)) in.skip();
    }
  } catch (const protozero::exception& e) {
    return bs::Status::InvalidArgument(std::string("a body that is none: ") + e.what());
  }
  return bs::Status::Ok();
}
template <typename Take>
bs::Status ForEachField(const Body& body, const Take& take) {
  return ForEachField(body.bytes(), take);
}

}  // namespace ps
