// The gate for operations of other shared objects, and the table of functions for them.
#include <gtest/gtest.h>

#include <string>

#include "bytescheduler/c_api.h"
#include "capi/job.h"

namespace bs::test {
namespace {

// A job of one worker, whose gate the test uses.
class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    job_.StartAll();
    std::vector<Floats> values(1, Floats(4, 0.0F));
    BroadcastAll(&job_, 7, &values);
    gate_ = bs_gate_new(job_.workers[0].get());
  }
  ~GateTest() override {
    bs_gate_shut(gate_);
    CloseWorkers(&job_);
    ExpectAllEndedWell(&job_);
    EXPECT_EQ(bs_gate_wait(gate_, 0), 0U);
    bs_gate_free(gate_);
  }
  int Start(uint64_t key, bs_waiter* waiter, bs_error* error) {
    const bs_operation operation = MakePushPull(key, in_, &out_, waiter);
    return bs_gate_start(gate_, &operation, error);
  }

  Job job_{1, 1};
  Floats in_ = Floats(4, 3.0F);
  Floats out_ = Floats(4, 0.0F);
  bs_gate* gate_ = nullptr;
};

TEST_F(GateTest, AnOperationIsPendingUntilItsCallerLeaves) {
  const WaiterPtr waiter(bs_waiter_new(2));
  bs_error error{};
  ASSERT_EQ(Start(7, waiter.get(), &error), 0) << error.message;
  EXPECT_EQ(Await(waiter.get()).code, 0);
  EXPECT_EQ(out_, in_);
  EXPECT_EQ(bs_gate_wait(gate_, 1), 1U);
  bs_gate_leave(gate_);
  EXPECT_EQ(bs_gate_wait(gate_, kPatienceMs), 0U);
}

TEST_F(GateTest, ARefusedOperationIsNotPending) {
  bs_error error{};
  bs_operation operation = bs_operation_init(BS_PUSH_PULL);
  EXPECT_EQ(bs_gate_start(gate_, &operation, &error), BS_INVALID_ARGUMENT);
  EXPECT_EQ(bs_gate_wait(gate_, 0), 0U);
}

TEST_F(GateTest, AShutGateTouchesNoWorker) {
  bs_gate_shut(gate_);
  bs_error error{};
  EXPECT_EQ(Start(7, nullptr, &error), BS_CANCELLED);
  EXPECT_STREQ(error.message, "this worker has left the job");
}

TEST(Table, HasTheFunctionsOfThisHeader) {
  const bs_table* table = bs_table_get();
  bs_error error{};
  EXPECT_EQ(bs_table_check(table, &error), 0);
  EXPECT_EQ(table->library_version(), bs_version());
  EXPECT_EQ(table->gate_start, &bs_gate_start);
  EXPECT_EQ(table->gate_leave, &bs_gate_leave);
}

TEST(Table, AnotherVersionAndAShorterTableAreRefusedWithBothNumbers) {
  bs_table table = *bs_table_get();
  bs_error error{};
  table.size = sizeof(bs_table) + 8;  // a newer library
  EXPECT_EQ(bs_table_check(&table, &error), 0);
  table.size = 8;
  EXPECT_EQ(bs_table_check(&table, &error), BS_FAILED_PRECONDITION);
  EXPECT_STREQ(
      error.message,
      ("the table of bytescheduler's functions has 8 bytes, and this library wants " +
       std::to_string(sizeof(bs_table)) + ": compile it against the installed bytescheduler")
          .c_str());
  table.version = 2;
  EXPECT_EQ(bs_table_check(&table, &error), BS_FAILED_PRECONDITION);
  EXPECT_STREQ(error.message,
               "the table of bytescheduler's functions has version 2, and this library wants "
               "version 1: compile it against the installed bytescheduler");
}

}  // namespace
}  // namespace bs::test
