// KvServer: checks of native requests, and their answers.
#include "ps/kv_server.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "wire/control.h"
#include "wire/wire.h"

namespace ps {
namespace {

constexpr uint64_t kMaxTensorBytes = std::numeric_limits<int64_t>::max();
constexpr uint64_t kServerNumberBytes = 2;  // of each partition in a declaration
// Servers take pickles of half of it.
constexpr uint64_t kMaxOptimizerPayloadBytes = uint64_t{32} << 20U;

bs::Status Wrong(const Message& message, const std::string& what) {
  return bs::Status::InvalidArgument(DescribeSender(message.peer) + ": key=" +
                                     std::to_string(message.meta.extension.key) + ": " + what);
}

bs::Status CheckSender(const Message& message) {
  if (!IdFitsRole(message.peer, Role::kWorker)) return Wrong(message, "the sender is no worker");
  const Meta& meta = message.meta;
  if (meta.extension.version != kExtensionVersion) {
    return Wrong(message, "version=" + std::to_string(meta.extension.version) + ", want " +
                              std::to_string(kExtensionVersion));
  }
  if (meta.is_control || !meta.request) return Wrong(message, "request=0: no request");
  if (message.data.size() > 1) {
    return Wrong(message, std::to_string(message.data.size()) + " data frames, want at most 1");
  }
  return bs::Status::Ok();
}

// REQUIRES: part_bytes is not 0.
uint64_t NumPartitions(const Extension& said) {
  return said.size_bytes / said.part_bytes + (said.size_bytes % said.part_bytes != 0 ? 1 : 0);
}

bs::Status CheckDeclare(const Message& message, uint64_t payload_bytes) {
  const Extension& said = message.meta.extension;
  if (said.part_bytes == 0) return Wrong(message, "declare: part_bytes=0");
  const uint64_t partitions = NumPartitions(said);
  // An empty tensor may be declared as no partition or as an empty one.
  const bool fits = payload_bytes % kServerNumberBytes == 0 &&
                    (payload_bytes / kServerNumberBytes == partitions ||
                     (partitions == 0 && payload_bytes == kServerNumberBytes));
  if (fits) return bs::Status::Ok();
  return Wrong(message, "declare: the payload has " + std::to_string(payload_bytes) +
                            " bytes for " + std::to_string(partitions) + " partitions");
}

bs::Status CheckPush(const Message& message, uint64_t payload_bytes) {
  const Extension& said = message.meta.extension;
  if (said.codec != Codec::kNone && said.codec != Codec::kTwoBit) {
    return Wrong(message, "push: codec=" + std::to_string(static_cast<uint32_t>(said.codec)) +
                              " is none that a server can read");
  }
  const bool coded = said.codec == Codec::kTwoBit;
  if (coded && !(std::isfinite(said.threshold) && said.threshold > 0)) {
    return Wrong(message, "push: threshold=" + std::to_string(said.threshold) +
                              ", want a finite number greater than 0");
  }
  if (payload_bytes == PayloadBytes(said.codec, said.size_bytes)) return bs::Status::Ok();
  return Wrong(message, "push: size_bytes=" + std::to_string(said.size_bytes) +
                            (coded ? " in two bits an element" : "") + " but the payload has " +
                            std::to_string(payload_bytes) + " bytes");
}

bs::Status CheckPayload(const Message& message) {
  const Extension& said = message.meta.extension;
  const uint64_t payload_bytes = message.data.empty() ? 0 : message.data.front().size();
  if (said.size_bytes > kMaxTensorBytes || said.offset_bytes > kMaxTensorBytes - said.size_bytes) {
    return Wrong(message, "size_bytes=" + std::to_string(said.size_bytes) + " at offset_bytes=" +
                              std::to_string(said.offset_bytes) + " is too large");
  }
  switch (said.op) {
    case Op::kDeclare:
      return CheckDeclare(message, payload_bytes);
    case Op::kPush:
    case Op::kPushPull:
      return CheckPush(message, payload_bytes);
    case Op::kOptimizer:
      return bs::Status::Ok();
    case Op::kLookup:
    case Op::kPull:
    case Op::kRelease:
      if (payload_bytes == 0) return bs::Status::Ok();
      return Wrong(message,
                   "a payload of " + std::to_string(payload_bytes) + " bytes where none belongs");
    default:
      return Wrong(message,
                   "op=" + std::to_string(static_cast<uint32_t>(said.op)) + " is no request");
  }
}

// The payload of a request whose fields are believed.
uint64_t SaidBytes(const Extension& said) {
  switch (said.op) {
    case Op::kDeclare:
      if (said.part_bytes == 0) return 0;
      return std::min(NumPartitions(said), kMaxFrameBytes) * kServerNumberBytes;
    case Op::kPush:
    case Op::kPushPull:
      return PayloadBytes(said.codec, said.size_bytes);
    case Op::kOptimizer:
      return kMaxOptimizerPayloadBytes;
    default:
      return 0;
  }
}

}  // namespace

uint64_t MostRequestBytes(const Meta& meta) {
  if (meta.is_control) return kMaxStrangerBytes;
  if (!meta.native()) return kMaxMessageBytes;
  // With some room, so that what is wrong by little can be refused by an answer.
  return std::min(std::max(SaidBytes(meta.extension), kMaxStrangerBytes), kMaxFrameBytes);
}

bs::Result<KvCall> ParseCall(Message message) {
  if (const bs::Status check = CheckSender(message); !check.ok()) return check;
  if (const bs::Status check = CheckPayload(message); !check.ok()) return check;
  KvCall call;
  call.worker_id = message.peer;
  call.worker_rank = RankOf(message.peer);
  call.customer_id = message.meta.customer_id;
  call.timestamp = message.meta.timestamp;
  call.priority = message.meta.priority;
  call.extension = std::move(message.meta.extension);
  if (!message.data.empty()) call.payload = std::move(message.data.front());
  return call;
}

Message MakeResponse(const KvCall& call, Frame payload) {
  Message response;
  response.peer = call.worker_id;
  Meta& meta = response.meta;
  meta.head = 0;
  SetDirections(call.extension.op, &meta);
  meta.app_id = 0;
  meta.customer_id = call.customer_id;
  meta.timestamp = call.timestamp;
  meta.priority = call.priority;
  meta.extension.version = kExtensionVersion;
  meta.extension.op = call.extension.op;
  meta.extension.sequence = call.extension.sequence;
  meta.extension.key = call.extension.key;
  meta.extension.round = call.extension.round;
  meta.extension.part = call.extension.part;
  meta.extension.job = call.extension.job;
  meta.extension.size_bytes = payload.size();
  if (payload.size() > 0) response.data.push_back(std::move(payload));
  return response;
}

Message MakeErrorResponse(const KvCall& call, const bs::Status& status) {
  Message response = MakeResponse(call, Frame());
  SetStatus(status, &response.meta.extension);
  return response;
}

Message MakePendingResponse(const KvCall& call, const std::string& whom) {
  Message response = MakeResponse(call, Frame());
  response.meta.extension.op = Op::kPending;
  response.meta.extension.text = whom;
  return response;
}

Message MakeBusyResponse(const KvCall& call, const std::string& why) {
  Message response = MakePendingResponse(call, "");
  SetStatus(bs::Status::ResourceExhausted("the server: " + why), &response.meta.extension);
  return response;
}

Message MakeCommandResponse(const Message& request, const std::string& body) {
  Message response;
  response.peer = request.peer;
  Meta& meta = response.meta;
  meta.head = request.meta.head;
  meta.body = body;
  meta.simple_app = true;
  meta.app_id = request.meta.app_id;
  meta.customer_id = request.meta.customer_id;
  meta.timestamp = request.meta.timestamp;
  return response;
}

Message MakeStockEnd(int32_t worker_id) {
  Message end;
  end.peer = worker_id;
  end.meta.head = 0;
  end.meta.pull = true;
  end.meta.app_id = 0;
  // None that an answer had before, or a node with PS_RESEND=1 would take it for a repeat.
  end.meta.timestamp = 1 << 29;
  end.meta.customer_id = 0;  // there is always one of this number
  return end;
}

Message MakeStockWord(int32_t id, const std::string& why) {
  Message word;
  word.peer = id;
  word.meta.is_control = true;
  word.meta.control.command = Command::kAck;
  word.meta.body = "bytescheduler: " + why;
  return word;
}

}  // namespace ps
