// Status: names of the codes and the sentence for a person.
#include "base/status.h"

#include <utility>

namespace bs {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "kOk";
    case StatusCode::kInvalidArgument:
      return "kInvalidArgument";
    case StatusCode::kDeadlineExceeded:
      return "kDeadlineExceeded";
    case StatusCode::kCancelled:
      return "kCancelled";
    case StatusCode::kUnavailable:
      return "kUnavailable";
    case StatusCode::kFailedPrecondition:
      return "kFailedPrecondition";
    case StatusCode::kNotFound:
      return "kNotFound";
    case StatusCode::kAlreadyExists:
      return "kAlreadyExists";
    case StatusCode::kPermissionDenied:
      return "kPermissionDenied";
    case StatusCode::kResourceExhausted:
      return "kResourceExhausted";
    case StatusCode::kInternal:
      return "kInternal";
  }
  return "kUnknown";  // a number from the wire may be none of ours
}

Status::Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
  BS_CHECK(code != StatusCode::kOk);
}

Status Status::InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
Status Status::DeadlineExceeded(std::string m) {
  return {StatusCode::kDeadlineExceeded, std::move(m)};
}
Status Status::Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
Status Status::Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
Status Status::FailedPrecondition(std::string m) {
  return {StatusCode::kFailedPrecondition, std::move(m)};
}
Status Status::NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
Status Status::AlreadyExists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }
Status Status::PermissionDenied(std::string m) {
  return {StatusCode::kPermissionDenied, std::move(m)};
}
Status Status::ResourceExhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
Status Status::Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text(StatusCodeName(code_));
  text.append(": ").append(message_);
  return text;
}

}  // namespace bs
