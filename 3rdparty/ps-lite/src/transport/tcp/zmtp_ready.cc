// Reads what the other end says of itself.
#include "transport/tcp/zmtp_parts.h"

namespace ps {

bs::Result<ZmtpIntroduction> ParseReady(std::span<const std::byte> body) {
  constexpr std::string_view kReady = "\5READY";
  if (!TextOf(body).starts_with(kReady)) return NoZmtp("another command instead of READY");
  std::span<const std::byte> properties = body.subspan(kReady.size());
  ZmtpIntroduction found;
  while (!properties.empty()) {
    const size_t name_bytes = ByteAt(properties, 0);
    if (properties.size() < 1 + name_bytes + 4) return NoZmtp("a property is cut short");
    const std::string_view name = TextOf(properties.subspan(1, name_bytes));
    const uint64_t value_bytes = ReadBigEndian(properties.subspan(1 + name_bytes, 4));
    properties = properties.subspan(1 + name_bytes + 4);
    if (properties.size() < value_bytes) return NoZmtp("a property is cut short");
    if (name == "Identity") found.identity = TextOf(properties.first(value_bytes));
    if (name == kMemory) found.memory = TextOf(properties.first(value_bytes));
    properties = properties.subspan(value_bytes);
  }
  return found;
}

}  // namespace ps
