// Readers of a user's options, for the codecs.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "codec/codec.h"

namespace bs::codec {

// Sets `number` to the whole of `text`.  False, and any number, if the text is more or something
// else.
template <typename Number>
bool ReadAll(std::string_view text, Number* number) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [rest, error] = std::from_chars(begin, end, *number);
  return error == std::errc() && rest == end;
}

// "k 'x' of gradient compression: want ".
inline Status WrongOption(const Option& option, const std::string& wanted) {
  return Status::InvalidArgument(std::string(option.name) + " '" + std::string(option.value) +
                                 "' of gradient compression: want " + wanted);
}

}  // namespace bs::codec
