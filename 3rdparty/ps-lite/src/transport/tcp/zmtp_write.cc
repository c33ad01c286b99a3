// Writes greetings, commands and frames.
#include "base/check.h"
#include "transport/tcp/zmtp.h"
#include "transport/tcp/zmtp_parts.h"

namespace ps {
namespace {

void AppendBigEndian(uint64_t value, int num_bytes, std::string* out) {
  for (int i = num_bytes - 1; i >= 0; --i)
    out->push_back(static_cast<char>(value >> (8U * static_cast<unsigned>(i))));
}

void AppendProperty(std::string_view name, std::string_view value, std::string* out) {
  out->push_back(static_cast<char>(name.size()));
  out->append(name);
  AppendBigEndian(value.size(), 4, out);
  out->append(value);
}

std::string CommandOf(std::string_view body) {
  BS_CHECK(body.size() <= kLongestShort);
  std::string frame(1, static_cast<char>(kCommand));
  frame.push_back(static_cast<char>(body.size()));
  return frame.append(body);
}

}  // namespace

std::string ZmtpGreeting() {
  std::string greeting(kGreetingBytes, '\0');
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;  // version 3.0
  greeting.replace(kMechanismAt, 4, "NULL");
  return greeting;
}

std::string ZmtpReady(std::string_view socket_type, std::string_view identity, ZmtpTakes takes) {
  std::string body = "\5READY";
  AppendProperty("Socket-Type", socket_type, &body);
  AppendProperty("Identity", identity, &body);
  if (takes.memory) AppendProperty(kMemory, kMemoryVersion, &body);
  if (takes.rdma) AppendProperty(kRdma, kRdmaVersion, &body);
  return CommandOf(body);
}

std::string ZmtpMemory(std::string_view offer) {
  return CommandOf(std::string(kMemoryOffer) + std::string(offer));
}

std::string ZmtpMemoryAnswer(bool taken) {
  return CommandOf(taken ? kMemoryTaken : kMemoryRefused);
}

std::string ZmtpRdma(std::string_view offer) {
  return CommandOf(std::string(kRdmaOffer) + std::string(offer));
}

std::string ZmtpRdmaAnswer(bool taken, std::string_view text) {
  constexpr size_t kMostText = 200;
  return CommandOf(std::string(taken ? kRdmaTaken : kRdmaRefused) +
                   std::string(text.substr(0, kMostText)));
}

void AppendReference(uint64_t offset_bytes, uint64_t size_bytes, bool more, std::string* out) {
  out->push_back(static_cast<char>(kReference | (more ? kMore : 0)));
  AppendBigEndian(kReferenceBytes, 1, out);
  AppendBigEndian(offset_bytes, 8, out);
  AppendBigEndian(size_bytes, 8, out);
}

void AppendFrameHeader(uint64_t size_bytes, bool more, std::string* out) {
  const bool is_long = size_bytes > kLongestShort;
  out->push_back(static_cast<char>((more ? kMore : 0) | (is_long ? kLong : 0)));
  AppendBigEndian(size_bytes, is_long ? 8 : 1, out);
}

}  // namespace ps
