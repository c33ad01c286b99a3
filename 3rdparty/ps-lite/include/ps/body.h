// Body: bytes that a message carries for the layers above ps-lite, which does not read them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ps {

// A few bytes lie in the object itself, so that a request costs no allocation for them.
class Body {
 public:
  // Longer bodies take memory.  A push of any numbers fits.
  static constexpr size_t kShortBytes = 111;

  Body() = default;
  explicit Body(std::string_view bytes) { Append(bytes); }

  // Valid until the next change.
  std::string_view bytes() const {
    return long_.empty() ? std::string_view(short_.data(), short_size_) : long_;
  }
  size_t size() const { return bytes().size(); }
  bool empty() const { return bytes().empty(); }
  // Bytes that are not in the object itself.
  size_t memory() const { return long_.size(); }

  void Append(std::string_view bytes) {
    if (long_.empty() && bytes.size() <= kShortBytes - short_size_) {
      bytes.copy(short_.data() + short_size_, bytes.size());
      short_size_ = static_cast<uint8_t>(short_size_ + bytes.size());
      return;
    }
    if (long_.empty()) long_.assign(short_.data(), short_size_);
    short_size_ = 0;
    long_.append(bytes);
  }

  bool operator==(const Body& other) const { return bytes() == other.bytes(); }

 private:
  std::array<char, kShortBytes> short_{};
  uint8_t short_size_ = 0;
  std::string long_{};  // all of them, or none
};

}  // namespace ps
