// Words for requests and arrays, for people, and refusals of requests that do not fit.
//
// Pure functions; thread-safe; never fail, never block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "protocol/call.h"

namespace bs::protocol {

// "float32 of 4096 bytes"; a code that is no DType of ours reads "dtype 99 of 4096 bytes".
std::string DescribeArray(uint32_t dtype, uint64_t size_bytes);
// "worker 1", "workers 1, 3"; of many the first eight and how many more there are.
std::string DescribeWorkers(const std::vector<int32_t>& ranks);
// "push key=7 round=12 partition=2 from worker 1", "declare key=7 from worker 0".
std::string DescribeCall(const protocol::Call& call);
// kInvalidArgument, naming `call`, unless `dtype` is known and `size_bytes` whole elements.
Status CheckArray(const protocol::Call& call, uint64_t size_bytes);
// kInvalidArgument, naming `call`, unless its coding makes sense, for a gradient of float32.
Status CheckCoding(const protocol::Call& call, const codec::Table& codecs);
// kInvalidArgument, naming `call`, unless a push has as many bytes as it announces.  A compressed
// push must also be a gradient of float32 in a coding that makes sense.
Status CheckPayload(const protocol::Call& call, const codec::Table& codecs);

// The place of a partition in its tensor and the type of its elements: they never change after its
// first push.
struct PartitionShape {
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t dtype = 0;
  bool operator==(const PartitionShape&) const = default;
};
PartitionShape ShapeOf(const protocol::Call& push);
// The two below: kInvalidArgument, naming `call`, unless a push has the shape of the first push, or
// a pull expects as many bytes as there are.
Status CheckShape(const protocol::Call& call, const PartitionShape& shape);
Status CheckPullSize(const protocol::Call& call, const PartitionShape& shape);
// The answer to a pull: `values` in `coding`, their shape, and the announced layout of the rounds
// behind.
ps::Message MakeValuesResponse(const protocol::Call& call, const PartitionShape& shape,
                               ps::Frame values, std::string next_layout = {},
                               const Coding& coding = {});

}  // namespace bs::protocol
