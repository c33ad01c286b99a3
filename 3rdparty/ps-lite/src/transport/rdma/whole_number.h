// Reads a whole decimal number.
#pragma once

#include <optional>
#include <string_view>

namespace ps {

// Returns the number that the text is, or nothing if the text is anything else.
std::optional<int> WholeNumber(std::string_view text);

}  // namespace ps
