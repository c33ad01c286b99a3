// Codings in the C API: from names and options, as text, and what makes no sense.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/snapshot.h"
#include "base/status.h"
#include "bytescheduler/c_api.h"
#include "capi/job.h"

namespace bs::test {
namespace {

int Append(const bs_coding& coding, std::string* text, bs_error* error) {
  const auto append = [](void* context, const char* said) {
    *static_cast<std::string*>(context) += said;
  };
  return bs_coding_describe(&coding, append, text, error);
}

std::string Describe(const bs_coding& coding) {
  std::string text;
  EXPECT_EQ(Append(coding, &text, nullptr), 0);
  return text;
}

TEST(CApiCoding, IsMadeOfANameAndOptionsAndDescribed) {
  const bs_coding coding = CodingOf("2bit", "threshold", "0.25");
  EXPECT_EQ(coding.codec, 1U);
  EXPECT_EQ(coding.parameter_bytes, 4U);
  EXPECT_EQ(coding.pull, 0U);
  EXPECT_EQ(Describe(coding), "compressed to two bits with threshold 0.25");
  EXPECT_EQ(Describe({}), "not compressed");
  EXPECT_EQ(Describe({99, 2, 0, 0, {1, 2}}), "compressed by codec 99");
  bs_coding without{};
  ASSERT_EQ(bs_coding_parse("2bit", nullptr, 0, &without, nullptr), 0);
  EXPECT_EQ(Describe(without), "compressed to two bits with threshold 0.5");
}

TEST(CApiCoding, TellsThatTheRestOfCodesIsKept) {
  const bs_coding coding = CodingOf("onebit", "ef", "corrected");
  EXPECT_EQ(coding.feedback, 2U);
  EXPECT_EQ(coding.pull, 1U);
  EXPECT_EQ(Describe(coding), "compressed to onebit, ef corrected");
}

TEST(CApiCoding, TellsTheBytesThatTravelBothWays) {
  uint64_t pushed = 0;
  uint64_t pulled = 0;
  const bs_coding onebit = CodingOf("onebit", "scaling", "True");
  ASSERT_EQ(bs_coding_sizes(&onebit, 65536 * 4, &pushed, &pulled, nullptr), 0);
  EXPECT_EQ(pushed, 8196U);
  EXPECT_EQ(pulled, 8196U);
  const bs_coding two_bit = CodingOf("2bit", "threshold", "1");
  ASSERT_EQ(bs_coding_sizes(&two_bit, 65536 * 4, &pushed, &pulled, nullptr), 0);
  EXPECT_EQ(pushed, 65536U / 4);
  EXPECT_EQ(pulled, 65536U * 4);
  const bs_coding topk = CodingOf("topk", "k", "0.01");
  ASSERT_EQ(bs_coding_sizes(&topk, 65536 * 4, &pushed, &pulled, nullptr), 0);
  EXPECT_EQ(pushed, 655U * 6);
  EXPECT_EQ(pulled, 655U * 6);
  const bs_coding none{};
  ASSERT_EQ(bs_coding_sizes(&none, 12, &pushed, &pulled, nullptr), 0);
  EXPECT_EQ(pushed, 12U);
  EXPECT_EQ(pulled, 12U);
}

TEST(CApiCoding, HasNoBytesOfACodecThatIsNotKnown) {
  const bs_coding unknown{99, 0, 0, 0, {}};
  uint64_t pushed = 1;
  uint64_t pulled = 2;
  bs_error error{};
  EXPECT_EQ(bs_coding_sizes(&unknown, 4, &pushed, &pulled, &error),
            static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_SNAPSHOT(error.message, "codec=99 is none that is known here");
  EXPECT_EQ(pushed + pulled, 3U);
}

TEST(CApiCoding, EqualCodingsHaveEqualBytes) {
  bs_coding coding;
  std::memset(&coding, 0x55, sizeof(coding));
  ASSERT_EQ(bs_coding_parse("2bit", nullptr, 0, &coding, nullptr), 0);
  const bs_coding same = CodingOf("2bit", "threshold", "0.50");
  EXPECT_EQ(std::memcmp(&coding, &same, sizeof(coding)), 0);
  const bs_coding other = CodingOf("2bit", "threshold", "0.25");
  EXPECT_NE(std::memcmp(&coding, &other, sizeof(coding)), 0);
}

TEST(CApiCoding, RefusedSettingsLeaveTheCodingUnchanged) {
  const bs_setting option{"threshold", "-1"};
  bs_coding coding = CodingOf("2bit", "threshold", "2");
  bs_error error{};
  for (const char* const type : {static_cast<const char*>(nullptr), "1bit", "2bit"}) {
    EXPECT_EQ(bs_coding_parse(type, &option, 1, &coding, &error),
              static_cast<int>(StatusCode::kInvalidArgument));
    EXPECT_NE(std::string(error.message), "");
  }
  EXPECT_SNAPSHOT(error.message,
                  "threshold -1 of gradient compression: want a finite number greater than 0");
  EXPECT_EQ(Describe(coding), "compressed to two bits with threshold 2");
}

TEST(CApiCoding, MoreParametersThanThereIsRoomForAreRefused) {
  const bs_coding coding{1, BS_CODING_BYTES + 1, 0, 0, {}};
  std::string text;
  bs_error error{};
  EXPECT_EQ(Append(coding, &text, &error), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_SNAPSHOT(error.message, "a coding with 25 bytes of parameters: want at most 24");
  EXPECT_EQ(text, "");
}

TEST(CApiCoding, ACodingThatIsUnknownHarmsOnlyItsCall) {
  Job job(1, 1);
  job.StartAll();
  ASSERT_FALSE(HasFatalFailure());
  std::vector<Floats> values(1, Floats(8));
  BroadcastAll(&job, 1, &values);
  bs_worker* const worker = job.workers[0].get();
  const Floats in(8, 1);
  Floats out(8);
  const WaiterPtr waiter(bs_waiter_new(2));
  EXPECT_EQ(PushPull(worker, 1, in, &out, waiter.get(), {1, BS_CODING_BYTES + 1, 0, 0, {}}),
            static_cast<int>(StatusCode::kInvalidArgument));
  ASSERT_EQ(PushPull(worker, 1, in, &out, waiter.get(), {99, 0, 0, 0, {}}), 0);
  const bs_error error = Await(waiter.get());
  EXPECT_EQ(error.code, static_cast<int>(StatusCode::kInvalidArgument)) << error.message;
  EXPECT_NE(std::string(error.message).find("codec=99"), std::string::npos) << error.message;
  const WaiterPtr again(bs_waiter_new(2));
  ASSERT_EQ(PushPull(worker, 1, in, &out, again.get(), CodingOf("2bit", "threshold", "1")), 0);
  EXPECT_EQ(Await(again.get()).code, 0);
  EXPECT_EQ(out, in);
  CloseWorkers(&job);
  ExpectAllEndedWell(&job);
}

}  // namespace
}  // namespace bs::test
