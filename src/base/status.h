// Status and Result: how an operation ended, as a value, with one sentence for a person.
//
// Both are values and safe to copy between threads.  An ok Status allocates no memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace bs {

// The numbers are part of the C API and of the wire (PROTOCOL.md); never renumber.
enum class StatusCode : uint32_t {
  kOk = 0,
  kInvalidArgument = 1,     // the caller's value is wrong; nothing was done
  kDeadlineExceeded = 2,    // a peer did not respond in time
  kCancelled = 3,           // the object was closed first
  kUnavailable = 4,         // a peer was lost or left the job
  kFailedPrecondition = 5,  // right call, wrong moment (a key never initialised)
  kNotFound = 6,
  kAlreadyExists = 7,
  kPermissionDenied = 8,
  kResourceExhausted = 9,
  kInternal = 10,  // a bug of this library
};

// Returns "kInvalidArgument" and so on, or "kUnknown" for a number that is no code.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  // REQUIRES: code != kOk.
  Status(StatusCode code, std::string message);

  static Status Ok() { return {}; }
  static Status InvalidArgument(std::string m);
  static Status DeadlineExceeded(std::string m);
  static Status Cancelled(std::string m);
  static Status Unavailable(std::string m);
  static Status FailedPrecondition(std::string m);
  static Status NotFound(std::string m);
  static Status AlreadyExists(std::string m);
  static Status PermissionDenied(std::string m);
  static Status ResourceExhausted(std::string m);
  static Status Internal(std::string m);

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "ok", or "kDeadlineExceeded: push key=7 ...".
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value, or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose, so that `return value;` and `return Status::NotFound(...)` both work.
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    BS_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& value() {
    BS_CHECK(value_.has_value());
    return *value_;
  }
  const T& value() const {
    BS_CHECK(value_.has_value());
    return *value_;
  }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace bs
