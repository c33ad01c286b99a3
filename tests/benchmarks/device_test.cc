// The device of benchmarks.replay: layers in the order of the calls, each as long as it is told.
#include "device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "frontend/mxnet/fake_mxnet.h"
#include "sim/sim_executor.h"

namespace {

using bs::TimePoint;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class DeviceTest : public testing::Test {
 protected:
  static bs_device_layer Layer(int64_t ms) {
    bs_device_layer layer{};
    layer.duration_ns = milliseconds(ms) / bs::Duration(1);
    return layer;
  }
  // Registers a layer; returns the number of its operation.
  size_t Call(bs_device_layer layer) {
    layer.reads = &weight_;
    layer.writes = &gradient_;
    EXPECT_EQ(device_.Run(layer), 0);
    return mxnet_.operations.size() - 1;
  }
  size_t Call(int64_t ms) { return Call(Layer(ms)); }
  size_t Write(uint64_t floats, float value) {
    bs_device_layer layer = Layer(20);
    layer.writes_floats = floats;
    layer.value = value;
    return Call(layer);
  }
  // Lets a layer read `values` where it should read this one.
  uint64_t WrongOf(std::vector<float> values, float expected) {
    weight_.values = std::move(values);
    bs_device_layer layer = Layer(1);
    layer.reads_floats = weight_.values.size();
    layer.expected = expected;
    mxnet_.Run(Call(layer));
    clock_.RunUntil(clock_.Now() + milliseconds(2));
    return device_.wrong();
  }
  void RunUntil(int64_t ms) { clock_.RunUntil(TimePoint{} + milliseconds(ms)); }
  bool Ended(size_t index) { return mxnet_[index].times_ended > 0; }

  bs::sim::SimClock clock_{1};
  bs::sim::SimExecutor thread_{&clock_};
  FakeMxnet mxnet_;
  FakeMxnet::Array weight_{{0}}, gradient_{{0, 0, 0}};
  Device device_{&thread_, mxnet_.functions()};
};

TEST_F(DeviceTest, ALayerEndsWhenItsTimeIsOver) {
  const size_t layer = Call(20);
  mxnet_.Run(layer);
  RunUntil(19);
  EXPECT_FALSE(Ended(layer));
  RunUntil(20);
  EXPECT_TRUE(Ended(layer));
  EXPECT_EQ(mxnet_[layer].error, std::nullopt);
}

TEST_F(DeviceTest, LayersRunInTheOrderOfTheCallsWhateverIsReadyFirst) {
  const size_t first = Call(20), second = Call(10);
  mxnet_.Run(second);
  RunUntil(15);
  EXPECT_FALSE(Ended(second)) << "the one before waits for its weight";
  mxnet_.Run(first);
  RunUntil(35);
  EXPECT_TRUE(Ended(first));
  EXPECT_FALSE(Ended(second));
  RunUntil(45);
  EXPECT_TRUE(Ended(second));
}

TEST_F(DeviceTest, DelaysOfATimerDoNotAddUp) {
  const size_t first = Call(20), second = Call(20);
  mxnet_.Run(first);
  mxnet_.Run(second);
  RunUntil(1);
  clock_.Skip(milliseconds(29));  // the first ends at 30
  RunUntil(39);
  EXPECT_TRUE(Ended(first));
  EXPECT_FALSE(Ended(second));
  RunUntil(40);
  EXPECT_TRUE(Ended(second));
}

TEST_F(DeviceTest, ALayerThatWaitedBeginsWhenItsWeightIsThere) {
  const size_t first = Call(20), second = Call(20);
  mxnet_.Run(first);
  RunUntil(50);
  mxnet_.Run(second);
  RunUntil(69);
  EXPECT_FALSE(Ended(second));
  RunUntil(70);
  EXPECT_TRUE(Ended(second));
}

TEST_F(DeviceTest, TheGradientIsWrittenBeforeTheLayerEnds) {
  const size_t layer = Write(2, 7.0F);
  RunUntil(10);
  EXPECT_THAT(gradient_.values, ElementsAre(0, 0, 0)) << "it is not the layer's before it runs";
  mxnet_.Run(layer);
  RunUntil(30);
  ASSERT_TRUE(Ended(layer));
  EXPECT_THAT(gradient_.values, ElementsAre(7, 7, 0));
}

TEST_F(DeviceTest, AGradientThatHasNoMemoryIsAnErrorOfItsArray) {
  gradient_.fails = true;
  const size_t layer = Write(2, 7.0F);
  mxnet_.Run(layer);
  RunUntil(30);
  EXPECT_THAT(mxnet_[layer].error.value_or(""), HasSubstr("out of luck"));
}

TEST_F(DeviceTest, CountsLayersThatReadAWrongSum) {
  EXPECT_EQ(WrongOf(std::vector<float>(600, 3), 3), 0u);
  EXPECT_EQ(WrongOf(std::vector<float>(600, 2), 3), 1u);
  std::vector<float> last_piece_missing(600, 3);
  last_piece_missing.back() = 2;
  EXPECT_EQ(WrongOf(last_piece_missing, 3), 2u);
  std::vector<float> piece_missing(600, 3);
  std::fill_n(piece_missing.begin() + 200, 256, 2.0F);
  EXPECT_EQ(WrongOf(piece_missing, 3), 3u);
}

TEST_F(DeviceTest, AnOperationThatMxnetSkipsTakesNoTime) {
  const size_t first = Call(20), second = Call(20);
  mxnet_.Run(second);
  RunUntil(5);
  mxnet_.Skip(first);
  RunUntil(20);
  EXPECT_TRUE(Ended(second)) << "it was there at 0";
}

TEST_F(DeviceTest, AnOperationThatMxnetRefusesIsReportedAndTakesNoTime) {
  mxnet_.pushes_left = 0;
  EXPECT_EQ(device_.Run(Layer(1)), -1);
  mxnet_.pushes_left = 1;
  const size_t next = Call(20);
  mxnet_.Run(next);
  RunUntil(20);
  EXPECT_TRUE(Ended(next));
}

}  // namespace
