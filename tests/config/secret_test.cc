// Secret files: what is taken, and the words for what is not.
#include "config/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "config/temporary_folder.h"

namespace bs::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SecretTest : public ::testing::Test {
 protected:
  std::string File(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_.path() + "/secret";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  static std::string Refusal(const std::string& path) {
    const Status status = ReadSecret(path).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), StartsWith("BYTESCHEDULER_SECRET_FILE=" + path + ": "));
    return status.message();
  }

  const test::TemporaryFolder folder_;
};

TEST_F(SecretTest, IsTheTextWithoutTheLinesEnd) {
  const Result<std::string> secret = ReadSecret(File("0123456789abcdef 0123\r\n"));
  ASSERT_TRUE(secret.ok()) << secret.status().message();
  EXPECT_EQ(secret.value(), "0123456789abcdef 0123");
}

TEST_F(SecretTest, AMissingFileOrAPathThatIsNoFileIsRefused) {
  EXPECT_THAT(Refusal(folder_.path() + "/none"), HasSubstr("cannot open it: No such file"));
  EXPECT_THAT(Refusal(folder_.path()), HasSubstr("not a file"));
  EXPECT_THAT(Refusal("/dev/null"), HasSubstr("not a file"));
}

TEST_F(SecretTest, AFileThatAllMayReadIsRefused) {
  EXPECT_THAT(Refusal(File("0123456789abcdef", 0644)), HasSubstr("chmod 600"));
  EXPECT_THAT(Refusal(File("0123456789abcdef", 0602)), HasSubstr("chmod 600"));
}

TEST_F(SecretTest, TooLittleOrTooMuchIsRefused) {
  EXPECT_THAT(Refusal(File("")), HasSubstr("a secret of 0 bytes, want at least 16; make one: "));
  EXPECT_THAT(Refusal(File("0123456789abcde\n")), HasSubstr("a secret of 15 bytes"));
  EXPECT_THAT(Refusal(File(std::string((64U << 10U) + 1, 'x'))), HasSubstr("more than 64 KiB"));
}

}  // namespace
}  // namespace bs::config
