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
  return {.key = tensor.key,
          .round = exchange.round,
          .partition = exchange.partition,
          .out = exchange.out,
          .role = ps::Role::kServer,
          .rank = exchange.partition.server};
}

namespace {

Status CheckCodes(const PullOf& pull, std::span<const std::byte> codes, const Coding& coding) {
  const CodecParameters& parameters = pull.sum_coding.parameters;
  if (coding != pull.sum_coding) return pull.Wrong("a sum in another coding");
  if (pull.sum_codec->check_codes == nullptr) return Status::Ok();
  const Status checked =
      pull.sum_codec->check_codes(parameters, codes, pull.out.size() / sizeof(float));
  return checked.ok() ? checked : pull.Wrong(checked.message());
}

void DecodeSum(const PullOf& pull, std::span<const std::byte> codes) {
  const codec::Place place{.job = pull.job,
                           .key = pull.key,
                           .round = pull.round,
                           .first_element = pull.partition.offset_bytes / sizeof(float),
                           .rank = codec::kServerRank,
                           .num_workers = pull.num_workers};
  pull.sum_codec->decode(pull.sum_coding.parameters, place, codes.data(), pull.out.data(),
                         pull.out.size() / sizeof(float));
}

}  // namespace

uint64_t SumBytes(const PullOf& pull) {
  if (pull.sum_codec == nullptr) return pull.out.size();
  return pull.sum_codec->encoded_bytes(pull.sum_coding.parameters, pull.out.size() / sizeof(float));
}

Result<std::string> TakeSum(const PullOf& pull, const ps::Message& response) {
  const std::span<const std::byte> sum = PayloadOf(response);
  const uint64_t wanted_bytes = SumBytes(pull);
  if (sum.size() != wanted_bytes) {
    return pull.Wrong(CountOf(sum.size(), "byte") + ", want " + std::to_string(wanted_bytes));
  }
  Result<protocol::DataResponse> body =
      protocol::DecodeResponse(ps::Op::kPull, response.meta.extension.body);
  if (!body.ok()) return pull.Wrong(body.status().message());
  if (pull.sum_codec != nullptr) {
    if (Status wrong = CheckCodes(pull, sum, body.value().coding); !wrong.ok()) return wrong;
    DecodeSum(pull, sum);
    return std::move(body.value().next_layout);
  }
  // The transport may have read it there.
  if (!sum.empty() && sum.data() != pull.out.data()) {
    std::memcpy(pull.out.data(), sum.data(), sum.size());
  }
  return std::move(body.value().next_layout);
}

}  // namespace bs::backend
