// Too few descriptors: errors name the limit, and a thread that gets none throws them.
#include "base/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/guarded.h"
#include "base/loop_thread.h"

namespace bs {
namespace {

// Bounds the descriptors of this process while it lives.
class BoundedFiles {
 public:
  explicit BoundedFiles(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit bound{.rlim_cur = most, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &bound);
  }
  BoundedFiles(const BoundedFiles&) = delete;
  BoundedFiles& operator=(const BoundedFiles&) = delete;
  ~BoundedFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CheckDescriptors, FewAreFree) { EXPECT_TRUE(CheckDescriptors(4, "this test").ok()); }

TEST(CheckDescriptors, TheErrorNamesTheLimit) {
  const BoundedFiles bounded(24);
  EXPECT_TRUE(CheckDescriptors(1, "this test").ok());
  const Status few = CheckDescriptors(40, "a server");
  EXPECT_EQ(few.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Has(few.message(), "a server needs 40 more")) << few.message();
  EXPECT_TRUE(Has(few.message(), "of the 24 that a process may have (ulimit -n)"));
  EXPECT_TRUE(Has(few.message(), "ulimit -n 4096")) << few.message();
}

TEST(SystemError, NamesTheLimitOfFilesAlone) {
  const BoundedFiles bounded(24);
  EXPECT_TRUE(Has(SystemError(EMFILE), "this process may have 24 (ulimit -n)"));
  EXPECT_TRUE(Has(SystemError(ENFILE), "fs.file-max"));
  EXPECT_FALSE(Has(SystemError(ENOENT), "ulimit"));
}

TEST(LoopThreadWithoutDescriptors, ThrowsAnErrorThatNamesTheLimit) {
  const Status made = Guarded([] {
    // One is missing.  A sanitizer needs a pipe while it looks at an object.  The bound ends before
    // the exception is looked at, for which it needs a pipe too.
    const int next = dup(STDERR_FILENO);
    close(next);
    const BoundedFiles bounded(static_cast<rlim_t>(next) + LoopThread::kDescriptors - 1);
    const LoopThread thread("test");
    return Status::Ok();
  });
  EXPECT_EQ(made.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Has(made.message(), "ulimit -n")) << made.message();
}

}  // namespace
}  // namespace bs
