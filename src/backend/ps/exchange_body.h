// ExchangeBody: the bodies of requests for a partition, and the sums in their responses.
//
// Pure functions but for TakeSum, which writes the sum.
#pragma once

#include <span>
#include <string>

#include "backend/backend.h"
#include "base/status.h"
#include "protocol/data_body.h"
#include "protocol/tensor.h"
#include "ps/message.h"

namespace bs::backend {

// The fields that a push and a pull of the partition have.
protocol::DataRequest BodyOf(const protocol::Tensor& tensor, const Exchange& exchange);
// Empty if the message has no data.
std::span<const std::byte> PayloadOf(const ps::Message& message);

// A pull under way.
struct PullOf {
  Key key;
  Round round;
  Partition partition;
  std::span<std::byte> out;
  ps::Role role;  // of the node that answers
  uint32_t rank;  // the same
  Coding sum_coding{};
  const codec::Codec* sum_codec = nullptr;  // null: the sum comes as it lies in memory
  uint32_t num_workers = 1;                 // in use with sum_codec, as is the next
  uint64_t job = 0;                         // the job's number

  // "pull key=7 round=12 partition=2 to server 1: answered WHAT".
  Status Wrong(const std::string& what) const;
};

PullOf MakePull(const protocol::Tensor& tensor, const Exchange& exchange);

// Bytes of the sum as it travels.
uint64_t SumBytes(const PullOf& pull);
// Writes the sum in a response where it belongs, decoded.  Returns the next layout.
Result<std::string> TakeSum(const PullOf& pull, const ps::Message& response);

}  // namespace bs::backend
