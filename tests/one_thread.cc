// Part of each test program that does not say THREADS: fails it if it starts a second thread.
#include <gtest/gtest.h>
#include <sys/single_threaded.h>

namespace bs {
namespace {

class OneThread : public ::testing::Environment {
 public:
  void TearDown() override {
    EXPECT_TRUE(__libc_single_threaded)
        << "a thread was begun: add THREADS where CMake names this program";
  }
};

const ::testing::Environment* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

}  // namespace
}  // namespace bs
