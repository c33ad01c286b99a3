// Words for requests and arrays, and refusals.
#include "protocol/describe.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/count_of.h"
#include "base/types.h"
#include "codec/feedback.h"

namespace bs::protocol {

std::string DescribeArray(uint32_t dtype, uint64_t size_bytes) {
  const std::optional<DType> known = DTypeFromCode(dtype);
  const std::string name = known ? std::string(NameOf(*known)) : "dtype " + std::to_string(dtype);
  return name + " of " + CountOf(size_bytes, "byte");
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

std::string DescribeCall(const protocol::Call& call) {
  const protocol::DataRequest& about = call.request;
  const std::string key = " key=" + std::to_string(about.key);
  const std::string layout =
      about.layout_version == 0 ? "" : " of layout " + std::to_string(about.layout_version);
  const std::string place = " " + protocol::DescribeCount(about) +
                            " partition=" + std::to_string(about.partition) + layout;
  const std::string from = " from " + ps::DescribeId(call.worker_id);
  switch (call.extension.op) {
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
      return "release key=" + std::to_string(about.key) + " before layout " +
             std::to_string(about.oldest_layout) + from;
    case ps::Op::kGiveBack:
      return "give-back" + key + from;
    case ps::Op::kReady:
      return "ready number=" + std::to_string(about.ready_number) + from;
    case ps::Op::kLeave:
      return "goodbye" + from;
    case ps::Op::kGive:
      return "give" + key + " partition=" + std::to_string(about.partition) + from;
    case ps::Op::kTake:
      return "take" + key + " partition=" + std::to_string(about.partition) + from;
    case ps::Op::kTaken:
      return "taken" + from;
    case ps::Op::kQuit:
      return "quit" + key + from;
    case ps::Op::kOptimizer:
      return "optimizer " + std::to_string(about.optimizer_call) + from;
    default:
      return "operation " + std::to_string(static_cast<uint32_t>(call.extension.op)) + from;
  }
}

Status CheckArray(const protocol::Call& call, uint64_t size_bytes) {
  const protocol::DataRequest& about = call.request;
  const std::optional<DType> dtype = DTypeFromCode(about.dtype);
  if (!dtype) {
    return Status::InvalidArgument(DescribeCall(call) + ": dtype " + std::to_string(about.dtype) +
                                   " is none that a server can sum");
  }
  if (size_bytes % SizeOf(*dtype) != 0) {
    return Status::InvalidArgument(DescribeCall(call) + ": " +
                                   DescribeArray(about.dtype, size_bytes) +
                                   " is no whole number of elements");
  }
  return Status::Ok();
}

namespace {

std::string DescribeCoded(const protocol::Call& call, const codec::Table& codecs) {
  return DescribeCall(call) + ": it is " + codecs.Describe(call.request.coding);
}

// The same as CheckCoding of a coding that is known.
Status CheckGradient(const protocol::Call& call, const codec::Table& codecs) {
  const protocol::DataRequest& about = call.request;
  if (about.coding.codec == 0) return Status::Ok();
  const std::string what = DescribeCoded(call, codecs);
  if (about.dtype != static_cast<uint32_t>(DType::kFloat32) || protocol::IsInitial(about)) {
    return Status::InvalidArgument(what + ", which is for sums of float32, not for " +
                                   (protocol::IsInitial(about)
                                        ? "initial values"
                                        : DescribeArray(about.dtype, about.size_bytes)));
  }
  if (!(about.ratio >= 0 && about.ratio <= codec::kMostOfResidual)) {
    return Status::InvalidArgument(what + ", and its factor of the residual is " +
                                   std::to_string(about.ratio) + ": want a number from 0 to 2^40");
  }
  return Status::Ok();
}

}  // namespace

Status CheckCoding(const protocol::Call& call, const codec::Table& codecs) {
  const Status known = codecs.Check(call.request.coding);
  if (!known.ok()) return Status::InvalidArgument(DescribeCall(call) + ": " + known.message());
  return CheckGradient(call, codecs);
}

Status CheckPayload(const protocol::Call& call, const codec::Table& codecs) {
  const protocol::DataRequest& about = call.request;
  const Coding& coding = about.coding;
  const Status known = codecs.Check(coding);
  if (!known.ok()) return Status::InvalidArgument(DescribeCall(call) + ": " + known.message());
  const uint64_t announced_bytes = codecs.SentBytes(coding, about.size_bytes);
  if (call.payload.size() != announced_bytes) {
    return Status::InvalidArgument(DescribeCall(call) + ": " +
                                   CountOf(call.payload.size(), "byte") + " came, " +
                                   std::to_string(announced_bytes) + " were announced");
  }
  if (Status wrong = CheckGradient(call, codecs); !wrong.ok() || coding.plain()) return wrong;
  const codec::Codec& codec = codecs.Get(coding);
  if (codec.check_codes == nullptr) return Status::Ok();
  Status codes =
      codec.check_codes(coding.parameters, call.payload.bytes(), about.size_bytes / sizeof(float));
  if (codes.ok()) return codes;
  return Status::InvalidArgument(DescribeCoded(call, codecs) + ": " + codes.message());
}

PartitionShape ShapeOf(const protocol::Call& push) {
  const protocol::DataRequest& about = push.request;
  return {about.offset_bytes, about.size_bytes, about.dtype};
}

Status CheckShape(const protocol::Call& call, const PartitionShape& shape) {
  const protocol::DataRequest& about = call.request;
  if (ShapeOf(call) == shape) return Status::Ok();
  return Status::InvalidArgument(
      DescribeCall(call) + ": it has " + DescribeArray(about.dtype, about.size_bytes) +
      " at offset " + std::to_string(about.offset_bytes) + ", the initial value of worker 0 has " +
      DescribeArray(shape.dtype, shape.size_bytes) + " at offset " +
      std::to_string(shape.offset_bytes));
}

Status CheckPullSize(const protocol::Call& call, const PartitionShape& shape) {
  if (call.request.size_bytes == shape.size_bytes) return Status::Ok();
  return Status::InvalidArgument(DescribeCall(call) + ": it expects " +
                                 CountOf(call.request.size_bytes, "byte") + ", the partition is " +
                                 DescribeArray(shape.dtype, shape.size_bytes));
}

ps::Message MakeValuesResponse(const protocol::Call& call, const PartitionShape& shape,
                               ps::Frame values, std::string next_layout, const Coding& coding) {
  return protocol::MakeResponse(call,
                                {.offset_bytes = shape.offset_bytes,
                                 .size_bytes = shape.size_bytes,
                                 .dtype = shape.dtype,
                                 .coding = coding,
                                 .next_layout = std::move(next_layout)},
                                std::move(values));
}

}  // namespace bs::protocol
