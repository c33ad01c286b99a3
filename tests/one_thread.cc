// Part of programs that never have a second thread (ONE_THREAD): fails those that had one.
#include <gtest/gtest.h>
#include <sys/single_threaded.h>

namespace bs {
namespace {

class OneThread : public ::testing::Environment {
 public:
  void TearDown() override {
    EXPECT_TRUE(__libc_single_threaded)
        << "a thread was begun: take ONE_THREAD away where CMake names this program";
  }
};

const ::testing::Environment* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

}  // namespace
}  // namespace bs
