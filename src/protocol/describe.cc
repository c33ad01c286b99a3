// What a request was and what an array is: words and refusals.
#include "protocol/describe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "bytescheduler/types.h"

namespace bs::server {

std::string DescribeArray(uint32_t dtype, uint64_t size_bytes) {
  const std::optional<DType> known = DTypeFromCode(dtype);
  const std::string name = known ? std::string(NameOf(*known)) : "dtype " + std::to_string(dtype);
  return name + " of " + std::to_string(size_bytes) + " bytes";
}

std::string DescribeCoding(ps::Codec codec, float threshold) {
  if (codec == ps::Codec::kNone) return "not compressed";
  // As many digits as tell it from its neighbours.
  char digits[32];
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), threshold);
  const std::string shown(digits, error == std::errc() ? end : std::begin(digits));
  return "compressed to two bits with threshold " + shown;
}

std::string DescribeWorkers(const std::vector<int32_t>& ranks) {
  constexpr size_t kMostNamed = 8;
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
    names += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMostNamed) {
    names += " and " + std::to_string(ranks.size() - kMostNamed) + " more";
  }
  return (ranks.size() > 1 ? "workers " : "worker ") + names;
}

std::string DescribeCall(const ps::KvCall& call) {
  const ps::Extension& about = call.extension;
  const std::string key = " key=" + std::to_string(about.key);
  const std::string cut = about.cut == 0 ? "" : " of cut " + std::to_string(about.cut);
  const std::string place =
      " round=" + std::to_string(about.round) + " partition=" + std::to_string(about.part) + cut;
  const std::string from = " from " + ps::DescribeId(call.worker_id);
  switch (about.op) {
    case ps::Op::kDeclare:
      return "declare" + key + from;
    case ps::Op::kLookup:
      return "lookup" + key + from;
    case ps::Op::kPush:
      return "push" + key + place + from;
    case ps::Op::kPull:
      return "pull" + key + place + from;
    case ps::Op::kPushPull:
      return "push-pull" + key + place + from;
    case ps::Op::kRelease:
      return "release key=" + std::to_string(about.key) + " before cut " +
             std::to_string(about.cut) + from;
    case ps::Op::kOptimizer:
      return "optimizer " + std::to_string(about.round) + from;
    default:
      return "operation " + std::to_string(static_cast<uint32_t>(about.op)) + from;
  }
}

Status CheckArray(const ps::KvCall& call) {
  const ps::Extension& about = call.extension;
  const std::optional<DType> dtype = DTypeFromCode(about.dtype);
  if (!dtype) {
    return Status::InvalidArgument(DescribeCall(call) + ": dtype " + std::to_string(about.dtype) +
                                   " is none that a server can sum");
  }
  if (about.size_bytes % SizeOf(*dtype) != 0) {
    return Status::InvalidArgument(DescribeCall(call) + ": " +
                                   DescribeArray(about.dtype, about.size_bytes) +
                                   " is no whole number of elements");
  }
  return Status::Ok();
}

Status CheckPayload(const ps::KvCall& call) {
  const ps::Extension& about = call.extension;
  const uint64_t announced_bytes = ps::PayloadBytes(about.codec, about.size_bytes);
  if (call.payload.size() != announced_bytes) {
    return Status::InvalidArgument(DescribeCall(call) + ": " + std::to_string(call.payload.size()) +
                                   " bytes came, " + std::to_string(announced_bytes) +
                                   " were announced");
  }
  if (about.codec == ps::Codec::kNone) return Status::Ok();
  const std::string what =
      DescribeCall(call) + ": it is " + DescribeCoding(about.codec, about.threshold);
  if (about.dtype != static_cast<uint32_t>(DType::kFloat32) || about.round == 0) {
    return Status::InvalidArgument(
        what + ", which is for sums of float32, not for " +
        (about.round == 0 ? "initial values" : DescribeArray(about.dtype, about.size_bytes)));
  }
  if (std::isfinite(about.threshold) && about.threshold > 0) return Status::Ok();
  return Status::InvalidArgument(what + ", which is no finite number greater than 0");
}

PartShape ShapeOf(const ps::KvCall& push) {
  const ps::Extension& about = push.extension;
  return {about.offset_bytes, about.size_bytes, about.dtype};
}

Status CheckShape(const ps::KvCall& call, const PartShape& shape) {
  const ps::Extension& about = call.extension;
  if (ShapeOf(call) == shape) return Status::Ok();
  return Status::InvalidArgument(
      DescribeCall(call) + ": it has " + DescribeArray(about.dtype, about.size_bytes) +
      " at offset " + std::to_string(about.offset_bytes) + ", the initial value of worker 0 has " +
      DescribeArray(shape.dtype, shape.size_bytes) + " at offset " +
      std::to_string(shape.offset_bytes));
}

Status CheckPullSize(const ps::KvCall& call, const PartShape& shape) {
  if (call.extension.size_bytes == shape.size_bytes) return Status::Ok();
  return Status::InvalidArgument(
      DescribeCall(call) + ": it expects " + std::to_string(call.extension.size_bytes) +
      " bytes, the partition is " + DescribeArray(shape.dtype, shape.size_bytes));
}

ps::Message MakeValuesResponse(const ps::KvCall& call, const PartShape& shape, ps::Frame values) {
  ps::Message response = ps::MakeResponse(call, std::move(values));
  response.meta.extension.offset_bytes = shape.offset_bytes;
  response.meta.extension.size_bytes = shape.size_bytes;
  response.meta.extension.dtype = shape.dtype;
  return response;
}

}  // namespace bs::server
