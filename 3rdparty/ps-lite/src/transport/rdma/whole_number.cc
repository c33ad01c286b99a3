// Reads a whole decimal number.
#include "transport/rdma/whole_number.h"

#include <charconv>
#include <system_error>

namespace ps {

std::optional<int> WholeNumber(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace ps
