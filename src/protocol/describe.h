// What a request was and what an array is: words for people, and refusals of what does not fit.
//
// Pure functions; thread-safe; never fail, never block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bytescheduler/status.h"
#include "ps/kv_server.h"

namespace bs::server {

// "float32 of 4096 bytes"; a code that is no DType of ours reads "dtype 99 of 4096 bytes".
std::string DescribeArray(uint32_t dtype, uint64_t size_bytes);
// "not compressed", "compressed to two bits with threshold 0.5".
std::string DescribeCoding(ps::Codec codec, float threshold);
// "worker 1", "workers 1, 3"; of many the first eight and how many more there are.
std::string DescribeWorkers(const std::vector<int32_t>& ranks);
// "push key=7 round=12 partition=2 from worker 1", "declare key=7 from worker 0".
std::string DescribeCall(const ps::KvCall& call);
// kInvalidArgument, naming `call`, unless `dtype` is one of ours and `size_bytes` whole elements.
Status CheckArray(const ps::KvCall& call);
// kInvalidArgument, naming `call`, unless a push has as many bytes as it announces and, if it is
// compressed, is a gradient of float32 with a threshold that makes sense.
Status CheckPayload(const ps::KvCall& call);

// Where a partition lies in its tensor and what its elements are: never changes after its first
// push.
struct PartShape {
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t dtype = 0;
  bool operator==(const PartShape&) const = default;
};
PartShape ShapeOf(const ps::KvCall& push);
// The two below: kInvalidArgument, naming `call`, unless a push has the shape of the first one, or
// a pull expects as many bytes as there are.
Status CheckShape(const ps::KvCall& call, const PartShape& shape);
Status CheckPullSize(const ps::KvCall& call, const PartShape& shape);
// The answer to a pull: `values` and their shape.
ps::Message MakeValuesResponse(const ps::KvCall& call, const PartShape& shape, ps::Frame values);

}  // namespace bs::server
