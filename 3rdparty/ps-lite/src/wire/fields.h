// How parsers of protobuf messages tell fields apart: by number and wire type.
//
// Pure functions; thread-safe.  Parsing throws what protozero throws.
#pragma once

#include <protozero/pbf_reader.hpp>
#include <protozero/types.hpp>

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

}  // namespace ps
