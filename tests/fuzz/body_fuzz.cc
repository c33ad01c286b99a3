// The parsers of bodies: whatever the bytes are, they return; what they take, they can write and
// take again.  The first byte is the op.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"
#include "membership/control_body.h"
#include "protocol/call.h"
#include "protocol/exchange_terms.h"
#include "protocol/grants.h"
#include "protocol/next_layout.h"

namespace {

template <typename T, typename EncodeFn, typename DecodeFn>
void CheckWrittenAgain(const bs::Result<T>& read, EncodeFn encode, DecodeFn decode) {
  if (!read.ok()) return;
  const ps::Body written = encode(read.value());
  const bs::Result<T> again = decode(written);
  // By bytes, since a number that is none is unlike itself.
  if (!again.ok() || !(encode(again.value()) == written)) std::abort();
}

// The texts within bodies of kReady.
void CheckGrants(std::string_view bytes) {
  namespace protocol = bs::protocol;
  const auto encode = [](const protocol::Grants& grants) {
    std::vector<std::string> operations;
    for (const protocol::GrantedOperation& operation : grants.operations) {
      operations.push_back(protocol::Encode(operation));
    }
    return ps::Body(protocol::EncodeGrants(grants.first, operations));
  };
  CheckWrittenAgain(protocol::DecodeGrants(bytes), encode, [](const ps::Body& written) {
    return protocol::DecodeGrants(written.bytes());
  });
  CheckWrittenAgain(
      protocol::DecodeReadiness(bytes),
      [](const protocol::Readiness& said) { return ps::Body(protocol::Encode(said)); },
      [](const ps::Body& written) { return protocol::DecodeReadiness(written.bytes()); });
}

// The texts within bodies of exchanges.
void CheckExchange(std::string_view bytes) {
  namespace protocol = bs::protocol;
  CheckWrittenAgain(
      protocol::DecodeTerms(bytes),
      [](const protocol::ExchangeTerms& terms) { return ps::Body(protocol::Encode(terms)); },
      [](const ps::Body& written) { return protocol::DecodeTerms(written.bytes()); });
  CheckWrittenAgain(
      protocol::DecodeTaken(bytes),
      [](const std::vector<protocol::TakenPartition>& taken) {
        return ps::Body(protocol::Encode(std::span(taken)));
      },
      [](const ps::Body& written) { return protocol::DecodeTaken(written.bytes()); });
  const auto terms = protocol::DecodeTerms(bytes);
  if (terms.ok()) static_cast<void>(protocol::Describe(terms.value()));
}

void CheckCall(ps::Op op, const ps::Body& body) {
  for (const auto parse : {bs::protocol::ParseCall, bs::protocol::ParseCallOfHost}) {
    ps::Message message;
    message.peer = ps::WorkerId(1);
    message.meta.request = true;
    message.meta.extension = {.version = ps::kExtensionVersion, .op = op, .body = body};
    const uint64_t announced =
        bs::protocol::AnnouncedBytes(message.meta.extension, bs::codec::Builtin());
    if (announced < 4096) message.data.push_back(ps::Frame::Copy(std::string(announced, 'x')));
    const auto call = parse(std::move(message), bs::codec::Builtin());
    if (call.ok() || !call.status().message().empty()) continue;
    std::abort();  // refused without a word
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto op = static_cast<ps::Op>(data[0]);
  const ps::Body body(std::string_view(reinterpret_cast<const char*>(data + 1), size - 1));
  namespace protocol = bs::protocol;
  CheckWrittenAgain(
      protocol::DecodeRequest(op, body),
      [op](const protocol::DataRequest& said) { return protocol::Encode(op, said); },
      [op](const ps::Body& written) { return protocol::DecodeRequest(op, written); });
  CheckWrittenAgain(
      protocol::DecodeResponse(op, body),
      [op](const protocol::DataResponse& said) { return protocol::Encode(op, said); },
      [op](const ps::Body& written) { return protocol::DecodeResponse(op, written); });
  CheckWrittenAgain(
      ps::DecodeMemberBody(body), [](const ps::MemberBody& said) { return ps::Encode(said); },
      ps::DecodeMemberBody);
  CheckWrittenAgain(
      ps::DecodeSchedulerBody(op, body),
      [op](const ps::SchedulerBody& said) { return ps::Encode(op, said); },
      [op](const ps::Body& written) { return ps::DecodeSchedulerBody(op, written); });
  const ps::BodyRules rules = protocol::DataBodyRules();
  static_cast<void>(rules.answers(body, rules.as_pull(body)));
  static_cast<void>(rules.describe(op, body));
  CheckCall(op, body);
  if (op == ps::Op::kReady) CheckGrants(body.bytes());
  if (op == ps::Op::kGive || op == ps::Op::kTaken) CheckExchange(body.bytes());
  const bs::protocol::Tensor tensor{.key = 7, .size_bytes = 1000};
  static_cast<void>(bs::protocol::DecodeNextLayout(body.bytes(), tensor, 2));
  return 0;
}
