// Takes the data requests of stock MXNet workers apart, and makes their answers.
#include "server/stock/stock_request.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/count_of.h"
#include "codec/two_bit.h"

namespace bs::server {
namespace {

// Element types as ps-lite writes them: keys, values (chars), lengths.
constexpr int32_t kKeysType = 8;
constexpr int32_t kValuesType = 11;
constexpr int32_t kLengthsType = 3;

uint64_t KeyAt(const ps::Frame& keys, size_t i) {
  uint64_t key = 0;
  std::memcpy(&key, keys.bytes().data() + i * sizeof(key), sizeof(key));
  return key;
}

Status Wrong(const ps::Message& message, const std::string& what) {
  return Status::InvalidArgument("a request of " + ps::DescribeId(message.peer) +
                                 " makes no sense: " + what);
}

// MXNet pairs layout and dtype as Cantor did: head = (l + d)(l + d + 1) / 2 + d.
bool SplitHead(int32_t head, StockLayout* layout, uint32_t* dtype) {
  constexpr int32_t kMostHead = 1 << 20;
  if (head < 0 || head > kMostHead) return false;
  const auto z = static_cast<uint32_t>(head);
  auto w = static_cast<uint32_t>((std::sqrt(8.0 * z + 1) - 1) / 2);
  while (w * (w + 1) / 2 > z) --w;
  *dtype = z - w * (w + 1) / 2;
  const uint32_t l = w - *dtype;
  if (l > static_cast<uint32_t>(StockLayout::kTwoBit)) return false;
  *layout = static_cast<StockLayout>(l);
  return true;
}

Status CheckFrames(const ps::Message& message) {
  const size_t frames = message.data.size();
  if (frames < 2 || frames > 3) {
    return Wrong(message, std::to_string(frames) + " data frames, want 2 or 3");
  }
  const size_t key_bytes = message.data[0].size();
  if (key_bytes == 0 || key_bytes % sizeof(uint64_t) != 0) {
    return Wrong(message, CountOf(key_bytes, "byte") + " of keys");
  }
  const size_t num_keys = key_bytes / sizeof(uint64_t);
  if (frames == 3 && message.data[2].size() != num_keys * sizeof(int32_t)) {
    return Wrong(message, CountOf(message.data[2].size(), "byte") + " of lengths for " +
                              CountOf(num_keys, "key"));
  }
  return Status::Ok();
}

// Which key it is about, and how many of them it has.
Status TakeKeys(const ps::Message& message, const StockRange& range, StockCall* call) {
  const size_t num_keys = call->keys.size() / sizeof(uint64_t);
  const bool coded = call->layout == StockLayout::kTwoBit && call->push;
  const size_t wanted = coded ? 2 : 1;
  if (call->layout != StockLayout::kRows && num_keys != wanted) {
    return Wrong(message, CountOf(num_keys, "key") + " where there is " + std::to_string(wanted));
  }
  const uint64_t key = KeyAt(call->keys, coded ? 1 : 0);
  if (key < range.begin || key >= range.end) {
    return Wrong(message,
                 "key " + std::to_string(key) + " is another server's, here they are at least " +
                     std::to_string(range.begin) + " and less than " + std::to_string(range.end));
  }
  call->key = key - range.begin;
  if (!coded) return Status::Ok();
  call->num_coded = KeyAt(call->keys, 0) - range.begin;
  constexpr uint64_t kMostCoded = uint64_t{1} << 40U;
  if (call->num_coded > kMostCoded || call->values.size() != codec::TwoBitBytes(call->num_coded)) {
    return Wrong(message, DescribeStockCall(*call) + ": " + CountOf(call->values.size(), "byte") +
                              " of codes for " + CountOf(call->num_coded, "element"));
  }
  return Status::Ok();
}

ps::Message AnswerTo(const StockCall& call) {
  ps::Message answer;
  answer.peer = call.from.worker_id;
  answer.meta = call.meta;
  answer.meta.request = false;
  answer.meta.data_types.clear();
  return answer;
}

ps::Message AnswerWith(StockCall* call, ps::Frame values, const std::vector<int32_t>& lengths) {
  ps::Message answer = AnswerTo(*call);
  answer.meta.data_types = {kKeysType, kValuesType, kLengthsType};
  answer.data.push_back(std::move(call->keys));
  answer.data.push_back(std::move(values));
  answer.data.push_back(ps::Frame::Copy(std::as_bytes(std::span(lengths))));
  return answer;
}

}  // namespace

uint64_t StockCall::row(size_t i) const { return KeyAt(keys, i + 1) - KeyAt(keys, 0); }

StockRange StockRangeOf(int32_t rank, int32_t num_servers) {
  constexpr uint64_t kLastKey = std::numeric_limits<uint64_t>::max();
  const uint64_t size = kLastKey / static_cast<uint64_t>(num_servers);
  const uint64_t begin = size * static_cast<uint64_t>(rank);
  return {begin, begin + size};
}

Result<StockCall> ParseStockCall(ps::Message message, const StockRange& range) {
  if (const Status wrong = CheckFrames(message); !wrong.ok()) return wrong;
  StockCall call;
  if (!SplitHead(message.meta.head, &call.layout, &call.dtype)) {
    return Wrong(message, "head " + std::to_string(message.meta.head));
  }
  call.from = {message.peer, message.meta.customer_id};
  call.worker_rank = ps::RankOf(message.peer);
  call.push = message.meta.push;
  call.pull = message.meta.pull || !call.push;  // ps-lite before 2019-09 does not say pull
  call.keys = std::move(message.data[0]);
  call.values = std::move(message.data[1]);
  if (const Status wrong = TakeKeys(message, range, &call); !wrong.ok()) return wrong;
  call.meta = std::move(message.meta);
  return call;
}

std::string DescribeStockCall(const StockCall& call) {
  const std::string what = call.push ? (call.pull ? "push and pull" : "push") : "pull";
  return what + " of key " + std::to_string(call.key) + " from " +
         ps::DescribeId(call.from.worker_id);
}

ps::Message MakeStockAnswer(StockCall* call, ps::Frame values) {
  if (!call->pull) return AnswerTo(*call);
  std::vector<int32_t> lengths(call->keys.size() / sizeof(uint64_t), 0);
  lengths.back() = static_cast<int32_t>(values.size());
  return AnswerWith(call, std::move(values), lengths);
}

ps::Message MakeStockRowsAnswer(StockCall* call, ps::Frame values, uint32_t row_length) {
  std::vector<int32_t> lengths(call->num_rows() + 1, static_cast<int32_t>(row_length));
  lengths.front() = 0;
  return AnswerWith(call, std::move(values), lengths);
}

}  // namespace bs::server
