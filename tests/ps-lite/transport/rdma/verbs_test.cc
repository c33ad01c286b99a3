// The words and numbers of completions.
#include "transport/rdma/verbs.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <set>

namespace ps::test {
namespace {

using Result = Completion::Result;

TEST(VerbsTest, NumbersMatchLibibverbs) {
  EXPECT_EQ(static_cast<int>(Result::kOk), IBV_WC_SUCCESS);
  EXPECT_EQ(static_cast<int>(Result::kLocalLength), IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(static_cast<int>(Result::kLocalProtection), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(static_cast<int>(Result::kFlushed), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(static_cast<int>(Result::kRemoteInvalid), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(static_cast<int>(Result::kRemoteAccess), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(static_cast<int>(Result::kRemoteOperation), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(static_cast<int>(Result::kRetriesExceeded), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(static_cast<int>(Result::kReceiverNotReady), IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(VerbsTest, EachResultHasItsWords) {
  std::set<std::string_view> words;
  for (const Result result :
       {Result::kOk, Result::kLocalLength, Result::kLocalProtection, Result::kFlushed,
        Result::kRemoteInvalid, Result::kRemoteAccess, Result::kRemoteOperation,
        Result::kRetriesExceeded, Result::kReceiverNotReady, static_cast<Result>(99)}) {
    EXPECT_TRUE(words.insert(NameOf(result)).second) << NameOf(result);
  }
  EXPECT_EQ(NameOf(Result::kRetriesExceeded), "transport retry counter exceeded");
}

}  // namespace
}  // namespace ps::test
