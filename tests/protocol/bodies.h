// The bodies of messages in tests: what they say, and how to make them say something else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "protocol/data_body.h"
#include "ps/message.h"

namespace bs::test {

inline protocol::DataRequest RequestIn(const ps::Message& message) {
  const ps::Extension& extension = message.meta.extension;
  return protocol::DecodeRequest(extension.op, extension.body).value();
}
inline protocol::DataResponse ResponseIn(const ps::Message& message) {
  const ps::Extension& extension = message.meta.extension;
  return protocol::DecodeResponse(extension.op, extension.body).value();
}
// All that a request says.
struct Asked : protocol::DataRequest {
  ps::Op op = ps::Op::kNone;
  uint64_t sequence = 0;
  uint32_t status = 0;
  std::string text{};
};
inline Asked About(const ps::Message& message) {
  const ps::Extension& extension = message.meta.extension;
  return {RequestIn(message), extension.op, extension.sequence, extension.status, extension.text};
}
inline void ChangeRequest(ps::Message* message,
                          const std::function<void(protocol::DataRequest*)>& change) {
  protocol::DataRequest body = RequestIn(*message);
  change(&body);
  message->meta.extension.body = protocol::Encode(message->meta.extension.op, body);
}
inline void ChangeResponse(ps::Message* message,
                           const std::function<void(protocol::DataResponse*)>& change) {
  protocol::DataResponse body = ResponseIn(*message);
  change(&body);
  message->meta.extension.body = protocol::Encode(message->meta.extension.op, body);
}

}  // namespace bs::test
