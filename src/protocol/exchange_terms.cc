// Encodes and decodes the terms of exchanges; PROTOCOL.md has the table that this file follows.
#include "protocol/exchange_terms.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <utility>

#include "base/count_of.h"
#include "protocol/describe.h"
#include "protocol/tensor.h"
#include "wire/fields.h"

namespace bs::protocol {
namespace {

using protozero::pbf_reader;
using protozero::pbf_tag_type;
using protozero::pbf_writer;

enum TermsField : pbf_tag_type {
  kTermsSizeBytes = 1,
  kTermsPartitionBytes = 2,
  kTermsDtype = 3,
  kTermsReduction = 4,
  kTermsGivers = 5,
  kTermsTakers = 6,
  kTermsLabel = 7,
};
enum TakenField : pbf_tag_type { kTakenPartition = 1 };
enum TakenPartitionField : pbf_tag_type { kTakenKey = 1, kTakenIndex = 2 };

// Ranks as runs: how many ranks lie between a run and the run before, and its length.
std::vector<uint32_t> RunsOf(const std::vector<int32_t>& ranks) {
  std::vector<uint32_t> runs;
  int32_t next = 0;
  for (const int32_t rank : ranks) {
    if (!runs.empty() && rank == next) {
      ++runs.back();
    } else {
      runs.push_back(static_cast<uint32_t>(rank - next));
      runs.push_back(1);
    }
    next = rank + 1;
  }
  return runs;
}

// A job has no more workers; a hostile run could be longer.
constexpr uint64_t kMostRanks = uint64_t{1} << 16U;

// Nothing if the runs make no sense.
std::optional<std::vector<int32_t>> RanksIn(const std::vector<uint32_t>& runs) {
  std::vector<int32_t> ranks;
  uint64_t next = 0;
  for (size_t i = 0; i + 1 < runs.size(); i += 2) {
    next += runs[i];
    const uint64_t length = runs[i + 1];
    if (next > kMostRanks || length == 0 || length > kMostRanks - next) return std::nullopt;
    for (const uint64_t end = next + length; next < end; ++next) {
      ranks.push_back(static_cast<int32_t>(next));
    }
  }
  if (runs.size() % 2 != 0) return std::nullopt;
  return ranks;
}

void Add(pbf_tag_type field, uint64_t value, pbf_writer* out) {
  if (value != 0) out->add_uint64(field, value);
}

void AddRanks(pbf_tag_type field, const std::vector<int32_t>& ranks, pbf_writer* out) {
  const std::vector<uint32_t> runs = RunsOf(ranks);
  out->add_packed_uint32(field, runs.begin(), runs.end());
}

std::vector<uint32_t> ReadNumbers(pbf_reader* in) {
  const auto numbers = in->get_packed_uint32();
  return {numbers.begin(), numbers.end()};
}

std::string_view ReadView(pbf_reader* in) {
  const protozero::data_view view = in->get_view();
  return {view.data(), view.size()};
}

// The fields as they stand in the bytes.
struct RawTerms {
  ExchangeTerms terms;
  uint32_t dtype = 0;
  uint32_t reduction = 0;
  std::vector<uint32_t> givers{};
  std::vector<uint32_t> takers{};
};

bool ReadTerms(pbf_reader* in, RawTerms* raw) {
  switch (in->tag_and_type()) {
    case ps::Varint(kTermsSizeBytes):
      raw->terms.size_bytes = in->get_uint64();
      return true;
    case ps::Varint(kTermsPartitionBytes):
      raw->terms.partition_bytes = in->get_uint64();
      return true;
    case ps::Varint(kTermsDtype):
      raw->dtype = in->get_uint32();
      return true;
    case ps::Varint(kTermsReduction):
      raw->reduction = in->get_uint32();
      return true;
    case ps::Bytes(kTermsGivers):
      raw->givers = ReadNumbers(in);
      return true;
    case ps::Bytes(kTermsTakers):
      raw->takers = ReadNumbers(in);
      return true;
    case ps::Bytes(kTermsLabel):
      raw->terms.label = in->get_string();
      return true;
    default:
      return false;
  }
}

Status ReadTaken(std::string_view bytes, TakenPartition* partition) {
  return ps::ForEachField(bytes, [partition](pbf_reader* in) {
    switch (in->tag_and_type()) {
      case ps::Varint(kTakenKey):
        partition->key = in->get_uint64();
        return true;
      case ps::Varint(kTakenIndex):
        partition->partition = in->get_uint32();
        return true;
      default:
        return false;
    }
  });
}

// True for at least one rank, from 0 on, each larger than the rank before.
bool AreRanks(const std::vector<int32_t>& ranks) {
  return !ranks.empty() && ranks.front() >= 0 &&
         std::ranges::adjacent_find(ranks, std::greater_equal<>()) == ranks.end();
}

}  // namespace

Status CheckTerms(const ExchangeTerms& terms) {
  if (!AreRanks(terms.givers) || !AreRanks(terms.takers)) {
    return Status::InvalidArgument(
        "an exchange needs a giver and a taker, and names each rank once, in order");
  }
  if (terms.label.size() > kMostLabelBytes) {
    return Status::InvalidArgument("a label of " + CountOf(terms.label.size(), "byte") +
                                   ", at most " + std::to_string(kMostLabelBytes) + " are taken");
  }
  if (terms.size_bytes % SizeOf(terms.dtype) != 0) {
    return Status::InvalidArgument(CountOf(terms.size_bytes, "byte") +
                                   " are not whole elements of " +
                                   std::string(NameOf(terms.dtype)));
  }
  if (terms.partition_bytes == 0 || terms.partition_bytes % kAlignBytes != 0 ||
      terms.size_bytes / terms.partition_bytes >= kMostExchangePartitions) {
    return Status::InvalidArgument(CountOf(terms.size_bytes, "byte") + " in partitions of " +
                                   std::to_string(terms.partition_bytes));
  }
  return Status::Ok();
}

std::string Encode(const ExchangeTerms& terms) {
  std::string bytes;
  pbf_writer out(bytes);
  Add(kTermsSizeBytes, terms.size_bytes, &out);
  Add(kTermsPartitionBytes, terms.partition_bytes, &out);
  Add(kTermsDtype, static_cast<uint64_t>(terms.dtype), &out);
  Add(kTermsReduction, static_cast<uint64_t>(terms.reduction), &out);
  AddRanks(kTermsGivers, terms.givers, &out);
  AddRanks(kTermsTakers, terms.takers, &out);
  if (!terms.label.empty()) out.add_string(kTermsLabel, terms.label);
  return bytes;
}

Result<ExchangeTerms> DecodeTerms(std::string_view bytes) {
  RawTerms raw;
  const Status read = ps::ForEachField(bytes, [&](pbf_reader* in) { return ReadTerms(in, &raw); });
  if (!read.ok()) return read;
  const std::optional<DType> dtype = DTypeFromCode(raw.dtype);
  const std::optional<Reduction> reduction = ReductionFromCode(raw.reduction);
  if (!dtype || !reduction) {
    return Status::InvalidArgument("dtype " + std::to_string(raw.dtype) + " in reduction " +
                                   std::to_string(raw.reduction));
  }
  std::optional<std::vector<int32_t>> givers = RanksIn(raw.givers);
  std::optional<std::vector<int32_t>> takers = RanksIn(raw.takers);
  if (!givers || !takers) return Status::InvalidArgument("ranks that are no ranks");
  raw.terms.dtype = *dtype;
  raw.terms.reduction = *reduction;
  raw.terms.givers = std::move(*givers);
  raw.terms.takers = std::move(*takers);
  if (Status wrong = CheckTerms(raw.terms); !wrong.ok()) return wrong;
  return std::move(raw.terms);
}

uint64_t ExchangePartitionBytes(uint64_t size_bytes, uint64_t least_bytes) {
  // Beyond this many partitions they grow, up to eight times.
  constexpr uint64_t kMany = 512;
  constexpr uint64_t kMostTimes = 8;
  const uint64_t times = size_bytes / kMany / least_bytes + 1;
  const uint64_t fewest = size_bytes / kMostExchangePartitions + kAlignBytes;
  return std::max(least_bytes * std::min(times, kMostTimes), fewest - fewest % kAlignBytes);
}

uint64_t NumPartitions(const ExchangeTerms& terms) {
  const uint64_t whole = terms.size_bytes / terms.partition_bytes;
  return std::max<uint64_t>(whole + (terms.size_bytes % terms.partition_bytes != 0 ? 1 : 0), 1);
}

Partition PartitionOf(const ExchangeTerms& terms, uint32_t index) {
  const uint64_t offset_bytes = index * terms.partition_bytes;
  return {.index = index,
          .offset_bytes = offset_bytes,
          .size_bytes = std::min(terms.partition_bytes, terms.size_bytes - offset_bytes)};
}

std::string Describe(const ExchangeTerms& terms) {
  const std::string how =
      terms.givers.size() > 1 ? std::string(NameOf(terms.reduction)) + " of " : std::string();
  return "'" + terms.label + "' (" + how +
         DescribeArray(static_cast<uint32_t>(terms.dtype), terms.size_bytes) + " from " +
         DescribeWorkers(terms.givers) + " to " + DescribeWorkers(terms.takers) + ")";
}

std::string Encode(std::span<const TakenPartition> taken) {
  std::string bytes;
  for (const TakenPartition& partition : taken) {
    pbf_writer outer(bytes);
    pbf_writer out(outer, kTakenPartition);
    out.add_uint64(kTakenKey, partition.key);  // protozero drops an empty message
    Add(kTakenIndex, partition.partition, &out);
  }
  return bytes;
}

Result<std::vector<TakenPartition>> DecodeTaken(std::string_view bytes) {
  std::vector<TakenPartition> taken;
  Status wrong;
  const Status read = ps::ForEachField(bytes, [&](pbf_reader* in) {
    if (in->tag_and_type() != ps::Bytes(kTakenPartition)) return false;
    if (taken.size() == kMostTakenPartitions) {
      wrong = Status::InvalidArgument("more than " + std::to_string(kMostTakenPartitions) +
                                      " partitions");
      in->skip();
      return true;
    }
    Status one = ReadTaken(ReadView(in), &taken.emplace_back());
    if (!one.ok()) wrong = std::move(one);
    return true;
  });
  if (!read.ok()) return read;
  if (!wrong.ok()) return wrong;
  return taken;
}

}  // namespace bs::protocol
