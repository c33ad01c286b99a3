#include "server/support.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "codec/two_bit.h"

namespace bs::server {
namespace {

uint16_t HalfOf(int value) {
  if (value == 0) return 0;
  const auto whole = static_cast<unsigned>(value);
  const auto exponent = static_cast<unsigned>(std::bit_width(whole)) - 1;
  const unsigned fraction = (whole - (1U << exponent)) << (10 - exponent);
  return static_cast<uint16_t>(((exponent + 15) << 10) | fraction);
}

uint16_t Bfloat16Of(int value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}

template <typename T>
void Append(std::vector<std::byte>* bytes, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes->insert(bytes->end(), first, first + sizeof(value));
}

void AppendAs(DType dtype, int value, std::vector<std::byte>* bytes) {
  switch (dtype) {
    case DType::kFloat32:
      return Append(bytes, static_cast<float>(value));
    case DType::kFloat64:
      return Append(bytes, static_cast<double>(value));
    case DType::kFloat16:
      return Append(bytes, HalfOf(value));
    case DType::kBfloat16:
      return Append(bytes, Bfloat16Of(value));
    case DType::kUint8:
    case DType::kInt8:
      return Append(bytes, static_cast<uint8_t>(value));
    case DType::kInt32:
      return Append(bytes, static_cast<int32_t>(value));
    case DType::kInt64:
      return Append(bytes, static_cast<int64_t>(value));
  }
}

// With the fields of all ops; the encoder takes those of its own.
protocol::DataRequest BodyOf(const Ask& ask) {
  const bool pushes = ask.op == ps::Op::kPush || ask.op == ps::Op::kPushPull;
  const bool as_it_is = pushes && ask.coding.plain();
  return {.key = ask.key,
          .round = ask.round,
          .push_count = ask.round,
          .optimizer_call = ask.round,
          .turn = ask.round,
          .partition = ask.partition,
          .num_partitions = ask.partition,
          .size_bytes = as_it_is ? ask.payload.size() : ask.size_bytes,
          .tensor_bytes = ask.size_bytes,
          .dtype = static_cast<uint32_t>(ask.dtype),
          .mode = static_cast<uint32_t>(ask.mode),
          .coding = ask.coding,
          .ratio = ask.ratio,
          .layout_version = ask.layout_version,
          .oldest_layout = ask.layout_version,
          .next_layout = ask.next,
          .given_back = ask.given_back,
          .stands_for = ask.stands_for};
}

ps::Extension ExtensionOf(const Ask& ask) {
  ps::Extension extension;
  extension.version = ps::kExtensionVersion;
  extension.op = ask.op;
  extension.sequence =
      ask.sequence != 0 ? ask.sequence : 1000 + 2 * ask.round + (ask.op == ps::Op::kPull ? 1 : 0);
  extension.body = protocol::Encode(ask.op, BodyOf(ask));
  return extension;
}

}  // namespace

std::vector<std::byte> Encode(DType dtype, const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) AppendAs(dtype, value, &bytes);
  return bytes;
}

std::vector<std::byte> Floats(const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  for (const float value : values) Append(&bytes, value);
  return bytes;
}

std::vector<float> ToFloats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<std::byte> ToBytes(const ps::Frame& frame) {
  return {frame.bytes().begin(), frame.bytes().end()};
}

Ask Push(int32_t rank, uint64_t round, std::vector<std::byte> payload) {
  Ask ask;
  ask.op = ps::Op::kPush;
  ask.rank = rank;
  ask.round = round;
  ask.payload = std::move(payload);
  return ask;
}

Ask PushTwoBit(int32_t rank, uint64_t round, float threshold, uint64_t count,
               std::vector<std::byte> words) {
  Ask ask = Push(rank, round, std::move(words));
  ask.size_bytes = count * sizeof(float);
  ask.coding = codec::TwoBitCoding(threshold);
  ask.coding.codec = codec::TwoBitCodec().id;  // with no threshold too
  return ask;
}

Ask PushPull(int32_t rank, uint64_t round, std::vector<std::byte> payload) {
  Ask ask = Push(rank, round, std::move(payload));
  ask.op = ps::Op::kPushPull;
  return ask;
}

Ask Pull(int32_t rank, uint64_t round, uint64_t size_bytes) {
  Ask ask;
  ask.op = ps::Op::kPull;
  ask.rank = rank;
  ask.round = round;
  ask.size_bytes = size_bytes;
  return ask;
}

ps::Message MakeRequest(const Ask& ask) {
  ps::Message message;
  message.peer = ps::WorkerId(ask.rank);
  message.meta.request = true;
  message.meta.push = ask.op == ps::Op::kPush;
  message.meta.pull = ask.op == ps::Op::kPull;
  message.meta.app_id = 0;
  message.meta.customer_id = 3;
  message.meta.timestamp = 5;
  message.meta.priority = ask.priority;
  message.meta.extension = ExtensionOf(ask);
  const std::span<const std::byte> payload = ask.payload;
  if (!payload.empty()) message.data.push_back(ps::Frame::Copy(payload));
  return message;
}

protocol::Call MakeCall(const Ask& ask) {
  protocol::Call call;
  call.worker_id = ps::WorkerId(ask.rank);
  call.worker_rank = ask.rank;
  call.customer_id = 3;
  call.timestamp = 5;
  call.priority = ask.priority;
  call.extension = ExtensionOf(ask);
  call.request = protocol::DecodeRequest(ask.op, call.extension.body).value();
  call.payload = ps::Frame::Copy(std::span<const std::byte>(ask.payload));
  return call;
}

std::function<void(ps::Message)> Outbox::sender() {
  return [this](ps::Message message) { sent_.push_back(std::move(message)); };
}

ps::Message Outbox::Next() {
  if (sent_.empty()) {
    ADD_FAILURE() << "nothing was sent";
    return {};
  }
  ps::Message first = std::move(sent_.front());
  sent_.erase(sent_.begin());
  return first;
}

std::vector<ps::Message> Outbox::All() { return std::exchange(sent_, {}); }

StatusCode CodeOf(const ps::Message& response) {
  return static_cast<StatusCode>(response.meta.extension.status);
}

const std::string& TextOf(const ps::Message& response) { return response.meta.extension.text; }

ps::Op OpOf(const ps::Message& response) { return response.meta.extension.op; }

int32_t RankOf(const ps::Message& response) { return ps::RankOf(response.peer); }

}  // namespace bs::server
