// The plug-in between a stand-in for MXNet's engine and one for ours.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "frontend/mxnet/fake_engine.h"
#include "frontend/mxnet/fake_mxnet.h"
#include "frontend/mxnet/mxnet.h"

inline constexpr size_t kPush = 0, kPull = 1;

class MxnetTest : public testing::Test {
 protected:
  MxnetTest() {
    const bs_mxnet_functions functions = mxnet_.functions();
    EXPECT_EQ(bs_mxnet_open(&worker_, &functions, &plugin_, &error_), 0);
  }
  ~MxnetTest() override {
    EXPECT_EQ(bs_mxnet_pending(plugin_), 0);
    EXPECT_EQ(bs_mxnet_drain(plugin_, 0), 1);
    bs_mxnet_close(plugin_);
    for (const FakeMxnet::Operation& operation : mxnet_.operations) {
      EXPECT_EQ(operation.times_ended, 1) << operation.name;
    }
  }
  int PushPull(int priority = 0, const bs_coding& coding = {}, int joined = 0,
               void* value = nullptr) {
    const bs_mxnet_round round{7,      name_,  priority, &send_, &recv_,  8,
                               coding, joined, value,    0,      nullptr, nullptr};
    return bs_mxnet_push_pull(plugin_, &round, &error_);
  }
  int Joined() { return PushPull(0, {}, 1); }
  int Update(int pushes, int pulls, const bs_rates* rates) {
    const bs_mxnet_update_request request{
        {7, name_, 0, &send_, &recv_, 8, {}, 0, nullptr, 0, nullptr, rates}, pushes, pulls};
    return bs_mxnet_update(plugin_, &request, &error_);
  }
  std::string error_of(size_t index) { return mxnet_[index].error.value_or(""); }
  bool ended(size_t index) { return mxnet_[index].times_ended > 0; }

  FakeMxnet mxnet_;
  bs_worker worker_;
  FakeMxnet::Array send_{{1, 2}}, recv_{{0, 0}};
  const char* name_ = "'fc1'";
  bs_mxnet* plugin_ = nullptr;
  bs_error error_{};
};
