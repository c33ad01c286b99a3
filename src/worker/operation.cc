// The rules of calls, and the messages for calls that break them.
#include "worker/operation.h"

#include <cmath>
#include <functional>
#include <string>

#include "backend/ps/measured_order.h"

namespace bs::worker {
namespace {

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

std::string Bytes(uint64_t count) { return std::to_string(count) + " bytes"; }

Status CheckBroadcast(const std::string& what, const Tensor* tensor, const Operation& operation) {
  const auto code = static_cast<uint32_t>(operation.dtype);
  if (!DTypeFromCode(code)) {
    return Status::InvalidArgument(what + "dtype code " + std::to_string(code) +
                                   " cannot be summed");
  }
  if (tensor != nullptr) return Status::AlreadyExists(what + "the key was broadcast before");
  if (operation.out.size() % SizeOf(operation.dtype) == 0) return Status::Ok();
  return Status::InvalidArgument(what + Bytes(operation.out.size()) +
                                 " are not whole elements of " +
                                 std::string(NameOf(operation.dtype)));
}

Status CheckTwoBit(const std::string& what, DType dtype, float threshold) {
  if (dtype != DType::kFloat32) {
    return Status::InvalidArgument(what + std::string(NameOf(dtype)) +
                                   " cannot be compressed to two bits, only float32");
  }
  if (std::isfinite(threshold) && threshold > 0) return Status::Ok();
  return Status::InvalidArgument(what + "threshold " + std::to_string(threshold) +
                                 ": want a finite number greater than 0");
}

Status CheckPushPull(const std::string& what, const Tensor* tensor, const Operation& operation) {
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
  return operation.threshold == 0 ? Status::Ok()
                                  : CheckTwoBit(what, tensor->dtype, operation.threshold);
}

}  // namespace

Status CheckOperation(Key key, const Tensor* tensor, const Operation& operation) {
  const std::string what =
      (operation.is_broadcast ? "broadcast key=" : "push_pull key=") + std::to_string(key) + ": ";
  if (key >= kOrderHeaderKey) return Status::InvalidArgument(what + "the key is the engine's own");
  return operation.is_broadcast ? CheckBroadcast(what, tensor, operation)
                                : CheckPushPull(what, tensor, operation);
}

}  // namespace bs::worker
