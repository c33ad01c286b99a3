// ExchangeTerms: the facts about an exchange that all its workers have to state alike.
//
// An exchange is a round between some workers of a job, without a declaration: its givers
// contribute, and its takers get the result.  Every request of it has the terms, so that the first
// request tells the server all, and a server compares the bytes of the later requests with it.
//
// Pure functions.  Decoding never aborts whatever the bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace bs::protocol {

// Most bytes of a label.
inline constexpr size_t kMostLabelBytes = 200;
// Most partitions of an exchange.
inline constexpr uint64_t kMostExchangePartitions = uint64_t{1} << 20U;

struct ExchangeTerms {
  uint64_t size_bytes = 0;       // of each contribution, and of the result
  uint64_t partition_bytes = 0;  // of every partition but the last; a multiple of kAlignBytes
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kSum;  // of no use with a single giver
  std::vector<int32_t> givers{};          // ranks, in order; at least one, as below
  std::vector<int32_t> takers{};
  std::string label{};  // for people

  bool operator==(const ExchangeTerms&) const = default;
};

// kInvalidArgument, in words for people, if no exchange can have these terms.
Status CheckTerms(const ExchangeTerms& terms);
// Converts to bytes for the wire (protobuf fields), the same bytes for the same terms, and back.
// kInvalidArgument if the bytes make no sense, also by CheckTerms.
std::string Encode(const ExchangeTerms& terms);
Result<ExchangeTerms> DecodeTerms(std::string_view bytes);

// The size of the partitions of an exchange: all workers cut it alike, whatever their settings are.
// `least_bytes` is the size for all but large exchanges.
uint64_t ExchangePartitionBytes(uint64_t size_bytes, uint64_t least_bytes);
// At least 1.  REQUIRES: CheckTerms is ok, here and below.
uint64_t NumPartitions(const ExchangeTerms& terms);
// REQUIRES: index < NumPartitions.  Its server is 0.
Partition PartitionOf(const ExchangeTerms& terms, uint32_t index);

// "'gradients' (sum of float32 of 96 bytes from workers 0, 1 to worker 1)".
std::string Describe(const ExchangeTerms& terms);

// A partition whose result a worker has.
struct TakenPartition {
  Key key = 0;
  uint32_t partition = 0;

  bool operator==(const TakenPartition&) const = default;
};
// Most of them in a request.
inline constexpr size_t kMostTakenPartitions = 1024;
// The same conversions.
std::string Encode(std::span<const TakenPartition> taken);
Result<std::vector<TakenPartition>> DecodeTaken(std::string_view bytes);

}  // namespace bs::protocol
