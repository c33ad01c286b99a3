#include "server/optimizer/hosted_updates.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/fake_host.h"

namespace bs::server {
namespace {

// Asks a hosting process, and notes what came of it.
class HostedUpdatesTest : public testing::Test, protected HostedBench {
 protected:
  void Load(const HostedUpdates::Optimizer& optimizer) {
    hosted_.Load(optimizer, &executor, [this](Status status) { Note(std::move(status)); });
    Settle();
  }
  std::vector<float> Update(const HostedUpdates::Optimizer& optimizer,
                            const std::vector<float>& weights, const std::vector<float>& gradient) {
    const std::vector<std::byte> before = Floats(weights);
    const std::vector<std::byte> pushed = Floats(gradient);
    std::vector<std::byte> after(before.size());
    const ServerUpdate update{.key = 7,
                              .about = "about",
                              .dtype = DType::kFloat32,
                              .gradient = pushed,
                              .weights = after,
                              .rates = {}};
    hosted_.Update(optimizer, update, before, &executor,
                   [this](Status status) { Note(std::move(status)); });
    Settle();
    return ToFloats(after);
  }

  std::vector<Status> outcomes_;

 private:
  void Note(Status status) {
    EXPECT_TRUE(executor.IsCurrent());
    outcomes_.push_back(std::move(status));
  }

  HostedUpdates hosted_{host.Updater()};
};

TEST_F(HostedUpdatesTest, NoHostIsThereByDefault) { EXPECT_FALSE(HostedUpdates({}).present()); }

TEST_F(HostedUpdatesTest, AnUpdateBeginsWithTheValueBefore) {
  const auto optimizer = MakePickle("sgd");
  EXPECT_EQ(Update(optimizer, {1, 2}, {10, 20}), (std::vector<float>{11, 22}));
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_TRUE(outcomes_[0].ok());
}

TEST_F(HostedUpdatesTest, AnOptimizerIsLoadedOnceHoweverItIsUsed) {
  const auto first = MakePickle("same");
  Load(first);
  Load(first);
  Update(first, {1}, {1});
  const auto second = MakePickle("same");  // set again: its state starts afresh
  Update(second, {1}, {1});
  Update(second, {1}, {1});
  EXPECT_EQ(host.calls,
            (std::vector<std::string>{"set same", "update 7", "set same", "update 7", "update 7"}));
}

TEST_F(HostedUpdatesTest, ARefusedOptimizerLeavesTheOneBefore) {
  const auto good = MakePickle("good");
  Load(good);
  Load(MakePickle("bad"));
  Update(good, {1}, {1});
  EXPECT_EQ(host.calls, (std::vector<std::string>{"set good", "set bad", "update 7"}));
  ASSERT_EQ(outcomes_.size(), 3u);
  EXPECT_EQ(outcomes_[1].code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(outcomes_[1].message(), "no such class");
  EXPECT_TRUE(outcomes_[2].ok());
}

TEST_F(HostedUpdatesTest, AFailureIsToldAndNothingMore) {
  const auto optimizer = MakePickle("sgd");
  host.fails = "ValueError: nothing there";
  Update(optimizer, {}, {});
  host.throws = true;
  Update(optimizer, {1}, {1});
  host.throws = false;
  EXPECT_EQ(Update(optimizer, {1}, {1}), std::vector<float>{2});
  ASSERT_EQ(outcomes_.size(), 3u);
  EXPECT_EQ(outcomes_[0].code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(outcomes_[0].message(), "ValueError: nothing there");
  EXPECT_EQ(outcomes_[1].message(), "no memory");
  EXPECT_TRUE(outcomes_[2].ok());
}

}  // namespace
}  // namespace bs::server
