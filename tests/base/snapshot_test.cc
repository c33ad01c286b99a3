// A snapshot that differs says so in the words that tests/_support/rewrite_snapshots.py reads.
#include "base/snapshot.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <string>

namespace bs {
namespace {

TEST(Snapshot, AnEqualTextPasses) { EXPECT_SNAPSHOT(std::string("worker 1"), "worker 1"); }

TEST(Snapshot, AnotherTextFailsWithBothAsLiterals) {
  const std::string text = "a \"worker\"\n\x01\\";
  EXPECT_NONFATAL_FAILURE(EXPECT_SNAPSHOT(text, "a server"),
                          "text is not the snapshot\n"
                          "  \"a server\"\n"
                          "but\n"
                          "  \"a \\\"worker\\\"\\n\\001\\\\\"");
}

}  // namespace
}  // namespace bs
