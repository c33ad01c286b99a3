// Writes and reads offers.
#include "transport/rdma/rdma_offer.h"

#include <sys/random.h>

#include <charconv>
#include <span>
#include <vector>

namespace ps {
namespace {

constexpr std::string_view kVersion = "1";
constexpr uint32_t kLargest24Bits = (1U << 24U) - 1;
constexpr size_t kWords = 11;

bs::Status WrongOffer(const std::string& what) {
  return bs::Status::InvalidArgument("no offer of RDMA: " + what);
}

std::string HexOf(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text.push_back(kDigits[std::to_integer<size_t>(byte >> 4U)]);
    text.push_back(kDigits[std::to_integer<size_t>(byte & std::byte{15})]);
  }
  return text;
}

bool ParseHex(std::string_view text, std::span<std::byte> out) {
  if (text.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string_view digits = text.substr(2 * i, 2);
    uint8_t value = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, 16);
    if (error != std::errc() || end != digits.end()) return false;
    out[i] = std::byte{value};
  }
  return true;
}

bool ParseNumber(std::string_view text, uint32_t least, uint32_t most, uint32_t* out) {
  const auto [end, error] = std::from_chars(text.begin(), text.end(), *out);
  return error == std::errc() && end == text.end() && *out >= least && *out <= most;
}

std::vector<std::string_view> WordsOf(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty() && words.size() <= kWords) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

bool IsMtu(uint32_t bytes) { return bytes >= 256 && bytes <= 4096 && (bytes & (bytes - 1)) == 0; }

}  // namespace

bs::Result<RdmaToken> NewRdmaToken() {
  RdmaToken token;
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    return bs::Status::ResourceExhausted("the system gives no random numbers");
  }
  return token;
}

std::string TextOf(const RdmaOffer& offer) {
  const auto number = [](uint32_t value) { return " " + std::to_string(value); };
  const bool ethernet = offer.address.layer == RdmaLayer::kEthernet;
  return std::string(kVersion) + (ethernet ? " eth " : " ib ") + HexOf(offer.address.gid) +
         number(offer.address.lid) + number(offer.address.number) +
         number(offer.address.first_packet) + number(offer.mtu_bytes) + number(offer.reads) +
         number(offer.slots) + number(offer.slot_bytes) + " " + HexOf(offer.token);
}

bs::Result<RdmaOffer> ParseRdmaOffer(std::string_view text) {
  const std::vector<std::string_view> words = WordsOf(text);
  if (words.size() != kWords || text.ends_with(' '))
    return WrongOffer("it has another number of words");
  if (words[0] != kVersion) return WrongOffer("another version");
  RdmaOffer offer;
  if (words[1] != "eth" && words[1] != "ib") return WrongOffer("another link layer");
  offer.address.layer = words[1] == "eth" ? RdmaLayer::kEthernet : RdmaLayer::kInfiniBand;
  uint32_t lid = 0;
  const bool parsed =
      ParseHex(words[2], offer.address.gid) && ParseNumber(words[3], 0, UINT16_MAX, &lid) &&
      ParseNumber(words[4], 0, kLargest24Bits, &offer.address.number) &&
      ParseNumber(words[5], 0, kLargest24Bits, &offer.address.first_packet) &&
      ParseNumber(words[6], 256, 4096, &offer.mtu_bytes) &&
      ParseNumber(words[7], 1, kMostRdmaReads, &offer.reads) &&
      ParseNumber(words[8], kLeastRdmaSlots, kMostRdmaSlots, &offer.slots) &&
      ParseNumber(words[9], kLeastRdmaSlotBytes, kMostRdmaSlotBytes, &offer.slot_bytes) &&
      ParseHex(words[10], offer.token);
  if (!parsed || !IsMtu(offer.mtu_bytes)) return WrongOffer("a value is out of range");
  offer.address.lid = static_cast<uint16_t>(lid);
  return offer;
}

}  // namespace ps
