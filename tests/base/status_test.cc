// Status and Result: texts for people, and values or reasons.
#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/snapshot.h"

namespace bs {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_TRUE(Status::Ok().ok());
}

TEST(Status, TextIsCodeAndSentence) {
  const Status status = Status::DeadlineExceeded("push key=7 round=12: no response in 5000 ms");
  EXPECT_FALSE(status.ok());
  EXPECT_SNAPSHOT(status.ToString(),
                  "kDeadlineExceeded: push key=7 round=12: no response in 5000 ms");
}

TEST(Status, EachMakerHasItsCodeAndName) {
  const std::pair<Status, std::string> all[] = {
      {Status::InvalidArgument("m"), "kInvalidArgument: m"},
      {Status::DeadlineExceeded("m"), "kDeadlineExceeded: m"},
      {Status::Cancelled("m"), "kCancelled: m"},
      {Status::Unavailable("m"), "kUnavailable: m"},
      {Status::FailedPrecondition("m"), "kFailedPrecondition: m"},
      {Status::NotFound("m"), "kNotFound: m"},
      {Status::AlreadyExists("m"), "kAlreadyExists: m"},
      {Status::PermissionDenied("m"), "kPermissionDenied: m"},
      {Status::ResourceExhausted("m"), "kResourceExhausted: m"},
      {Status::Internal("m"), "kInternal: m"},
  };
  uint32_t code = 1;
  for (const auto& [status, text] : all) {
    EXPECT_EQ(status.ToString(), text);
    EXPECT_EQ(static_cast<uint32_t>(status.code()), code++);  // numbers are part of the wire
  }
}

TEST(Status, CodeWithoutANameIsUnknown) {
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(4711)), "kUnknown");
  EXPECT_EQ(StatusCodeName(StatusCode::kOk), "kOk");
  EXPECT_EQ(Status(static_cast<StatusCode>(4711), "m").ToString(), "kUnknown: m");
}

TEST(StatusDeathTest, OkWithAMessageIsAMistake) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(static_cast<void>(Status(StatusCode::kOk, "fine")), "check failed");
}

TEST(Result, HoldsAValueOrAReason) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(5));
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(*value.value(), 5);
  const Result<int> reason(Status::NotFound("key 3"));
  EXPECT_FALSE(reason.ok());
  EXPECT_EQ(reason.status().code(), StatusCode::kNotFound);
}

TEST(ResultDeathTest, ValueOfAReasonIsAMistake) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Result<int> reason(Status::NotFound("key 3"));
  EXPECT_DEATH(static_cast<void>(reason.value()), "check failed");
}

}  // namespace
}  // namespace bs
