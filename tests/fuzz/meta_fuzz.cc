// The parser: whatever the bytes are, it returns; what it takes, it can write and take again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "wire/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bs::Result<ps::Meta> parsed = ps::ParseMeta(std::as_bytes(std::span(data, size)));
  if (!parsed.ok()) return 0;
  const std::string written = ps::EncodeMeta(parsed.value());
  const bs::Result<ps::Meta> again = ps::ParseMeta(std::as_bytes(std::span(written)));
  if (!again.ok() || ps::EncodeMeta(again.value()) != written) std::abort();
  return 0;
}
