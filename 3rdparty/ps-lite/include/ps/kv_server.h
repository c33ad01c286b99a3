// KvServer: takes requests apart and answers them.
//
// Stateless but for its options; thread-safe.  The owner hands it messages from any thread and may
// answer from any other.
#pragma once

#include <functional>

#include "bytescheduler/status.h"
#include "ps/message.h"

namespace ps {

// What a native request asks, checked: fields that its op needs are there and consistent with the
// payload.
struct KvCall {
  int32_t worker_id = kEmpty;  // of the sender
  int32_t worker_rank = 0;
  int32_t customer_id = 0;
  int32_t timestamp = 0;
  int32_t priority = 0;
  Extension extension;
  Frame payload;
};

// How many bytes the data frames of a request may have together, by what else it says: a native one
// has the payload that its fields tell, or little.
uint64_t MostRequestBytes(const Meta& meta);
// kInvalidArgument, naming the sender and the field, for requests that make no sense.
bs::Result<KvCall> ParseCall(Message message);

// The response to `call`: same op, sequence, key, round, part, job, customer and time stamp; to be
// filled in and sent.  `payload` may be empty.
Message MakeResponse(const KvCall& call, Frame payload);
Message MakeErrorResponse(const KvCall& call, const bs::Status& status);
// Not final: the request is alive and waits for `whom`.
Message MakePendingResponse(const KvCall& call, const std::string& whom);
// Not final either: because of `why` the request was not taken; its repeat may be.
Message MakeBusyResponse(const KvCall& call, const std::string& why);

// The answer to a stock command (SimpleApp): head, customer and time stamp echoed.
Message MakeCommandResponse(const Message& request, const std::string& body);
// A stock worker can not be told that the job has failed, and would wait for ever.  This ends its
// process, whatever it waits for: it says that it answers a pull, and brings no values.
Message MakeStockEnd(int32_t worker_id);
// Goes before it: an acknowledgement of nothing, with `why`.  A stock node drops it with a warning
// on stderr that has the text in it; one with PS_RESEND=1 is silent.
Message MakeStockWord(int32_t id, const std::string& why);

}  // namespace ps
