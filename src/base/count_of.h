// Numbers of things in messages.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace bs {

// Returns "1 worker" or "2 workers": `noun` is the singular of a word whose plural ends in s.
template <std::integral Number>
std::string CountOf(Number count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace bs
