// Texts of settings as values: flags, counts, and the known name nearest to a mistyped name.
//
// Pure functions, thread-safe.  ParseBytes and ParseDuration are declared in config.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/types.h"

namespace bs::config {

// 0, 1, true, false, yes, no, on, off.
std::optional<bool> ParseFlag(std::string_view text);
// A whole decimal number; kInvalidArgument saying so.
Result<int64_t> ParseCount(std::string_view text);
// "300mbit", "2.5Gbit/s", "10Gbps" or "10G" as bits a second; "0" is 0.  kInvalidArgument saying
// so.
Result<uint64_t> ParseRate(std::string_view text);
// Returns true if `text` is one of the words in "a|b|c".
bool IsOneOf(std::string_view text, std::string_view words);
// Describes the damage that a shell, an env file or a YAML file has done to a text: quotes that are
// part of it, a carriage return, blanks around it.  Empty if there is none.
std::string DamageOf(std::string_view text);
// Explains why a text is no host, which is an address in numbers or a name.  Empty if it is a host.
// `port_setting` is where a port belongs, "" if nowhere.
std::string WhyNoHost(std::string_view text, std::string_view port_setting);
// "::1" for "[::1]"; any other text as it is.
std::string_view Unbracketed(std::string_view host);
// The text with its control characters as escapes (\r, \x1b), for one line of an error.
std::string Printable(std::string_view text);
// Returns true if `text` is PORT or HOST:PORT; an IPv6 host stands in brackets.
bool IsAddress(std::string_view text);
// The name that needs the fewest changes, if it needs few; empty if none does.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> known);

// A value as a user may write it.
std::string Write(const std::string& value);
std::string Write(bool value);
std::string Write(int32_t value);
std::string Write(uint64_t value);
std::string Write(Duration value);

}  // namespace bs::config
