// A stand-in for the engine behind the C API: keeps what it is asked, answers when told to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bytescheduler/c_api.h"

// The worker that the plug-in gets.  Not thread-safe.
struct bs_worker {
  std::vector<bs_operation> requests;
  std::vector<std::optional<bs_rates>> rates;  // of asynchronous keys' operations
  std::vector<std::string> failures;
  std::string refusal;  // if set, operations are refused with it
  bool takes_visits = true;
  bool holds_visits = false;  // until they are run
  std::vector<std::function<void()>> visits;
  uint64_t least_kept_bytes = UINT64_MAX;
  // Returns what a use of the memory holds.
  std::function<std::shared_ptr<void>(const bs_kept_memory& memory)> use_memory;

  // Answers requests[index]: the sum is the input itself.
  void Push(size_t index, int code = 0, const char* message = "") const;
  void Pull(size_t index, int code = 0, const char* message = "") const;
};
