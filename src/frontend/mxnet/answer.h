// The result of the plug-in's C functions: a code, and in a bs_error the sentence for it.
#pragma once

#include <string>

#include "bytescheduler/c_api.h"

namespace bs::mxnet {

// Values of bs::StatusCode.
constexpr int kCancelled = 3, kResourceExhausted = 9, kInternal = 10;

// Returns `code`.  `error` may be null.
inline int Answer(int code, const std::string& message, bs_error* error) {
  if (error != nullptr) {
    const size_t size = message.copy(error->message, sizeof(error->message) - 1);
    error->message[size] = '\0';
    error->code = code;
  }
  return code;
}

}  // namespace bs::mxnet
