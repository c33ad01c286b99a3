// Call: a native request as a server handles it, and the responses to it.
//
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "codec/codec.h"
#include "protocol/data_body.h"
#include "ps/kv_server.h"

namespace bs::protocol {

// A request with its decoded body.
struct Call : ps::KvCall {
  DataRequest request{};
};

// kInvalidArgument, naming the sender and the field, for requests that make no sense: fields that
// the op needs are there, and fit the payload.
Result<Call> ParseCall(ps::Message message, const codec::Table& codecs);
// The same between workers of a host, whose payloads are as they lie in memory.  Their coding is
// that of the host's sum on its way to the server.
Result<Call> ParseCallOfHost(ps::Message message, const codec::Table& codecs);
// For the refusal of a request that was not parsed: its body may say nothing.
Call Unchecked(ps::KvCall call);

// How many bytes the payload of a request has, as its body says.
uint64_t AnnouncedBytes(const ps::Extension& request, const codec::Table& codecs);

// The response to `call`; to be filled in and sent.  `payload` may be empty.
ps::Message MakeResponse(const Call& call, ps::Frame payload);
// The same with `body`, whose identity is filled in.
ps::Message MakeResponse(const Call& call, DataResponse body, ps::Frame payload);
ps::Message MakeErrorResponse(const Call& call, const Status& status);
// Not final: the request is alive and waits for the workers that `awaited` names.
ps::Message MakePendingResponse(const Call& call, const std::string& awaited);
// Not final either: because of `why` the request was not taken; its repeat may be.
ps::Message MakeBusyResponse(const Call& call, const std::string& why);

}  // namespace bs::protocol
