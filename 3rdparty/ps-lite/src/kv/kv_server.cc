// KvServer: takes native requests out of their messages, and makes their answers.
#include "ps/kv_server.h"

#include <string>
#include <utility>

#include "wire/control.h"

namespace ps {
namespace {

bs::Status Wrong(const Message& message, const std::string& what) {
  return bs::Status::InvalidArgument(DescribeSender(message.peer) + ": " + what);
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

}  // namespace

bs::Result<KvCall> ParseCall(Message message) {
  if (const bs::Status check = CheckSender(message); !check.ok()) return check;
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

Message MakeResponse(const KvCall& call, Body body, Frame payload) {
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
  meta.extension.incarnation = call.extension.incarnation;
  meta.extension.job = call.extension.job;
  meta.extension.body = std::move(body);
  if (payload.size() > 0) response.data.push_back(std::move(payload));
  return response;
}

Message MakeErrorResponse(const KvCall& call, Body body, const bs::Status& status) {
  Message response = MakeResponse(call, std::move(body), Frame());
  SetStatus(status, &response.meta.extension);
  return response;
}

Message MakePendingResponse(const KvCall& call, Body body, const std::string& awaited) {
  Message response = MakeResponse(call, std::move(body), Frame());
  response.meta.extension.op = Op::kPending;
  response.meta.extension.text = awaited;
  return response;
}

Message MakeBusyResponse(const KvCall& call, Body body, const std::string& why) {
  Message response = MakePendingResponse(call, std::move(body), "");
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
  end.meta.customer_id = 0;  // there is always a customer of this number
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
