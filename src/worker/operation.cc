// The rules of calls, and the messages for calls that break them.
#include "worker/operation.h"

#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "base/count_of.h"
#include "protocol/limits.h"
#include "reduce/reduce.h"
#include "worker/measured_order.h"

namespace bs::worker {
namespace {

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

std::string Bytes(uint64_t count) { return CountOf(count, "byte"); }

Status CheckParts(const std::string& what, const Operation& operation, uint64_t partition_bytes) {
  if (operation.about.size() > protocol::kMaxAboutBytes) {
    return Status::InvalidArgument(what + Bytes(operation.about.size()) +
                                   " about the key, at most " +
                                   std::to_string(protocol::kMaxAboutBytes) + " are kept");
  }
  const uint64_t size_bytes = operation.out.size();
  if (!operation.about.empty() || size_bytes / protocol::kMaxPartitions < partition_bytes) {
    return Status::Ok();
  }
  return Status::InvalidArgument(
      what + Bytes(size_bytes) + " in partitions of " + Bytes(partition_bytes) + " are more than " +
      std::to_string(protocol::kMaxPartitions) + " partitions; raise BYTESCHEDULER_PARTITION");
}

Status CheckBroadcast(const std::string& what, const Operation& operation,
                      const CheckedWith& with) {
  const auto code = static_cast<uint32_t>(operation.dtype);
  if (!DTypeFromCode(code)) {
    return Status::InvalidArgument(what + "dtype code " + std::to_string(code) +
                                   " cannot be summed");
  }
  if (with.tensor != nullptr) return Status::AlreadyExists(what + "the key was broadcast before");
  if (const Status wrong = with.codecs->Check(operation.coding); !wrong.ok()) {
    return Status::InvalidArgument(what + wrong.message());
  }
  if (operation.out.size() % SizeOf(operation.dtype) == 0) {
    return CheckParts(what, operation, with.partition_bytes);
  }
  return Status::InvalidArgument(what + Bytes(operation.out.size()) +
                                 " are not whole elements of " +
                                 std::string(NameOf(operation.dtype)));
}

// Servers answer updates of an asynchronous key with its weights, and its workers have no rounds in
// common.
Status CheckAsynchronous(const std::string& what, const Coding& coding,
                         const codec::Table& codecs) {
  const auto refused = [&](const std::string& why) {
    return Status::InvalidArgument(what + "an asynchronous key cannot be " +
                                   codecs.Describe(coding) + ": " + why);
  };
  if (coding.feedback > Feedback::kVanilla) {
    return refused(
        "its workers have no learning rate in common; use ef 'vanilla', or a synchronous key");
  }
  // The codec's own way to send sums is no wish of the user.
  if (coding.sums == SumsTravel::kPlain || coding.sums == codecs.Get(coding).sums) {
    return Status::Ok();
  }
  return refused("its weights travel plain; leave out pull, or use a synchronous key");
}

Status CheckCoding(const std::string& what, const protocol::Tensor& tensor, const Coding& coding,
                   const codec::Table& codecs) {
  if (const Status wrong = codecs.Check(coding); !wrong.ok()) {
    return Status::InvalidArgument(what + wrong.message());
  }
  if (tensor.dtype != DType::kFloat32) {
    return Status::InvalidArgument(what + std::string(NameOf(tensor.dtype)) + " cannot be " +
                                   codecs.Describe(coding) + ", only float32");
  }
  const bool is_asynchronous = tensor.mode == Mode::kAsynchronous;
  if (is_asynchronous) {
    if (Status wrong = CheckAsynchronous(what, coding, codecs); !wrong.ok()) return wrong;
  }
  // A synchronous key is cut with its next round.
  const bool is_cut_later = codecs.Get(coding).cuts_keys && !is_asynchronous;
  if (is_cut_later || IsWhole(tensor, coding, codecs)) return Status::Ok();
  const uint64_t unit_bytes = codecs.Get(coding).unit_elements * sizeof(float);
  return Status::InvalidArgument(what + "partitions of " + Bytes(tensor.partition_bytes) +
                                 " cannot be " + codecs.Describe(coding) + ", only multiples of " +
                                 Bytes(unit_bytes));
}

Status CheckFactor(const std::string& what, DType dtype, double factor) {
  if (!std::isfinite(factor) || factor == 0) {
    return Status::InvalidArgument(what + "a sum cannot be multiplied by " +
                                   std::to_string(factor) +
                                   ", only by a finite number that is not 0");
  }
  if (factor == 1 || reduce::CanScale(dtype)) return Status::Ok();
  return Status::InvalidArgument(what + "a sum of " + std::string(NameOf(dtype)) +
                                 " cannot be multiplied by " + std::to_string(factor) +
                                 ", only one of floating point; ask for the sum and divide it");
}

bool IsFinite(const std::optional<double>& rate) { return !rate || std::isfinite(*rate); }

Status CheckPushPull(const std::string& what, const Operation& operation, const CheckedWith& with) {
  const protocol::Tensor* const tensor = with.tensor;
  if (tensor == nullptr) return Status::FailedPrecondition(what + "the key was never broadcast");
  if (operation.mode != tensor->mode) {
    return Status::InvalidArgument(what +
                                   "the key was broadcast in another mode (synchronous or "
                                   "asynchronous)");
  }
  const uint64_t size_bytes = tensor->size_bytes;
  if ((operation.pushed && operation.in.size() != size_bytes) ||
      (operation.pulled && operation.out.size() != size_bytes)) {
    return Status::InvalidArgument(what + Bytes(operation.in.size()) + " in and " +
                                   Bytes(operation.out.size()) + " out, it was broadcast with " +
                                   Bytes(size_bytes));
  }
  if (operation.pushed && operation.pulled && Overlap(operation.in, operation.out)) {
    return Status::InvalidArgument(what + "in and out overlap");
  }
  if (operation.is_value && tensor->dtype != DType::kUint8) {
    return Status::InvalidArgument(what + "it was broadcast with elements of " +
                                   std::string(NameOf(tensor->dtype)) +
                                   ", whose sums change bits; give what is broadcast from any root "
                                   "a key of its own");
  }
  const PushRates& rates = operation.rates;
  if (!IsFinite(rates.learning_rate) || !IsFinite(rates.weight_decay) ||
      !IsFinite(rates.rescale_grad)) {
    return Status::InvalidArgument(what + "learning_rate, wd and rescale_grad must be finite");
  }
  Status wrong_factor = CheckFactor(what, tensor->dtype, operation.factor);
  if (!wrong_factor.ok()) return wrong_factor;
  if (operation.coding.codec == 0) return Status::Ok();
  return CheckCoding(what, *tensor, operation.coding, *with.codecs);
}

}  // namespace

bool IsWhole(const protocol::Tensor& tensor, const Coding& coding, const codec::Table& codecs) {
  const uint64_t unit_bytes = codecs.Get(coding).unit_elements * sizeof(float);
  return tensor.partitions.size() <= 1 || tensor.partition_bytes % unit_bytes == 0;
}

Status CheckOperation(Key key, const Operation& operation, const CheckedWith& with) {
  const std::string what =
      (operation.is_broadcast ? "broadcast key=" : "push_pull key=") + std::to_string(key) + ": ";
  if (key >= kOrderHeaderKey) return Status::InvalidArgument(what + "the key is the engine's own");
  if (operation.gives_back) return Status::Ok();
  return operation.is_broadcast ? CheckBroadcast(what, operation, with)
                                : CheckPushPull(what, operation, with);
}

}  // namespace bs::worker
