// Helpers of the C API's functions: a Status becomes a code, settings become overrides.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "base/guarded.h"
#include "base/metrics.h"
#include "base/status.h"
#include "bytescheduler/c_api.h"

namespace bs::capi {

inline int Return(const Status& status, bs_error* error) {
  if (error != nullptr) {
    const size_t size = std::min(status.message().size(), sizeof(error->message) - 1);
    error->code = static_cast<int>(status.code());
    std::memcpy(error->message, status.message().data(), size);
    error->message[size] = '\0';
  }
  return static_cast<int>(status.code());
}

inline Status Tell(const Result<Metrics>& metrics, bs_metric_row row, void* context) {
  if (!metrics.ok()) return metrics.status();
  for (const auto& [id, value] : metrics.value().numbers()) {
    row(context, id.first.c_str(), id.second, value);
  }
  return Status::Ok();
}

inline std::map<std::string, std::string> Overrides(const bs_setting* settings,
                                                    size_t num_settings) {
  std::map<std::string, std::string> overrides;
  for (size_t i = 0; i < num_settings; ++i) overrides[settings[i].name] = settings[i].value;
  return overrides;
}

}  // namespace bs::capi
