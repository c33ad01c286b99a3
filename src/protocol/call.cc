// Checks of native requests, and the bodies of their responses.
#include "protocol/call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/count_of.h"
#include "wire/control.h"
#include "wire/wire.h"

namespace bs::protocol {
namespace {

constexpr uint64_t kMaxTensorBytes = std::numeric_limits<int64_t>::max();
constexpr uint64_t kServerNumberBytes = 2;  // of each partition in a declaration
// Servers take pickles of half of it.
constexpr uint64_t kMaxOptimizerPayloadBytes = uint64_t{32} << 20U;

Status Wrong(const Call& call, const std::string& what) {
  return Status::InvalidArgument(ps::DescribeSender(call.worker_id) +
                                 ": key=" + std::to_string(call.request.key) + ": " + what);
}

// REQUIRES: partition_bytes is not 0.
uint64_t NumPartitions(const DataRequest& said) {
  return said.tensor_bytes / said.partition_bytes +
         (said.tensor_bytes % said.partition_bytes != 0 ? 1 : 0);
}

Status CheckDeclare(const Call& call) {
  const DataRequest& said = call.request;
  if (said.partition_bytes == 0) return Wrong(call, "declare: partition_bytes=0");
  const uint64_t payload_bytes = call.payload.size();
  const uint64_t partitions = NumPartitions(said);
  // An empty tensor may be declared as no partition or as an empty partition.
  const bool fits = payload_bytes % kServerNumberBytes == 0 &&
                    (payload_bytes / kServerNumberBytes == partitions ||
                     (partitions == 0 && payload_bytes == kServerNumberBytes));
  if (fits) return Status::Ok();
  return Wrong(call, "declare: the payload has " + CountOf(payload_bytes, "byte") + " for " +
                         CountOf(partitions, "partition"));
}

// The payload of a push: within a host nothing is coded.
enum class Payload : uint8_t { kCoded, kPlain };

Status CheckPush(const Call& call, const codec::Table& codecs, Payload payload) {
  const DataRequest& said = call.request;
  if (const Status wrong = codecs.Check(said.coding); !wrong.ok()) {
    return Wrong(call, "push: " + wrong.message());
  }
  const Coding coding = payload == Payload::kCoded ? said.coding : Coding{};
  if (call.payload.size() == codecs.SentBytes(coding, said.size_bytes)) return Status::Ok();
  return Wrong(call, "push: size_bytes=" + std::to_string(said.size_bytes) +
                         (coding.plain() ? "" : ", " + codecs.Describe(coding) + ",") +
                         " but the payload has " + CountOf(call.payload.size(), "byte"));
}

Status CheckFields(const Call& call, const codec::Table& codecs, Payload payload) {
  const DataRequest& said = call.request;
  if (said.size_bytes > kMaxTensorBytes || said.offset_bytes > kMaxTensorBytes - said.size_bytes) {
    return Wrong(call, "size_bytes=" + std::to_string(said.size_bytes) + " at offset_bytes=" +
                           std::to_string(said.offset_bytes) + " is too large");
  }
  if (said.tensor_bytes > kMaxTensorBytes) {
    return Wrong(call, "tensor_bytes=" + std::to_string(said.tensor_bytes) + " is too large");
  }
  const ps::Op op = call.extension.op;
  switch (op) {
    case ps::Op::kDeclare:
      return CheckDeclare(call);
    case ps::Op::kPush:
    case ps::Op::kPushPull:
    case ps::Op::kGive:
      return CheckPush(call, codecs, payload);
    case ps::Op::kOptimizer:
      return Status::Ok();
    case ps::Op::kTake:
      return call.payload.size() == 0 ? Status::Ok() : CheckPush(call, codecs, payload);
    case ps::Op::kTaken:
    case ps::Op::kQuit:
    case ps::Op::kLookup:
    case ps::Op::kPull:
    case ps::Op::kRelease:
    case ps::Op::kGiveBack:
    case ps::Op::kReady:
    case ps::Op::kLeave:
      if (call.payload.size() == 0) return Status::Ok();
      return Wrong(call,
                   "a payload of " + CountOf(call.payload.size(), "byte") + " where none belongs");
    default:
      return Wrong(call, "op=" + std::to_string(static_cast<uint32_t>(op)) + " is no request");
  }
}

ps::Body BodyOf(const Call& call) {
  return Encode(call.extension.op,
                DataResponse{.identity = IdentityOf(call.extension.op, call.request)});
}

Result<Call> Parse(ps::Message message, const codec::Table& codecs, Payload payload) {
  Result<ps::KvCall> taken = ps::ParseCall(std::move(message));
  if (!taken.ok()) return taken.status();
  Call call{std::move(taken.value())};
  Result<DataRequest> said = DecodeRequest(call.extension.op, call.extension.body);
  if (!said.ok()) return Wrong(call, said.status().message());
  call.request = std::move(said.value());
  call.extension.body = {};
  if (const Status wrong = CheckFields(call, codecs, payload); !wrong.ok()) return wrong;
  return call;
}

}  // namespace

Result<Call> ParseCall(ps::Message message, const codec::Table& codecs) {
  return Parse(std::move(message), codecs, Payload::kCoded);
}

Result<Call> ParseCallOfHost(ps::Message message, const codec::Table& codecs) {
  return Parse(std::move(message), codecs, Payload::kPlain);
}

Call Unchecked(ps::KvCall call) {
  Call unchecked{std::move(call)};
  const ps::Extension& extension = unchecked.extension;
  Result<DataRequest> said = DecodeRequest(extension.op, extension.body);
  if (said.ok()) unchecked.request = std::move(said.value());
  return unchecked;
}

uint64_t AnnouncedBytes(const ps::Extension& request, const codec::Table& codecs) {
  const Result<DataRequest> read = DecodeRequest(request.op, request.body);
  if (!read.ok()) return 0;
  const DataRequest& said = read.value();
  switch (request.op) {
    case ps::Op::kDeclare:
      if (said.partition_bytes == 0) return 0;
      return std::min(NumPartitions(said), ps::kMaxFrameBytes) * kServerNumberBytes;
    case ps::Op::kPush:
    case ps::Op::kPushPull:
    case ps::Op::kGive:
    case ps::Op::kTake:
      if (!codecs.Check(said.coding).ok()) return said.size_bytes;
      return codecs.SentBytes(said.coding, said.size_bytes);
    case ps::Op::kOptimizer:
      return kMaxOptimizerPayloadBytes;
    default:
      return 0;
  }
}

ps::Message MakeResponse(const Call& call, ps::Frame payload) {
  const DataResponse body{.size_bytes = payload.size()};
  return MakeResponse(call, body, std::move(payload));
}

ps::Message MakeResponse(const Call& call, DataResponse body, ps::Frame payload) {
  body.identity = IdentityOf(call.extension.op, call.request);
  return ps::MakeResponse(call, Encode(call.extension.op, body), std::move(payload));
}

ps::Message MakeErrorResponse(const Call& call, const Status& status) {
  return ps::MakeErrorResponse(call, BodyOf(call), status);
}

ps::Message MakePendingResponse(const Call& call, const std::string& awaited) {
  return ps::MakePendingResponse(call, BodyOf(call), awaited);
}

ps::Message MakeBusyResponse(const Call& call, const std::string& why) {
  return ps::MakeBusyResponse(call, BodyOf(call), why);
}

}  // namespace bs::protocol
