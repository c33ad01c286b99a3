// The fields of our extension that asynchronous keys need: part of wire.cc, which calls it.
//
// Pure functions; thread-safe.  Parsing throws what protozero throws.
#pragma once

#include <protozero/pbf_message.hpp>
#include <protozero/pbf_writer.hpp>

#include "ps/message.h"

namespace ps {

void EncodeAsyncFields(const Extension& extension, protozero::pbf_writer* out);
// Returns whether the field at hand was one of them.
bool ParseAsyncField(protozero::pbf_reader* in, Extension* extension);

}  // namespace ps
