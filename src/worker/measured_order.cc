// Learns, publishes or looks up, and says so.
#include "worker/measured_order.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/count_of.h"
#include "protocol/placement.h"

namespace bs::worker {
namespace {

using core::ReadyOrder;

constexpr size_t kNumberBytes = sizeof(Key) + 2 * sizeof(Priority);

template <typename T>
void Append(T value, std::vector<std::byte>* bytes) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes->push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
T Take(std::span<const std::byte>* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<uint64_t>((*bytes)[i]) << (8 * i);
  *bytes = bytes->subspan(sizeof(T));
  return static_cast<T>(value);
}

std::string Describe(const ReadyOrder::Lesson& lesson) {
  const std::string of = CountOf(lesson.num_learned, "tensor");
  switch (lesson.verdict) {
    case ReadyOrder::Verdict::kRenumbered:
      return "gradients become ready in another order than their priorities say: " +
             std::to_string(lesson.num_moved) + " of " + of +
             " move by more than one place (BYTESCHEDULER_PRIORITY=caller leaves them)";
    case ReadyOrder::Verdict::kCallersIsRight:
      return "the priorities of " + of + " are those of the order in which they become ready";
    case ReadyOrder::Verdict::kAsCalled:
      return "priorities stay: " + of + " become ready as they are called for, which tells nothing";
    case ReadyOrder::Verdict::kUnsteady:
      return "priorities stay: only " + of +
             " come in every step with the same priority, which is not above 0";
  }
  return "";
}

}  // namespace

std::vector<std::byte> EncodeCount(uint64_t count) {
  std::vector<std::byte> bytes;
  Append(count, &bytes);
  return bytes;
}

std::vector<std::byte> Encode(const MeasuredOrder::Numbers& numbers) {
  std::vector<std::byte> bytes;
  bytes.reserve(numbers.size() * kNumberBytes);
  for (const core::Renumbered& number : numbers) {
    Append(number.key, &bytes);
    Append(number.callers, &bytes);
    Append(number.measured, &bytes);
  }
  return bytes;
}

std::optional<uint64_t> DecodeCount(std::span<const std::byte> bytes) {
  const auto count = Take<uint64_t>(&bytes);
  return count <= ReadyOrder::kMostNotes ? std::optional(count) : std::nullopt;
}

MeasuredOrder::Numbers DecodeNumbers(std::span<const std::byte> bytes) {
  MeasuredOrder::Numbers numbers(bytes.size() / kNumberBytes);
  for (core::Renumbered& number : numbers) {
    number.key = Take<Key>(&bytes);
    number.callers = Take<Priority>(&bytes);
    number.measured = Take<Priority>(&bytes);
  }
  return numbers;
}

MeasuredOrder::MeasuredOrder(const OperationContext& context, const Options& options,
                             const Logger& log)
    : context_(context), options_(options), log_(log) {
  context_.fail = [](const Status& status) { return status; };
}

bool MeasuredOrder::Note(const ReadyOrder::Call& call, TimePoint now) {
  if (learning_ == nullptr) return false;
  learning_->Note(call, now);
  if (!learning_->complete()) return false;
  lesson_ = learning_->Learn();
  learning_.reset();
  return true;
}

void MeasuredOrder::Settle(Ended ended) {
  BS_CHECK(learning_ == nullptr && !ended_);
  ended_ = std::move(ended);
  if (options_.alone) {
    End(lesson_.numbers);
  } else if (context_.rank() == 0) {
    Publish();
  } else {
    Fetch();
  }
}

void MeasuredOrder::Publish() {
  value_ = EncodeCount(lesson_.numbers.size());
  Move(kOrderHeaderKey, [this] {
    if (lesson_.numbers.empty()) return End({});
    value_ = Encode(lesson_.numbers);
    Move(kOrderKey, [this] { End(lesson_.numbers); });
  });
}

void MeasuredOrder::Fetch() {
  value_ = EncodeCount(0);
  Move(kOrderHeaderKey, [this] { FetchNumbers(); });
}

void MeasuredOrder::FetchNumbers() {
  const std::optional<uint64_t> count = DecodeCount(value_);
  if (!count || *count == 0) return Finish({});
  value_.assign(*count * kNumberBytes, std::byte{0});
  Move(kOrderKey, [this] { End(DecodeNumbers(value_)); });
}

void MeasuredOrder::Move(Key key, UniqueFunction<void()> moved) {
  protocol::Tensor tensor{.key = key,
                          .dtype = DType::kUint8,
                          .size_bytes = value_.size(),
                          .partition_bytes = options_.partition_bytes,
                          .partitions = {}};
  tensor.partitions = protocol::SplitIntoPartitions(tensor.size_bytes, tensor.partition_bytes,
                                                    protocol::kAlignBytes);
  for (Partition& partition : tensor.partitions) {
    partition.server = context_.backend->DestinationOf(key);
  }
  broadcast_ = std::make_unique<Broadcast>(
      &context_, tensor, value_,
      [this, moved = std::move(moved)](const Result<protocol::Tensor>& outcome) {
        const auto over = std::move(broadcast_);
        if (outcome.ok()) return moved();
        SayNotShared(outcome.status());
        Finish({});
      });
  context_.rank() == 0 ? broadcast_->Publish() : broadcast_->Receive();
}

void MeasuredOrder::SayNotShared(const Status& why) const {
  const std::string text = "priorities stay: worker 0 did not share a measured order: ";
  const bool job_ends =
      why.code() == StatusCode::kCancelled || why.code() == StatusCode::kUnavailable;
  job_ends ? log_.Debug(text + why.message()) : log_.Info(text + why.message());
}

void MeasuredOrder::End(Numbers numbers) {
  const bool decides = options_.alone || context_.rank() == 0;
  if (decides) {
    const bool news = !numbers.empty();
    news ? log_.Info(Describe(lesson_)) : log_.Debug(Describe(lesson_));
  } else {
    log_.Debug([&] { return std::to_string(numbers.size()) + " priorities are worker 0's"; });
  }
  Finish(std::move(numbers));
}

void MeasuredOrder::Finish(Numbers numbers) {
  const Ended ended = std::move(ended_);
  ended(std::move(numbers));
}

}  // namespace bs::worker
