// The table of settings: the name of each, its description for people, and its field.
//
// Constant; for any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "config/config.h"

namespace bs::config {

// The fallback of a setting that must be given.
inline constexpr std::string_view kRequired = "required";

using SettingField = std::variant<std::string Config::*, int32_t Config::*, bool Config::*,
                                  uint64_t Config::*, Duration Config::*>;

// A setting: its description for people, its field, and its bounds.
struct SettingRow {
  SettingInfo info;
  SettingField field;
  // Inclusive, in the words of the setting; empty: no bound.
  std::string_view smallest = "";
  std::string_view largest = "";
  // The value at the start where the setting is `auto`; empty: it takes no `auto`.
  std::string_view automatic = "";
};

inline constexpr std::string_view kAutomatic = "auto";

// In the order in which people read it.
std::span<const SettingRow> SettingRows();

}  // namespace bs::config
