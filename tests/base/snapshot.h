// Sentences of the product that a test holds, and that `make cpp-snapshots` rewrites.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

// Expects that `text` is equal to `snapshot`, a string literal in the source file itself.
#define EXPECT_SNAPSHOT(text, snapshot) EXPECT_PRED_FORMAT2(::bs::EqualsSnapshot, text, snapshot)

namespace bs {

// Returns the text as a literal of C++, on one line.
inline std::string AsLiteral(std::string_view text) {
  constexpr char kDigits[] = "01234567";
  std::string literal = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '\n') {
      literal += "\\n";
    } else if (character == '"' || character == '\\') {
      (literal += '\\') += character;
    } else if (byte < 0x20 || byte == 0x7f) {
      ((literal += '\\') += kDigits[byte >> 6]) += kDigits[byte >> 3 & 7];
      literal += kDigits[byte & 7];
    } else {
      literal += character;
    }
  }
  return literal + '"';
}

// tests/_support/rewrite_snapshots.py reads the last line of the failure.
inline testing::AssertionResult EqualsSnapshot(const char* expression, const char*,
                                               std::string_view text, std::string_view snapshot) {
  if (text == snapshot) return testing::AssertionSuccess();
  return testing::AssertionFailure() << expression << " is not the snapshot\n  "
                                     << AsLiteral(snapshot) << "\nbut\n  " << AsLiteral(text);
}

}  // namespace bs
