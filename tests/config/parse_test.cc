// How texts of settings are parsed, and which are refused.
#include "config/parse.h"

#include <gtest/gtest.h>

#include <array>

#include "config/config.h"

namespace bs {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(IsAddress, TakesPortsAndHostsWithPorts) {
  for (const char* const text :
       {"0", "18600", "65535", "localhost:18600", "10.0.0.2:0", "[::1]:18600", "a-b.example:1"}) {
    EXPECT_TRUE(config::IsAddress(text)) << text;
  }
}

TEST(IsAddress, RefusesTheRest) {
  for (const char* const text : {"", "yes", "-1", "65536", ":18600", "localhost:", "localhost",
                                 "::1:18600", "[]:1", "http://a:1", "a b:1", "a:1 ", "1e3"}) {
    EXPECT_FALSE(config::IsAddress(text)) << text;
  }
}

TEST(ParseBytes, TakesPowersOf1024) {
  for (const auto& [text, want] :
       std::to_array<std::pair<const char*, uint64_t>>({{"0", 0},
                                                        {"1048576", 1 << 20},
                                                        {"12B", 12},
                                                        {"512K", 512 << 10},
                                                        {"512KB", 512 << 10},
                                                        {"512KiB", 512 << 10},
                                                        {"4M", 4 << 20},
                                                        {"4MB", 4 << 20},
                                                        {"4MiB", 4 << 20},
                                                        {"3G", 3ULL << 30},
                                                        {"3GB", 3ULL << 30},
                                                        {"3GiB", 3ULL << 30},
                                                        {"18446744073709551615", UINT64_MAX}})) {
    const Result<uint64_t> value = ParseBytes(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(value.value(), want) << text;
  }
}

TEST(ParseBytes, RefusesTextThatIsNotExactlyANumberOfBytes) {
  for (const char* const text : {"", "8Q", "-1", "+1", "1.5M", " 1", "1 ", "1M ", "0x10", "M",
                                 "1mib", "18446744073709551616", "17179869184G", "1e6"}) {
    const Result<uint64_t> value = ParseBytes(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(value.status().message(), "want bytes, such as 8388608 or 8MiB");
  }
}

TEST(ParseDuration, TakesSecondsUnlessTheUnitIsSaid) {
  for (const auto& [text, want] :
       std::to_array<std::pair<const char*, Duration>>({{"5", seconds(5)},
                                                        {"0", seconds(0)},
                                                        {"0.5", milliseconds(500)},
                                                        {"5s", seconds(5)},
                                                        {"500ms", milliseconds(500)},
                                                        {"1.5m", seconds(90)},
                                                        {"2m", minutes(2)},
                                                        {"1h", minutes(60)}})) {
    const Result<Duration> value = ParseDuration(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(value.value(), want) << text;
  }
}

TEST(ParseDuration, RefusesTextThatIsNotExactlyATime) {
  for (const char* const text : {"", "s", "-1s", "5 s", "1d", "1.2.3", ".", "1e3", "inf", "nan",
                                 "99999999999999999999h", "0x1"}) {
    const Result<Duration> value = ParseDuration(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().message(), "want a time, such as 5, 0.5, 500ms, 5s or 2m");
  }
}

TEST(ParseFlag, TakesTheUsualWords) {
  for (const char* const text : {"1", "true", "yes", "on"}) {
    EXPECT_EQ(config::ParseFlag(text), std::optional(true)) << text;
  }
  for (const char* const text : {"0", "false", "no", "off"}) {
    EXPECT_EQ(config::ParseFlag(text), std::optional(false)) << text;
  }
  for (const char* const text : {"", "2", "TRUE", "y", "1|true", "|"}) {
    EXPECT_EQ(config::ParseFlag(text), std::nullopt) << text;
  }
}

TEST(ParseCount, TakesWholeNumbersOnly) {
  EXPECT_EQ(config::ParseCount("42").value(), 42);
  EXPECT_EQ(config::ParseCount("-1").value(), -1);
  for (const char* const text : {"", "4.0", "4a", " 4", "99999999999999999999"}) {
    EXPECT_FALSE(config::ParseCount(text).ok()) << text;
  }
}

TEST(IsOneOf, TakesWholeWordsOnly) {
  EXPECT_TRUE(config::IsOneOf("b", "a|b|c"));
  EXPECT_TRUE(config::IsOneOf("c", "a|b|c"));
  EXPECT_FALSE(config::IsOneOf("", "a|b|c"));
  EXPECT_FALSE(config::IsOneOf("a|b", "a|b|c"));
}

TEST(Write, ItCanBeReadAgain) {
  EXPECT_EQ(config::ParseFlag(config::Write(true)), true);
  EXPECT_EQ(config::ParseFlag(config::Write(false)), false);
  EXPECT_EQ(config::ParseCount(config::Write(int32_t{-7})).value(), -7);
  EXPECT_EQ(ParseBytes(config::Write(uint64_t{1} << 40U)).value(), uint64_t{1} << 40U);
  EXPECT_EQ(config::Write(Duration(1500)), "1500ns");
  EXPECT_EQ(config::Write(std::string("text")), "text");
}

TEST(NearestName, FindsASlipAndNotAnotherName) {
  constexpr auto kKnown = std::to_array<std::string_view>({"PARTITION", "CREDIT"});
  EXPECT_EQ(config::NearestName("CREDITS", kKnown), "CREDIT");
  EXPECT_EQ(config::NearestName("PARTTIION", kKnown), "PARTITION");
  EXPECT_EQ(config::NearestName("SOMETHING_ELSE", kKnown), "");
}

}  // namespace
}  // namespace bs
