// The fields of our extension that asynchronous keys need: part of wire.cc, which calls it; and how
// both tell fields apart.
//
// Pure functions; thread-safe.  Parsing throws what protozero throws.
#pragma once

#include <cstdint>
#include <protozero/pbf_message.hpp>
#include <protozero/pbf_writer.hpp>

#include "ps/message.h"

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

void EncodeAsyncFields(const Extension& extension, protozero::pbf_writer* out);
// Returns whether the field at hand was one of them.
bool ParseAsyncField(protozero::pbf_reader* in, Extension* extension);

}  // namespace ps
