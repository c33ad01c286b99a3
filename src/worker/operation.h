// Operation: a call of Worker's that waits for its turn or is under way, and its check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/types.h"
#include "codec/codec.h"
#include "codec/coding.h"
#include "protocol/tensor.h"
#include "worker/worker.h"

namespace bs::worker {

struct Operation {
  bool is_broadcast = false;
  bool gives_back = false;          // see Worker::GiveBack
  bool for_good = false;            // likewise
  Mode mode = Mode::kSynchronous;   // of the key, as the caller believes
  DType dtype = DType::kFloat32;    // broadcast
  std::string about{};              // broadcast: description of a whole key; see WholeKey
  bool hosted = false;              // broadcast
  Priority priority = 0;            // push-pull
  Coding coding{};                  // push-pull: of the bytes sent; broadcast: of later push-pulls
  uint64_t called = 0;              // push-pull: see PushPullOptions
  bool at_once = false;             // push-pull: see PushPullOptions
  Duration waited{};                // push-pull: see PushPullOptions
  TimePoint ready{};                // push-pull: when it was called
  std::span<const std::byte> in{};  // push-pull
  std::span<std::byte> out{};       // push-pull: the sum; broadcast: the value
  double factor = 1;                // push-pull: see PushPullOptions
  bool is_value = false;            // push-pull of Worker::BroadcastFrom: no gradient
  PushRates rates{};                // push-pull
  Worker::Done pushed{};            // push-pull; empty: only pull (asynchronous keys)
  // push-pull: the sum is there; empty: only push.  Broadcast, give-back: done.
  Worker::Done pulled{};
};

// The state of a worker that an operation must fit.
struct CheckedWith {
  const protocol::Tensor* tensor = nullptr;  // the key's; null: the key was not declared
  uint64_t partition_bytes = 0;              // of keys that are declared now
  const codec::Table* codecs = nullptr;
};

// True if the tensor's partitions are whole units of the coding's codec.  REQUIRES: it is known.
bool IsWhole(const protocol::Tensor& tensor, const Coding& coding, const codec::Table& codecs);

// Errors name the key: kInvalidArgument, kFailedPrecondition, kAlreadyExists.  Pure.
Status CheckOperation(Key key, const Operation& operation, const CheckedWith& with);

}  // namespace bs::worker
