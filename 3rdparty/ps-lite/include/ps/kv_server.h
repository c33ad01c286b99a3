// KvServer: takes requests apart and answers them.
//
// Stateless but for its options; thread-safe.  The owner hands it messages from any thread and may
// answer from any other.
#pragma once

#include <functional>

#include "base/status.h"
#include "ps/message.h"

namespace ps {

// A native request without its payload's meaning: the caller above reads the body.
struct KvCall {
  int32_t worker_id = kEmpty;  // of the sender
  int32_t worker_rank = 0;
  int32_t customer_id = 0;
  int32_t timestamp = 0;
  int32_t priority = 0;
  Extension extension;
  Frame payload;
};

// Takes a request out of its message.  kInvalidArgument, with the fault: the sender is no worker,
// the version is another, it is no request, or has more than one data frame.
bs::Result<KvCall> ParseCall(Message message);

// The response to `call`, with `body`: same op, sequence, incarnation, job, customer and time
// stamp; to be filled in and sent.  `payload` may be empty.
Message MakeResponse(const KvCall& call, Body body, Frame payload);
Message MakeErrorResponse(const KvCall& call, Body body, const bs::Status& status);
// Not final: the request is alive and waits for the nodes that `awaited` names.
Message MakePendingResponse(const KvCall& call, Body body, const std::string& awaited);
// Not final either: because of `why` the request was not taken; its repeat may be.
Message MakeBusyResponse(const KvCall& call, Body body, const std::string& why);

// The answer to a stock command (SimpleApp): head, customer and time stamp echoed.
Message MakeCommandResponse(const Message& request, const std::string& body);
// A stock worker can not be told that the job has failed, and would wait for ever.  This ends its
// process, whatever it waits for: it says that it answers a pull, and brings no values.
Message MakeStockEnd(int32_t worker_id);
// Goes before it: an acknowledgement of nothing, with `why`.  A stock node drops it with a warning
// on stderr that has the text in it; a node with PS_RESEND=1 is silent.
Message MakeStockWord(int32_t id, const std::string& why);

}  // namespace ps
