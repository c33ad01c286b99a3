// Bodies of requests for partitions, and checks of the sums that come back.
#include "backend/ps/exchange_body.h"

#include <cstring>
#include <utility>

#include "base/count_of.h"

namespace bs::backend {

protocol::DataRequest BodyOf(const protocol::Tensor& tensor, const Exchange& exchange) {
  const bool counted = tensor.mode == Mode::kAsynchronous;
  return {.key = tensor.key,
          .round = counted ? 0 : exchange.round,
          .push_count = counted ? exchange.round : 0,
          .partition = exchange.partition.index,
          .offset_bytes = exchange.partition.offset_bytes,
          .size_bytes = exchange.partition.size_bytes,
          .dtype = static_cast<uint32_t>(tensor.dtype),
          .mode = static_cast<uint32_t>(tensor.mode),
          .layout_version = tensor.layout_version};
}

std::span<const std::byte> PayloadOf(const ps::Message& message) {
  return message.data.empty() ? std::span<const std::byte>() : message.data.front().bytes();
}

Status PullOf::Wrong(const std::string& what) const {
  return Status::Internal("pull key=" + std::to_string(key) + " round=" + std::to_string(round) +
                          " partition=" + std::to_string(partition.index) + " to " +
                          std::string(ps::NameOf(role)) + " " + std::to_string(rank) +
                          ": answered " + what);
}

PullOf MakePull(const protocol::Tensor& tensor, const Exchange& exchange) {
  return {tensor.key,   exchange.round,    exchange.partition,
          exchange.out, ps::Role::kServer, exchange.partition.server};
}

Result<std::string> TakeSum(const PullOf& pull, const ps::Message& response) {
  const std::span<const std::byte> sum = PayloadOf(response);
  if (sum.size() != pull.out.size()) {
    return pull.Wrong(CountOf(sum.size(), "byte") + ", want " + std::to_string(pull.out.size()));
  }
  Result<protocol::DataResponse> body =
      protocol::DecodeResponse(ps::Op::kPull, response.meta.extension.body);
  if (!body.ok()) return pull.Wrong(body.status().message());
  // The transport may have read it there.
  if (!sum.empty() && sum.data() != pull.out.data()) {
    std::memcpy(pull.out.data(), sum.data(), sum.size());
  }
  return std::move(body.value().next_layout);
}

}  // namespace bs::backend
