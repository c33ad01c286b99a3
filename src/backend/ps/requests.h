// A worker's requests to servers, and how it reads the responses.
//
// Not thread-safe: on the worker's executor, like every callback, which never runs inside the call.
// Nothing that is answered is trusted: what does not fit what was asked is kInternal.  Failures
// name key, round, partition and server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/ps/link_rate.h"
#include "base/unique_function.h"
#include "bytescheduler/coding.h"
#include "bytescheduler/core.h"
#include "bytescheduler/status.h"
#include "bytescheduler/types.h"
#include "codec/codec.h"
#include "protocol/tensor.h"
#include "ps/kv_worker.h"
#include "trace/spans.h"

namespace bs::worker {

// "key=7: 96 bytes of float32 in 3 partitions; server 0 has 2, server 1 has 1".
std::string DescribePlacement(const Tensor& tensor);

// The state that the operations of one worker share.
struct Link {
  int32_t rank = 0;
  uint32_t num_servers = 1;
  bool again = false;                // this worker has taken the place of one that was lost
  bool credit_until_pulled = false;  // WorkerOptions::test_credit_until_pulled
  uint64_t together_bytes = 0;       // WorkerOptions::together_bytes
  ps::KvWorker* requests = nullptr;  // not owned
  Core* core = nullptr;              // not owned
  const codec::Table* codecs = &codec::Builtin();  // not owned
  Spans spans{};
  LinkRate* rate = nullptr;  // not owned; null: nobody measures it
  // Fails the worker for good; requests and tasks are failing when it returns.  Returns why: the
  // first failure stays the worker's.
  std::function<Status(const Status&)> fail;
};

using Answered = UniqueFunction<void(const Status&)>;

// A partition of one round, as it goes to its server.
struct Piece {
  Round round = 0;
  Partition partition;
  Priority priority = 0;
  PushRates rates{};  // of a push to an asynchronous key
  // In a push: the layout of the key from the next round on (next_layout.h).  Empty: no change.
  std::string next{};
};

// Tells the home server of `tensor` about it.  `tensor` is not used after the call.
void Declare(const Link& link, const Tensor& tensor, Answered done);
// Asks the home server of `key` for its cut; waits there until rank 0 has declared it.
// kInvalidArgument if it was declared with another size, dtype or mode.
// Of `asked` only key, dtype, mode and size are used, before the call returns.
void Lookup(const Link& link, const Tensor& asked, UniqueFunction<void(Result<Tensor>)> done);
// Tells every server with which optimizer to update asynchronous keys; `number` counts the calls of
// this worker.  kInvalidArgument if a server refuses it.
struct OptimizerText {
  std::string text;
  std::string pickle;  // may be empty
};
void SetOptimizer(const Link& link, OptimizerText optimizer, uint64_t number, Answered done);
// `bytes` are the partition's; they must stay valid and unchanged until `done`.
void Push(const Link& link, const Tensor& tensor, const Piece& piece,
          std::span<const std::byte> bytes, Answered done);
// Sends through a residual, float32 for each element, which keeps what the codes cannot say
// (codec/codec.h).
struct Coder {
  Coding coding{};              // plain: not coded
  std::span<float> residual{};  // the key's, or the partition's part of it
};
// The same as Push, coded.  The codes are made inside the call and kept until `done`, so a repeat
// sends the same ones.  `bytes` are not used after the call.
void PushCoded(const Link& link, const Tensor& tensor, const Piece& piece,
               std::span<const std::byte> bytes, const Coder& coder, Answered done);
// `next`: what the push of rank 0 said, of this partition and round; empty after an error.
using Pulled = UniqueFunction<void(const Status&, const std::string& next)>;
// Push and Pull of a synchronous key in one request.  `in` must stay as it is until `done`, which
// comes after `left`.
struct BothWays {
  std::span<const std::byte> in;  // the partition's, like `out`
  std::span<std::byte> out;
  UniqueFunction<void()> left;  // runs once, when the first copy of `in` is on its way
};
void PushPull(const Link& link, const Tensor& tensor, const Piece& piece, BothWays ways,
              Pulled done);
// Writes the sum into `bytes`, the partition's, before `done` with ok; what is in them after an
// error is not said.
void Pull(const Link& link, const Tensor& tensor, const Piece& piece, std::span<std::byte> bytes,
          Pulled done);
// Tells the servers that had partitions of `retired` that nobody asks for them any more.  `done`
// gets the first refusal.  `retired` is not used after the call.
void Release(const Link& link, const Tensor& retired, Answered done);

}  // namespace bs::worker
