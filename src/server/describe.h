// Words for refusals: what a request was and what an array is, for people.
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

}  // namespace bs::server
