// Encodes, decodes and compares layouts.
#include "protocol/next_layout.h"

#include <algorithm>
#include <span>

#include "base/count_of.h"
#include "protocol/placement.h"

namespace bs::protocol {
namespace {

constexpr size_t kNumberBytes = sizeof(uint64_t);
constexpr size_t kHeaderBytes = 3 * kNumberBytes;

void Append(uint64_t value, std::string* bytes) {
  for (size_t i = 0; i < kNumberBytes; ++i) {
    bytes->push_back(static_cast<char>(static_cast<uint8_t>(value >> (8U * i))));
  }
}

uint64_t NumberAt(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8U * i);
  }
  return value;
}

uint64_t NumPartitions(uint64_t size_bytes, uint64_t partition_bytes) {
  return std::max<uint64_t>(
      1, size_bytes / partition_bytes + (size_bytes % partition_bytes != 0 ? 1 : 0));
}

}  // namespace

std::optional<Decision> DecisionIn(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || NumberAt(bytes, kNumberBytes) == 0) return std::nullopt;
  return Decision{.number = NumberAt(bytes, 0), .credit_bytes = NumberAt(bytes, kNumberBytes)};
}

std::string Encode(const NextLayout& next) {
  std::string bytes;
  Append(next.decision, &bytes);
  Append(next.credit_bytes, &bytes);
  Append(next.partition_bytes, &bytes);
  if (next.partition_bytes == 0) return bytes;
  const std::vector<std::byte> servers = EncodeServers(next.partitions);
  return bytes.append(reinterpret_cast<const char*>(servers.data()), servers.size());
}

Result<NextLayout> DecodeNextLayout(std::string_view bytes, const Tensor& tensor,
                                    uint32_t num_servers) {
  const auto wrong = [&](const std::string& what) {
    return Status::Internal("the next layout of key=" + std::to_string(tensor.key) + ": " + what);
  };
  if (bytes.size() < kHeaderBytes) return wrong(CountOf(bytes.size(), "byte"));
  NextLayout next{.decision = NumberAt(bytes, 0),
                  .credit_bytes = NumberAt(bytes, kNumberBytes),
                  .partition_bytes = NumberAt(bytes, 2 * kNumberBytes)};
  const std::string_view servers = bytes.substr(kHeaderBytes);
  if (next.credit_bytes == 0) return wrong("a credit of 0 bytes");
  if (next.partition_bytes == 0 && servers.empty()) return next;
  if (next.partition_bytes < kAlignBytes || next.partition_bytes % kAlignBytes != 0) {
    return wrong("partitions of " + CountOf(next.partition_bytes, "byte"));
  }
  // Checked before memory is taken for the partitions.
  if (servers.size() / 2 != NumPartitions(tensor.size_bytes, next.partition_bytes)) {
    return wrong(CountOf(servers.size(), "byte") + " of servers for partitions of " +
                 std::to_string(next.partition_bytes));
  }
  next.partitions = SplitIntoPartitions(tensor.size_bytes, next.partition_bytes, kAlignBytes);
  const Status fits =
      DecodeServers(std::as_bytes(std::span(servers)), num_servers, next.partitions);
  if (!fits.ok()) return wrong(fits.message());
  return next;
}

bool WouldChange(const Tensor& tensor, uint64_t partition_bytes) {
  if (partition_bytes == tensor.partition_bytes) return false;
  if (NumPartitions(tensor.size_bytes, partition_bytes) > kMostPartitions) return false;
  return tensor.partitions.size() > 1 || NumPartitions(tensor.size_bytes, partition_bytes) > 1;
}

}  // namespace bs::protocol
