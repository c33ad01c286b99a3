// Requests as workers make them, answers as the server gave them, arrays of small whole numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "protocol/call.h"
#include "ps/message.h"

namespace bs::server {

inline constexpr DType kAllDTypes[] = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                       DType::kBfloat16, DType::kUint8,   DType::kInt8,
                                       DType::kInt32,    DType::kInt64};

// `values` as an array of `dtype`.  REQUIRES: whole numbers from 0 to 127.
std::vector<std::byte> Encode(DType dtype, const std::vector<int>& values);
// Float32 arrays, any values.
std::vector<std::byte> Floats(const std::vector<float>& values);
std::vector<float> ToFloats(std::span<const std::byte> bytes);
std::vector<std::byte> ToBytes(const ps::Frame& frame);

// What to ask; everything that is not set is 0.
struct Ask {
  ps::Op op = ps::Op::kNone;
  int32_t rank = 0;
  uint64_t key = 7;
  uint64_t round = 0;
  uint32_t partition = 0;
  uint64_t size_bytes = 0;  // of a push that is not coded: that of the payload
  uint64_t sequence = 0;    // 0: the next unused one
  int32_t priority = 0;
  DType dtype = DType::kFloat32;
  Mode mode = Mode::kSynchronous;
  std::vector<std::byte> payload = {};
  Coding coding = {};
  float ratio = 1;
  uint32_t layout_version = 0;
  std::string next = {};
  bool given_back = false;
  uint32_t stands_for = 0;
};
Ask Push(int32_t rank, uint64_t round, std::vector<std::byte> payload);
// `words` are the codes of `count` elements.
Ask PushTwoBit(int32_t rank, uint64_t round, float threshold, uint64_t count,
               std::vector<std::byte> words);
Ask Pull(int32_t rank, uint64_t round, uint64_t size_bytes);
Ask PushPull(int32_t rank, uint64_t round, std::vector<std::byte> payload);

// As it comes from the network.
ps::Message MakeRequest(const Ask& ask);
// As it comes from ParseCall.
protocol::Call MakeCall(const Ask& ask);

// Everything that was sent, in order.  Not thread-safe.
class Outbox {
 public:
  std::function<void(ps::Message)> sender();
  size_t size() const { return sent_.size(); }
  bool empty() const { return sent_.empty(); }
  // The oldest message, removed; fails the test if there is none.
  ps::Message Next();
  std::vector<ps::Message> All();

 private:
  std::vector<ps::Message> sent_;
};

StatusCode CodeOf(const ps::Message& response);
const std::string& TextOf(const ps::Message& response);
ps::Op OpOf(const ps::Message& response);
int32_t RankOf(const ps::Message& response);

}  // namespace bs::server
