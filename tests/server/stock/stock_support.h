// Requests for values as stock MXNet workers send them, and what is in the answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "server/stock/stock_request.h"
#include "server/support.h"

namespace bs::server {

inline ps::Frame FrameOf(const std::vector<uint64_t>& keys) {
  return ps::Frame::Copy(std::as_bytes(std::span(keys)));
}

struct StockAsk {
  int32_t rank = 0;
  bool push = false;
  bool pull = false;
  std::vector<uint64_t> keys = {3};
  std::vector<std::byte> values = {};
  DType dtype = DType::kFloat32;
  StockLayout layout = StockLayout::kDense;
  int32_t customer_id = 0;
  int32_t timestamp = 0;
  int32_t priority = 0;
};

inline ps::Message StockRequest(const StockAsk& ask) {
  ps::Message message;
  message.peer = ps::WorkerId(ask.rank);
  message.meta.request = true;
  message.meta.push = ask.push;
  message.meta.pull = ask.pull;
  message.meta.app_id = 0;
  message.meta.customer_id = ask.customer_id;
  message.meta.timestamp = ask.timestamp;
  message.meta.priority = ask.priority;
  const auto layout = static_cast<int32_t>(ask.layout);
  const auto dtype = static_cast<int32_t>(ask.dtype);
  message.meta.head = (layout + dtype) * (layout + dtype + 1) / 2 + dtype;
  message.data.push_back(FrameOf(ask.keys));
  message.data.push_back(ps::Frame::Copy(std::span<const std::byte>(ask.values)));
  return message;
}

inline StockAsk StockPush(int32_t rank, std::vector<std::byte> values) {
  return {.rank = rank, .push = true, .values = std::move(values)};
}

inline StockAsk StockPull(int32_t rank) { return {.rank = rank, .pull = true}; }

inline StockAsk StockRows(StockAsk ask, const std::vector<uint64_t>& rows) {
  ask.layout = StockLayout::kRows;
  for (const uint64_t row : rows) ask.keys.push_back(ask.keys.front() + row);
  return ask;
}

// `words` are the codes of `count` elements.
inline StockAsk StockTwoBit(int32_t rank, uint64_t count, std::vector<std::byte> words) {
  StockAsk ask = StockPush(rank, std::move(words));
  ask.layout = StockLayout::kTwoBit;
  ask.keys.insert(ask.keys.begin(), count);
  return ask;
}

inline StockCall MakeStockCall(const StockAsk& ask) {
  return std::move(ParseStockCall(StockRequest(ask), StockRangeOf(0, 1)).value());
}

inline std::vector<float> FloatsIn(const ps::Message& answer) {
  return ToFloats(answer.data.at(1).bytes());
}

inline std::vector<int32_t> LengthsIn(const ps::Message& answer) {
  std::vector<int32_t> lengths(answer.data.at(2).size() / sizeof(int32_t));
  std::memcpy(lengths.data(), answer.data[2].bytes().data(), answer.data[2].size());
  return lengths;
}

// Whether it ends the process of the stock worker that gets it.
inline bool IsEnd(const ps::Message& answer) { return answer.meta.pull && answer.data.empty(); }

}  // namespace bs::server
