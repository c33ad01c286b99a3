// Turns texts of settings into values; whatever is not exactly right is refused.
#include "config/parse.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace bs::config {
namespace {

struct Suffix {
  std::string_view text;
  uint64_t factor;
};

constexpr uint64_t kKi = 1024;
constexpr uint64_t kMi = kKi * kKi;
constexpr uint64_t kGi = kKi * kMi;
constexpr std::array<Suffix, 11> kByteSuffixes = {{{"", 1},
                                                   {"B", 1},
                                                   {"K", kKi},
                                                   {"KB", kKi},
                                                   {"KiB", kKi},
                                                   {"M", kMi},
                                                   {"MB", kMi},
                                                   {"MiB", kMi},
                                                   {"G", kGi},
                                                   {"GB", kGi},
                                                   {"GiB", kGi}}};

constexpr std::array<Suffix, 5> kTimeSuffixes = {{{"", 1'000'000'000},
                                                  {"ms", 1'000'000},
                                                  {"s", 1'000'000'000},
                                                  {"m", 60'000'000'000},
                                                  {"h", 3'600'000'000'000}}};

constexpr std::array<Suffix, 4> kRatePrefixes = {
    {{"k", 1'000}, {"m", 1'000'000}, {"g", 1'000'000'000}, {"t", 1'000'000'000'000}}};
constexpr double kMostBits = 1e18;

constexpr double kLongestNanos = 1e18;  // some thirty years; fits a Duration

std::optional<uint64_t> FactorOf(std::string_view suffix, std::span<const Suffix> table) {
  for (const Suffix& row : table) {
    if (row.text == suffix) return row.factor;
  }
  return std::nullopt;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// The factor of "mbit", "Mbit/s", "Mbps", "Mb/s" or "M".  A large B stands for bytes.
std::optional<uint64_t> RateFactorOf(std::string_view unit) {
  const auto factor = FactorOf(Lower(unit.substr(0, 1)), kRatePrefixes);
  const std::string_view rest = unit.substr(std::min<size_t>(1, unit.size()));
  const bool bits = IsOneOf(Lower(rest), "bit|bits|bit/s") || IsOneOf(rest, "bps|b/s");
  return bits || rest.empty() ? factor : std::nullopt;
}

// Changes, insertions and removals of single characters that make `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string_view Unbracketed(std::string_view host) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::optional<bool> ParseFlag(std::string_view text) {
  if (IsOneOf(text, "1|true|yes|on")) return true;
  if (IsOneOf(text, "0|false|no|off")) return false;
  return std::nullopt;
}

Result<int64_t> ParseCount(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Status::InvalidArgument("want a whole number");
  }
  return value;
}

Result<uint64_t> ParseRate(std::string_view text) {
  if (text == "0") return 0;
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view head = text.substr(0, digits);
  double number = 0;
  const auto [end, error] =
      std::from_chars(head.data(), head.data() + head.size(), number, std::chars_format::fixed);
  const auto factor = RateFactorOf(text.substr(digits));
  const bool whole = error == std::errc() && end == head.data() + head.size();
  if (!whole || !factor || number * static_cast<double>(*factor) > kMostBits) {
    return Status::InvalidArgument(
        "want bits a second, such as 300mbit or 2.5gbit; 10G and 10Gbps are bits too");
  }
  return static_cast<uint64_t>(std::llround(number * static_cast<double>(*factor)));
}

bool IsOneOf(std::string_view text, std::string_view words) {
  while (!words.empty()) {
    const size_t end = std::min(words.find('|'), words.size());
    if (text == words.substr(0, end)) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

std::string DamageOf(std::string_view text) {
  if (text.empty()) return "";
  if (text.find('\r') != std::string_view::npos) {
    return "it has a carriage return, as files with Windows line ends give it: remove it (dos2unix "
           "FILE)";
  }
  const auto is_quote = [](char c) { return c == '"' || c == '\''; };
  if (is_quote(text.front()) || is_quote(text.back())) {
    return "the quotes are part of the value: write it without them (env files and docker keep "
           "quotes)";
  }
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
  if (is_blank(text.front()) || is_blank(text.back())) {
    return "blanks are part of the value: write it without them";
  }
  return "";
}

std::string WhyNoHost(std::string_view text, std::string_view port_setting) {
  std::string want = "want an address or a host name";
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    return want + ", without " + std::string(text.substr(0, scheme + 3));
  }
  if (text.find_first_of(" \t\n,;/\\\"'$(){}<>@") != std::string_view::npos) return want;
  if (std::any_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; })) return want;
  const std::string_view host = Unbracketed(text);
  const size_t colons = static_cast<size_t>(std::count(host.begin(), host.end(), ':'));
  const size_t colon = host.rfind(':');
  const bool bracketed = host.starts_with('[') && colon != 0 && host[colon - 1] == ']';
  if (colons == 1 || bracketed) {
    return want + " only" +
           (port_setting.empty() ? std::string(", without a port")
                                 : "; the port belongs into " + std::string(port_setting));
  }
  const std::string address(host.substr(0, host.find('%')));
  in6_addr v6{};
  if (colons > 1 && inet_pton(AF_INET6, address.c_str(), &v6) != 1) {
    return want + "; this is no IPv6 address";
  }
  if (colons > 1 && IN6_IS_ADDR_LINKLOCAL(&v6)) {
    return want +
           "; this one is link-local, which other nodes cannot use: take a global or a "
           "unique local one (fd00::/8)";
  }
  in_addr v4{};
  const bool digits = host.find_first_not_of("0123456789.") == std::string_view::npos;
  if (digits && inet_aton(address.c_str(), &v4) == 0) return want + "; this is no IPv4 address";
  return "";
}

std::string Printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\r' || c == '\n' || c == '\t') {
      printable += c == '\r' ? "\\r" : c == '\n' ? "\\n" : "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      printable.append("\\x").append(1, kDigits[byte / 16]).append(1, kDigits[byte % 16]);
    } else {
      printable += c;
    }
  }
  return printable;
}

bool IsAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    const std::string_view host = text.substr(0, colon);
    const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
    if (host.empty() || (!bracketed && host.find_first_of(":[] /") != std::string_view::npos)) {
      return false;
    }
    text.remove_prefix(colon + 1);
  }
  const Result<int64_t> port = ParseCount(text);
  return port.ok() && port.value() >= 0 && port.value() < 65536;
}

std::string_view NearestName(std::string_view name, std::span<const std::string_view> known) {
  // More than a third of a name's own part changed is another name, not a slip.
  size_t best = std::max<size_t>(3, name.size() / 6) + 1;
  std::string_view nearest;
  for (const std::string_view candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string Write(const std::string& value) { return value; }
std::string Write(bool value) { return value ? "1" : "0"; }
std::string Write(int32_t value) { return std::to_string(value); }
std::string Write(uint64_t value) { return std::to_string(value); }
std::string Write(Duration value) { return std::to_string(value.count()) + "ns"; }

}  // namespace bs::config

namespace bs {

Result<uint64_t> ParseBytes(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view head = text.substr(0, digits);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(head.data(), head.data() + head.size(), number);
  const auto factor = config::FactorOf(text.substr(digits), config::kByteSuffixes);
  const bool fits = factor && number <= std::numeric_limits<uint64_t>::max() / *factor;
  if (error != std::errc() || !fits) {
    return Status::InvalidArgument("want bytes, such as 8388608 or 8MiB");
  }
  return number * *factor;
}

Result<Duration> ParseDuration(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view head = text.substr(0, digits);
  double number = 0;
  const auto [end, error] =
      std::from_chars(head.data(), head.data() + head.size(), number, std::chars_format::fixed);
  const auto factor = config::FactorOf(text.substr(digits), config::kTimeSuffixes);
  if (error != std::errc() || end != head.data() + head.size() || !factor ||
      number * static_cast<double>(*factor) > config::kLongestNanos) {
    return Status::InvalidArgument("want a time, such as 5, 0.5, 500ms, 5s or 2m");
  }
  return Duration(std::llround(number * static_cast<double>(*factor)));
}

}  // namespace bs
